"""Grading: a ground truth answers calls, asserts are marked by its answers, and programs run the tests.

`grade_round` does it for all that the players wrote in a step; the verdicts of a suite have the key (m, n) of its
solution and its own number from the first grading to its record.

What is graded together runs in one process, and depends on the samples alone and never on when they finished: a program
that keeps state between calls could tell the difference.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar

from codea1.game.answers import ExtractedProgram, ParsedSuite, parse_suite
from codea1.game.asserts import MarkedAssert, golden_tests, tests_of
from codea1.game.calls import Call, CallTest
from codea1.game.methods import Rules
from codea1.game.question import Question, Signature
from codea1.game.round import GradedTest, QuestionRecord, Round, SampleRecord, SolutionRecord, SuiteRecord
from codea1.runtime.futures import Awaiting, every, start
from codea1.runtime.hosts import Shares
from codea1.runtime.phases import Stopwatch
from codea1.sandbox.host import ScriptRun
from codea1.sandbox.host.grading import Grader, Grading, GroundTruthAnswer
from codea1.values.entry_points import same_answer
from codea1.values.verdict import Verdict

Answers = dict[Call, GroundTruthAnswer]
SuiteKey = tuple[int, int]  # (m, n): of a suite, the number of its solution and its own
Key = TypeVar("Key", bound=Hashable)


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


@dataclass(frozen=True)
class Solution:
    """What the Code LLM wrote, before it is graded."""

    question: Question
    index: int  # m, among the question's solutions
    sample: SampleRecord
    program: ExtractedProgram


class Attack(NamedTuple):
    """What the Test LLM wrote about one solution, before it is graded."""

    solution: Solution
    suites: Sequence[SampleRecord]  # N, in their order; none where the program makes the prompt too long


class GradedSolution(NamedTuple):
    """A solution's verdicts on replayed or golden tests."""

    grading: Grading
    passes_check: bool | None  # the question's check script; None: not run, or lost


class GradedSuite(NamedTuple):
    """A suite's asserts and, in order, the verdicts on its solution of those that run."""

    parsed: ParsedSuite
    marked: list[MarkedAssert]
    verdicts: list[Verdict]


class MutantVerdicts(NamedTuple):
    """The verdicts of a suite's right tests among the first K, by mutant."""

    paid: list[list[Verdict]]  # on mutants that the reward reads
    hidden: list[list[Verdict]]  # on mutants that metrics alone read


@dataclass
class _Game:
    """One question of a round with all that is written for it, and the gradings that were started."""

    judge: Judge
    signature: Signature  # by which its calls are compared
    tests: Sequence[CallTest]  # replayed or golden ones, that run on every solution
    solutions: dict[int, Solution] = field(default_factory=dict)  # by m
    suites: dict[int, Sequence[SampleRecord]] = field(default_factory=dict)  # by m, of solutions whose turn came
    # By m, of solutions that have suites: their verdicts on this host, None where another host grades them.
    graded: dict[int, Future[list[GradedSuite]] | None] = field(default_factory=dict)

    def record(self, results: Mapping[Any, Any], rules: Rules) -> QuestionRecord:
        """Returns the question with the verdicts of all hosts, which have the keys that `grade_round` gave them."""
        id = self.judge.question.id
        on_mutants: Mapping[SuiteKey, MutantVerdicts] = results.get((id, "mutants"), {})
        record = QuestionRecord(self.judge.question, signature=self.signature)
        for m, solution in sorted(self.solutions.items()):
            samples = self.suites.get(m, ())
            grading, passes_check = results[id, "solution", m]
            runs = [GradedTest(test, verdict) for test, verdict in zip(self.tests, grading.verdicts, strict=True)]
            suites = []
            for n, (sample, suite) in enumerate(zip(samples, results.get((id, "suites", m), ()), strict=True)):
                paid, hidden = on_mutants.get((m, n), MutantVerdicts([], []))
                suites.append(SuiteRecord(n, sample, suite.parsed, suite.marked, suite.verdicts, paid, hidden))
            record.solutions.append(
                SolutionRecord(
                    m,
                    solution.sample,
                    solution.program,
                    grading.program_valid,
                    suites,
                    history=[] if rules.golden else runs,
                    golden=runs if rules.golden else [],
                    test_prompt_fits=m not in self.suites or bool(samples),
                    lost=grading.lost,
                    passes_check=passes_check,
                )
            )
        return record


