"""requirements.lock, which `make lock` writes, against pyproject.toml, which it comes from."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def direct_dependencies() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    locked = [extras[extra] for extra in extras if extra != "parity"]  # it states its own versions
    found = [Requirement(line) for lines in (project["dependencies"], *locked) for line in lines]
    return [each for each in found if each.name != project["name"]]  # an extra may have others in it


@pytest.fixture(scope="module")
def lock() -> list[Requirement]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return [Requirement(line) for line in lines if not line.startswith("#")]


def test_each_package_has_one_exact_version_for_all_pythons(lock: list[Requirement]):
    names = [canonicalize_name(requirement.name) for requirement in lock]
    assert len(set(names)) == len(names)
    assert [str(requirement) for requirement in lock if [s.operator for s in requirement.specifier] != ["=="]] == []


def test_each_direct_dependency_is_locked_at_a_version_in_its_range(lock: list[Requirement]):
    versions = {canonicalize_name(requirement.name): next(iter(requirement.specifier)).version for requirement in lock}
    locked = {str(direct): versions.get(canonicalize_name(direct.name)) for direct in direct_dependencies()}
    wrong = {
        direct: version
        for direct, version in locked.items()
        if version is None or not Requirement(direct).specifier.contains(version, prereleases=True)
    }
    assert wrong == {}, "`make lock` writes it again"


def test_a_python_that_is_too_old_is_told_before_anything_is_made(tmp_path: Path):
    old = tmp_path / "python3.10"
    old.write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'import sys; sys.version_info = (3, 10, 13); exec(sys.argv[1])' \"$2\""
    )
    old.chmod(0o755)
    command = ["make", "train", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "error: codea1 needs Python 3.11, 3.12 or 3.13" in done.stderr
    assert not (tmp_path / "venv").exists()
