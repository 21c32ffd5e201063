"""A run that is watched from its files while it goes on."""

import io
import threading

from rich.console import Console

from codea1.runs.folder import RunFolder
from codea1.runs.metrics import MetricsWriter
from codea1.watch import watch


def watched(folder: RunFolder) -> list[str]:
    """The lines that watching prints, until the run ends."""
    shown = io.StringIO()
    watch(str(folder.path), every=0.01, console=Console(file=shown, width=200))
    return shown.getvalue().splitlines()


def test_steps_are_shown_as_they_come_until_the_last(tmp_path):
    folder = RunFolder.open(str(tmp_path), {"steps": 4, "sft": {"steps": 9}})
    writer = MetricsWriter(folder)
    lines: list[str] = []
    watching = threading.Thread(target=lambda: lines.extend(watched(folder)))
    watching.start()  # before there is anything
    for step in range(5):
        writer.write(step, {"code/reward": step / 10, "test/validity": 0.5})
    watching.join(timeout=30)
    assert not watching.is_alive()
    assert lines[-1].startswith("step 4/4  code reward 0.400  validity 0.500")


def test_a_finished_run_is_one_line_with_its_warnings(tmp_path):
    folder = RunFolder.open(str(tmp_path), {"steps": 40, "sft": {"steps": 9}})
    with MetricsWriter(folder) as writer:
        writer.write(0, {"validation/code_pass_at_1": 0.22})
        writer.write(1, {"validation/code_pass_at_1": 0.82, "validation/test_mul": 0.5})
        for step in range(2, 41):
            writer.write(step, {"code/reward": 0.5, "code/entropy": 1.0 if step < 20 else 0.01})
    line, warning = watched(folder)
    assert line == "step 40/40  validation at step 1: pass@1 82.0% (before: 22.0%), Mul 50.0%  code reward 0.500"
    assert "its entropy collapsed" in warning


def test_a_warm_start_has_columns_of_its_own(tmp_path):
    folder = RunFolder.open(str(tmp_path), {"steps": 40, "sft": {"steps": 2}})
    with MetricsWriter(folder) as writer:
        writer.write(1, {"cross_entropy": 3.0, "tokens_per_second": 1000.0})
        writer.write(2, {"cross_entropy": 2.0, "tokens_per_second": 2000.0})
    assert watched(folder) == ["step 2/2  cross entropy 2.000  target tokens/s 2,000"]
