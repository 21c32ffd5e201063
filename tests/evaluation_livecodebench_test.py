"""LiveCodeBench: questions of our own in the form of its rows."""

import base64
import json
import os
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest

from codea1.game.prompts import DEFAULT
from codea1.lab.benchmarks.benchmarks import EvaluationSpec
from codea1.lab.benchmarks.livecodebench import LiveCodeBench, load_tasks, same_lines
from codea1.lab.benchmarks.programs import evaluate_code, given_attempts
from codea1.lab.sandbox.benchmarks import BenchmarkPool
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.sandbox.host import ScriptRun
from codea1.values.verdict import Verdict
from tests.evalplus_files import TWO_ANSWERS, Row, write_rows

ADDING = [("1 2\n", "3\n"), ("-1 1\n", "0\n"), ("5 5\n", "10\n")]
PAIRS = [("[1, 2]\n3", "[[1, 3], 2.5]"), ("[]\n0", "[]")]  # functional
STARTER = "class Solution:\n    def f(self, v: List[int], x: int):\n        "


def cases(tests: list[tuple[str, str]]) -> str:
    return json.dumps([{"input": given, "output": printed, "testtype": "stdin"} for given, printed in tests])


def packed(content: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(content))).decode()


def contest_row(
    id: str = "q1", tests: list[tuple[str, str]] = ADDING, name: str = "", day: str = "2025-02-01", **changes: Any
) -> Row:
    """A question with its first test public, and the others packed."""
    return {
        "question_id": id,
        "question_content": "Add {two} numbers.",
        "starter_code": STARTER if name else "",
        "contest_date": f"{day}T00:00:00",
        "difficulty": "easy",
        "public_test_cases": cases(tests[:1]),
        "private_test_cases": packed(cases(tests[1:])),
        "metadata": json.dumps({"func_name": name} if name else {}),
        **changes,
    }


def load(tmp_path: Path, *rows: Row, window: tuple[str, str] = ("", ""), pool: Any = None) -> LiveCodeBench:
    return LiveCodeBench(load_tasks([write_rows(tmp_path / "lcb.jsonl", *rows)], window), pool)


def judge(pool: BenchmarkPool, tmp_path: Path, program: str, *question: Any) -> ScriptRun:
    benchmark = load(tmp_path, contest_row("q1", *question), pool=pool)
    return benchmark.judge(benchmark.questions[0], program).result(60)


@pytest.mark.parametrize(
    ("program", "verdict", "detail"),
    [
        ("print(sum(map(int, input().split())))", Verdict.PASS, ""),
        ("for line in stdin:\n    print('\\n ', sum(map(float, line.split())), '\\n\\n')", Verdict.PASS, ""),
        ("print(6 - 3)", Verdict.FAIL, "input 1: another value than expected"),
        ("print(sum(map(int, input().split())))\nprint(0)", Verdict.FAIL, "input 0: another value"),
        ("print(sum(map(int, input().split())), file=open('/dev/null', 'w'))", Verdict.FAIL, "input 0: another value"),
        ("input(); input()", Verdict.ERROR, "raised on input 0: EOFError"),
        ("while input() != '5 5': print(3)", Verdict.ERROR, "raised on input 0: EOFError"),
        ("import os\nprint(3)\nos.kill(os.getpid(), 9)", Verdict.ERROR, ""),
        ("print(", Verdict.ERROR, "raised on load: SyntaxError"),
    ],
)
def test_a_whole_program_is_judged_by_lines_and_decimals(pool, tmp_path, program, verdict, detail):
    run = judge(pool, tmp_path, program)
    assert (run.verdict, run.detail[: len(detail)]) == (verdict, detail), run


@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        (f"{STARTER}return [[1, 3], 2.5] if v else []", Verdict.PASS),
        (f"{STARTER}return ([1, 3], Decimal('2.5')) if v else ()", Verdict.ERROR),  # nobody imported Decimal
        (f"import decimal\n{STARTER}return ([True, 3], decimal.Decimal('2.5')) if v else ()", Verdict.PASS),
        (f"{STARTER}return [(1, 3), 2.5] if v else []", Verdict.FAIL),
        (f"{STARTER}return deque([[1, 3], 2.5] if v else [])", Verdict.FAIL),
        ("def f(v, x):\n    return [[1, 3], 2.5] if v else []", Verdict.PASS),  # no class at all
        ("class Solution:\n    n = 0\n    def f(self, v, x):\n        self.n += 1\n        return v", Verdict.FAIL),
        # One object answers all tests.
        (
            f"class Solution:\n    n = 0\n{STARTER[16:]}self.n += 1\n        return [[[1, 3], 2.5], []][self.n - 1]",
            Verdict.PASS,
        ),
        (f"{STARTER}sys.exit()", Verdict.ERROR),
        ("class Any(list):\n    __eq__ = lambda *_: True\n" + f"{STARTER}return Any()", Verdict.FAIL),
    ],
)
def test_a_method_is_judged_by_equality_but_for_a_tuple_around_all(pool, tmp_path, program, verdict):
    run = judge(pool, tmp_path, program, PAIRS, "f")
    assert run.verdict is verdict, run


