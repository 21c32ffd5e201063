"""A run folder that somebody sent: each reader shows its files harmlessly, or refuses one in a sentence."""

import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from rich.console import Console

from codea1 import watch
from codea1.lab.report.run_report import report_run
from codea1.lab.runs.story import explain
from codea1.lab.study.report import report_runs
from codea1.runtime.errors import BadInput, print_error
from tests.explain_test import claim, code_row
from tests.explain_test import test_row as suite_row

STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
EVIL = "\x1b]0;title\x07\x1b[31mred\u202eback\x9b2J\r</script><script>alert(1)</script><img src=x>[red]x[/]|![a](b)"
DEEP = "[" * 100_000 + "]" * 100_000
UNLIKE = [None, EVIL, 1, -1.5, 1e308, 10**400, float("inf"), True, [], [1], {}, {EVIL: EVIL}, ...]
CONFIG = {"method": "code_a1", "seed": 0, "steps": 1, "sft": {"steps": 1}}
CONFIG["game"] = {
    "mistake_book": True,
    "history_size": 8,
    "book_cap": 9,
    "book_policy": "frequency",
    "reward": "official",
}
METRICS = {"step": 1, "code/reward": 0.5, "test/hidden_kill_rate": 0.5}
SHARES = {"mean": 0.5, "low": 0.0, "high": 1.0, "per_question": [0.0, 1.0]}
EVALUATION = {"step": 1, "split": "test", "questions": 2, "question_ids": ["a", "b"], "metrics": {"x": SHARES}}
ROWS = [
    code_row(1, 0, history=[{"test": "assert f(1) == 2", "verdict": "pass"}], shaped_reward=0.25, checkpoint=None),
    suite_row(1, 0, [claim("f(1)", "2", "fail")]),
]


def read(workdir: Path) -> str:
    """Has every reader read a run as commands do; returns what they wrote. Raises what is no BadInput."""
    (workdir / "story.html").unlink(missing_ok=True)
    shown = io.StringIO()
    readers: list[Callable[[], object]] = [
        lambda: report_run(str(workdir)),
        lambda: report_runs([str(workdir)], None),
        lambda: watch.watch(str(workdir), 0.0, Console(file=shown)),
        lambda: explain(str(workdir)),
        lambda: explain(str(workdir), html_file=str(workdir / "story.html")),
    ]
    for reader in readers:
        try:
            reader()
        except BadInput as error:
            print_error(error)
    written = [file.read_text() for name in ("report.md", "*.html") for file in workdir.glob(name)]
    return "".join([shown.getvalue(), *written])


def put(workdir: Path, config: Any = CONFIG, metrics: Any = METRICS, evaluation: Any = EVALUATION, rows: Any = ROWS):
    """Writes a run as anybody can."""
    for folder in ("evaluations", "samples"):
        (workdir / folder).mkdir(parents=True, exist_ok=True)
    (workdir / "config.json").write_text(json.dumps(config))
    (workdir / "metrics.jsonl").write_text(json.dumps(metrics) + "\n")
    (workdir / "evaluations" / "after.json").write_text(json.dumps(evaluation))
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (workdir / "samples" / "step_000001.jsonl.zst").write_bytes(zstandard.compress(lines.encode()))


def changed(value: Any, replace: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
    """Yields copies of a JSON value in which a value, at any depth, is one of its replacements; ... for none."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        for other in (*replace(item), *changed(item, replace)):
            copy = value.copy()
            copy[key] = other
            if other is ...:
                del copy[key]
            yield copy


def evil(value: Any) -> Any:
    """Returns a JSON value with every text in it evil, and none of what decides how it is read."""
    if isinstance(value, dict):
        return {key: item if key in ("player", "method") else evil(item) for key, item in value.items()}
    return (
        [evil(item) for item in value] if isinstance(value, list) else EVIL + value if isinstance(value, str) else value
    )


def test_what_a_runs_files_say_neither_steers_a_terminal_nor_becomes_markup(
    tmp_path: Path, capsys: pytest.CaptureFixture
):
    put(tmp_path / "run", rows=evil(ROWS))
    found = read(tmp_path / "run") + "".join(capsys.readouterr())
    assert "alert(1)" in found
    assert r"\x1b]0;title\x07" in found
    assert "[red]x[/]" in found
    assert not STEERS.search(found)
    assert not re.search("<script>alert|<img", (tmp_path / "run" / "report.html").read_text())
    assert "<img" not in (tmp_path / "run" / "story.html").read_text()
    for parts in (
        {"config": evil(CONFIG)},
        {"metrics": {**METRICS, EVIL: 1.0}},
        {"evaluation": evil(EVALUATION)},
        {"evaluation": {**EVALUATION, "metrics": {EVIL: SHARES}}},
    ):
        put(tmp_path / "other", **parts)
        written, (out, err) = read(tmp_path / "other"), capsys.readouterr()
        assert not STEERS.search(written + out + err)
        assert not re.search("<script>alert|<img src=x>", written)


@pytest.mark.parametrize(
    "name", ["config.json", "metrics.jsonl", "evaluations/after.json", "samples/step_000001.jsonl.zst"]
)
def test_what_is_nested_too_deep_is_named(tmp_path: Path, capsys: pytest.CaptureFixture, name: str):
    put(tmp_path)
    content = f'{{"step": {DEEP}}}\n{{}}\n'.encode()
    (tmp_path / name).write_bytes(zstandard.compress(content) if name.endswith(".zst") else content)
    read(tmp_path)
    assert re.search(rf"error: \S*{name}\W", capsys.readouterr().err)


@pytest.mark.parametrize("part", ["config", "metrics", "evaluation", "rows"])
def test_a_value_of_another_kind_is_read_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str):
    """Anything but a BadInput would end the test."""
    monkeypatch.setattr("codea1.lab.report.figures.draw", lambda *_: b"")  # drawing takes long, and sees numbers alone
    whole = {"config": CONFIG, "metrics": METRICS, "evaluation": EVALUATION, "rows": ROWS}[part]
    variants = list(changed(whole, lambda _: iter(UNLIKE)))
    assert len(variants) > 30
    for variant in variants:
        put(tmp_path, **{part: variant})
        read(tmp_path)
