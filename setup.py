"""Puts the configs, which lie at the top level, into the wheel; all else is in pyproject.toml."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["codea1", "codea1.*"]), "codea1.configs"],
    package_dir={"codea1.configs": "configs"},
)
