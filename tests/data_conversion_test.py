"""What becomes of rows whose programs are run: what is kept, what is left out and why; killed, it goes on."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from etils import epath

from codea1.data.loader import load_questions
from codea1.game.question import Question
from codea1.lab.data import conversion
from codea1.lab.data.conversion import Format, converted, make_training_set
from codea1.lab.data.conversion_parts import Parts, head_of
from codea1.lab.data.formats import FORMATS, kodcode
from codea1.lab.data.near_duplicates import NearDuplicates
from codea1.runtime.errors import BadInput
from codea1.sandbox.host import ScriptRun
from codea1.sandbox.host.grading import Grader, Grading, GroundTruthAnswer
from codea1.sandbox.host.pool import SandboxPool
from codea1.values.verdict import Verdict
from tests.conftest import ROOT
from tests.data_sets_test import Converted, convert, pool

__all__ = ["convert", "pool"]

SUM = "import sys\nprint(sum(map(int, sys.stdin.read().split())))\n"
SLOW = "import time\n        while a == 300 and time.process_time() < 3: pass\n        return a + {0}"
ENDLESS = "while True:\n    pass\n"


def mbpp(number: int = 1, body: str = "return a + {}", **changes) -> dict:
    row = {
        "task_id": number,
        "text": f"Write a function to add {number}.",
        "code": f"def add(a):\n    {body.format(number)}\n",
        "test_list": [f"assert add({a}) == {a + number}" for a in (1, 20, 300)],
        "test_setup_code": "",
    }
    return {**row, **changes}


def stdin(*solutions: str, pairs: tuple = (("1 2", "3"), ("3 4", "7"), ("5 6", "11")), **changes) -> dict:
    given = {"inputs": [given for given, _ in pairs], "outputs": [printed for _, printed in pairs]}
    return {"problem_id": 1, "question": "Add up.", "solutions": list(solutions), "input_output": given, **changes}


def lines(path: Path, *rows: dict | str) -> str:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return str(path)


def test_a_solution_that_never_ends_takes_the_time_of_one_test(convert, pool):
    pairs = tuple((f"{n} 1", str(n + 1)) for n in range(20))
    started = time.monotonic()
    before = pool.counters()["timeouts"]
    (left_out,) = convert("apps", stdin(ENDLESS, pairs=pairs)).left_out
    assert pool.counters()["timeouts"] - before == 2  # it is asked again alone
    assert time.monotonic() - started < 30
    assert left_out.reason == "its solution runs out of time"
    assert left_out.detail == "its smallest test takes more than 2 s of CPU time"


def test_a_solution_that_is_too_slow_for_some_tests_keeps_the_smaller_ones(convert, pool):
    slow = "n = int(input())\nwhile n > 100: pass\nprint(n)\n"
    pairs = tuple((str(n), str(n)) for n in (3, 1000, 2, *range(2000, 2030), 1))
    before = pool.counters()["timeouts"]
    result = convert("apps", stdin(slow, pairs=pairs))
    assert pool.counters()["timeouts"] - before <= 8
    assert result.kept[0].golden_tests == tuple(f"assert stdout('{n}\\n') == '{n}'" for n in (3, 2, 1))
    assert result.kept[0].check_script is None
    assert result.outcomes[0].lost_script == "their solution runs out of time"


def test_another_solution_is_the_ground_truth_where_the_first_fails_a_test(convert):
    nearly = SUM.replace("print(", "print(3 or ")
    result = convert("apps", stdin(nearly, "print(1 / 0)", SUM, "print(4)"))
    assert result.kept[0].ground_truth == SUM
    assert len(result.kept[0].golden_tests) == 3
    lenient = replace(FORMATS["apps"], min_passed=0.3)
    result = convert(lenient, stdin("print(0)", nearly, "print(1 / 0)"))  # the best, where none passes all
    assert (result.kept[0].ground_truth, len(result.kept[0].golden_tests)) == (nearly, 1)
    (left_out,) = convert("apps", stdin("print(1 / 0)", *(f"print({n} + 40)" for n in range(8)))).left_out
    assert left_out.reason == "its solution passes none of its tests, twice"
    assert left_out.detail == "ZeroDivisionError: division by zero; 5 of its solutions were tried"


def test_an_input_of_23_kb_is_a_golden_test_and_a_larger_one_is_counted(tmp_path, capsys):
    numbers = " ".join(str(n % 1000) for n in range(6000))
    pairs = (("1 2", "3"), (numbers, str(sum(n % 1000 for n in range(6000)))), (f"{numbers} " * 3, "0"))
    file = lines(tmp_path / "a.jsonl", stdin(SUM, pairs=pairs))
    make_training_set(FORMATS["apps"], [file], str(tmp_path / "out.parquet"))
    (question,) = load_questions(str(tmp_path / "out.parquet"))
    assert [len(test) > 20_000 for test in question.golden_tests] == [False, True]
    told = " ".join(capsys.readouterr().out.split())
    assert "tests left out: no data, or more than 64 KiB of it 1 " in told


@pytest.mark.parametrize(
    ("body", "passed", "dropped"),
    [
        ("return a + {0}", 1.0, {}),
        ("return {0} + 1 ", 1 / 3, {"the solution fails them": 2}),
        ("return a + {0} if a > 1 else [][a]", 2 / 3, {"the solution fails them": 1}),
        ("return a + {0} if a < 300 else id([])", 1.0, {"their answer is another when it is run again": 1}),
        ("return a + {0} if a < 300 else list({{9, a}})[0]", 1.0, {"their answer depends on the order of a set": 1}),
        (SLOW, 1.0, {"the solution runs out of time": 1}),
    ],
)
def test_a_row_whose_solution_fails_tests_of_its_own_is_left_out_unless_the_share_may_be_lower(
    convert, body, passed, dropped
):
    row = mbpp(body=f"if True:\n        {body}", test_list=[], test_setup_code="")
    row |= {"test_list": [f"assert add({a}) == {a + 1}" for a in (1, 20, 300)]}
    (outcome,) = convert("mbpp", row).outcomes
    assert (outcome.passed, outcome.reason) == (passed, "" if passed == 1 else "its solution fails one of its tests")
    (outcome,) = convert(replace(FORMATS["mbpp"], min_passed=passed), row).outcomes
    assert (outcome.passed, outcome.dropped, outcome.reason) == (passed, dropped, "")
    assert outcome.lost_script.startswith("a test of theirs depends on the run") == ("their answer" in str(dropped))
    assert (outcome.question.check_script is None) == ("the solution fails them" in dropped)


MISSING = "its solution imports {}, which is not here"
FAILS = "its solution passes none of its tests, twice"


@pytest.mark.parametrize(
    ("changes", "reason", "detail"),
    [
        ({"code": "import not_there\ndef add(a): return a"}, MISSING.format("not_there"), ""),
        ({"body": "import not_there.b"}, MISSING.format("not_there"), ""),
        ({"body": "return [][a]"}, FAILS, "IndexError: list index out of range"),
        ({"body": "return a"}, FAILS, ""),
        ({"body": "return open"}, FAILS, "not plain data"),
        ({"body": "return id({{}})"}, "its solution answers otherwise when it is run again", ""),
        ({"test_list": ["assert add(int('1')) == 3"], "code": "import no\ndef add(a): 0"}, MISSING.format("no"), ""),
    ],
)
def test_what_a_solution_did_is_the_reason(convert, changes, reason, detail):
    (left_out,) = convert("mbpp", mbpp(**changes)).left_out
    assert (left_out.reason, left_out.detail) == (reason, detail)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"test_list": ["assert add(1) == 2", "assert ("]}, "they do not parse"),
        ({"test_list": ["assert add(1) == 2", "assert add(2) == 2"]}, "their solution fails them"),
        ({"test_setup_code": "import not_there"}, "they cannot run"),
        ({}, ""),
    ],
)
def test_why_a_check_script_is_left_out_is_told(convert, changes, why):
    (outcome,) = convert(replace(FORMATS["mbpp"], min_passed=0.5), mbpp(**changes)).outcomes
    assert outcome.lost_script == why
    assert (outcome.question.check_script is None) == bool(why)


def test_a_slow_solution_is_counted(convert):
    busy = "import time as t\n    end = t.process_time() + 0.5 * (a == 1)\n    while t.process_time() < end: pass\n    "
    slow = mbpp(1, f"{busy}return a + 1", task_id=2, text="Add one, slowly.")
    outcomes = convert("mbpp", mbpp(), slow).outcomes
    assert [each.is_slow for each in outcomes] == [False, True]
    assert all(each.question for each in outcomes)


@pytest.mark.parametrize(
    ("bad", "detail"),
    [
        ('{"task_id": 1, "te', "not JSON: Invalid control character at: line 1 column 19 (char 18)."),
        ("[1]", "not a JSON object."),
        ('{"a": ' + "[" * 200_000 + "]" * 200_000 + "}", "JSON nested too deeply."),
        ("\x80", "not UTF-8."),
        ({"task_id": 1}, "the field 'text' is missing."),
        (mbpp(2, code=None), "code is NoneType."),
    ],
)
def test_a_line_that_is_no_row_is_left_out_by_its_number(tmp_path, bad, detail):
    file = tmp_path / "a.jsonl"
    file.write_bytes(Path(lines(file, mbpp(), bad, mbpp(3))).read_text().encode("latin-1"))
    make_training_set(FORMATS["mbpp"], [str(file)], str(tmp_path / "out.parquet"))
    assert len(load_questions(str(tmp_path / "out.parquet"))) == 2
    (left_out,) = map(json.loads, (tmp_path / "out.left_out.jsonl").read_text().splitlines())
    assert left_out["row"] == f"{file}, line 2"
    assert (left_out["reason"], left_out["detail"]) == ("it is no row of this form", detail)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (["{", "{}", "[]"], r"none of 3 rows of .*bad\.jsonl is of this form; .*bad\.jsonl, line 1: not JSON"),
        ([{"task_id": 1}], r"bad\.jsonl, line 1: the field 'text' is missing"),
        (['{"a": "' + "x" * 2000 + '"}', "{"], r"bad\.jsonl, line 1: longer than 1,000 bytes"),
        ([], r"bad\.jsonl has no row"),
    ],
)
def test_a_file_in_which_every_row_is_bad_is_reported_and_ends_a_conversion_of_no_other_file(
    tmp_path, monkeypatch, capsys, rows, told
):
    monkeypatch.setattr("codea1.data.rows._MAX_LINE", 1000)
    bad = lines(tmp_path / "bad.jsonl", *rows)
    with pytest.raises(BadInput, match=told):
        make_training_set(FORMATS["mbpp"], [bad], str(tmp_path / "out.parquet"))
    assert os.listdir(tmp_path) == ["bad.jsonl"]
    make_training_set(FORMATS["mbpp"], [lines(tmp_path / "good.jsonl", mbpp()), bad], str(tmp_path / "out.parquet"))
    assert re.search(f"Passing over a file: .*{told}", capsys.readouterr().out)
    assert len(load_questions(str(tmp_path / "out.parquet"))) == 1


def test_no_question_left_names_the_first_row_and_its_reason(tmp_path):
    file = lines(tmp_path / "a.jsonl", mbpp(body="return [][a]"))
    with pytest.raises(BadInput, match=rf"a\.jsonl, line 1: {FAILS[:-7]}.*IndexError: list index"):
        make_training_set(FORMATS["mbpp"], [file], str(tmp_path / "out.parquet"))
    assert os.listdir(tmp_path) == ["a.jsonl"]


def test_a_claimed_set_whose_members_collide_is_not_made(convert, monkeypatch):
    monkeypatch.setattr("codea1.values.decoding.set", None, raising=False)  # no hash is taken in this process
    row = {"name": "q", "right": "def q(x):\n    return {1}\n", "wrong": "def q(x):\n    return 0\n'''T'''\n"}
    assert convert("quixbugs", {**row, "tests": [[[1], [1]]]}).left_out
    as_tuple = {**row, "right": "def q(x):\n    return (1, [2, (3,)])\n"}
    assert convert("quixbugs", {**as_tuple, "tests": [[[1], [1, [2, [3]]]]]}).kept[0].golden_tests == (
        "assert q(1) == (1, [2, (3,)])",
    )


class Loses(Grader):
    """A grader whose sandbox fails on what one method asks of the programs that have a text."""

    def __init__(self, pool: SandboxPool, method: str, text: str) -> None:
        super().__init__(pool)
        self._method, self._text = method, text

    def ground_truth(self, program: str, calls: list) -> Future:
        lost = [GroundTruthAnswer(False, b"", "infra", 0.0)] * len(calls)
        return self._lost("ground_truth", program, lost) or super().ground_truth(program, calls)

    def grade(self, program: str, tests: list, checker: str = "", ground_truth: str = "") -> Future:
        lost = Grading(None, [Verdict.INFRA] * len(tests), ["it is gone"] * len(tests), 0.0)
        return self._lost("grade", program, lost) or super().grade(program, tests, checker, ground_truth)

    def check(self, program: str, script: str, entry_point: str) -> Future:
        lost = ScriptRun(Verdict.INFRA, "it is gone", 0.0)
        return self._lost("check", program, lost) or super().check(program, script, entry_point)

    def _lost(self, method: str, program: str, lost: object) -> Future | None:
        if method != self._method or self._text not in program:
            return None
        future: Future = Future()
        future.set_result(lost)
        return future


RIGHT, MUTANT, RAISES = (f"def f(a):\n    return {body}" for body in ("a + 1", "a + 2 if a else 1", "[][a]"))


@pytest.mark.parametrize(
    ("method", "text", "program"),
    [
        ("ground_truth", RIGHT, RIGHT),
        ("check", RIGHT, RIGHT),
        ("grade", MUTANT, RIGHT),
        ("check", MUTANT, RIGHT),
        ("grade", RAISES, RAISES),
    ],
)
def test_what_the_sandbox_lost_says_nothing_of_a_row(tmp_path, pool, method, text, program):
    script = "def check(candidate):\n    assert candidate(5) == 6"
    question = Question("q", None, "p", "Add one.", program, "f", script, ("assert f(0) == 1",), (MUTANT,))
    format = Format(lambda file: (), lambda row, where: question, "", "")
    parts, grader = Parts(epath.Path(tmp_path / "parts"), {}), Loses(pool, method, text)
    (outcome,) = converted(format, [("row 0", {})], NearDuplicates([]), grader, lambda: None, parts)
    assert (outcome.question, outcome.reason) == (None, "the sandbox failed on its programs")


def left_out_of(output: Path) -> list[tuple[str, str]]:
    """The ids and reasons of the rows that a conversion left out."""
    rows = map(json.loads, output.with_suffix(".left_out.jsonl").read_text().splitlines())
    return [(row["question_id"], row["reason"]) for row in rows]


def test_rows_that_were_lost_are_tried_again_by_the_same_command_and_left_out_when_lost_twice(tmp_path, monkeypatch):
    file = lines(tmp_path / "rows.jsonl", *map(mbpp, (1, 2, 3)), mbpp(4, text=mbpp(2)["text"]))
    make_training_set(FORMATS["mbpp"], [file], str(tmp_path / "whole.parquet"))
    output, twice = tmp_path / "out.parquet", tmp_path / "twice.parquet"
    told = r"failed on 1 of 4 rows, first on .*line 2 .*the same command tries them"
    with monkeypatch.context() as patch:
        patch.setattr(conversion, "Grader", lambda pool: Loses(pool, "ground_truth", "a + 2"))
        for file_of_questions in (output, twice):
            with pytest.raises(BadInput, match=told):
                make_training_set(FORMATS["mbpp"], [file], str(file_of_questions))
            assert not file_of_questions.exists()
        make_training_set(FORMATS["mbpp"], [file], str(twice))
    assert ("mbpp/2", "the sandbox failed on its programs") in left_out_of(twice)
    assert {question.id for question in load_questions(str(twice))} == {"mbpp/1", "mbpp/3"}
    make_training_set(FORMATS["mbpp"], [file], str(output))
    for suffix in (".parquet", ".left_out.jsonl"):
        assert output.with_suffix(suffix).read_bytes() == (tmp_path / "whole.parquet").with_suffix(suffix).read_bytes()


RUN = """
import os, signal, sys
from codea1.lab.data import conversion_parts
from codea1.lab.data.conversion import make_training_set
from codea1.lab.data.formats import FORMATS
_, file, output, parts = sys.argv  # after so many parts it is killed

