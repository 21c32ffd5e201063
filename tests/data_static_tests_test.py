"""The file of static tests: what is written is read, and what cannot be is one sentence."""

import json
import math

import pytest
from etils import epath

from codea1.data.static_tests import with_static_tests
from codea1.game.asserts import golden_tests
from codea1.game.calls import Call, CallTest
from codea1.game.question import Question
from codea1.lab.data.static_tests import writable, write_static_tests
from codea1.runtime.errors import BadInput
from codea1.values import encode_exact

QUESTIONS = [
    Question(id, None, "p", "d", "def f(a):\n    return a", "f", golden_tests=("assert f(0) == 0",)) for id in "qrs"
]


def make(argument: object, expected: object) -> CallTest:
    return CallTest(Call("f", encode_exact(((argument,), {}))), encode_exact(expected))


VALUES = [1, -2.5, True, None, "a'\n\\", b"\0", [1, (2,), {3: [4]}], {1, 2}, math.inf, 10**5000, set(), frozenset({1})]


def test_what_is_written_is_read(tmp_path):
    tests = writable(make(value, [value]) for value in VALUES)
    assert len(tests) >= 8  # how far literals go is the parser's matter
    file = epath.Path(tmp_path / "suites.jsonl")
    write_static_tests(file, [(QUESTIONS[2], tests[:2]), (QUESTIONS[1], []), (QUESTIONS[0], tests)])
    kept, without = with_static_tests(str(file), QUESTIONS)
    assert [question.id for question in kept] == ["q", "s"]  # in the order of the questions
    assert [golden_tests(question) for question in kept] == [tests, tests[:2]]
    assert without == [QUESTIONS[1]]


ROW = {"question_id": "q", "truth": QUESTIONS[0].ground_truth_digest, "tests": ["assert f(1) == 1"]}


NO_ROW = "line 1: not an object with"


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([ROW, ROW], "line 2: question q comes twice"),
        ([{**ROW, "truth": "other"}], "line 1: question q has another ground truth"),
        ([{**ROW, "tests": ["assert g(1) == 1"]}], "line 1: 'assert g.1. == 1' is no test of f: not the entry point"),
        *(([row], NO_ROW) for row in ({**ROW, "tests": []}, {**ROW, "tests": "assert f(1) == 1"}, ["q"])),
        *(([row], NO_ROW) for row in ({"question_id": "q"}, {**ROW, "question_id": 3})),
        *((content, NO_ROW) for content in (b"{\n", b"\xff\n", b"\n")),
    ],
)
def test_a_bad_line_is_named(tmp_path, rows, sentence):
    file = tmp_path / "suites.jsonl"
    text = rows if isinstance(rows, bytes) else "".join(json.dumps(row) + "\n" for row in rows).encode()
    file.write_bytes(text)
    with pytest.raises(BadInput, match=sentence):
        with_static_tests(str(file), QUESTIONS)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BadInput, match=r"nothing\.jsonl does not exist"):
        with_static_tests(str(tmp_path / "nothing.jsonl"), QUESTIONS)
    with pytest.raises(BadInput, match="is a folder"):
        with_static_tests(str(tmp_path), QUESTIONS)


def test_questions_that_are_not_asked_are_left_alone(tmp_path):
    (tmp_path / "suites.jsonl").write_text(json.dumps({**ROW, "question_id": "other", "truth": "x"}) + "\n")
    kept, without = with_static_tests(str(tmp_path / "suites.jsonl"), QUESTIONS)
    assert (kept, without) == ([], QUESTIONS)
