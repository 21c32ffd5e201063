"""Rows as other datasets have them become questions that the loader reads, with what of them holds."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from etils import epath

from codea1.data.loader import load_questions
from codea1.game.asserts import golden_tests
from codea1.game.question import Question
from codea1.lab.data.columns import UNPAIRED, LeftOut
from codea1.lab.data.conversion import converted, make_training_set
from codea1.lab.data.conversion_parts import Parts
from codea1.lab.data.drafts import NO_FUNCTION, NO_TESTS, TOO_LARGE, UNPARSED, UNPARSED_TESTS
from codea1.lab.data.formats import FORMATS, MANY_ANSWERS, quixbugs_rows
from codea1.lab.data.near_duplicates import NearDuplicates
from codea1.lab.data.sets import NO_NAME, NO_SOLUTION
from codea1.lab.data.solutions import Solved
from codea1.runtime.errors import BadInput
from tests.conftest import ROOT

MBPP = {
    "task_id": 7,
    "text": "Write a function to add a list of numbers to a start.",
    "code": "START = 1\ndef add_up(numbers, start=START): \r\n\treturn start + sum(numbers)\n",
    "test_setup_code": "limit = 3",
    "test_list": ["assert add_up([1, 2]) == 4", "assert add_up([1], 2) == limit", "assert add_up([]) == 5"],
    "challenge_test_list": ["assert add_up([], 0) == 0"],
}
PACK = {
    "task_id": "Python/3",
    "prompt": '\n\ndef helper(n):\n    return n + 1\n\ndef more(n):\n    """One more."""\n',
    "canonical_solution": "    return helper(n)\n",
    "buggy_solution": "    return helper(n) + (n > 3)\n",
    "test": "def check(more):\n    assert more(1) == 2\n    assert more(9) == helper(9)\n\ncheck(more)",
    "entry_point": "more",
    "docstring": "One more.",
}
NODES = """from typing import *
class ListNode:
    def __init__(self, val=0, next=None):
        self.val, self.next = val, next
class TreeNode:
    def __init__(self, val=0, left=None, right=None):
        self.val, self.left, self.right = val, left, right
