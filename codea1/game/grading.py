"""Grading: a ground truth answers calls, asserts are marked by its answers, and programs run the tests.

What is graded together runs in one process, and depends on the samples alone and never on when they finished: a program
that keeps state between calls could tell the difference.
"""

import random
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import NamedTuple

from codea1.game.answers import ParsedSuite, parse_suite
from codea1.game.asserts import MarkedAssert, golden_tests
from codea1.game.calls import Call, CallTest
from codea1.game.methods import Rules
from codea1.game.question import Question, Signature
from codea1.game.rewards import Others
from codea1.runtime.futures import Awaiting, every
from codea1.sandbox.host import ScriptRun
from codea1.sandbox.host.grading import Grader, Grading, GroundTruthAnswer
from codea1.values.entry_points import same_answer
from codea1.values.verdict import Verdict

Answers = dict[Call, GroundTruthAnswer]


@dataclass(frozen=True)
class Judge:
    """A question in the sandbox: its ground truth answers calls, and programs for it run as its tests call them."""

    question: Question
    grader: Grader

    def answers(self, calls: Iterable[Call]) -> Awaiting[Answers]:
        """Returns what the ground truth answers to each of the different calls."""
        asked = list(dict.fromkeys(calls))
        found = yield self.grader.ground_truth(self.question.module(self.question.ground_truth), asked)
        return dict(zip(asked, found, strict=True))

    def grade(self, program: str, tests: Sequence[CallTest]) -> Future[Grading]:
        """Runs tests on a program, in one process; the question's checker has a say in what it prints.

        The time that the ground truth takes for a call bounds the program's, if it was asked before.
        """
        question = self.question
        return self.grader.grade(
            question.module(program), tests, question.checker, question.module(question.ground_truth)
        )

    def check(self, program: str) -> Future[ScriptRun]:
        """Runs the question's check script, which must be there, on a program."""
        assert self.question.check_script is not None
        module = self.question.module(program)
        return self.grader.check(module, self.question.check_script, self.question.entry_point)


def is_true(test: CallTest, answer: GroundTruthAnswer) -> bool:
    """Returns whether a test states what the ground truth answers to its call."""
    return answer.usable and same_answer(test.call.entry_point, answer.value, test.expected)


class GradedSolution(NamedTuple):
    """A solution's verdicts on replayed or golden tests."""

    grading: Grading
    passes_check: bool | None  # the question's check script; None: not run, or lost


class GradedSuite(NamedTuple):
    """A suite's asserts and, in order, the verdicts on its solution of those that run."""

    parsed: ParsedSuite
    marked: list[MarkedAssert]
    verdicts: list[Verdict]


class OnOthers(NamedTuple):
    """A suite's verdicts on programs besides its solution: by program, in order of the tests."""

    on_others: list[list[Verdict]]  # those that the reward reads
    on_hidden: list[list[Verdict]]  # those that metrics alone read


NOWHERE = OnOthers([], [])


def grade_solution(judge: Judge, program: str, tests: Sequence[CallTest], rules: Rules) -> Awaiting[GradedSolution]:
    """Grades a program on tests, and by the check script, where there is one and that is the hidden reward.

    Even no tests are graded: that tells whether the program can be loaded.
    """
    yield from judge.answers(test.call for test in tests)  # it is not known how long they take where a run is resumed
    promised = judge.grade(program, tests)
    run = (yield judge.check(program)) if rules.hidden_reward and judge.question.check_script else None
    passes_check = None if run is None or run.verdict is Verdict.INFRA else run.verdict is Verdict.PASS
    return GradedSolution((yield promised), passes_check)


def grade_suites(
    judge: Judge, program: str, texts: Sequence[str], signature: Signature, rules: Rules
) -> Awaiting[list[GradedSuite]]:
    """Marks the asserts of all suites on a solution by the ground truth's answers, and runs their tests on it."""
    reward, question = rules.reward, judge.question
    suites = [parse_suite(text, question.entry_point, all_forms=rules.all_forms) for text in texts]
    answers = yield from judge.answers(call for suite in suites for call in reward.calls(suite))
    if rules.wrong_answers:
        noise = rules.wrong_answers, rules.seed
        for call, answer in answers.items():
            if answer.usable and not call.form:
                given, _ = signature.key(call, answer.value)
                answers[call] = replace(answer, value=noisy_answer(question, given, answer.value, *noise))
    marked = [reward.mark(suite, answers, signature) for suite in suites]
    tests = [[test for item in items if (test := item.test)] for items in marked]
    verdicts = _by_suite(tests, (yield judge.grade(program, list(chain(*tests)))))
    return [GradedSuite(*suite) for suite in zip(suites, marked, verdicts, strict=True)]


def noisy_answer(question: Question, given: bytes, answer: bytes, share: float, seed: int) -> bytes:
    """Returns the ground truth's answer to a call, with probability `share` another one, that of a golden test.

    So it can be measured what wrong answers do to training. Which are wrong depends on the seed and on the call alone:
    they are the same in every step and on every host. Check scripts and golden tests stay true. An answer that all
    golden tests of the question share stays as it is.

    Args:
      given: to the call, by the question's signature.
      answer: exact encoding; so is what is returned.
    """
    draw = random.Random(f"wrong answer/{seed}/{question.id}/{given.hex()}")
    if draw.random() >= share:
        return answer
    stated = {test.expected for test in golden_tests(question) if not test.call.form}
    others = sorted(each for each in stated if not same_answer(question.entry_point, each, answer))
    return draw.choice(others) if others else answer


def grade_on_others(
    judge: Judge, solutions: Sequence[str], graded: Sequence[Future[list[GradedSuite]]], rules: Rules
) -> Awaiting[list[OnOthers]]:
    """Grades the programs besides their solutions on the suites of a question's solutions.

    Those that the reward reads run what it has `for_others`, hidden mutants the right tests among the first K of each
    suite. One grading runs the tests of all suites on a program: one that spends its CPU time before the last has
    NOT_RUN there.

    Args:
      solutions: the programs of all M.
      graded: the suites, by solution.
    """
    others, hidden = other_programs(judge.question, solutions, rules)
    marked = [suite.marked for suites in (yield from every(graded)) for suite in suites]
    for_others = [[test for item in rules.reward.for_others(items) if (test := item.stated)] for items in marked]
    for_hidden = [
        [test for item in items[: rules.num_tests] if item.is_right and (test := item.test)] for items in marked
    ]
    programs = [(program, for_others) for program in others] + [(program, for_hidden) for program in hidden]
    gradings = yield from every([judge.grade(program, list(chain(*suites))) for program, suites in programs])
    ran = [_by_suite(suites, grading) for (_, suites), grading in zip(programs, gradings, strict=True)]
    paid, unpaid = ran[: len(others)], ran[len(others) :]
    return [OnOthers([by[i] for by in paid], [by[i] for by in unpaid]) for i in range(len(marked))]


def other_programs(question: Question, solutions: Sequence[str], rules: Rules) -> tuple[Sequence[str], Sequence[str]]:
    """Returns the programs besides a suite's solution that the reward reads, and those that only metrics read."""
    others: Sequence[str] = {
        Others.NOTHING: (),
        Others.MUTANTS: question.paid_mutants,
        Others.SOLUTIONS: solutions,
    }[rules.reward.others]
    return others, question.hidden_mutants if rules.hidden_reward else ()


def _by_suite(suites: Sequence[Sequence[CallTest]], grading: Grading) -> list[list[Verdict]]:
    verdicts = iter(grading.verdicts)
    return [list(islice(verdicts, len(tests))) for tests in suites]
