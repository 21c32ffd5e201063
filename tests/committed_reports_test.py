"""Each report that the documentation quotes is what the code writes today from the rows that are kept beside it.

The pictures are not drawn: another Matplotlib draws other pixels.
"""

import tarfile
from pathlib import Path

import pytest

from codea1.lab.study import report
from codea1.lab.study.declaration import read_study
from codea1.lab.study.experiments import PAPER, collected, read_run
from codea1.lab.study.figures import figures
from codea1.lab.study.report import markdown, of_each_run, runs_table
from codea1.lab.study.results import Results
from codea1.lab.study.tables import tables
from tests.conftest import ROOT

RESULTS = ROOT / "results"


@pytest.mark.parametrize(
    ("name", "folder"),
    [(name, name) for name in ("demo", "real_searched", "real_gpu", "coder")] + [("real", "study_real")],
)
def test_the_report_of_a_study(name: str, folder: str):
    study, results = read_study(f"studies/{name}.toml"), list(Results(str(ROOT / "studies" / f"{name}.results.gz")))
    filled = tables(study, results)
    written = markdown(study, filled, list(dict(figures(study, results, filled))))
    assert written.splitlines() == (RESULTS / folder / "report.md").read_text().splitlines()


def test_the_tables_of_the_tiny_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with tarfile.open(RESULTS / "tables_tiny" / "runs.tar.xz") as archive:
        archive.extractall("runs/tables", filter="data")
    committed = (RESULTS / "tables_tiny" / "report.md").read_text().splitlines()
    _, *names = next(line for line in committed if line.startswith("| metric | ")).strip("| ").split(" | ")
    runs = [read_run(f"runs/tables/{name}") for name in names]
    assert {Path(run.name).name for run in runs} == {each.name for each in Path("runs/tables").iterdir()}
    results = collected(runs)
    filled = tables(PAPER, results)
    # Ten thousand resamples of each metric of 34 runs take most of a minute: three runs stand for all.
    monkeypatch.setattr(report, "runs_table", lambda _: "EACH RUN")
    drawn = list(dict(figures(PAPER, results, filled)))
    written = markdown(PAPER, filled, drawn, of_each_run(runs)).splitlines()
    assert written == [*committed[: written.index("EACH RUN")], "EACH RUN"]
    few = [0, 7, len(runs) - 1]
    cells = [line.strip("| ").split(" | ") for line in committed[written.index("EACH RUN") :]]
    again = [line.strip("| ").split(" | ") for line in runs_table([runs[i].folder for i in few]).splitlines()]
    of_few = [[row[0], *(row[i + 1] for i in few)] for row in cells]
    assert again == [row for row in of_few if set(row[1:]) != {"-"}]
