"""The page of a run, whose policies wrote what they liked."""

import json
import re
from html.parser import HTMLParser

from codea1.lab.report.run_page import page
from codea1.lab.report.tables import TextTable
from codea1.runs.folder import RunFolder
from codea1.runs.samples import Samples

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u2028 & \"quotes\" 'too'"


class Tags(HTMLParser):
    """The tags of a page in order, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href")]


def samples(tmp_path, questions: int = 1) -> Samples:
    found = Samples(RunFolder.open(str(tmp_path), {"steps": 3}))
    for step in (1, 2, 3):
        rows = []
        for number in range(questions):
            both = {
                "question_id": f"{number} {HOSTILE}",
                "solution": 0,
                "reward": None,
                "advantage": 0.5,
                "reward_parts": {},
                "masked": "",
                "selected": False,
            }
            test = dict.fromkeys(("source", "call", "truth"), HOSTILE)
            test |= {"mark": "right", "detail": "", "verdict": None}
            rows.append(both | {"player": "code", "prompt": HOSTILE, "text": HOSTILE})
            rows.append(both | {"player": "test", "suite": 0, "asserts": [test]})
            rows.append(both | {"player": "test", "suite": 1, "asserts": [], "text": HOSTILE})
        found.write(step, rows)
    return found


ROWS = [{"step": step, "code/reward": 0.1 * step, "validation/code_pass_at_1": None} for step in range(1, 9)]
TABLE = TextTable(("metric", "difference"), [(HOSTILE, "**+1.0**")]).html()


def data_of(text: str) -> dict:
    return json.loads(re.search(r"id=data>(.*?)</script>", text, re.DOTALL)[1])


def test_what_policies_wrote_is_data_and_never_markup(tmp_path):
    text = page(HOSTILE, ROWS, TABLE, HOSTILE, [HOSTILE], samples(tmp_path))
    tags = Tags(text)
    assert tags.tags.count("script") == 2
    assert "img" not in tags.tags
    assert tags.addresses == []  # nothing is loaded
    data = data_of(text)
    (first, last) = data["questions"]
    assert (first["step"], last["step"]) == (1, 3)
    assert first["id"] == f"0 {HOSTILE}"
    (solution,) = first["solutions"]
    assert solution["text"] == HOSTILE
    assert solution["suites"][0]["lines"] == [[f"-        right          {HOSTILE}  # {HOSTILE} is {HOSTILE}", ""]]
    assert solution["suites"][1]["lines"] == [[HOSTILE, ""]]
    assert "<b>+1.0</b>" in text
    assert "What the words mean" in text


def test_curves_are_those_of_the_metrics_that_there_are(tmp_path):
    text = page("run", ROWS, [], "", [], samples(tmp_path))
    data = data_of(text)
    (panel,) = data["panels"]
    assert panel["title"] == "Reward"
    (series,) = panel["series"]
    assert series["steps"] == list(range(1, 9))
    assert series["values"] == [row["code/reward"] for row in ROWS]


def graded(question: str, reward: float, passes_check: bool | None, *asserts: tuple[str, str | None]) -> list[dict]:
    """The rows of a program and of its suite, whose asserts have these marks and verdicts."""
    both = {"question_id": question, "solution": 0, "advantage": 0.0, "masked": "", "selected": True}
    test = {"source": "assert f(1) == 2", "call": "f(1)", "truth": "2", "detail": ""}
    marked = [test | {"mark": mark, "verdict": verdict} for mark, verdict in asserts]
    code = {"player": "code", "reward": reward, "reward_parts": {}, "text": "def f(n): ..."}
    if passes_check is not None:
        code["passes_check"] = passes_check
    suite = {"player": "test", "suite": 0, "reward": 0.5, "reward_parts": {}, "asserts": marked}
    return [both | code, both | suite]


def test_programs_are_right_or_wrong_paid_or_not_and_suites_kill_or_err(tmp_path):
    """Those that are paid but wrong come first, and of the steps that with most of them is shown, too."""
    found = Samples(RunFolder.open(str(tmp_path), {"steps": 9}))
    fooled = graded("fooled", 1.0, False, ("right", "pass"), ("wrong answer", "fail"))
    rows = [
        *graded("right", 1.0, True, ("right", "pass")),
        *graded("killed", 0.5, False, ("right", "fail"), ("right", None)),
        *graded("old", 1.0, None, ("rejected", None)),
    ]
    for step in (1, 4, 5, 9):
        found.write(step, rows + fooled)
    shares = {1: 0.1, 4: 0.2, 5: 0.3, 7: 0.9}  # the samples of step 7 are no longer kept
    data = data_of(page("run", [{"step": n, "code/paid_but_wrong": x} for n, x in shares.items()], [], "", [], found))
    assert [each["step"] for each in data["questions"]] == [1] * 4 + [5] * 4 + [9] * 4
    solutions = {each["id"]: each["solutions"][0] for each in data["questions"][:4]}
    assert list(solutions) == ["fooled", "right", "killed", "old"]
    assert {id: (each["right"], each["paid"]) for id, each in solutions.items()} == {
        **{"fooled": (False, True), "right": (True, True), "killed": (False, False), "old": (None, True)},
    }
    suites = {id: each["suites"][0] for id, each in solutions.items()}
    assert {id for id, suite in suites.items() if suite["kills"]} == {"killed"}
    assert {id for id, suite in suites.items() if suite["wrong"]} == {"fooled"}
    assert [kind for _, kind in suites["fooled"]["lines"]] == ["", "warn"]
