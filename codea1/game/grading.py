"""Grading: a ground truth answers calls, asserts are marked by its answers, and programs run the tests.

`grade_round` does it for all that the players wrote in a step; the verdicts of a suite have the key (m, n) of its
solution and its own number from the first grading to its record.

What is graded together runs in one process, in the order of m, then n, and never in the order in which samples
finished: a program may keep state between calls.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
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
from codea1.values import encode_exact
from codea1.values.entry_points import TRUTH, same_answer
from codea1.values.verdict import Verdict

_BOOLS = encode_exact(True), encode_exact(False)
_NO_BOOL = GroundTruthAnswer(False, b"", "no bool", 0.0)

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
        answers = yield self.grader.ground_truth(self.question.module(self.question.ground_truth), asked)
        return dict(zip(asked, answers, strict=True))

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


def is_refuted(test: CallTest, answer: GroundTruthAnswer) -> bool:
    """Returns whether a ground truth was run on a test and fails it. A timeout or a lost run says nothing."""
    return answer.reason not in ("timeout", "infra") and not is_true(test, answer)


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
class _QuestionState:
    """One question of a round with all that is written for it, and the gradings that were started."""

    judge: Judge
    signature: Signature  # by which its calls are compared
    tests: Sequence[CallTest]  # replayed or golden ones, that run on every solution
    solutions: dict[int, Solution] = field(default_factory=dict)  # by m
    suites: dict[int, Sequence[SampleRecord]] = field(default_factory=dict)  # by m, of solutions whose turn came
    graded: dict[int, Future[list[GradedSuite]]] = field(default_factory=dict)  # by m; none where another host grades

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
                paid, hidden = on_mutants[m, n] if on_mutants else MutantVerdicts([], [])
                suites.append(SuiteRecord(n, sample, suite.parsed, suite.marked, suite.verdicts, paid, hidden))
            record.solutions.append(
                SolutionRecord(
                    m,
                    solution.sample,
                    solution.program,
                    grading.program_valid,
                    suites,
                    history=[] if rules.method.fixed_tests else runs,
                    golden=runs if rules.method.fixed_tests else [],
                    test_prompt_fits=m not in self.suites or bool(samples),
                    lost=grading.lost,
                    passes_check=passes_check,
                    question=self.judge.question,
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
      solutions: of all questions. All of them are read, and their grading has begun, before the first attack is read.
      attacks: one for each solution, where there is a Test LLM.
      shares: of the questions over the hosts; nothing was added to it before.
      watch: times the wait for what is still being graded as "sandbox_wait".
    """
    states = {
        question.id: _QuestionState(
            Judge(question, grader),
            rules.reward.signature(question),
            golden_tests(question) if rules.method.fixed_tests else history[question.id],
        )
        for question in questions
    }
    for solution in solutions:
        state, program = states[solution.question.id], solution.program.source
        state.solutions[solution.index] = solution
        # Nothing runs before `start`, which `shares` calls on the host that works on the question.
        of_solution = grade_solution(state.judge, program, state.tests, rules)
        shares.add((solution.question.id, "solution", solution.index), partial(start, of_solution))
    for solution, samples in attacks:
        id, m, state = solution.question.id, solution.index, states[solution.question.id]
        state.suites[m] = samples
        if samples:
            texts = [sample.text for sample in samples]
            of_suites = grade_suites(state.judge, solution.program.source, texts, state.signature, rules)
            if future := shares.add((id, "suites", m), partial(start, of_suites)):
                state.graded[m] = future
        has_all = len(state.suites) == len(state.solutions)
        if has_all and any(state.suites.values()) and any(mutants_of(solution.question, rules)):
            shares.add((id, "mutants"), partial(start, grade_on_mutants(state.judge, state.graded, rules)))
    with watch.phase("sandbox_wait"):
        results = shares.collect()
    return Round(step, [state.record(results, rules) for state in states.values()])


