import io

import pytest
from rich.console import Console

from codea1.training import progress
from codea1.training.progress import Progress

METRICS = {
    "code/reward": 0.5, "test/reward": 0.25, "code/pass_rate_new": 0.75, "test/validity": 0.125, "book/size": 1234,
    "perf/tokens_per_second": 5678.9, "code/entropy": 0.1,
}  # fmt: skip


def console(terminal: bool) -> Console:
    options = {"force_terminal": terminal, "width": 100, "color_system": None, "legacy_windows": False}
    return Console(file=io.StringIO(), _environ={}, **options)  # whatever terminal the tests run in


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.now = 0.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


def run(out: Console, steps: range, total: int, **options: int) -> list[str]:
    with Progress(total, steps.start - 1, console=out, **options) as shown:
        for step in steps:
            shown.update(step, METRICS)
    return out.file.getvalue().splitlines()


def test_without_a_terminal_a_line_every_k_steps_and_at_the_end():
    lines = run(console(False), range(1, 12), 11, every=5)
    assert [line.split("  ")[0] for line in lines] == ["step 5/11", "step 10/11", "step 11/11"]
    assert "code reward 0.500  test reward 0.250  pass rate 0.750  validity 0.125  book size 1,234" in lines[0]
    assert "tokens/s 5,679" in lines[0]


def test_a_line_stays_one_line_however_long_and_is_printed_as_it_is():
    out = console(False)
    text = "assert f([a], '[/b]') == [bold]" * 20
    with Progress(1, console=out) as shown:
        shown.print(text)
    assert out.file.getvalue() == text + "\n"


def test_what_was_not_measured_is_left_out():
    out = console(False)
    with Progress(1, console=out) as shown:
        shown.update(1, {"code/reward": float("nan"), "test/reward": None, "book/size": 0})
    assert out.file.getvalue() == "step 1/1  book size 0\n"


def test_time_left_does_not_count_the_first_step_which_compiles(monkeypatch: pytest.MonkeyPatch):
    clock, out = Clock(monkeypatch), console(False)
    with Progress(5002, 1000, console=out) as shown:
        for step, now in ((0, 100.0), (1001, 500.0), (1002, 502.0), (1003, 505.0)):
            clock.now = now
            shown.update(step, {})
    assert out.file.getvalue().splitlines() == [
        "step 0/5002",
        "step 1001/5002",
        "step 1002/5002  2:13:20 left",
        "step 1003/5002  2:46:38 left",
    ]


@pytest.mark.parametrize("terminal", [False, True])
def test_the_last_validation_is_shown_with_its_step_and_what_it_was_before_training(terminal):
    out = console(terminal)
    with Progress(9, 3, console=out) as shown:
        shown.remember(0, {"validation/code_pass_at_1": 0.207, "validation/test_mul": None})
        shown.remember(3, {"validation/code_pass_at_1": 0.5, "validation/test_mul": 0.25})
        shown.update(4, {"code/reward": 0.5})
    assert "validation at step 3: pass@1 50.0% (before: 20.7%), Mul 25.0%" in out.file.getvalue()
    with shown:
        shown.update(5, {"validation/code_pass_at_1": 0.75})  # of a method without a Test LLM
    assert "validation at step 5: pass@1 75.0% (before: 20.7%)" in out.file.getvalue()


def test_on_a_terminal_prints_stay_whole_above_the_bar(capsys: pytest.CaptureFixture):
    out = console(True)
    with Progress(3, console=out) as shown:
        shown.note("compiling ...")
        shown.update(1, METRICS)
        shown.print("a message")
        print("a plain print")
        shown.update(2, {"code/reward": 0.875})
        shown.note("evaluating ...")
    text = out.file.getvalue()
    for part in ("compiling ...", "evaluating ...", "a message\n", "a plain print\n", "tokens/s", "5,679", "0.875"):
        assert part in text
    bar, titles, values = text.splitlines()[-4:-1]  # the last view stays, without a note
    assert ("2/3" in bar, "validity" in titles, "0.875" in values) == (True, True, True)
    assert capsys.readouterr().out == ""


def test_an_error_gives_the_terminal_back():
    out = console(True)
    with pytest.raises(KeyError), Progress(3, console=out):
        raise KeyError
    assert out.file.getvalue().count("\x1b[?25l") == out.file.getvalue().count("\x1b[?25h") == 1  # cursor hidden, shown