def grade_round(
    step: int,
    questions: Sequence[Question],
    history: Mapping[str, Sequence[CallTest]],
    solutions: Iterable[Solution],
    attacks: Iterable[Attack],
    rules: Rules,
    grader: Grader,
    shares: Shares,
    watch: Stopwatch,
) -> Round:
    """Has solutions and suites graded as they come, and returns all verdicts, of all hosts. A collective.

    A solution's suites are graded when it has all, in one process. On mutants suites are graded when the question has
    all, in one process a mutant.

    Args:
      questions: of the round, in its order.
      history: by id of a question, its tests that are replayed.
      solutions: of all questions; what is read of them meanwhile may sample suites.
      attacks: one for each solution, where there is a Test LLM.
      shares: of the questions over the hosts; nothing was added to it before.
      watch: times the wait for what is still being graded as "sandbox_wait".
    """
    games = {
        question.id: _Game(
            Judge(question, grader),
            rules.reward.signature(question),
            golden_tests(question) if rules.golden else history[question.id],
        )
        for question in questions
    }
    for solution in solutions:
        game, program = games[solution.question.id], solution.program.source
        game.solutions[solution.index] = solution
        grade = grade_solution(game.judge, program, game.tests, rules)
        shares.add((solution.question.id, "solution", solution.index), partial(start, grade))
    for solution, samples in attacks:
        id, m, game = solution.question.id, solution.index, games[solution.question.id]
        game.suites[m] = samples
        if samples:
            texts = [sample.text for sample in samples]
            suites = grade_suites(game.judge, solution.program.source, texts, game.signature, rules)
            game.graded[m] = shares.add((id, "suites", m), partial(start, suites))
        has_all = len(game.suites) == len(game.solutions)
        if has_all and game.graded and any(mutants_of(solution.question, rules)):
            here = {m: future for m, future in game.graded.items() if future}
            shares.add((id, "mutants"), partial(start, grade_on_mutants(game.judge, here, rules)))
    with watch.phase("sandbox_wait"):
        results = shares.collect()
    return Round(step, [game.record(results, rules) for game in games.values()])


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
    parsed = [parse_suite(text, question.entry_point, all_forms=rules.all_forms) for text in texts]
    answers = yield from judge.answers(call for suite in parsed for call in reward.calls(suite))
    marked = [reward.mark(suite, answers, signature) for suite in parsed]
    tests = {n: tests_of(asserts) for n, asserts in enumerate(marked)}
    verdicts = verdicts_by_key(tests, (yield judge.grade(program, list(chain(*tests.values())))))
    return [GradedSuite(suite, marked[n], verdicts[n]) for n, suite in enumerate(parsed)]


def grade_on_mutants(
    judge: Judge, graded: Mapping[int, Future[list[GradedSuite]]], rules: Rules
) -> Awaiting[dict[SuiteKey, MutantVerdicts]]:
    """Grades the question's mutants on the right tests among the first K of each suite.

    One grading runs the tests of all suites on a mutant: one that spends its CPU time before the last has NOT_RUN
    there.

    Args:
      graded: the suites of a solution, by m.
    """
    tests: dict[SuiteKey, list[CallTest]] = {}
    for m in sorted(graded):
        for n, suite in enumerate((yield graded[m])):
            tests[m, n] = tests_of([item for item in suite.marked[: rules.num_tests] if item.is_right])
    in_order = list(chain(*tests.values()))
    paid, hidden = mutants_of(judge.question, rules)
    gradings = yield from every([judge.grade(mutant, in_order) for mutant in (*paid, *hidden)])
    verdicts = [verdicts_by_key(tests, grading) for grading in gradings]  # by mutant
    return {
        key: MutantVerdicts(
            [of_mutant[key] for of_mutant in verdicts[: len(paid)]],
            [of_mutant[key] for of_mutant in verdicts[len(paid) :]],
        )
        for key in tests
    }


def mutants_of(question: Question, rules: Rules) -> tuple[Sequence[str], Sequence[str]]:
    """Returns the mutants that suites run on because the reward reads them, and those that only metrics read."""
    return (
        question.paid_mutants if rules.reward.mutant_weight else (),
        question.hidden_mutants if rules.hidden_reward else (),
    )


def verdicts_by_key(tests: Mapping[Key, Sequence[CallTest]], grading: Grading) -> dict[Key, list[Verdict]]:
    """Returns the verdicts on tests that ran in the order of their keys in `tests`, by key."""
    verdicts = iter(grading.verdicts)
    return {key: list(islice(verdicts, len(of_key))) for key, of_key in tests.items()}
