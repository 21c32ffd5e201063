"""Rows of published sets, in the form of their files, become questions with what of them holds."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from etils import epath
from hypothesis import given, settings
from hypothesis import strategies as st

from codea1.config_file import validate
from codea1.data.loader import load_questions
from codea1.data.rows import file_rows
from codea1.game.asserts import parse_assert
from codea1.game.calls import CallTest
from codea1.game.grading import Judge
from codea1.game.question import Question
from codea1.lab.data.columns import UNPAIRED, LeftOut
from codea1.lab.data.conversion import PARTS, Format, converted, make_training_set, part_of, shares_of
from codea1.lab.data.conversion_parts import Parts, RowOutcome
from codea1.lab.data.drafts import (
    BAD_CHECK,
    NO_ARGUMENTS,
    NO_FUNCTION,
    NO_STATED,
    NO_TESTS,
    NOT_TOLD,
    UNPARSED_TESTS,
)
from codea1.lab.data.formats import FORMATS
from codea1.lab.data.near_duplicates import NearDuplicates
from codea1.lab.data.sets import NO_SOLUTION, format_of_json
from codea1.lab.data.solutions import Solved, script_of_tests
from codea1.runtime.errors import BadInput
from codea1.sandbox.host.grading import Grader
from codea1.sandbox.host.pool import SandboxPool
from codea1.sandbox.isolation import AUTO
from codea1.training.setup import questions_of
from codea1.values.verdict import Verdict
from tests.conftest import SHARED
from tests.data_formats_test import why_left_out

ADD = "a, b = map(int, input().split())\nprint(a + b)\n"
TAKE = ADD.replace("+", "-")
METHOD = "class Solution:\n    def add(self, a: List[int]) -> Tuple[int, int]:\n        return len(a), sum(a)\n"
FENCED = f"Here it is:\n```python\n{ADD}```\nDone."
CASES = [{"type": "stdin_stdout", "fn_name": None, "input": "1 2\n", "output": "3\n"}]

ROWS: dict[str, dict[str, Any]] = {
    "apps": {
        "problem_id": 7,
        "question": "Count and add.",
        "solutions": json.dumps([METHOD]),
        "input_output": json.dumps({"fn_name": "add", "inputs": [[[1, 2]], [[5]]], "outputs": [[2, 3], [[1, 5]]]}),
        "difficulty": "interview",
        "url": "https://example.org/7",
        "starter_code": "class Solution:\n    def add(self, a: List[int]) -> Tuple[int, int]:\n        ",
    },
    "taco": {
        "question": "Add two.",
        "starter_code": "",
        "input_output": json.dumps({"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [[3], [7]]}),
        "solutions": json.dumps(["def add(a, b):\n    return a + b\n"]),
        "url": "https://example.org/add",
    },
    "acecode": {
        "id": "oss_1",
        "source": "oss",
        "question": "Write `add(a, b)`.",
        "test_cases": ["assert add(1, 2) == 3", "assert add(b=1, a=1) == 2"],
        "inferences": [
            {"completion": "```python\ndef add(a, b):\n    return a - b\n```", "pass_rate": 0.0, "model_name": "m"},
            {"completion": "```python\ndef add(a, b):\n    return a + b\n```", "pass_rate": 1.0, "model_name": "m"},
        ],
        "context_messages": [],
    },
    "code_contests": {
        "name": "1_A. Sum",
        "description": "Print the sum.",
        "public_tests": {"input": ["1 2\n"], "output": ["3\n"]},
        "private_tests": {"input": ["4 4\n"], "output": ["8\n"]},
        "generated_tests": {"input": [], "output": []},
        "solutions": {"language": [2, 1, 3], "solution": ["int main() {}", "print 3", ADD]},
        "incorrect_solutions": {"language": [3, 2, 3], "solution": [TAKE, "int main() {}", ADD + "\n"]},
    },
    "deepcoder": {
        "problem": "Print the sum.",
        "starter_code": None,
        "solutions": [FENCED],
        "tests": json.dumps(CASES),
    },
}  # fmt: skip


NAMED = format_of_json("task", "code", "cases", "f")


class Converted(NamedTuple):
    outcomes: list[RowOutcome]
    kept: list[Question]
    left_out: list[RowOutcome]


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    with SandboxPool(isolation=AUTO) as pool:
        yield pool


@pytest.fixture
def convert(pool: SandboxPool, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Converted]:
    def run(form: str | Format, *rows: dict) -> Converted:
        placed = ((f"row {number}", row) for number, row in enumerate(rows))
        format = FORMATS[form] if isinstance(form, str) else form
        parts = Parts(epath.Path(tmp_path_factory.mktemp("parts")), {})
        outcomes = converted(format, placed, NearDuplicates([]), Grader(pool), lambda: None, parts)
        kept = [outcome.question for outcome in outcomes if outcome.question]
        return Converted(outcomes, kept, [outcome for outcome in outcomes if not outcome.question])

    return run


def read(form: str, **changes) -> Question | Solved:
    return FORMATS[form].read({**ROWS[form], **changes}, "here")


def pairs(form: str, **changes) -> str:
    return json.dumps({**json.loads(ROWS[form]["input_output"]), **changes})


@pytest.mark.parametrize(
    ("form", "called", "mutants"),
    [
        ("apps", "Solution().add", ()),
        ("taco", "add", ()),
        ("acecode", "add", ("def add(a, b):\n    return a - b",)),  # a sample that fails its tests
        ("code_contests", "stdout", (TAKE,)),  # a wrong submission that a test exposes; the other one adds
        ("deepcoder", "stdout", ()),
    ],
)
def test_a_row_of_each_set_becomes_a_question(convert, form, called, mutants):
    (outcome,) = convert(form, ROWS[form]).outcomes
    kept = outcome.question
    assert (kept.entry_point, kept.mutants, outcome.unexposed) == (called, mutants, form == "code_contests")
    assert kept.golden_tests
    assert "assert candidate(" in kept.check_script
    assert kept.id.startswith(f"{form}/")
    assert "+" in kept.ground_truth or "sum" in kept.ground_truth


def test_answers_are_read_as_the_judges_of_apps_read_them(convert):
    (kept,) = convert("apps", ROWS["apps"]).kept
    # JSON has no tuples, and an answer may be the one item of a list.
    assert kept.golden_tests == (
        "assert Solution().add([1, 2]) == (2, 3)",
        "assert Solution().add([5]) == (1, 5)",
    )
    assert kept.check_script.endswith("    assert candidate([1, 2]) == (2, 3)\n    assert candidate([5]) == (1, 5)\n")
    assert kept.problem.endswith(ROWS["apps"]["starter_code"].rstrip() + "\n")
    (kept,) = convert("taco", ROWS["taco"]).kept
    assert kept.golden_tests == ("assert add(1, 2) == 3", "assert add(3, 4) == 7")
    assert kept.problem == "Add two.\n\nThe function is declared as `def add(a, b):`."


def test_a_wrong_answer_of_a_function_is_no_test(convert):
    changed = ROWS["taco"] | {"input_output": pairs("taco", outputs=[[3], [8]])}
    (kept,) = convert(replace(FORMATS["taco"], min_passed=0.5), changed).kept
    assert kept.golden_tests == ("assert add(1, 2) == 3",)
    assert kept.check_script.count("assert") == 1


@pytest.mark.parametrize(
    ("form", "changes", "reason"),
    [
        ("apps", {"solutions": ""}, NO_SOLUTION),
        ("apps", {"solutions": json.dumps(["def other(): pass"])}, NO_FUNCTION),
        ("apps", {"input_output": ""}, NO_TESTS),
        ("taco", {"input_output": pairs("taco", outputs=[])}, UNPAIRED),
        ("taco", {"input_output": pairs("taco", inputs=[1, 2])}, NO_ARGUMENTS),
        ("taco", {"input_output": pairs("taco", inputs=["one", "two"])}, NO_ARGUMENTS),
        ("taco", {"input_output": pairs("taco", fn_name="")}, "its inputs is not a list of texts"),
        ("acecode", {"inferences": ROWS["acecode"]["inferences"][:1]}, NO_SOLUTION),
        ("acecode", {"test_cases": []}, NO_TESTS),
        ("acecode", {"test_cases": ["assert add(one()) == 3"]}, NO_STATED),
        ("acecode", {"test_cases": ["assert other(1) == 3"]}, NO_FUNCTION),
        ("code_contests", {"solutions": {"language": [2], "solution": ["int main() {}"]}}, NO_SOLUTION),
        ("code_contests", {name: {"input": [], "output": []} for name in ("public_tests", "private_tests")}, NO_TESTS),
        ("code_contests", {"public_tests": {"input": ["1 2\n", "3 4\n"], "output": ["3\n"]}}, UNPAIRED),
        ("deepcoder", {"solutions": None}, NO_SOLUTION),
        ("deepcoder", {"tests": "[]"}, NO_TESTS),
        ("acecode", {"test_cases": ["assert ("]}, UNPARSED_TESTS),
    ],
)  # fmt: skip
def test_an_odd_row_is_left_out_for_a_reason(form, changes, reason):
    assert why_left_out(read, form, **changes) == reason


@pytest.mark.parametrize(
    ("form", "changes", "told"),
    [
        ("deepcoder", {"tests": "\\boxed{3}"}, "tests is not JSON"),
        ("deepcoder", {"tests": "[1]"}, "tests has no tests in a form that is known"),
        ("deepcoder", {"tests": {"ground_truth": "4"}}, "tests has no tests in a form"),
        ("code_contests", {"description": None}, "description is NoneType"),
        ("code_contests", {"public_tests": {"input": ["1"], "output": 1}}, "public_tests has no tests in a form"),
        ("code_contests", {"solutions": {"language": [3], "solution": [ADD, ADD]}}, "solutions has lists of unequal"),
    ],
)
def test_a_row_of_another_kind_is_told(form, changes, told):
    with pytest.raises(BadInput, match=f"here: {told.replace('.', chr(92) + '.')}"):
        read(form, **changes)


def test_a_function_of_livecodebench_has_an_argument_on_each_line():
    case = {"input": '[1, 2]\n"a"', "output": "[3]", "testtype": "functional", "metadata": {"func_name": "f"}}
    program = "class Solution:\n    def f(self, a, b): ...\n"
    solved = read("deepcoder", tests=json.dumps([case]), solutions=[program])
    assert solved.question.golden_tests == ("assert Solution().f([1, 2], 'a') == [3]",)
    called = {"type": "function_call", "fn_name": "f", "input": "[[1, 2], 3]", "output": "4"}
    solved = read("deepcoder", tests=json.dumps([called]), solutions=["def f(a, b): ..."])
    assert solved.question.golden_tests == ("assert f([1, 2], 3) == 4",)


@pytest.mark.parametrize(("named", "called"), [(None, "stdout"), ("add", "add")])
def test_lists_of_inputs_and_outputs_may_stand_beside_a_field_that_is_none(named, called):
    cases = {"input": ["[1, 2]", "[3, 4]"], "output": ["3", "7"], "fn_name": named}
    solved = read("deepcoder", tests=json.dumps(cases), solutions=["def add(a, b): ..."])
    assert solved.question.entry_point == called
    assert len(solved.question.golden_tests) == 2


def test_a_script_calls_its_parameter_in_every_form():
    sources = ["assert f(1) == 'f(2)'", "assert sorted(f([2])) == [2]", "assert abs(f(1) - 2.0) < 0.01"]
    tests = [test for each in sources if isinstance(test := parse_assert(each, "f"), CallTest)]
    assert script_of_tests(tests).split("\n    ")[1:] == [
        "assert candidate(1) == 'f(2)'",
        "assert sorted(candidate([2])) == [2]",
        "assert abs(candidate(1) - 2.0) < 0.01\n",
    ]


VALUES = """from collections import deque
from decimal import Decimal
from fractions import Fraction
class Refused(Exception): ...
def f(x):
    if x == 3:
        raise ValueError("no list")
    if not x:
        raise Refused("nothing")
    return sum(x, type(x[0])(0))
