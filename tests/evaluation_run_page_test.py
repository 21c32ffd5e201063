"""The page of a run, whose policies wrote what they liked."""

import json
import re
from html.parser import HTMLParser

from codea1.evaluation.run_page import MAX_QUESTIONS, page
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
TABLE = [(("metric", "difference"), False), ((HOSTILE, "+1.0"), True)]


def test_what_policies_wrote_is_data_and_never_markup(tmp_path):
    text = page(HOSTILE, ROWS, TABLE, HOSTILE, [HOSTILE], samples(tmp_path))
    tags = Tags(text)
    assert tags.tags.count("script") == 2
    assert "img" not in tags.tags
    assert tags.addresses == []  # nothing is loaded
    data = json.loads(re.search(r"id=data>(.*?)</script>", text, re.DOTALL)[1])
    (first, last) = data["questions"]
    assert (first["step"], last["step"]) == (1, 3)
    assert first["id"] == f"0 {HOSTILE}"
    (solution,) = first["solutions"]
    assert solution["text"] == HOSTILE
    assert solution["suites"][0]["lines"] == [f"-        right          {HOSTILE}  # {HOSTILE} is {HOSTILE}"]
    assert solution["suites"][1]["lines"] == [HOSTILE]
    assert "<b>+1.0</b>" in text


def test_curves_are_those_of_the_metrics_that_there_are(tmp_path):
    text = page("run", ROWS, [], "", [], samples(tmp_path))
    data = json.loads(re.search(r"id=data>(.*?)</script>", text, re.DOTALL)[1])
    (panel,) = data["panels"]
    assert panel["title"] == "Reward"
    (series,) = panel["series"]
    assert series["steps"] == list(range(1, 9))
    assert series["values"] == [row["code/reward"] for row in ROWS]


def test_many_questions_are_cut(tmp_path):
    text = page("run", ROWS, [], "", [], samples(tmp_path, questions=40))
    assert len(json.loads(re.search(r"id=data>(.*?)</script>", text, re.DOTALL)[1])["questions"]) == 2 * MAX_QUESTIONS
