"""Notebooks as they are committed, with the outputs of a run, and the one that trains."""

import ast
import importlib
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.conftest import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_reads_without_being_run(path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    outputs = [output for cell in cells for output in cell.outputs]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert path.stat().st_size < 500_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_notebook_imports_is_there(path):
    cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    nodes = list(ast.walk(ast.parse(re.sub(r"^( *)%.*$", r"\1pass", "\n".join(cells), flags=re.MULTILINE))))
    own = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module.startswith("codea1")]
    assert own
    for node in own:
        assert not [each.name for each in node.names if not hasattr(importlib.import_module(node.module), each.name)]


def execute(name: str, place: Path, seconds: int = 300) -> list:
    """What the cells of a notebook print and show when they run in a folder; errors end the test."""
    notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    NotebookClient(notebook, timeout=seconds, resources={"metadata": {"path": str(place)}}).execute()
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


@pytest.mark.parametrize(("name", "place"), [("tables", "."), ("training_dynamics", "notebooks")])
def test_a_notebook_reads_the_run_of_make_train_from_the_root_and_from_its_folder(name, place, tmp_path, monkeypatch):
    with tarfile.open(ROOT / "results" / "study_real" / "code_a1.tar.xz") as archive:
        archive.extractall(tmp_path / "runs" / "tiny", filter="data")
    (only,) = (tmp_path / "runs" / "tiny").iterdir()
    only.rename(only.with_name("code_a1"))
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("CODEA1_RUN", raising=False)
    assert not [output for output in execute(name, tmp_path / place) if output.get("name") == "stderr"]


def test_the_quickstart_stores_the_run_that_the_demo_page_quotes():
    cells = nbformat.read(ROOT / "notebooks" / "quickstart.ipynb", as_version=4).cells
    printed = "".join(output.get("text", "") for cell in cells for output in cell.get("outputs", ()))
    (before, after) = re.search(r"^Code pass@1 +(\S+) \[.*?\] +(\S+) \[", printed, re.MULTILINE).groups()
    assert f"pass@1 went from {before} to {after}" in " ".join((ROOT / "docs" / "demo.md").read_text().split())


def test_the_quickstart_trains_tells_and_exports(tmp_path, monkeypatch):
    given = {"CODEA1_STEPS": "1", "CODEA1_SFT_STEPS": "1", "CODEA1_QUESTIONS": "4", "CODEA1_FOLDER": str(tmp_path)}
    for name, value in (given | {"PYTHONPATH": str(ROOT)}).items():
        monkeypatch.setenv(name, value)
    outputs = execute("quickstart", ROOT, seconds=900)
    assert any("image/png" in output.get("data", {}) for output in outputs)
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    assert "asked in steps" in printed
    assert "qwen2, 4 layers of width 128" in printed
    assert (tmp_path / "exported" / "code" / "model.safetensors").exists()
    monkeypatch.setenv("CODEA1_RUN", f"{tmp_path}/code_a1")
    assert any("tests were never passed" in output.get("text", "") for output in execute("mistake_book", tmp_path))


def test_no_page_says_that_the_package_is_where_it_is_not():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "codea1").rglob("*.py")]
    assert not [page for page in pages if re.search(r"pip install ['\"]?codea1(?!-)\b", page.read_text())]


def test_make_address_leaves_no_other_address(tmp_path):
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    (old,) = re.findall(r'NAMED = "https://github.com/(.*?)"', (ROOT / "docs" / "site_hooks.py").read_text())
    for name in listed.stdout.splitlines():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    subprocess.run(["make", "address", "REPOSITORY=somebody/else"], cwd=tmp_path, capture_output=True, check=True)
    left = [name for name in listed.stdout.splitlines() if old.encode() in (tmp_path / name).read_bytes()]
    notebook = (tmp_path / "notebooks" / "quickstart.ipynb").read_text().replace('\\"', '"')
    assert not left
    assert 'NAMED = "https://github.com/somebody/else"' in (tmp_path / "docs" / "site_hooks.py").read_text()
    assert '"CODEA1_REPOSITORY", "https://github.com/somebody/else"' in notebook
