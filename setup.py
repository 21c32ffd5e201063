"""Puts the configs, which lie at the top level, and py.typed into the wheel; all else is in pyproject.toml."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["codea1", "codea1.*"]), "codea1.configs"],
    package_dir={"codea1.configs": "configs"},
    package_data={"codea1": ["py.typed"]},
)
