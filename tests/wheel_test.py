"""The wheel by itself: built, unpacked elsewhere, and its commands run in an empty folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory) -> Path:
    """The installed wheel, without what it depends on, which this Python has."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # the build leaves files beside what it builds
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(source)], check=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(source)], check=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(folder / "installed"), str(wheel)], check=True)
    return folder / "installed"


def test_the_wheel_has_all_modules_and_configs(unpacked):
    files = subprocess.run(
        ["git", "ls-files", "codea1", "configs"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    expected = {name if name.startswith("codea1") else f"codea1/{name}" for name in files.stdout.split()}
    assert {str(path.relative_to(unpacked)) for path in unpacked.glob("codea1/**/*.py")} - expected == set()
    assert {name for name in expected if not (unpacked / name).exists()} == set()


def run(unpacked: Path, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "codea1", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_the_demo_begins_from_the_wheel_in_an_empty_folder(unpacked, tmp_path):
    assert "train a Code LLM and a Test LLM against each other" in run(unpacked, tmp_path)
    short = ["--config.sft.steps=2", "--config.validation.samples=1", "--config.data.validation.limit=2"]
    run(unpacked, tmp_path, "sft", "--config=tiny:world=blind,steps=1", "--workdir=sft", *short)
    config = "--config=tiny:world=blind,steps=1,sft=sft"
    run(unpacked, tmp_path, "train", config, "--workdir=run", *short, "--config.data.test.limit=2")
    assert (tmp_path / "run" / "metrics.jsonl").exists()
    assert "pass@1" in run(unpacked, tmp_path, "report", "run")


def test_a_command_that_does_not_exist_is_told():
    done = subprocess.run([sys.executable, "-m", "codea1", "trian"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: codea1 has no command 'trian'; codea1 --help lists them.\n"
