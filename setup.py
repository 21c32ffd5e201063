"""Puts configs and the paper's study, which lie at the top level, data and templates into the wheel."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["codea1", "codea1.*"]), "codea1.configs", "codea1.studies"],
    package_dir={"codea1.configs": "configs", "codea1.studies": "studies"},
    package_data={
        "codea1": ["py.typed"],
        "codea1.lab.report": ["*.html"],
        "codea1.studies": ["paper.toml"],
        "codea1.lab.siege": ["*.toml", "forgeries/*.toml"],
    },
)