"""
OF_VALUES = [
    "assert f([Decimal('1.5')]) == Decimal('1.5')",
    "assert f([Fraction(1, 2)]) == Fraction(1, 2)",
    "assert f(deque([1, 2])) == 3",
]
RAISING = ["with pytest.raises(Refused): f([])", "with pytest.raises(ValueError): f(3)"]


@pytest.mark.parametrize("sources", [OF_VALUES, RAISING, OF_VALUES + RAISING, RAISING[:1]])
def test_a_script_made_of_tests_holds_for_the_solution_and_says_what_they_do(convert, pool, sources):
    row = {"task": "Add up.", "code": VALUES, "cases": "\n".join(sources), "f": "f"}
    (outcome,) = convert(NAMED, row).outcomes
    question = outcome.question
    assert (outcome.lost_script, len(question.golden_tests)) == ("", len(sources))
    judge = Judge(question, Grader(pool))
    assert judge.check(VALUES).result(60).verdict is Verdict.PASS
    for broken in ("return 9", "raise KeyError(x)"):
        assert judge.check(f"def f(x):\n    {broken}").result(60).verdict is not Verdict.PASS


LOOPS = """LIMIT = 50

def check(candidate):
    assert candidate(1) == 1
    for n in range(LIMIT):
        assert candidate(n) == n * n
    assert candidate(3) == 9