def list_node(values): ...
def tree_node(values): ...
def is_same_tree(p, q): ...
"""
LEETCODE = {
    "task_id": "mirror",
    "prompt": NODES,
    "completion": (
        "class Solution:\n    def mirror(self, root: Optional[TreeNode], times: int = 1) -> Optional[TreeNode]:\n"
        "        if root and times % 2:\n            left = self.mirror(root.left)\n"
        "            root.left, root.right = self.mirror(root.right), left\n        return root\n"
    ),
    "entry_point": "Solution().mirror",
    "test": (
        "def check(candidate):\n"
        "    assert is_same_tree(candidate(root = tree_node([1,2,None,3,None])), tree_node([1,None,2,None,3,None]))\n"
        "    assert is_same_tree(candidate(root = tree_node([]), times = 2), tree_node([]))\n"
    ),
    "query": "Mirror a tree.",
}
STDIN = {
    "problem_id": 5,
    "question": "Add two numbers.",
    "solutions": json.dumps(["print 3", "a, b = map(int, input().split())\nprint(a + b)"]),
    "input_output": json.dumps({"inputs": ["1 2\n", ["3 4"]], "outputs": ["3\n", ["7"]]}),
}

DEEP = "[" * 200_000 + "]" * 200_000
NO_LIST = "is not a list of texts"


def read(form: str, row: dict, **changes) -> Question | Solved:
    return FORMATS[form].read({**row, **changes}, "here")


def why_left_out(read: Callable[..., object], *arguments: object, **options: object) -> str:
    """The reason for which a row is left out; empty where it is read."""
    try:
        read(*arguments, **options)
    except LeftOut as error:
        return str(error)
    return ""


def test_a_row_of_mbpp():
    question = read("mbpp", MBPP)
    assert (question.id, question.entry_point, question.description) == ("mbpp/7", "add_up", MBPP["text"])
    assert question.problem == f"{MBPP['text']}\n\nThe function is declared as `def add_up(numbers, start=START):`."
    # `limit` is no literal, so that the second assert is for the script alone.
    assert question.golden_tests == (
        "assert add_up([1, 2]) == 4",
        "assert add_up([]) == 5",
        "assert add_up([], 0) == 0",
    )
    assert "limit = 3" in question.check_script
    assert "    assert add_up([1], 2) == limit" in question.check_script


def test_a_row_of_sanitized_mbpp_is_that_of_mbpp():
    plain = {**MBPP, "challenge_test_list": None}
    row = {**plain, "prompt": plain.pop("text"), "test_imports": plain.pop("test_setup_code").split("\n")}
    del row["text"], row["test_setup_code"]
    question = read("mbpp", MBPP, challenge_test_list=None)
    assert question.golden_tests == ("assert add_up([1, 2]) == 4", "assert add_up([]) == 5")
    assert FORMATS["mbpp"].read(row, "row 1") == question


def test_a_row_of_leetcode_has_its_nodes_as_lists():
    added = (
        "    assert is_same_tree(candidate(root = tree_node(5)), tree_node(None))\n"  # no tree: for the script alone
    )
    question = read("leetcode", LEETCODE, test=LEETCODE["test"] + added)
    assert (question.entry_point, question.preamble) == ("Solution().mirror", NODES)
    assert question.golden_tests == (
        "assert Solution().mirror(root=[1, 2, None, 3]) == [1, None, 2, None, 3]",
        "assert Solution().mirror(root=[], times=2) == []",
    )
    assert "candidate(root=[1, 2, None, 3]" in question.check_script
    assert "candidate(root=tree_node(5)) == []" in question.check_script
    assert "tree_node" not in read("leetcode", LEETCODE).check_script


@pytest.mark.parametrize(
    ("said", "is_free"),
    [
        ("You can return the answer\nin any order.", True),
        ("The integers in the lists may be returned in any order.", True),
        ("The order that the days are returned in does not matter.", True),
        ("If there are multiple answers, you may return any one of them.", True),
        ("Return the size of any such subarray.", True),
        ("Find any peak element mat[i][j] and return the array [i,j].", True),
        ("Answers within 10-5 of the actual answer will be accepted.", True),
        ("You may mirror subtrees in any order. Return the root.", False),
        ("Return the largest number formed by concatenating the digits in any order.", False),
        ("Return the maximum score of any valid set of words.", False),
        ("Two numbers are equal if their difference is less than 10-5.", False),
        ("If there are multiple answers, return the smallest one.", False),
    ],
)
def test_a_row_of_leetcode_whose_statement_takes_more_answers_than_its_tests_is_left_out(said, is_free):
    reason = why_left_out(read, "leetcode", LEETCODE, query=f"Mirror a tree. {said}")
    assert reason == (MANY_ANSWERS if is_free else "")


def test_a_row_of_pairs_of_texts():
    solved = read("apps", STDIN)
    question = solved.question
    assert (question.id, question.entry_point, question.form) == ("apps/5", "stdout", "program")
    assert question.golden_tests == ("assert stdout('1 2\\n') == '3'", "assert stdout('3 4\\n') == '7'")
    assert question.ground_truth.startswith("a, b")
    unpacked = {name: json.loads(STDIN[name]) for name in ("solutions", "input_output")}
    assert read("apps", STDIN, **unpacked) == solved


def test_the_first_solutions_that_parse_are_those_that_are_tried():
    solved = read("apps", STDIN, solutions=["print 1", *(f"print({n})" for n in range(9))])
    assert [solved.question.ground_truth, *solved.others] == [f"print({n})" for n in range(5)]


@pytest.mark.parametrize(("size", "stays"), [((16 << 10) + 1, 2), (65_500, 2), (1 << 16, 1), (200_000, 1)])
@pytest.mark.parametrize("key", ["inputs", "outputs"])
def test_inputs_and_outputs_of_at_most_64_kib_are_tests(key, size, stays):
    pairs = {"inputs": ["1\n", "2\n"], "outputs": ["1", "2"]} | {key: ["1\n", "7" * size]}
    solved = read("apps", STDIN, input_output=pairs)
    assert (len(golden_tests(solved.question)), solved.unread) == (stays, 2 - stays)
    assert solved.question.check_script.count("assert candidate(") == stays


@pytest.mark.parametrize(
    ("output", "named", "entry_point"),
    [
        ("7", {}, "stdout"),
        ("v1.2 1.2.3", {}, "stdout"),
        ("of 10\n-0.50", {}, "stdout_tokens"),
        ("1e-05", {}, "stdout_tokens"),
        ("0.5", {"function_name": "stdout"}, "stdout"),
        ("7", {"function_name": "stdout_any_order"}, "stdout_any_order"),
        ("7", {"function_name": None}, "stdout"),
    ],
)
def test_decimals_are_compared_as_numbers_unless_a_row_says_how(output, named, entry_point):
    question = read("apps", STDIN, input_output={"inputs": ["1", "2"], "outputs": ["1", output]}, **named).question
    assert question.entry_point == entry_point
    assert question.golden_tests == (
        f"assert {entry_point}('1\\n') == '1'",
        f"assert {entry_point}('2\\n') == {output!r}",
    )
    assert f"assert candidate('2\\n') == {output!r}" in question.check_script


@pytest.mark.parametrize(
    ("form", "row", "changes", "reason"),
    [
        ("mbpp", MBPP, {"code": "def add_up(:"}, UNPARSED),
        ("mbpp", MBPP, {"code": "def other(): pass"}, NO_FUNCTION),
        ("mbpp", MBPP, {"test_list": [], "challenge_test_list": []}, NO_TESTS),
        ("mbpp", MBPP, {"test_list": [None]}, f"its test_list {NO_LIST}"),
        ("mbpp", MBPP, {"challenge_test_list": ["assert True", 1]}, f"its challenge_test_list {NO_LIST}"),
        ("mbpp", MBPP, {"challenge_test_list": 3}, f"its challenge_test_list {NO_LIST}"),
        ("humanevalpack", PACK, {"canonical_solution": "    return ("}, UNPARSED),
        ("humanevalpack", PACK, {"entry_point": "less", "test": "def check(less): pass"}, NO_FUNCTION),
        ("leetcode", LEETCODE, {"completion": "class Solution"}, UNPARSED),
        ("leetcode", LEETCODE, {"entry_point": "LRUCache"}, NO_FUNCTION),
        ("leetcode", LEETCODE, {"test": "assert True"}, NO_TESTS),
        ("mbpp", MBPP, {"test_list": ["assert ("], "challenge_test_list": []}, UNPARSED_TESTS),
        ("humanevalpack", PACK, {"test": "def check("}, UNPARSED_TESTS),
        ("leetcode", LEETCODE, {"test": "def check("}, UNPARSED_TESTS),
        ("apps", STDIN, {"solutions": ""}, NO_SOLUTION),
        ("apps", STDIN, {"solutions": ["print 1"]}, UNPARSED),
        ("apps", STDIN, {"function_name": ["stdout"]}, NO_NAME),
        ("apps", STDIN, {"input_output": ""}, NO_TESTS),
        ("apps", STDIN, {"input_output": {"inputs": ["a"], "outputs": []}}, UNPAIRED),
        ("apps", STDIN, {"input_output": {"inputs": ["7" * 70_000], "outputs": ["7"]}}, TOO_LARGE),
        *(
            ("apps", STDIN, {"input_output": {"inputs": ["1"], "outputs": ["1"], key: value}}, f"its {key} {NO_LIST}")
            for key in ("inputs", "outputs")
            for value in (3, "1", [3], [["1", 3]], [None])
        ),
        ("apps", STDIN, {"input_output": {"inputs": ["1"]}}, f"its outputs {NO_LIST}"),
    ],
)
def test_a_row_that_cannot_be_used_is_left_out_for_a_reason(form, row, changes, reason):
    assert why_left_out(read, form, row, **changes) == reason


@pytest.mark.parametrize(
    ("form", "row", "changes", "told"),
    [
        ("mbpp", MBPP, {"test_list": "assert"}, "test_list is str"),
        ("mbpp", LEETCODE, {}, "task_id is str"),  # another benchmark's file
        ("humanevalpack", MBPP, {}, "task_id is int"),
        ("leetcode", PACK, {}, "the field 'completion' is missing"),
        ("apps", MBPP, {}, "the field 'description' is missing"),
        ("apps", STDIN, {"solutions": "[1]"}, "solutions is not a list of texts"),
        ("apps", STDIN, {"input_output": "{"}, "input_output is not JSON"),
        ("apps", STDIN, {"input_output": DEEP}, "input_output is JSON nested too deeply"),
    ],
)
def test_a_row_of_another_format_is_refused(form, row, changes, told):
    with pytest.raises(BadInput, match=rf"here: .*{re.escape(told)}"):
        read(form, row, **changes)


def quixbugs(folder: Path, tests: str) -> Path:
    texts = {
        "correct_python_programs/halves.py": "def halves(n):\n    return n // 2, n - n // 2\n",
        "python_programs/halves.py": 'def halves(n):\n    return n // 2, n // 2\n\n"""\nHalves\n\nInput: n\n"""\n',
        "json_testcases/halves.json": tests,
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("case", ["[[3]]", "[[3], [1, 2], 0]", "3", '{"3": 1, "4": 2}'])
def test_a_program_of_quixbugs_with_a_case_that_is_no_pair_is_left_out(tmp_path, case):
    ((where, row),) = quixbugs_rows(str(quixbugs(tmp_path, f"[[3], [1, 2]]\n{case}\n")))
    assert why_left_out(FORMATS["quixbugs"].read, row, where) == "one of its tests is no pair of arguments and answer"


def test_all_formats_come_out_and_are_loaded_again(tmp_path):
    sources = {"mbpp": MBPP, "humanevalpack": PACK, "leetcode": LEETCODE, "apps": STDIN}
    files = {form: tmp_path / f"{form}.jsonl" for form in sources}
    for form, file in files.items():
        file.write_text(json.dumps(sources[form]))
    files["quixbugs"] = quixbugs(tmp_path / "quix", "[[3], [1, 2]]\n[[4], [2, 2]]\n[[5], [9, 9]]\n")
    kept = {}
    for form, file in files.items():
        lenient = replace(FORMATS[form], min_passed=0.5)
        make_training_set(lenient, [str(file)], str(tmp_path / f"{form}.parquet"))
        (kept[form],) = load_questions(str(tmp_path / f"{form}.parquet"))
    # `add_up([]) == 5` is wrong, and with it the script.
    assert kept["mbpp"].golden_tests == ("assert add_up([1, 2]) == 4", "assert add_up([], 0) == 0")
    assert kept["mbpp"].check_script is None
    assert [len(question.mutants) for question in kept.values()] == [0, 1, 0, 0, 1]
    pack = kept["humanevalpack"]
    assert (pack.id, pack.entry_point, pack.golden_tests) == ("Python/3", "more", ("assert more(1) == 2",))
    assert pack.check_script == PACK["test"]
    assert pack.ground_truth.endswith("return helper(n)\n")
    assert pack.mutants == (pack.ground_truth.replace("helper(n)\n", "helper(n) + (n > 3)\n"),)
    assert len(kept["leetcode"].golden_tests) == 2
    # JSON has no tuples, and the program answers one.
    assert kept["quixbugs"].golden_tests == ("assert halves(3) == (1, 2)", "assert halves(4) == (2, 2)")
    assert "Complete" not in kept["apps"].prompt[-1]["content"]
    assert "complete Python program" in kept["apps"].prompt[-1]["content"]


@pytest.mark.parametrize("name", ["text", "test_setup_code"])
def test_a_row_that_no_file_takes_is_left_out_before_it_is_run(name, tmp_path):
    rows, parts = [("here", {**MBPP, name: "# \ud800"})], Parts(epath.Path(tmp_path / "parts"), {})
    outcomes = converted(FORMATS["mbpp"], rows, NearDuplicates([]), None, lambda: None, parts)
    assert [each.reason for each in outcomes] == ["its texts have a lone surrogate, which no file takes"]


@pytest.mark.parametrize(
    ("entry_point", "solution", "output"),
    [
        ("stdout_tokens", "print(1 / int(input()))", "3.333333e-01"),
        ("stdout_any_order", "for each in 'a', 'b': print(each, end=' ')", "b a"),
    ],
)
def test_a_solution_passes_what_the_entry_point_takes_for_its_answer(tmp_path, entry_point, solution, output):
    pairs = {"inputs": ["3", "3\n0"], "outputs": [output, "c"]}
    row = STDIN | {"solutions": [solution], "input_output": pairs, "function_name": entry_point}
    file = tmp_path / "pairs.jsonl"
    file.write_text(json.dumps(row))
    make_training_set(replace(FORMATS["apps"], min_passed=0.3), [str(file)], str(tmp_path / "out.parquet"))
    (question,) = load_questions(str(tmp_path / "out.parquet"))
    assert question.entry_point == entry_point
    assert question.golden_tests == (f"assert {entry_point}('3\\n') == {output!r}",)  # the other one is wrong
    assert question.check_script is None


@pytest.mark.parametrize(("tests", "told"), [("[[3], [1, 2]", "Expecting ',' delimiter"), (DEEP, "maximum recursion")])
def test_a_program_of_quixbugs_whose_cases_are_no_json_is_an_error_in_its_place(tmp_path, tests, told):
    ((where, error),) = quixbugs_rows(str(quixbugs(tmp_path, tests)))
    assert where == str(tmp_path / "json_testcases" / "halves.json")
    assert told in str(error)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda folder: folder / "none", "does not exist"),
        (lambda folder: folder, "is no clone of QuixBugs"),
        (lambda folder: quixbugs(folder, "") / "json_testcases" / "halves.json", "is no folder on a disk"),
        (lambda folder: "gs://bucket/QuixBugs", "is no folder on a disk"),
    ],
)
def test_a_folder_that_is_no_clone_is_refused(tmp_path, make, told):
    with pytest.raises(BadInput, match=re.escape(told)):
        list(quixbugs_rows(str(make(tmp_path))))


MISTAKES = [  # arguments, and what is said of them
    (["ape", "a.jsonl"], "'ape' is no form of files; known are json, kodcode, mbpp, "),
    (["json", "a.jsonl", "--tests=t"], "json needs --problem and --tests"),
    (["apps", "a.jsonl", "--tests=t"], "name fields of json; other forms have theirs"),
    (["mbpp", "a.jsonl", "--max_pass_rate=0.7"], "--max_pass_rate: only with kodcode."),
    (["mbpp", "a.jsonl", "--output=a", "--split=80/30/10"], "--split is '80/30/10'; it must be three percentages"),
    (["mbpp", "a.jsonl", "--output=a.parquet", "--split=80/10/10"], "a.parquet is no folder, for a split"),
    (["json", "a.parquet", "--mutants=4", "--split=80/10/10"], "--split: only with rows that are converted."),
    (["json", "a.parquet", "b.parquet", "--mutants=4", "--output=c.parquet"], "give one FILE of questions, and --"),
    (["mbpp"], "FILE is missing."),
    (["mbpp", "a.jsonl"], "--output is missing"),
    (["mbpp", "a.jsonl", "--output=a.jsonl"], "does not end in .parquet"),
    (["mbpp", "a.jsonl", "--output=a.parquet"], "a.jsonl does not exist"),
    (["mbpp", "folder", "--output=a.parquet"], "data file folder is a folder"),
    (["mbpp", "folder.parquet", "--output=a.parquet"], "data file folder.parquet is a folder"),
    (["mbpp", "a.jsonl", "--output=file/below/a.parquet"], "file is no folder"),
    (["mbpp", "a.jsonl", "--output=folder.parquet"], "folder.parquet is there already"),
]

SAY_ALL = """
import json, sys
from absl import flags
from absl.testing import flagsaver
from codea1.lab.commands import convert
from codea1.runtime.errors import BadInput
for arguments in json.loads(sys.argv[1]):
    with flagsaver.flagsaver():
        try:
            convert.main(*flags.FLAGS(["convert", *arguments])[1:])
        except (BadInput, TypeError) as error:
            print(error)
"""


def test_a_command_that_cannot_work_says_so(tmp_path):
    for folder in ("folder", "folder.parquet"):
        (tmp_path / folder).mkdir()
    (tmp_path / "file").touch()
    asked = json.dumps([arguments for arguments, _ in MISTAKES])
    done = subprocess.run(
        [sys.executable, "-c", SAY_ALL, asked],
        cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for said, (_, expected) in zip(done.stdout.splitlines(), MISTAKES, strict=True):
        assert expected in said
