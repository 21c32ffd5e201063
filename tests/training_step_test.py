"""A round: how programs are read; what hosts, here threads, replay and learn from the Mistake Book."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest

from bench.micro_run import content
from codea1.game.answers import extract_program, parse_suite
from codea1.game.calls import Call, CallTest
from codea1.game.grading import (
    Attack,
    Judge,
    Solution,
    grade_on_mutants,
    grade_round,
    grade_solution,
    grade_suites,
    mutants_of,
)
from codea1.game.methods import METHODS
from codea1.game.mistake_book import Bound, MistakeBook, shards_of_host
from codea1.game.prompts import DEFAULT
from codea1.game.question import AS_WRITTEN, Question
from codea1.game.rewards import REWARDS, golden_reward
from codea1.game.round import GradedTest, QuestionRecord, Round, SolutionRecord, SuiteRecord
from codea1.rollout.engine import Sample
from codea1.runtime.futures import start
from codea1.runtime.hosts import Hosts, Shares
from codea1.runtime.phases import Stopwatch
from codea1.sandbox.host.grading import Grader, Grading, GroundTruthAnswer
from codea1.sandbox.host.pool import SandboxPool
from codea1.training.step import Kept, Step
from codea1.values import answers_equal, decode_exact, encode_exact
from codea1.values.verdict import Verdict
from tests.conftest import done
from tests.game_round_test import STRICT, Truth, sample
from tests.hosts_shares_test import on_hosts
from tests.mistake_books import joined, make

NAMES = [f"q{number}" for number in range(9)]


def played(step: int, history: dict[str, list]) -> Round:
    """A round in which two programs pass every second replayed test, and fail new ones."""
    records = []
    for place, name in enumerate(NAMES):
        question = Question(name, None, "", "", "def f(n):\n    return n + 1", "f")
        suite = failed_suite(*range(step, step + place % 4 + 1))
        verdicts = [Verdict.PASS if number % 2 else Verdict.FAIL for number in range(len(history[name]))]
        graded = [GradedTest(test, verdict) for test, verdict in zip(history[name], verdicts, strict=True)]
        solutions = [SolutionRecord(m, sample(""), extract_program(""), True, [suite], graded) for m in range(2)]
        records.append(QuestionRecord(question, solutions))
    return Round(step, records)


def failed_suite(*numbers: int) -> SuiteRecord:
    text = "\n".join(["```python", *(f"assert f({n}) == {n + 1}" for n in numbers), "```"])
    parsed = parse_suite(text, "f")
    answers = {make(n).call: Truth(make(0, n + 1).expected) for n in numbers}
    marked = STRICT.mark(parsed, answers, AS_WRITTEN)
    return SuiteRecord(0, sample(text), parsed, marked, [Verdict.FAIL for item in marked if item.runs])


@pytest.mark.parametrize("most", [0, 7])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_rounds_teach_the_same_book_whatever_the_hosts(count, most):
    rules = SimpleNamespace(history_size=2, max_rounds=1)

    def program(hosts: Hosts) -> tuple[MistakeBook, list]:
        book, seen = MistakeBook(shards_of_host(hosts.index, hosts.count), Bound(max_total=most)), []
        for number in range(1, 6):
            step = Step(number, {}, rules, None, None, book, hosts)
            round_ = step.update_book(played(number, step.retrieve([SimpleNamespace(id=name) for name in NAMES])))
            replayed = [[run.test.text for run in solution.history] for solution in round_.solutions]
            seen.append((replayed, round_.book_change, round_.book_size))
        return book, seen

    (alone, expected), *_ = on_hosts(1, program)
    assert any(tests for replayed, _, _ in expected for tests in replayed)
    assert all(change.added and size for _, change, size in expected)
    books, seen = zip(*on_hosts(count, program), strict=True)
    assert list(seen) == [expected] * count
    assert content(joined(books)) == content(alone.pages())
    assert expected[-1][2] == alone.size > 0
    assert most == 0 or all(size <= most and change.evicted for _, change, size in expected)
    assert all(book.holds(name) or not book.retrieve(name, 1) for book in books for name in NAMES)


def test_without_a_book_nothing_is_told():
    class Nobody(Hosts):
        def exchange(self, value):
            raise AssertionError("there is nothing to tell")

    rules = SimpleNamespace(history_size=0, max_rounds=1)
    step = Step(1, {}, rules, None, None, MistakeBook(), Nobody())
    assert step.retrieve([SimpleNamespace(id=name) for name in NAMES]) == {name: [] for name in NAMES}


def test_no_more_rounds_are_asked_than_there_may_be():
    feed = SimpleNamespace(batch=lambda number: [SimpleNamespace(id=NAMES[number])])
    step = Step(1, {}, SimpleNamespace(max_rounds=2, questions_per_step=1), feed, None, None, Hosts())
    asked = [[question.id for question in step.next_questions(Round(1))] for _ in range(4)]  # none of which teaches
    assert asked == [NAMES[:1], NAMES[1:2], [], []]


@pytest.mark.parametrize(
    ("reward", "program"),
    [
        ("official", "```\nx = 1\n```"),
        ("strict", "x = 1"),
        ("strict_tests", "x = 1"),
        ("simple", "x = 1"),
    ],
)
def test_a_program_is_read_as_the_reward_reads_it(reward, program):
    player = SimpleNamespace(
        prompt_ids=lambda messages: (1,),
        fits=lambda ids: True,
        generate=lambda requests, **_: [Sample("q0", 0, (1,), (2,), np.zeros(1), "stop")],
        tokenizer=SimpleNamespace(transcript=str, decode=lambda ids: "```\nx = 1\n```", num_textless=len),
    )
    rules = SimpleNamespace(
        reward=REWARDS[reward](0.5, 8),
        templates=DEFAULT,
        num_solutions=1,
        golden=False,
        max_rounds=1,
        hidden_reward=False,
    )
    step = Step(1, {"code": player}, rules, None, None, None, Hosts())
    question = Question("q0", None, "", "", "", "f")
    (solution,) = step.solve([question])
    assert solution.program.source == program


CHECKER = "def accepts(given, expected, printed): return False"


@dataclass
class RunsHere:
    """A grader that runs programs in this process, and remembers on which tests."""

    ran: dict[str, list[str]]
    checker: str = ""  # of the question

    def ground_truth(self, program: str, calls: Sequence[Call]) -> Future:
        answers = [encode_exact(value(program, call)) for call in calls]
        return done([GroundTruthAnswer(True, answer, "", 0.0) for answer in answers])

    def grade(self, program: str, tests: Sequence[CallTest], checker: str, ground_truth: str) -> Future:
        assert checker == self.checker
        self.ran[program] = [test.text for test in tests]
        passed = [answers_equal(encode_exact(value(program, test.call)), test.expected) for test in tests]
        verdicts = [Verdict.PASS if each else Verdict.FAIL for each in passed]
        return done(Grading(True, verdicts, [""] * len(verdicts), 0.0))


def value(program: str, call: Call) -> object:
    names: dict = {}
    exec(program, names)
    positional, named = decode_exact(call.arguments)
    return names[call.entry_point](*positional, **named)


def program(expression: str) -> str:
    return f"def f(n):\n    return {expression}"


TRUTH, SAME, ZERO, FLAT = (program(each) for each in ("n + 1", "n", "0", "min(n, 2) + 1"))


def in_block(lines: Sequence[str]) -> str:
    return "\n".join(["```python", *(f"assert {line}" for line in lines), "```"])


def graded_suites(reward: str, hidden_reward: bool, **options) -> tuple[SolutionRecord, dict[str, list[str]]]:
    """Two suites on the second of three solutions, graded as a step does it, and the tests that each program ran."""
    mutants = (FLAT, ZERO, program("-n"), SAME)
    question = Question("q", None, "", "", TRUTH, "f", mutants=mutants, checker=CHECKER)
    texts = [("f(1) == 2", "f(2) == 2", "f(1) == 2"), ("f(5) == 6", "f(3) == 3", "f(4) == 5", "f(2) == 3")]
    rules = SimpleNamespace(
        reward=REWARDS[reward](0.5, 3, **options),
        num_tests=3,
        hidden_reward=hidden_reward,
        all_forms=False,
    )
    grader = RunsHere({}, CHECKER)
    judge, signature = Judge(question, grader), rules.reward.signature(question)
    graded = start(grade_suites(judge, SAME, [in_block(lines) for lines in texts], signature, rules))
    on_mutants = {}
    if any(mutants_of(question, rules)):
        on_mutants = start(grade_on_mutants(judge, {1: graded}, rules)).result()
    suites = [
        SuiteRecord(n, sample(""), *suite, *on_mutants.get((1, n), ([], []))) for n, suite in enumerate(graded.result())
    ]
    return SolutionRecord(1, sample(""), extract_program(SAME), True, suites), grader.ran


@pytest.mark.parametrize("too_long", [None, 0, 2])
def test_suites_begin_before_all_prompts_are_made_and_run_on_mutants_whatever_does_not_fit(too_long):
    made = []  # prompts, the Code LLM's and one for each of three solutions

    def prompt_ids(messages: object) -> tuple[int, ...]:
        made.append(messages)
        return (len(made),)

    def answers(num: int, *texts: str):
        def generate(requests, **_):
            for request in requests:
                seen.append(len(made))
                for index in range(request.first_sample, request.first_sample + num):
                    yield Sample(request.question_id, index, request.prompt_ids, (index,), np.zeros(1), "stop")

        seen: list[int] = []  # prompts that were made when a request was taken
        tokenizer = SimpleNamespace(
            transcript=str, decode=lambda ids: f"```python\n{texts[ids[0]]}\n```", num_textless=len
        )
        fits = {1, 2, 3, 4} - {too_long is not None and 2 + too_long}
        player = SimpleNamespace(prompt_ids=prompt_ids, fits=lambda ids: ids[0] in fits, generate=generate)
        return SimpleNamespace(**vars(player), tokenizer=tokenizer), seen

    code, _ = answers(3, *map(program, ("n", "0", "n - 1")))
    test, seen = answers(1, *["assert f(1) == 2"] * 3)
    rules = SimpleNamespace(
        method=METHODS["code_a1"],
        reward=REWARDS["strict_tests"](0.5, 1, mutant_weight=0.5),
        templates=DEFAULT,
        num_solutions=3,
        num_suites=1,
        num_tests=1,
        golden=False,
        max_rounds=1,
        hidden_reward=False,
        all_forms=False,
    )
    grader = RunsHere({}, CHECKER)
    step = Step(1, {"code": code, "test": test}, rules, None, grader, None, Hosts())
    question = Question("q", None, "", "", TRUTH, "f", mutants=(FLAT, ZERO), checker=CHECKER)
    solutions = step.solve([question])
    step.grade([question], {"q": []}, solutions, step.attack(solutions))
    assert seen == {None: [2, 3, 4], 0: [3, 4], 2: [2, 3]}[too_long]
    assert grader.ran[FLAT] == ["assert f(1) == 2"] * len(seen)


PASS, FAIL = Verdict.PASS, Verdict.FAIL


def test_paid_mutants_run_the_right_tests_among_the_first_k_and_hidden_ones_too():
    solution, ran = graded_suites("strict_tests", hidden_reward=True, mutant_weight=0.5)
    right = [f"assert f({n}) == {n + 1}" for n in (1, 5, 4)]
    assert all(ran[mutant] == right for mutant in (FLAT, ZERO, program("-n")))
    first, second = solution.suites
    assert first.on_mutants == [[PASS], [FAIL]]
    assert second.on_mutants == [[FAIL, FAIL], [FAIL, FAIL]]
    assert [[FAIL in verdicts for verdicts in suite.on_hidden] for suite in (first, second)] == [[True, True]] * 2
    assert first.verdicts == [FAIL, FAIL]  # on its own solution f(2) runs too, with the ground truth's answer
    solution.assign_rewards(REWARDS["strict_tests"](0.5, 3, mutant_weight=0.5))
    assert [suite.reward.adversarial for suite in solution.suites] == [
        (1 / 3) / 2 + (1 / 2) / 2,
        (2 / 3) / 2 + (2 / 2) / 2,
    ]


def test_a_replayed_test_has_the_limit_that_its_ground_truth_sets_in_a_grader_that_has_not_seen_it():
    lines = "end = time.process_time() + 1", "while time.process_time() < end: pass", "return n + 1"
    slow = "import time\ndef f(n):\n    " + "\n    ".join(lines)
    rules = SimpleNamespace(hidden_reward=False)
    with SandboxPool(2, isolation="auto") as pool:
        judge = Judge(Question("q", None, "", "", TRUTH, "f"), Grader(pool))  # as after a resume
        graded = start(grade_solution(judge, slow, [make(1, 2)], rules)).result(60)
    assert graded.grading.verdicts == [Verdict.TIMEOUT]  # though a second is less than the limit of a test


def test_a_mutant_runs_once_for_all_suites_of_a_question_and_each_gets_its_own_verdicts():
    question = Question("q", None, "", "", TRUTH, "f", mutants=(FLAT, ZERO))
    tests = [(["f(1) == 2"], ["f(7) == 8"]), (["f(2) == 3", "f(8) == 0"], ["f(7) == 8", "f(1) == 2"])]
    reward = REWARDS["strict"](0.5, 3, mutant_weight=0.5)
    rules = SimpleNamespace(reward=reward, num_tests=3, hidden_reward=True, all_forms=False)
    grader = RunsHere({})
    judge, programs, signature = Judge(question, grader), (TRUTH, SAME), reward.signature(question)
    suites = {
        m: start(grade_suites(judge, program, list(map(in_block, tests[m])), signature, rules))
        for m, program in reversed(list(enumerate(programs)))  # in whichever order they come
    }
    assert mutants_of(question, rules) == ((FLAT,), (ZERO,))
    graded = start(grade_on_mutants(judge, suites, rules)).result()
    asked = [f"assert f({n}) == {n + 1}" for n in (1, 7, 2, 7, 1)]
    assert grader.ran[FLAT] == grader.ran[ZERO] == asked
    assert graded == {
        (0, 0): ([[PASS]], [[FAIL]]),
        (0, 1): ([[FAIL]], [[FAIL]]),
        (1, 0): ([[PASS]], [[FAIL]]),
        (1, 1): ([[FAIL, PASS]], [[FAIL, FAIL]]),
    }


@pytest.mark.parametrize("order", [1, -1])
def test_verdicts_reach_their_suite_in_whichever_order_solutions_and_suites_come(order):
    question = Question("q", None, "", "", TRUTH, "f", mutants=(FLAT, ZERO))
    reward = REWARDS["strict"](0.5, 3, mutant_weight=0.5)
    rules = SimpleNamespace(reward=reward, num_tests=3, hidden_reward=True, method=METHODS["code_a1"], all_forms=False)
    written = {0: (SAME, [["f(1) == 2"], ["f(7) == 8", "f(2) == 3"]]), 1: (TRUTH, [["f(8) == 0"], ["f(-1) == 0"]])}
    solutions = [
        Solution(question, m, sample(f"solution {m}"), extract_program(program)) for m, (program, _) in written.items()
    ][::order]
    attacks = [
        Attack(solution, [replace(sample(""), text=in_block(lines)) for lines in written[solution.index][1]])
        for solution in solutions[::-1]
    ]
    grader, shares = RunsHere({}), Shares(Hosts(), ["q"])
    round_ = grade_round(1, [question], {"q": []}, solutions, attacks, rules, grader, shares, Stopwatch())
    (record,) = round_.questions
    verdicts = {
        (solution.index, suite.index): (suite.verdicts, suite.on_mutants, suite.on_hidden)
        for solution in record.solutions
        for suite in solution.suites
    }
    assert verdicts == {  # f(8) == 0 is wrong and runs nowhere; only -1 + 1 is 0
        (0, 0): ([FAIL], [[PASS]], [[FAIL]]),
        (0, 1): ([FAIL, FAIL], [[FAIL, PASS]], [[FAIL, FAIL]]),
        (1, 0): ([], [[]], [[]]),
        (1, 1): ([PASS], [[PASS]], [[PASS]]),
    }
    assert [solution.sample.text for solution in record.solutions] == ["solution 0", "solution 1"]
    # A program may keep state between calls: its tests run in the order of m, then n.
    assert grader.ran[FLAT] == grader.ran[ZERO] == [f"assert f({n}) == {n + 1}" for n in (1, 7, 2, -1)]
    assert grader.ran[SAME] == [f"assert f({n}) == {n + 1}" for n in (1, 7, 2)]


def test_a_golden_test_that_the_ground_truth_fails_pays_nobody():
    question = Question("q", None, "", "", TRUTH, "f", golden_tests=("assert f(1) == 2", "assert f(2) == 2"))
    rules = SimpleNamespace(reward=REWARDS["strict"](0.5, 3), hidden_reward=False, method=METHODS["golden"])
    solutions = [Solution(question, m, sample(""), extract_program(text)) for m, text in enumerate((TRUTH, SAME))]
    shares = Shares(Hosts(), ["q"])
    round_ = grade_round(1, [question], {}, solutions, [], rules, RunsHere({}), shares, Stopwatch())
    verdicts = [[graded.verdict for graded in solution.golden] for solution in round_.questions[0].solutions]
    assert verdicts == [[PASS, Verdict.INVALID], [FAIL, Verdict.INVALID]]
    assert [golden_reward(True, group).total for group in verdicts] == [1.0, 0.0]


def test_no_other_program_runs_unless_the_reward_or_the_metrics_read_it():
    solution, ran = graded_suites("strict", hidden_reward=False)
    assert set(ran) == {SAME}
    assert all(suite.on_mutants == suite.on_hidden == [] for suite in solution.suites)


def test_what_is_read_while_it_is_made_is_read_whole_by_all():
    kept = Kept(iter(range(4)))
    one, other = iter(kept), iter(kept)
    assert [next(one), next(other), next(other)] == [0, 0, 1]
    assert [*kept] == [*range(4)]
    assert ([*one], [*other]) == ([1, 2, 3], [2, 3])


@pytest.mark.parametrize("changed", [{"token_ids": (9,)}, {"log_probs": (-9.0,)}, {"finish_reason": "length"}])
def test_hosts_compare_all_of_a_sample_that_is_learned_from(changed):
    digests = []

    class Digests(Hosts):
        def require_same(self, what: str, digest: bytes) -> None:
            digests.append(digest)

    rules = SimpleNamespace(method=METHODS["golden"], max_rounds=1, reward=None)
    for drawn in (sample("pass"), sample("pass"), replace(sample("pass"), **changed)):
        solution = SolutionRecord(0, drawn, extract_program("pass"), True, golden=[GradedTest(make(0), PASS)])
        Step(1, {}, rules, None, None, None, Digests()).pay(
            Round(1, [QuestionRecord(Question("q", None, "", "", TRUTH, "f"), [solution])])
        )
    assert digests[0] == digests[1] != digests[2]