def store(self):
    stores(self)
    if len(list(self._folder.glob("*.zst"))) == int(parts):
        os.kill(os.getpid(), signal.SIGKILL)

stores, conversion_parts.Parts.store = conversion_parts.Parts.store, store
conversion_parts._SECONDS_PER_PART = 0.0
make_training_set(FORMATS["mbpp"], [file], output)
"""


def test_a_conversion_that_is_killed_goes_on_and_writes_the_same_bytes(tmp_path):
    rows = [mbpp(number) for number in range(1, 25)]
    rows[4] = mbpp(5, "return [][a]")
    rows[20:22] = [mbpp(2, text="By the id of an early row."), mbpp(40, text=rows[2]["text"])]
    file = lines(tmp_path / "rows.jsonl", *rows[:12], "{", *rows[12:])
    make_training_set(FORMATS["mbpp"], [file], str(tmp_path / "whole.parquet"))
    output, parts = tmp_path / "out.parquet", tmp_path / "out.parts"
    command = [sys.executable, "-c", RUN, file, str(output)]
    for stored in (3, 14):
        assert subprocess.run([*command, str(stored)], cwd=ROOT).returncode == -signal.SIGKILL
        assert not output.exists()
    done = subprocess.run([*command, "0"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    behind = int(done.stderr.partition("Going on behind ")[2].split()[0])
    assert behind == 14
    for suffix in (".parquet", ".left_out.jsonl"):
        assert output.with_suffix(suffix).read_bytes() == (tmp_path / "whole.parquet").with_suffix(suffix).read_bytes()
    assert not parts.exists()
    assert [reason for _, reason in left_out_of(output)] == [
        FAILS,
        "it is no row of this form",
        "its id is an earlier row's",
        "asks what an earlier row asks",
    ]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"inputs": ["b.jsonl"]}, "another value of: files;"),
        ({"settings": "max_pass_rate=0.7"}, "another value of: settings;"),
        ({"source": "another"}, "another value of: form of files;"),
        ({"exclude": ["b.jsonl"]}, "another value of: files to stay away from;"),
    ],
)
def test_parts_of_another_conversion_are_never_taken(tmp_path, monkeypatch, change, told):
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        lines(tmp_path / f"{name}.jsonl", mbpp())
    asked = {"source": "mbpp", "settings": "", "inputs": ["a.jsonl"], "exclude": []}
    folder = epath.Path(tmp_path / "out.parts")
    Parts(folder, head_of(**asked))
    Parts(folder, head_of(**asked))
    with pytest.raises(BadInput, match=f"out.parts holds parts of a conversion with {told}"):
        Parts(folder, head_of(**asked | change))
    lines(tmp_path / "a.jsonl", mbpp(2))
    with pytest.raises(BadInput, match="another value of: files;"):
        Parts(folder, head_of(**asked))
    assert kodcode(0.3).settings != kodcode(0.4).settings


@pytest.fixture
def stored(tmp_path: Path, convert: Callable[..., Converted]) -> epath.Path:
    """The outcomes of three rows, a part each."""
    folder, outcomes = epath.Path(tmp_path / "out.parts"), convert("mbpp", *map(mbpp, (1, 2, 3))).outcomes
    parts = Parts(folder, {})
    for number, outcome in enumerate(outcomes):
        parts.add(number, outcome)
        parts.store()
    assert Parts(folder, {}).done == dict(enumerate(outcomes))
    return folder


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda part: part.unlink(), "is no part, or not the next one"),
        (lambda part: part.write_bytes(part.read_bytes()[:-1]), "is damaged"),
        (lambda part: (part.parent / "notes.txt").touch(), r"notes\.txt is no part"),
        (lambda part: (part.parent / "head.json").unlink(), "holds no parts of a conversion"),
    ],
)
def test_parts_that_are_damaged_are_refused(stored, damage, told):
    damage(stored / "000000000001.jsonl.zst")
    with pytest.raises(BadInput, match=told):
        Parts(stored, {})


def test_what_stands_in_the_place_of_parts_or_of_an_output_is_refused_and_kept(tmp_path):
    (tmp_path / "out.parts").write_text("mine")
    with pytest.raises(BadInput, match=r"out\.parts is there already, and is no folder of parts"):
        Parts(epath.Path(tmp_path / "out.parts"), {})
    assert (tmp_path / "out.parts").read_text() == "mine"
    (tmp_path / "a.parquet").write_text("mine")
    (tmp_path / "a.parts").mkdir()
    with pytest.raises(BadInput, match=r"a\.parquet is there already; .*a\.parts went into it and can be removed"):
        make_training_set(FORMATS["mbpp"], [], str(tmp_path / "a.parquet"))
    assert (tmp_path / "a.parquet").read_text() == "mine"


def test_parts_are_kept_in_a_bucket_too(bucket, tmp_path):
    file = lines(tmp_path / "a.jsonl", mbpp())
    make_training_set(FORMATS["mbpp"], [file], f"{bucket}/out.parquet")
    held = sorted(each.name for each in epath.Path(bucket).iterdir())
    assert held == ["out.left_out.jsonl", "out.parquet"]


def test_what_was_settled_is_stored_when_the_rows_end_early(tmp_path, pool):
    def rows() -> Iterator:
        yield "row 0", mbpp()
        time.sleep(3)
        yield "row 1", mbpp(2)
        raise BadInput("the rest is damaged")

    parts = Parts(epath.Path(tmp_path / "out.parts"), {})
    with pytest.raises(BadInput, match="the rest is damaged"):
        converted(FORMATS["mbpp"], rows(), NearDuplicates([]), Grader(pool), lambda: None, parts)
    assert len(Parts(epath.Path(tmp_path / "out.parts"), {}).done) >= 1


def test_a_row_that_takes_long_holds_back_no_other(tmp_path, pool):
    parts, threads = Parts(epath.Path(tmp_path / "parts"), {}), ThreadPoolExecutor(1)

    class Holds(Grader):
        """A grader that answers about the first row when those behind it are known."""

        def ground_truth(self, program: str, calls: list) -> Future:
            if "a + 1\n" not in program:
                return super().ground_truth(program, calls)
            return threads.submit(self._wait, program, calls)

        def _wait(self, program: str, calls: list) -> list[GroundTruthAnswer]:
            while parts.done.keys() < {1, 2, 3}:
                time.sleep(0.01)
            return super().ground_truth(program, calls).result()

    rows = [(f"row {number}", mbpp(number)) for number in (1, 2, 3, 4)]
    outcomes = converted(FORMATS["mbpp"], rows, NearDuplicates([]), Holds(pool), lambda: None, parts)
    assert [outcome.where for outcome in outcomes] == [where for where, _ in rows]