@pytest.mark.parametrize(
    ("program", "tests", "name"),
    [
        ("answer('No')\nprint('Yes')", [("1", "Yes"), ("2", "No"), ("3", "Yes")], ""),
        (f"{STARTER}answer(False)\n        return True", [("1\n1", "true"), ("1\n2", "false"), ("1\n3", "true")], "f"),
    ],
)
def test_a_process_has_one_answer_and_learns_nothing_before_it(pool, tmp_path, program, tests, name):
    run = judge(pool, tmp_path, TWO_ANSWERS + program, tests, name)
    assert (run.verdict, run.detail) == (Verdict.FAIL, "input 0: another value than expected")


def test_inputs_and_outputs_of_megabytes(pool, tmp_path):
    numbers = " ".join(map(str, range(300_000)))  # 2 MB
    tests = [(f"{numbers}\n", f"{numbers}\n"), ("1\n", "1\n"), (f"{numbers}\n", numbers)]
    # Right to the byte, right in another form, wrong at the end.
    for program in ("print(open(0).read())", "print('', input(), '.0', sep='')", "print(input(), end='1')"):
        run = judge(pool, tmp_path, program, tests)
        assert run.verdict is (Verdict.FAIL if "end" in program else Verdict.PASS), run
    unread = judge(pool, tmp_path, "print(3)", [(numbers, "3"), (numbers, "3")])
    assert unread.verdict is Verdict.PASS, unread


@pytest.mark.parametrize(
    ("printed", "expected", "are_same"),
    [
        ("1 \n\t2\n", "\n1\n2", True),
        ("1\n\n2", "1\n2", False),
        ("1.50 2", "1.5  2.0", True),
        ("1 2", "12", False),
        ("0.1", "0.10000000000000001", False),
        ("50000000000000000", "50000000000000001", False),
        ("1 x", "1.0 x", False),
        ("nan", "NaN", False),
        ("snan", "1", False),
        ("1e400", "10e399", True),
        ("yes", "YES", False),
        ("", " \n", True),
    ],
)
def test_lines_are_the_same_as_text_or_as_decimals(printed, expected, are_same):
    assert same_lines(printed, expected) is are_same


def test_packed_tests_are_those_in_plain_json(pool, tmp_path):
    # The second test, a private one, decides.
    for form in (packed(cases([("2 2", "5")])), cases([("2 2", "5")])):
        benchmark = load(tmp_path, contest_row(private_test_cases=form), pool=pool)
        run = benchmark.judge(benchmark.questions[0], "print(sum(map(int, input().split())))").result(60)
        assert run.detail == "input 1: another value than expected"


class Harmful:
    def __reduce__(self):
        return os.mkdir, ("harm",)


def test_a_pickle_is_read_and_never_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for content in (Harmful(), [Harmful()], ["[]"], b"[]", 3, ("[]", "[]")):
        with pytest.raises(
            BadInput, match=r"line 1 \(q1\): private_test_cases is neither JSON nor base64 of zlib of a "
        ):
            load(tmp_path, contest_row(private_test_cases=packed(content)))
    assert not (tmp_path / "harm").exists()


def test_what_unpacks_to_too_much_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr("codea1.lab.packed.MAX_UNPACKED_BYTES", 1 << 20)
    bomb = base64.b64encode(zlib.compress(bytes(1 << 24))).decode()
    with pytest.raises(BadInput, match=r"\(q1\): private_test_cases unpacks to more than 1 MiB"):
        load(tmp_path, contest_row(private_test_cases=bomb))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"contest_date": "spring"}, r"line 1: contest_date is 'spring', which is no date"),
        ({"contest_date": None}, r"line 1: the field 'contest_date' is missing"),
        ({"starter_code": 3}, r"line 1: the field 'starter_code' is not text"),
        ({"difficulty": "harder"}, r"line 1 \(q1\): difficulty is 'harder', not one of easy, medium, hard"),
        ({"metadata": "["}, r"line 1 \(q1\): metadata is not JSON"),
        ({"metadata": "[]"}, r"line 1 \(q1\): metadata is no object whose func_name is a name"),
        ({"metadata": '{"func_name": "f(); g"}'}, r"metadata is no object whose func_name is a name"),
        ({"public_test_cases": '[{"input": "1"}]'}, r"\(q1\): public_test_cases is no list of tests that have input"),
        ({"public_test_cases": '[["1", "2"]]'}, r"public_test_cases is no list of tests"),
        ({"private_test_cases": "[{}"}, r"\(q1\): private_test_cases is not JSON"),
        ({"private_test_cases": "eJw="}, r"private_test_cases is neither JSON nor .*: it is cut off"),
        ({"private_test_cases": "ä"}, r"private_test_cases is neither JSON nor base64"),
        ({"private_test_cases": packed("{}")}, r"private_test_cases is no list of tests"),
    ],
)
def test_bad_rows(tmp_path, changes, told):
    with pytest.raises(BadInput, match=told):
        load(tmp_path, contest_row(**changes))


