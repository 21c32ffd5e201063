import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codea1.game.asserts import Mark
from codea1.lab.report.tables import LEGEND
from codea1.lab.runs.story import BookLine, explain, most_improved, read_story, story_page
from codea1.runs.folder import RunFolder
from codea1.runs.samples import Samples
from codea1.runtime.errors import BadInput, visible
from codea1.storage import json_lines

HOSTILE = [
    "</pre><script>alert(1)</script>",
    '"><img src=x onerror="alert(1)">',
    "<!-- --> ]]> &lt;b&gt; <style>*{display:none}</style>",
    "\x1b[2J\x1b]0;title\x07 [red]markup[/red] [/]",
    "if admin:\u202e  # \u2066",
    "\ud800 lone",
    "\u2028\x85\x00",
]
CONFIG = {"method": "code_a1", "seed": 0, "game": {"mistake_book": True, "history_size": 8}}


def code_row(step: int, solution: int, program: str = "def f(a):\n    return a", **changes: Any) -> dict[str, Any]:
    parts = {"suites": [1.0], "generated_pass_rate": 1.0, "history_pass_rate": None, "golden_pass_rate": None}
    row = {
        **{"step": step, "player": "code", "question_id": "q/1", "solution": solution},
        **{"prompt": "Write f.", "text": program},
        **{"program": program, "program_valid": True, "history": [], "golden": [], "reward": 0.5, "masked": ""},
        **{"reward_parts": parts, "advantage": 0.25, "selected": True},
    }
    return {**row, **changes}


def claim(call: str, truth: str, verdict: str | None, mark: str = "right", **changes: Any) -> dict[str, Any]:
    source = f"assert {call} == {truth}"
    return {"source": source, "call": call, "mark": mark, "detail": "", "truth": truth, "verdict": verdict, **changes}


