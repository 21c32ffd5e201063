"""Held-out evaluation against numbers counted by hand, with players whose answers are known."""

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

import numpy as np
import pytest

from codea1.config_file import default_config, validate
from codea1.evaluation.held_out import HeldOut, evaluate, evaluate_tests
from codea1.evaluation.result_files import summary
from codea1.game.calls import Call, CallTest
from codea1.game.question import Question
from codea1.rollout.engine import Request, Sample
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.sandbox.host import ScriptRun
from codea1.sandbox.host.grading import Grader, Grading, GroundTruthAnswer
from codea1.sandbox.host.pool import SandboxPool
from codea1.training.setup import game_rules
from codea1.values.verdict import Verdict
from tests.conftest import done
from tests.hosts_shares_test import on_hosts

TRUTH = "def f(x):\n    return x + 1"
CHECK = "def check(candidate):\n    assert [candidate(x) for x in range(5)] == [1, 2, 3, 4, 5]"


def question(name: str, **changes) -> Question:
    fields = {"check_script": CHECK, "mutants": ("def f(x):\n    return x + 2", "def f(x):\n    return abs(x) + 1")}
    return Question(name, None, name, name, TRUTH, "f", **{**fields, **changes})


class _Texts:
    """A tokenizer whose tokens are indices of texts."""

    def __init__(self, texts: Sequence[str]):
        self.texts = texts

    def decode(self, ids: Sequence[int]) -> str:
        return self.texts[ids[0]]


class _Player:
    """Sample i of any prompt says text i; the greedy answer is the first text."""

    def __init__(self, *texts: str, longest: int = 100):
        self.tokenizer, self._longest = _Texts(texts), longest

    def prompt_ids(self, messages: Sequence[dict[str, str]]) -> tuple[int, ...]:
        return tuple(range(len(messages[0]["content"])))

    def fits(self, prompt_ids: Sequence[int]) -> bool:
        return len(prompt_ids) <= self._longest

    def generate(self, requests: Sequence[Request], **_: object) -> Iterator[Sample]:
        for request in reversed(requests):
            for index in range(request.first_sample, request.first_sample + request.num_samples):
                yield Sample(request.question_id, index, request.prompt_ids, (index,), np.zeros(1), "stop")


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with SandboxPool(2, isolation="auto") as pool:
        yield Grader(pool)


def held_out(*questions: Question, samples: int = 4) -> HeldOut:
    config = default_config()
    config.game.prompts, config.game.num_tests, config.game.assert_forms = "tiny", 2, "equality"
    return HeldOut(questions, game_rules(validate(config)), samples, shown_mutants=2, purpose="test")


def test_solutions_are_counted_per_question(grader):
    wrong = "def f(x):\n    return 1"
    player = _Player(TRUTH, wrong, wrong, TRUTH)
    asked = held_out(question("q"), question("a much longer name"), samples=4)
    measured = evaluate(asked, {"code": player}, grader, Hosts())
    assert measured["code_pass_at_1"] == [0.5, 0.5]
    assert measured["code_pass_at_1_greedy"] == [1.0, 1.0]
    assert measured["code_pass_at_2"] == [pytest.approx(5 / 6)] * 2  # all but 1 of 6 pairs hold a right one


def test_a_question_that_does_not_fit_is_not_passed(grader):
    player = _Player(TRUTH, TRUTH, longest=5)
    measured = evaluate(held_out(question("q"), question("too long"), samples=2), {"code": player}, grader, Hosts())
    assert measured["code_pass_at_1"] == [1.0, 0.0]


