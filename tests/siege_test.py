"""Sieges: this project's sandbox pays no forgery and every right program; other graders are judged as they deserve."""

import json
import sys
from pathlib import Path

import pytest
from absl import flags
from absl.testing import flagsaver

from codea1.lab.commands import siege as siege_command
from codea1.lab.siege.attempts import OWN, RIGHT, attempts, families, questions, sources
from codea1.lab.siege.processes import DIED, NOT_ASKED, NOT_PAID, PAID, GraderCommand, GraderProcess
from codea1.lab.siege.sandbox import grade, is_paid
from codea1.lab.siege.siege import besiege
from codea1.runtime.errors import BadInput
from codea1.sandbox.host.pool import SandboxPool
from codea1.sandbox.isolation import Isolation

NAIVE = """
def paid(question, program):
    if question["kind"] == "stdin":
        return None
    space = {"__name__": "solution"}
    try:
        exec(program, space)
        exec("\\n".join(question["asserts"]), space)
    except Exception:
        return False
    return True

def ends(question, program):
    raise SystemExit("no verdict today")

def gives_a_reward(question, program):
    return -1.0

def pays_all(question, program):
    return True

def hangs(question, program):
    while True:
        pass
"""
ADD = questions()["add"]


@pytest.fixture
def naive(tmp_path) -> Path:
    path = tmp_path / "naive.py"
    path.write_text(NAIVE)
    return path


def test_there_are_enough_of_each_kind_and_each_is_told_apart():
    forgeries = [each for each in attempts() if each.is_forgery]
    assert len(families()) == 12
    assert len(forgeries) >= 60
    assert len(attempts()) - len(forgeries) >= 60
    assert len({(each.family, each.name) for each in forgeries}) == len(forgeries)
    assert {each.source for each in forgeries} == {OWN, *sources()}
    assert {questions()[each.question]["kind"] for each in forgeries} == {"function", "method", "stdin"}


@pytest.mark.parametrize("level", Isolation)
def test_this_sandbox_pays_what_is_right_and_nothing_else(level):
    try:
        pool = SandboxPool(2, isolation=level)
    except BadInput as error:
        pytest.skip(str(error))
    with pool:
        for attempt in attempts():
            for program in attempt.earlier:
                grade(pool, questions()[attempt.question], program).result()
        futures = [(each, grade(pool, questions()[each.question], each.program)) for each in attempts()]
        wrong = [each for each, future in futures if is_paid(future.result()) != (each.family == RIGHT)]
    assert not wrong


def test_a_grader_that_compares_beside_the_program_is_forged(naive):
    judged = besiege("naive", GraderCommand.read(f"{naive}:paid"), attempts(), seconds=10, jobs=2)
    assert not judged.misjudged
    paid = {each.attempt.family for each in judged.forged}
    assert {"equality", "subclass", "answers", "patches", "state"} <= paid
    assert judged.of("exit", said=DIED)  # os._exit ends the grader's own process
    assert judged.asked() < len(judged.of())  # it has no form for whole programs
    report = json.loads(judged.json())
    assert report["paid"] == len(judged.forged)
    assert "class Anything:" in judged.markdown()
    assert "Compare plain data that left the program's process" in judged.markdown()


@pytest.mark.parametrize(("function", "why"), [("ends", "no verdict today"), ("hangs", "no verdict within 3 s")])
def test_a_grader_that_gives_no_verdict_died(naive, function, why):
    process = GraderProcess(GraderCommand.read(f"{naive}:{function}"), seconds=3)
    said, reason = process.ask(ADD, "def add(a, b):\n    return a + b\n")
    process.end()
    assert said == DIED
    assert why in reason


OF_A_COMMAND = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if 'die' in asked['program']: sys.exit(3)
    paid = None if 'skip' in asked['program'] else 'a + b' in asked['program']
    print('words of its own')
    print(json.dumps({'id': asked['id'], 'paid': paid}), flush=True)
"""


def test_a_command_is_a_grader_too(tmp_path):
    (tmp_path / "grader.py").write_text(OF_A_COMMAND)
    process = GraderProcess(GraderCommand.read(f"{sys.executable} {tmp_path / 'grader.py'}"), seconds=10)
    said = [process.ask(ADD, program)[0] for program in ("a + b", "a - b", "die", "skip", "a + b")]
    process.end()
    assert said == [PAID, NOT_PAID, DIED, NOT_ASKED, PAID]


@pytest.mark.parametrize(
    ("text", "grader", "said"),
    [
        ("", "nowhere.py:paid", "there is no file"),
        (NAIVE, "{file}", "name a function"),
        ("import nothing_of_this_name", "{file}:paid", "nothing_of_this_name"),
        (NAIVE, "{file}:gives_a_reward", r"returned -1\.0; it must return True, False or None"),
        ("", "/nowhere/at/all", "cannot be started"),
    ],
)
def test_what_is_no_grader_is_told_in_one_sentence(tmp_path, text, grader, said):
    (tmp_path / "grader.py").write_text(text)
    command = grader.format(file=tmp_path / "grader.py")
    with pytest.raises(BadInput, match=said):
        besiege("grader", GraderCommand.read(command), attempts()[:1], seconds=10, jobs=1)


def test_the_command_writes_a_report_and_fails_where_too_many_are_paid(naive, tmp_path, capsys):
    with flagsaver.flagsaver():
        flags.FLAGS(["siege", f"--output={tmp_path / 'report'}", "--most=0", "--seconds=10"])
        with pytest.raises(SystemExit) as ended:
            siege_command.main(f"{naive}:paid")
        with pytest.raises(BadInput, match="paid all of 30 plain wrong programs"):
            siege_command.main(f"{naive}:pays_all")
    assert ended.value.code == 1
    assert {path.name for path in (tmp_path / "report").iterdir()} == {"siege.md", "siege.json"}
    assert "forgeries were paid" in capsys.readouterr().out