def test_a_window_holds_its_first_and_last_day(tmp_path):
    days = ["2024-12-31", "2025-01-01", "2025-01-31", "2025-02-01"]
    # A row outside is not read.
    rows = [contest_row(day, day=day) for day in days] + [{"contest_date": "2023-01-01"}]
    # As in the package, of the last day the first moment counts.
    rows += [contest_row("late", contest_date="2025-01-31T14:30:00")]

    def ids(*window: str) -> list[str]:
        return [question.id for question in load(tmp_path, *rows, window=window).questions]

    assert ids("2025-01-01", "2025-01-31") == days[1:3]
    assert ids("2025-01-01", "") == [*days[1:], "late"]
    assert ids("2024-01-01", "2025-01-01") == days[:2]
    with pytest.raises(BadInput, match=r"lcb\.jsonl: no question is of a contest from 2026-01-01 until \."):
        ids("2026-01-01", "")
    with pytest.raises(BadInput, match=r"question q1 comes twice"):
        load(tmp_path, contest_row(), contest_row())


def test_what_is_asked_and_what_of_an_answer_is_the_program(tmp_path):
    benchmark = load(tmp_path, contest_row("whole"), contest_row("method", PAIRS, "f"))
    whole, method = benchmark.questions
    system, user = benchmark.messages(whole, DEFAULT)
    assert (system["role"], user["role"]) == ("system", "user")
    assert user["content"].startswith("### Question:\nAdd {two} numbers.\n\n### Format: Read the inputs from stdin")
    assert "to STDOUT.\n```python\n# YOUR CODE HERE\n```\n\n### Answer: (use the" in user["content"]
    assert f"```python\n{STARTER}\n```\n\n" in benchmark.messages(method, DEFAULT)[1]["content"]
    assert benchmark.program(whole, "Try\n```\na\n```\nor better\n```python\nb\n\nc\n```\nof course") == "b\n\nc"
    assert benchmark.program(whole, "It is\n```python\nprint(") == ""  # cut off
    assert benchmark.program(whole, "print(1)") == "print(1)"
    assert benchmark.continued(method, "return v") == f"{STARTER}return v"


def asked(tmp_path: Path, **changes: Any) -> EvaluationSpec:
    files = f"{tmp_path / 'one.jsonl'},{tmp_path / 'two.jsonl'}"
    usual = {"benchmark": "livecodebench", "file": files, "completions": str(tmp_path / "c.jsonl")}
    return EvaluationSpec(**{**usual, "output": str(tmp_path / "out"), **changes})


def test_an_evaluation_of_a_window(tmp_path, capsys):
    right, wrong = "print(sum(map(int, input().split())))", "print(3)"
    write_rows(tmp_path / "one.jsonl", contest_row("old", day="2024-02-01"), contest_row("a"))
    hard = contest_row("b", difficulty="hard")
    write_rows(tmp_path / "two.jsonl", hard, contest_row("c", [("1", "NaN"), ("x", "1")], "f"))
    programs = [("a", right), ("a", wrong), ("b", right), ("b", right), ("c", right), ("c", right)]
    write_rows(tmp_path / "c.jsonl", *({"task_id": id, "solution": program} for id, program in programs))
    window = ("2025-01-01", "2025-03-01")
    evaluate_code(asked(tmp_path, window=window), Hosts())
    whole = json.loads((tmp_path / "out" / "evaluations" / "livecodebench_step_000000.json").read_text())
    assert whole["question_ids"] == ["a", "b", "c"]
    found = {name: metric["per_question"] for name, metric in whole["metrics"].items()}
    assert found["avg_at_2"] == [0.5, 1.0, None]
    assert found["easy_avg_at_2"] == [0.5, None, None]
    assert found["hard_pass_at_1"] == [None, 1.0, None]
    # Of a question that cannot be judged it says why, and that no ground truth was there to tell.
    assert whole["left_out"] == {"c": "its tests cannot be used: Expecting value: line 1 column 1 (char 0)"}
    assert "livecodebench has no ground truths: that its tests are right is taken on trust." in capsys.readouterr().err
    evaluate_code(asked(tmp_path, window=window), Hosts())
    with pytest.raises(BadInput, match=r'from is "2025-01-01" there and "2025-01-02" here'):
        evaluate_code(asked(tmp_path, window=("2025-01-02", "2025-03-01")), Hosts())


def test_what_needs_ground_truths_is_refused(tmp_path):
    with pytest.raises(BadInput, match=r"--completions=ground_truth: livecodebench has no ground truths"):
        given_attempts("ground_truth", load(tmp_path, contest_row()))


def test_a_kernel_without_threads_leaves_out_large_inputs(tmp_path):
    class Threadless:
        has_threads = False

    large = contest_row("large", [("1 " * (1 << 16), "3")])
    benchmark = load(tmp_path, contest_row(), large, pool=Threadless())
    assert list(benchmark.unjudged()) == ["large"]
    assert "an input is larger than 64 KiB" in benchmark.unjudged()["large"]