def test_suites_are_counted_per_mutant_shown(grader):
    # Shown x + 2: one right test, which kills it, and a wrong one whose input -1 kills both mutants.
    # Shown abs(x) + 1: two right tests, neither of which kills it; the other mutant dies of the first already.
    # Its third, beyond K, would.
    player = _Player("assert f(1) == 2\nassert f(-1) == 7", "assert f(1) == 2\nassert f(2) == 3\nassert f(-1) == 0")
    measured = evaluate(held_out(question("q")), {"code": _Player(*[TRUTH] * 4), "test": player}, grader, Hosts())
    assert measured["test_validity"] == [pytest.approx((0.5 + 1.0) / 2)]
    assert measured["test_mutation_score"] == [pytest.approx((1.0 + 0.5) / 2)]
    assert measured["test_mutation_score_at_1"] == [pytest.approx(0.5)]
    assert measured["test_strict_kill"] == [pytest.approx((1.0 + 0.0) / 2)]
    assert measured["test_mul"] == [[pytest.approx(0.75), pytest.approx(0.75)]]
    evaluation = summary(measured, 3, "test", ["q"])
    assert evaluation["metrics"]["test_mul"]["mean"] == pytest.approx(0.5625)
    assert (evaluation["questions"], evaluation["question_ids"]) == (1, ["q"])


def test_a_question_without_mutants_is_undefined(grader):
    players = {"code": _Player(*[TRUTH] * 4), "test": _Player("assert f(1) == 2", "")}
    measured = evaluate(held_out(question("q", mutants=()), question("r")), players, grader, Hosts())
    assert np.isnan(measured["test_validity"][0])
    assert measured["test_validity"][1] == 0.25


class _Failing:
    """A grader whose sandbox judges nothing but what `judged` is part of; its check scripts end as `run` says."""

    def __init__(self, grader: Grader, run: ScriptRun, judged: str = "nothing at all"):
        self._grader, self._run, self._judged = grader, run, judged

    def check(self, program: str, script: str, entry_point: str) -> Future[ScriptRun]:
        return self._grader.check(program, script, entry_point) if self._judged in program else done(self._run)

    def ground_truth(self, program: str, calls: Sequence[Call]) -> Future[list[GroundTruthAnswer]]:
        return self._grader.ground_truth(program, calls)

    def grade(self, program: str, tests: Sequence[CallTest], *others: str) -> Future[Grading]:
        lost = Grading(None, [Verdict.INFRA] * len(tests), ["no namespaces"] * len(tests), 0.0)
        return self._grader.grade(program, tests, *others) if self._judged in program else done(lost)


LOST = ScriptRun(Verdict.INFRA, "no namespaces", 0.0)
CRASHED = ScriptRun(Verdict.ERROR, "script exited with status 1", 0.0)


@pytest.mark.parametrize("run", [LOST, CRASHED])
@pytest.mark.parametrize("num_hosts", [1, 2])
def test_a_validation_in_which_nothing_is_judged_stops_every_host(grader, run, num_hosts):
    asked = held_out(question("q"), question("r"), question("s"))
    players = {"code": _Player(*[TRUTH] * 4)}
    told = rf"all 12 programs for the test questions failed for a reason that is not theirs: {run.detail};"

    def evaluated(hosts: Hosts) -> str:
        with pytest.raises(BadInput) as raised:
            evaluate(asked, players, _Failing(grader, run), hosts)
        return str(raised.value)

    first, *others = on_hosts(num_hosts, evaluated)
    assert re.match(told, first)
    assert others == [""] * (num_hosts - 1)  # one host tells it


def test_what_is_judged_counts_where_the_rest_is_lost(grader):
    player = _Player(TRUTH, *["def f(x): return 1"] * 3)
    failing = _Failing(grader, LOST, judged="return x + 1")
    measured = evaluate(held_out(question("q")), {"code": player}, failing, Hosts())
    assert np.isnan(measured["code_pass_at_1"][0])
    assert measured["code_pass_at_1_greedy"] == [1.0]


def test_programs_that_all_fail_by_themselves_are_judged(grader):
    measured = evaluate(held_out(question("q"), samples=6), {"code": _Player(*["def f("] * 6)}, grader, Hosts())
    assert measured["code_pass_at_1"] == [0.0]


@pytest.mark.parametrize("suite", ["assert f(1) == 2", "nothing is asserted"])
def test_suites_none_of_which_is_judged_stop_the_run(grader, suite):
    asked = held_out(question("q"), question("r"))
    told = r"all 4 suites for the test questions failed .*: (no namespaces|the sandbox failed)"
    with pytest.raises(BadInput, match=told):
        evaluate_tests(asked, _Player(*[suite] * 2), _Failing(grader, LOST), Hosts())
