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
from tests.conftest import ROOT

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


def test_the_page_of_peers_names_the_families_and_reports_that_there_are():
    page = (ROOT / "results" / "siege_peers.md").read_text()
    for family in families().values():
        assert f"| {family.title} | {family.works} | {family.defence} |" in page
    for name, report in sources().items():
        count = sum(attempt.source == name for attempt in attempts() if attempt.is_forgery)
        assert f"| [{report['text']}]({report['url']}) | {count} |" in page


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


def test_a_command_is_a_grader_too(tmp_path):
    script = tmp_path / "grader.py"
    script.write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    asked = json.loads(line)\n"
        "    if 'die' in asked['program']: sys.exit(3)\n"
        "    paid = None if 'skip' in asked['program'] else 'a + b' in asked['program']\n"
        "    print('words of its own')\n"
        "    print(json.dumps({'id': asked['id'], 'paid': paid}), flush=True)\n"
    )
    process = GraderProcess(GraderCommand.read(f"{sys.executable} {script}"), seconds=10)
    said = [process.ask(ADD, program)[0] for program in ("a + b", "a - b", "die", "skip", "a + b")]
    process.end()
    assert said == [PAID, NOT_PAID, DIED, NOT_ASKED, PAID]


def test_what_is_no_grader_is_told_in_one_sentence(tmp_path):
    with pytest.raises(BadInput, match="there is no file"):
        GraderCommand.read("nowhere.py:paid")
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_this_name\n")
    with pytest.raises(BadInput, match="name a function"):
        GraderCommand.read(str(broken))
    with pytest.raises(BadInput, match="nothing_of_this_name"):
        besiege("broken", GraderCommand.read(f"{broken}:paid"), attempts()[:1], seconds=10, jobs=1)
    broken.write_text(NAIVE)
    with pytest.raises(BadInput, match=r"returned -1\.0; it must return True, False or None"):
        besiege("reward", GraderCommand.read(f"{broken}:gives_a_reward"), attempts()[:1], seconds=10, jobs=1)
    with flagsaver.flagsaver():
        flags.FLAGS(["siege"])
        with pytest.raises(BadInput, match="paid all of 30 plain wrong programs"):
            siege_command.main(f"{broken}:pays_all")
    with pytest.raises(BadInput, match="cannot be started"):
        besiege("none", GraderCommand.read("/nowhere/at/all"), attempts()[:1], seconds=10, jobs=1)


def test_the_command_writes_a_report_and_fails_where_too_many_are_paid(naive, tmp_path, capsys):
    with flagsaver.flagsaver():
        flags.FLAGS(["siege", f"--output={tmp_path / 'report'}", "--most=0", "--seconds=10"])
        with pytest.raises(SystemExit) as ended:
            siege_command.main(f"{naive}:paid")
    assert ended.value.code == 1
    assert {path.name for path in (tmp_path / "report").iterdir()} == {"siege.md", "siege.json"}
    assert "forgeries were paid" in capsys.readouterr().out