def test_row(step: int, solution: int, asserts: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    row = {
        **{"step": step, "player": "test", "question_id": "q/1", "solution": solution, "suite": 0, "text": "asserts"},
        **{"asserts": asserts, "reward": 0.75, "masked": "", "advantage": -1.5, "selected": False},
        "reward_parts": {"validity": 1.0, "adversarial": 0.5, "penalty": 0.0},
    }
    return {**row, **changes}


test_row.__test__ = False


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Two meetings: a test enters the book twice over, then is passed once and another enters."""
    folder = RunFolder.open(str(tmp_path / "run"), CONFIG)
    samples = Samples(folder)
    first = [
        code_row(1, 0),
        test_row(1, 0, [claim("f(1)", "2", "fail"), claim("f(2)", "2", "pass")]),
        code_row(1, 1, passes_check=False),
        test_row(1, 1, [claim("f(1)", "2", "error"), claim("f(0)", "1", None, mark="wrong answer")]),
        {**code_row(1, 0), "question_id": "q/2"},
    ]
    history = [{"test": "assert f(1) == 2", "verdict": "pass"}]
    missed = [{"test": "assert f(1) == 2", "verdict": "fail"}]
    second = [
        code_row(3, 0, history=history),
        test_row(3, 0, [claim("f([3])", "[4]", "timeout")]),
        code_row(3, 1, history=missed, program_valid=False, reward=None, masked="infra"),
        test_row(3, 1, [claim("f(9)", "10", "fail")]),
    ]
    samples.write(1, first)
    samples.write(2, [{**code_row(2, 0), "question_id": "q/2"}])
    samples.write(3, second)
    return folder


def test_a_story_has_every_meeting_and_the_book_made_again(run: RunFolder):
    story = read_story(run, "q/1")
    assert [meeting.step for meeting in story.meetings] == [1, 3]
    assert story.prompt == "Write f."
    first, second = story.meetings
    assert [len(solution.suites) for solution in first.solutions] == [1, 1]
    assert first.book == (BookLine("assert f(1) == 2", 0, 2),)
    # The invalid program of step 3 teaches the book nothing.
    assert second.book == (BookLine("assert f(1) == 2", 2, 1), BookLine("assert f([3]) == [4]", 0, 1))
    assert not story.note


@pytest.mark.parametrize(
    ("form", "call", "truth", "test"),
    [
        ("sorted", "f([2, 1])", "[1, 2]", "assert sorted(f([2, 1])) == [1, 2]"),
        ("within < 0.001", "f(2)", "0.5", "assert abs(f(2) - 0.5) < 0.001"),
        ("raises ValueError", "f(-1)", "True", "with pytest.raises(ValueError): f(-1)"),
        ("list", "Solution().f(1)", "[1]", "assert list(Solution().f(1)) == [1]"),
    ],
)
def test_the_book_is_made_again_of_tests_in_all_forms(tmp_path: Path, form: str, call: str, truth: str, test: str):
    folder = RunFolder.open(str(tmp_path / "run"), CONFIG)
    samples = Samples(folder)
    samples.write(1, [code_row(1, 0), test_row(1, 0, [claim(call, truth, "fail", form=form)])])
    samples.write(2, [code_row(2, 0, history=[{"test": test, "verdict": "pass"}])])
    first, second = read_story(folder, "q/1").meetings
    assert (first.book, second.book) == ((BookLine(test, 0, 1),), (BookLine(test, 1, 0),))


def test_thoughts_are_told(tmp_path: Path, capsys: pytest.CaptureFixture):
    folder = RunFolder.open(str(tmp_path / "run"), CONFIG)
    suite = test_row(1, 0, [], text="<think>\nCounting [red]sheep")
    Samples(folder).write(1, [code_row(1, 0, text="<think>\nIdentity?\n</think>\n\ndef f(a): ..."), suite])
    explain(folder.path, "q/1", None, "")
    told = capsys.readouterr().out
    for part in ("thought:", "Identity?", "thought, and did not end:", "Counting [red]sheep"):
        assert part in told


def test_a_book_that_the_samples_do_not_lead_to_is_left_out_and_said(run: RunFolder):
    Samples(run).write(3, [code_row(3, 0, history=[{"test": "assert f(7) == 7", "verdict": "pass"}])])
    story = read_story(run, "q/1")
    assert [meeting.book is None for meeting in story.meetings] == [False, True]
    assert "left out from step 3 on" in story.note


@pytest.mark.parametrize(
    ("reward", "third", "told"), [("official", 2, True), ("official", 1, False), ("strict", 1, True)]
)
def test_the_book_is_made_again_with_the_order_of_the_reward(reward: str, third: int, told: bool, tmp_path: Path):
    """f(2) failed more often than f(1) when both were replayed, and equally often in the third meeting."""
    game = {"mistake_book": True, "history_size": 1, "reward": reward}
    samples = Samples(folder := RunFolder.open(str(tmp_path / "run"), {**CONFIG, "game": game}))
    samples.write(1, [code_row(1, 0), test_row(1, 0, [claim(f"f({n})", "2", "fail") for n in (1, 2, 2)])])
    samples.write(2, [code_row(2, 0, history=[{"test": "assert f(2) == 2", "verdict": "pass"}])])
    samples.write(3, [code_row(3, 0, history=[{"test": f"assert f({third}) == 2", "verdict": "fail"}])])
    assert [meeting.book is not None for meeting in read_story(folder, "q/1").meetings] == [True, True, told]


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"game": {"mistake_book": False}}, ""),
        ({"method": "golden"}, ""),
        ({"game": {"mistake_book": True, "book_total_cap": 2000}}, "depends on all of them"),
        ({"game": {"mistake_book": True, "history_size": 8, "book_policy": "reward"}}, "by reward"),
    ],
)
def test_a_book_that_is_not_the_questions_own_is_not_told(changes: dict[str, Any], note: str, tmp_path: Path):
    other = RunFolder.open(str(tmp_path / "other"), {**CONFIG, **changes})
    Samples(other).write(1, [code_row(1, 0), test_row(1, 0, [claim("f(1)", "2", "fail")])])
    story = read_story(other, "q/1")
    assert story.meetings[0].book is None
    assert note in story.note
    assert bool(story.note) == bool(note)


def test_the_terminal_tells_all_of_it(run: RunFolder, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "200")
    explain(str(run.path), "q/1")
    said = capsys.readouterr().out
    for part in (
        *("step 1", "step 3", "masked, infra", "cannot be loaded", "validity 1.000, adversarial 0.500"),
        *("reward 0.500, advantage +0.250, trains", "reward 0.750, advantage -1.500, not selected"),
        *("assert f(0) == 1", "wrong answer", "not run on it", "timeout", "enters with 2", "2 → 1"),
        *("passes 100 % of new tests", "fails its check script"),
    ):
        assert part in said, part


class Page(HTMLParser):
    """What a browser would make of a page: its elements, and its text."""

    def __init__(self, source: str):
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attributes

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_only_ever_text(text: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    folder = RunFolder.open(str(tmp_path / "run"), {**CONFIG, "method": text})
    history = [{"test": text, "verdict": text}]
    code = code_row(1, 0, text, prompt=text, history=history, masked=text, reward=None)
    asserts = [claim(text, text, text, mark=text, source=text, detail=text)]
    Samples(folder).write(1, [code, test_row(1, 0, asserts, text=text), test_row(1, 0, [], text=text)])
    file = tmp_path / "story.html"
    explain(str(folder.path), "q/1", html_file=str(file))
    page = Page(file.read_text(encoding="utf-8"))
    known = {"html", "head", "meta", "title", "style", "body", "pre", "span", "details", "summary"}
    assert set(page.tags) <= known
    known = {"lang", "charset", "http-equiv", "content", "name", "class", "open", "style"}
    assert {name for name, _ in page.attributes} <= known
    styles = {part.strip() for name, value in page.attributes if name == "style" for part in value.split(";")}
    by_rich = r"((text-decoration-)?color: light-dark\(#\w{6}, #\w{6}\)|font-weight: bold|text-decoration: underline|)"
    assert not {style for style in styles if not re.fullmatch(by_rich, style)}
    assert page.tags.count("style") == 1
    for line in visible(text).splitlines():
        assert line.strip() in page.text

    capsys.readouterr()
    explain(str(folder.path), "q/1")
    shown = capsys.readouterr().out
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u202e\u2066]", shown)
    if "markup" in text:
        assert "[red]markup[/red]" in shown


@given(st.text())
def test_visible_text_is_printable_and_ordinary_text_stays(text: str):
    shown = visible(text)
    assert all(char.isprintable() or char in "\n\t" for char in shown)
    shown.encode("utf-8")
    assert visible(shown) == shown
    ordinary = "def f(a):\n\treturn 'é' + \"→\" * 2  # 日本"
    assert visible(ordinary) == ordinary


def test_the_page_needs_nothing_from_elsewhere(run: RunFolder):
    page = story_page(read_story(run, "q/1"))
    assert {str(mark) for mark in Mark} <= {word for row in LEGEND.rows for word in row[0].split(", ")}
    assert all(row[0] in page for row in LEGEND.rows)
    assert not re.search(r"https?:|src=|href=|url\(|@import|<script", page)
    assert "default-src 'none'" in page
    assert page.count("<details") == 3
    assert page.count("<details open>") == 1


def test_bad_input_is_one_sentence(run: RunFolder, tmp_path: Path):
    def said(*arguments: Any, html_file: str = "") -> str:
        with pytest.raises(BadInput) as caught:
            explain(*map(str, arguments[:2]), *arguments[2:], html_file=html_file)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "is not a run folder" in said(tmp_path, "q/1")
    assert re.search("none of the 2 that.*such as q/", said(run.path, "q/3"))
    assert re.search("was not asked in step 2.*but in 1, 3", said(run.path, "q/1", 2))
    (tmp_path / "file").write_text("")
    for page in (tmp_path / "file" / "page.html", tmp_path):
        assert "cannot be written" in said(run.path, "q/1", html_file=str(page))
    empty = RunFolder.open(str(tmp_path / "empty"), CONFIG)
    assert "has no samples" in said(empty.path, "q/1")
    assert "suites that were paid for exposing programs: give --question" in said(empty.path, "")
    (run.samples / "step_000001.jsonl.zst").write_bytes(json_lines.compressed([[]]))
    assert "not a JSON object" in said(run.path, "q/1")


def test_the_question_that_is_shown_unasked_is_where_suites_came_to_expose_most(tmp_path: Path):
    folder = RunFolder.open(str(tmp_path / "run"), CONFIG)
    exposed = {  # by step and question
        1: {"q/1": [0.5, 0.7], "q/2": [0.0, 0.2], "q/3": [0.0, 0.0]},
        2: {"q/1": [1.0, 1.0], "q/2": [0.0, 0.0]},
        5: {"q/1": [0.8, 0.8], "q/2": [0.5, 0.3], "q/4": [1.0, 1.0]},
    }
    for step, questions in exposed.items():
        rows = [code_row(step, 0, question_id=question) for question in questions]
        for question, parts in questions.items():
            rows += [test_row(step, 0, [], question_id=question, reward_parts={"adversarial": x}) for x in parts]
        Samples(folder).write(step, rows)
    assert most_improved(folder) == "q/2"  # 0.3; q/1 gained 0.2, and the others were asked once