def grade_solution(judge: Judge, program: str, tests: Sequence[CallTest], rules: Rules) -> Awaiting[GradedSolution]:
    """Grades a program on tests; runs the check script too, if there is one and `rules.hidden_reward` is set.

    A program is graded on no tests, too: that tells whether it can be loaded. A test that the ground truth itself fails
    is INVALID: a dataset's tests may never have been run.
    """
    # Ask the ground truth first: its times set the program's limits, and a resumed run has forgotten them.
    answers = yield from judge.answers(test.call for test in tests)
    promised = judge.grade(program, tests)
    run = (yield judge.check(program)) if rules.hidden_reward and judge.question.check_script else None
    passes_check = None if run is None or run.verdict is Verdict.INFRA else run.verdict is Verdict.PASS
    grading = yield promised
    if judge.question.ground_truth and not judge.question.checker:  # it may accept what the ground truth never prints
        graded = zip(tests, grading.verdicts, strict=True)
        refuted = [Verdict.INVALID if is_refuted(test, answers[test.call]) else verdict for test, verdict in graded]
        grading = replace(grading, verdicts=refuted)
    return GradedSolution(grading, passes_check)


def grade_suites(
    judge: Judge, program: str, texts: Sequence[str], signature: Signature, rules: Rules
) -> Awaiting[list[GradedSuite]]:
    """Marks the asserts of all suites on a solution by the ground truth's answers, and runs their tests on it."""
    reward, question = rules.reward, judge.question
    parsed = [parse_suite(text, question.entry_point, all_forms=rules.all_forms) for text in texts]
    calls = [call for suite in parsed for call in reward.calls(suite)]
    # A suite that does not know the answer can still claim that it counts as true: that pays for a bool.
    plain = {call: replace(call, entry_point=call.function) for call in calls if call.form == TRUTH}
    answers = yield from judge.answers([*calls, *plain.values()])
    answers |= {call: _NO_BOOL for call, asked in plain.items() if answers[asked].value not in _BOOLS}
    marked = [reward.mark(suite, answers, signature) for suite in parsed]
    tests = {n: tests_of(asserts) for n, asserts in enumerate(marked)}
    verdicts = verdicts_by_key(tests, (yield judge.grade(program, list(chain(*tests.values())))))
    return [GradedSuite(suite, marked[n], verdicts[n]) for n, suite in enumerate(parsed)]


def grade_on_mutants(
    judge: Judge, graded: Mapping[int, Future[list[GradedSuite]]], rules: Rules
) -> Awaiting[dict[SuiteKey, MutantVerdicts]]:
    """Grades the question's mutants on the right tests among the first K of each suite.

    One grading runs the tests of all suites on a mutant. If the mutant exhausts its CPU time, the remaining tests get
    NOT_RUN. The time limits are those that the ground truth's answers in `grade_suites` set.

    Args:
      graded: the suites of a solution, by m.
    """
    tests: dict[SuiteKey, list[CallTest]] = {}
    for m in sorted(graded):
        for n, suite in enumerate((yield graded[m])):
            tests[m, n] = tests_of([item for item in suite.marked[: rules.num_tests] if item.is_right])
    in_order = list(chain(*tests.values()))
    paid, hidden = mutants_of(judge.question, rules)
    running = [[judge.grade(mutant, in_order) for mutant in mutants] for mutants in (paid, hidden)]
    by_mutant = []
    for futures in running:
        by_mutant.append([verdicts_by_key(tests, grading) for grading in (yield from every(futures))])
    return {key: MutantVerdicts(*([verdicts[key] for verdicts in group] for group in by_mutant)) for key in tests}


def mutants_of(question: Question, rules: Rules) -> tuple[Sequence[str], Sequence[str]]:
    """Returns the mutants that suites run on because the reward reads them, and those that only metrics read."""
    return (
        question.paid_mutants if rules.reward.mutant_weight else (),
        question.hidden_mutants if rules.hidden_reward else (),
    )


def verdicts_by_key(tests: Mapping[Key, Sequence[CallTest]], grading: Grading) -> dict[Key, list[Verdict]]:
    """Returns the verdicts on tests that ran in the order of their keys in `tests`, by key."""
    assert len(grading.verdicts) == sum(map(len, tests.values()))
    verdicts = iter(grading.verdicts)
    return {key: list(islice(verdicts, len(of_key))) for key, of_key in tests.items()}