"""


def test_a_text_that_defines_check_is_the_check_script(convert, pool):
    row = {"task": "Square.", "code": "def square(n):\n    return n * n\n", "cases": LOOPS, "f": "square"}
    (outcome,) = convert(NAMED, row).outcomes
    question = outcome.question
    assert (question.check_script, outcome.unread) == (LOOPS, 0)
    assert question.golden_tests == ("assert square(1) == 1", "assert square(3) == 9")
    judge = Judge(question, Grader(pool))
    assert judge.check("def square(n):\n    return 1 if n < 3 else 9").result(60).verdict is Verdict.FAIL
    alone = row | {"cases": LOOPS.replace("(1) == 1", "(1) > 0").replace("(3) == 9", "(3) > 8")}
    (kept,) = convert(NAMED, alone).kept
    assert (kept.golden_tests, kept.check_script) == ((), alone["cases"])
    (outcome,) = convert(replace(NAMED, min_passed=0.5), row | {"cases": f"{LOOPS}    assert False"}).outcomes
    assert (outcome.question.check_script, outcome.lost_script) == (None, "their solution fails them")


@pytest.mark.parametrize("cases", [LOOPS * 2, LOOPS.replace("check(", "check (")])
def test_a_check_that_the_loader_would_not_read_so_leaves_the_row_out(cases):
    row = {"task": "Square.", "code": "def square(n): ...", "cases": cases, "f": "square"}
    assert why_left_out(NAMED.read, row, "here") == BAD_CHECK


def test_asserts_that_state_no_data_and_stand_in_no_script_are_counted(convert):
    row = ROWS["acecode"] | {"test_cases": [*ROWS["acecode"]["test_cases"], "assert add(1, one) == 2", "assert ("]}
    assert [each.unread for each in convert("acecode", row).outcomes] == [2]


MINE = {
    "task": "Add two.",
    "code": "def add(a, b):\n    return a + b\n",
    "cases": [{"input": [1, 2], "output": 3}],
    "f": "add",
}


def test_rows_with_fields_of_any_name(convert):
    (kept,) = convert(NAMED, MINE).kept
    assert kept.golden_tests == ("assert add(1, 2) == 3",)
    (again,) = convert(format_of_json("task", "code", "cases", ""), MINE | {"cases": "assert add(1, 2) == 3"}).kept
    assert (again.golden_tests, again.id) == (kept.golden_tests, kept.id)
    script = "def check(candidate):\n    assert candidate(2, 2) == 4\n"
    (kept,) = convert(NAMED, MINE | {"cases": script}).kept
    assert kept.golden_tests == ("assert add(2, 2) == 4",)
    inside = {"task": {"words": MINE["task"]}, "cases": MINE["cases"], "about": {"f": "add"}}
    (kept,) = convert(format_of_json("task.words", "", "cases", "about.f"), inside).kept
    assert (kept.ground_truth, kept.golden_tests) == ("", ("assert add(1, 2) == 3",))
    with pytest.raises(BadInput, match="here: the field 'name' is missing"):
        format_of_json("task", "code", "cases", "name").read(MINE, "here")


def test_a_row_without_a_solution_says_by_its_text_whose_method_is_under_test():
    named = format_of_json("task", "", "cases.text", "")
    asked = "Write it.\nclass Solution:\n    def add(self, a, b):\n        pass\n"
    chat = [{"role": "system", "content": "Think."}, {"role": "user", "content": asked}]
    cases = {"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}
    solved = named.read({"task": chat, "cases": {"text": json.dumps(cases)}}, "here")
    assert (solved.question.description, solved.question.ground_truth) == (asked, "")
    assert solved.question.golden_tests == ("assert Solution().add(1, 2) == 3",)
    cases |= {"outputs": [[3]]}
    assert why_left_out(named.read, {"task": chat, "cases": {"text": repr(cases)}}, "here") == NOT_TOLD
    assert why_left_out(named.read, {"task": chat, "cases": {"text": ""}}, "here") == NO_TESTS
    with pytest.raises(BadInput, match=r"here: the field 'cases.text' is missing"):
        named.read({"task": chat, "cases": None}, "here")


def test_a_real_file_is_read_by_the_names_of_its_fields_as_by_its_own_reader():
    file = SHARED / "data" / "real" / "mbpp.jsonl.gz"
    if not file.exists():
        pytest.skip("the file is not here")
    named, compared = format_of_json("text", "code", "test_list", ""), 0
    for where, row in file_rows(str(file)):
        with suppress(LeftOut):
            own, ours = FORMATS["mbpp"].read({**row, "challenge_test_list": []}, where), named.read(row, where)
            question, compared = ours.question, compared + 1
            assert (question.golden_tests, question.entry_point) == (own.golden_tests, own.entry_point)
            assert (question.problem, question.ground_truth) == (own.problem, row["code"])
    assert compared == 780


def test_a_set_is_split_and_says_where_it_is_from(tmp_path: Path, capsys, micro_config):
    rows = [{**MINE, "task": f"Add two, {number} times."} for number in range(40)]
    file, folder = tmp_path / "rows.jsonl", tmp_path / "mine"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    named = format_of_json("task", "", "cases", "f")
    make_training_set(named, [str(file)], str(folder), (), "50/30/20")
    files = {part: str(folder / f"{part}.parquet") for part in PARTS}
    asked = {part: [q.problem for q in load_questions(files[part], may_lack_truth=True)] for part in PARTS}
    assert sorted(chain.from_iterable(asked.values())) == sorted(row["task"] for row in rows)
    told = " ".join(capsys.readouterr().out.split())
    assert all(f"in the part {part} {len(asked[part])}" in told for part in PARTS)
    assert "kept without a solution: not run, for method=golden 40" in told
    micro_config.data.train.source, micro_config.data.train.limit = files["train"], 0
    with pytest.raises(BadInput, match="no ground truth in GT_code, which all but method=golden needs"):
        questions_of(validate(micro_config), "train")
    micro_config.method = "golden"
    assert len(questions_of(validate(micro_config), "train")) == len(asked["train"])


@settings(max_examples=30)
@given(
    st.lists(st.text(st.characters(codec="utf-8")), min_size=1, max_size=20),
    st.integers(1, 99).flatmap(lambda first: st.tuples(st.just(first), st.integers(0, 100 - first))),
)
def test_a_question_is_always_in_the_same_part(texts, shares):
    first, second = shares
    parts = shares_of(f"{first}/{second}/{100 - first - second}")
    alone = [part_of(each, parts) for each in texts]
    assert alone == [part_of(f" {each}\n\n", parts) for each in texts]
    assert all(parts[part] for part in alone)  # none is in a part without a share
    # A larger share for training takes questions from the other parts, and gives them none.
    larger = shares_of(f"{first + second}/0/{100 - first - second}")
    assert all(part_of(each, larger) == "train" for each, part in zip(texts, alone, strict=True) if part == "train")


def test_the_part_of_a_question_is_that_of_its_task_whatever_its_solution():
    first, second = (
        NAMED.read(MINE | {"code": f"def add({names}):\n    return 3\n"}, "here") for names in ("a, b", "c, d")
    )
    assert first.question.problem != second.question.problem
    assert first.question.description == second.question.description == MINE["task"]
