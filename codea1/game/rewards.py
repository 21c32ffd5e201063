"""What each player is paid: the reference's formulas, strict ones and a simple variant.

A reward is None where the sample must not be learned from: infrastructure failed while it was graded, or nothing graded
it. Rewards are Python floats, float64, and never rounded.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from codea1.game.answers import ExtractedProgram, ParsedSuite, extract_program, extract_python_block
from codea1.game.asserts import Mark, MarkedAssert, Seen, mark
from codea1.game.calls import Call
from codea1.game.outcomes import BLAMELESS, FAILED, SolutionOutcome, SuiteOutcome
from codea1.game.question import AS_WRITTEN, Question, Signature, read_signature
from codea1.sandbox.host.grading import GroundTruthAnswer
from codea1.values.verdict import Verdict

INFRA = "infra"  # the sandbox failed
NO_TESTS = "no tests"  # nothing graded the sample
MASK_REASONS = (INFRA, NO_TESTS)

BROKEN_CODE = -1.0  # what the simple variant pays for a program that cannot be loaded,
BROKEN_TEST = -0.5  # and for a suite that asserts nothing


def is_whole(total: float | None) -> bool:
    """Returns whether a solution's reward is the whole reward of 1."""
    return total is not None and total >= 1


@dataclass(frozen=True)
class SuiteReward:
    """The reward of one suite and its parts."""

    total: float | None  # what is paid; None: the sample is not learned from
    validity: float  # Val
    adversarial: float  # Adv; 0 on an invalid program
    penalty: float = 0.0  # subtracted from the total
    masked: str = ""  # why total is None, one of MASK_REASONS
    terms: tuple[float, float, float] = (0.0, 0.0, 0.0)  # what was paid for each part above, before their weights

    @classmethod
    def of(
        cls, alpha: float, validity: float, adversarial: float, penalty: float = 0.0, *, pays: bool = True
    ) -> "SuiteReward":
        """Returns alpha Val + (1 - alpha) Adv - penalty, of which the penalty alone is left where it `pays` nothing."""
        paid = alpha * validity + (1 - alpha) * adversarial if pays else 0.0
        terms = (validity, adversarial, -penalty) if pays else (0.0, 0.0, -penalty)
        return cls(paid - penalty, validity, adversarial, penalty, terms=terms)


@dataclass(frozen=True)
class SolutionReward:
    """The reward of one solution and its parts; a part is None where there was nothing to pass."""

    total: float | None  # what is paid; None: the sample is not learned from
    suites: tuple[float | None, ...] = ()  # each suite's share in the mean; None: left out of it
    generated_pass_rate: float | None = None  # mean over the suites that have tests
    history_pass_rate: float | None = None  # of the Mistake Book's tests
    golden_pass_rate: float | None = None  # of the data set's tests, where these pay
    masked: str = ""  # why total is None, one of MASK_REASONS

    @property
    def terms(self) -> tuple[float | None]:
        return (self.total,)


Paid = TypeVar("Paid", SuiteReward, SolutionReward)


@dataclass(frozen=True)
class Reward(ABC):
    """How answers are read and marked, and both players are paid.

    A total is any finite number, or None where the sample is masked. A book by reward takes in tests of suites that
    were paid more than `mistake_book.LEAST_REWARD`, so totals between 0 and 1 keep that rule's meaning.
    """

    alpha: float  # weight of validity in the Test LLM's reward, against the adversarial part
    num_tests: int  # K: asserts asked for in a suite
    mutant_weight: float = 0.0  # of the mutants killed in the adversarial part, against the program shown

    @property
    def weights(self) -> tuple[float, float, float]:
        """Of the terms of `SuiteReward`; 0 for a penalty, which is taken from what they make."""
        return self.alpha, 1 - self.alpha, 0.0

    @property
    def asserts_that_count(self) -> int:
        """How many asserts of a suite count, the first ones; 0: all do."""
        return 0

    def read_program(self, answer: str, entry_point: str) -> ExtractedProgram:
        """Returns the program of a Code LLM's answer, which should define the entry point."""
        return extract_program(answer, entry_point)

    def signature(self, question: Question) -> Signature:
        """Returns what decides whether two calls of the question's function have the same input."""
        return read_signature(question.ground_truth, question.entry_point)

    @abstractmethod
    def calls(self, parsed: ParsedSuite) -> Iterable[Call]:
        """Returns the calls whose ground-truth answers `mark` needs."""

    @abstractmethod
    def mark(
        self, parsed: ParsedSuite, answers: Mapping[Call, GroundTruthAnswer], signature: Signature
    ) -> list[MarkedAssert]:
        """Marks every assert of a suite under the question's `signature`; those with a test run on the candidate."""

    @abstractmethod
    def test_reward(self, solution: SolutionOutcome, suite: SuiteOutcome) -> SuiteReward:
        """Returns R_T of one suite against one program."""

    @abstractmethod
    def code_reward(self, solution: SolutionOutcome) -> SolutionReward:
        """Returns R_C of one program against its suites and its question's history."""


class OfficialReward(Reward):
    """The rewards of the Code-A1 reference implementation, number for number, but in float64.

    Every outcome but a pass is a fail, tests that were never run included. A suite's v usable tests are those with an
    answer of the ground truth, which replaces the stated one; its `invalid` asserts only cost validity.
    """

    def read_program(self, answer: str, entry_point: str) -> ExtractedProgram:
        return extract_python_block(answer)

    def signature(self, question: Question) -> Signature:
        return AS_WRITTEN

    def calls(self, parsed: ParsedSuite) -> Iterable[Call]:
        return [item.call for item in parsed.asserts if item.call is not None]

    def mark(
        self, parsed: ParsedSuite, answers: Mapping[Call, GroundTruthAnswer], signature: Signature
    ) -> list[MarkedAssert]:
        """Marks every assert as the Code-A1 reference implementation does.

        Any comparison is a claim of equality. A call that the ground truth answers is usable with the ground truth's
        value, whatever the assert states: a wrong answer costs validity and the test runs. Asserts beyond the number
        asked for are marked like the others. What the reference would execute but is not data is not executed: a call
        of anything but the entry point, or with other arguments than plain data, is rejected, and an answer that is not
        plain data is a wrong one. The reference compares calls AS_WRITTEN.
        """
        seen: Seen = {}
        return [
            MarkedAssert(item, Mark.DROPPED, item.rejection)
            if item.dropped
            else mark(item, answers, signature, seen, run_wrong=True)
            for item in parsed.asserts
        ]

    def test_reward(self, solution: SolutionOutcome, suite: SuiteOutcome) -> SuiteReward:
        """Returns R_T = [valid] * (alpha Val + (1 - alpha) Adv) - nonprintable ratio, with K as fixed denominator.

        [valid] is 1 for a program that can be loaded, else 0. Val = clip(min(v/K, 1 - invalid/K), 0, 1). Adv = f/K over
        the first K usable tests of which f fail, halved to (f/K - Fail_hist + 1)/2 with history, and 0 for a suite
        without usable tests.
        """
        usable, k = len(suite.verdicts), self.num_tests
        validity = max(0.0, min(usable / k, 1 - suite.invalid / k))
        adversarial = 0.0
        if solution.program_valid and usable:
            adversarial = sum(verdict is not Verdict.PASS for verdict in suite.verdicts[:k]) / k
            if solution.history:
                failed_history = sum(verdict is not Verdict.PASS for verdict in solution.history)
                adversarial = (adversarial - failed_history / len(solution.history) + 1) / 2
        adversarial = suite.adversarial(adversarial, self.mutant_weight)
        pays = bool(solution.program_valid)
        reward = SuiteReward.of(self.alpha, validity, adversarial, suite.nonprintable_ratio, pays=pays)
        return _masked(reward, lost=solution.program_valid is None or suite.lost or solution.history_lost)

    def code_reward(self, solution: SolutionOutcome) -> SolutionReward:
        """Returns R_C = mean over suites of (Pass_hist + Pass_new)/2, or of the one that there is, or 0 with neither.

        An invalid program passes nothing.
        """
        if not solution.program_valid:
            solution = _all_failed(solution)
        history = _share_passed(solution.history) if solution.history else None
        generated = [_share_passed(suite.verdicts) if suite.verdicts else None for suite in solution.suites]
        shares = tuple(mean((history, rate)) or 0.0 for rate in generated)
        return _code_reward(solution, SolutionReward(mean(shares), shares, mean(generated), history))


class StrictReward(Reward):
    """Only right tests count: unique, on the entry point, plain data, and stating the ground truth's answer with `==`.

    An input is unique, however it is spelled: `f(n=1)` after `f(1)` is a duplicate. v = right tests among the first K
    asserts, f = those of them that the program fails by a wrong value, an error or a timeout. A test that was not run,
    because the program had spent the time of all tests run with it, is a failure of the program in every pass rate and
    no kill in f/K, so that exhausting the time limit pays neither player.
    """

    @property
    def asserts_that_count(self) -> int:
        return self.num_tests

    def calls(self, parsed: ParsedSuite) -> Iterable[Call]:
        return [item.call for item in parsed.asserts[: self.num_tests] if item.call and not item.rejection]

    def mark(
        self, parsed: ParsedSuite, answers: Mapping[Call, GroundTruthAnswer], signature: Signature
    ) -> list[MarkedAssert]:
        """Marks the first K asserts; only right tests run, and no later assert counts for anything."""
        seen: Seen = {}
        marked = [
            MarkedAssert(item, Mark.REJECTED, item.rejection)
            if item.rejection
            else mark(item, answers, signature, seen, run_wrong=False)
            for item in parsed.asserts[: self.num_tests]
        ]
        return marked + [MarkedAssert(item, Mark.SURPLUS) for item in parsed.asserts[self.num_tests :]]

    def test_reward(self, solution: SolutionOutcome, suite: SuiteOutcome) -> SuiteReward:
        """Returns R_T = alpha Val + (1 - alpha) Adv, Val = v/K, Adv = f/K; alpha Val when the program is invalid."""
        validity = len(suite.verdicts) / self.num_tests
        failed = sum(verdict in FAILED for verdict in suite.verdicts)
        adversarial = failed / self.num_tests if solution.program_valid else 0.0
        reward = SuiteReward.of(self.alpha, validity, suite.adversarial(adversarial, self.mutant_weight))
        return _masked(reward, lost=solution.program_valid is None or suite.lost)

    def code_reward(self, solution: SolutionOutcome) -> SolutionReward:
        """Returns R_C = mean over suites of the pass rate on right tests, each averaged with that on history, if any.

        Suites without right tests are left out of the mean; without any, R_C is the pass rate on history, and without
        that the sample is masked.
        """
        if not solution.program_valid:
            solution = _all_failed(solution)
        history = _pass_rate(solution.history)
        generated = [_pass_rate(suite.verdicts) for suite in solution.suites]
        shares = tuple(
            None if rate is None else rate if history is None else (rate + history) / 2 for rate in generated
        )
        total = history if mean(shares) is None else mean(shares)
        return _code_reward(solution, SolutionReward(total, shares, mean(generated), history))


class StrictTestsReward(OfficialReward):
    """The Code LLM is paid as by OfficialReward, from every usable input; the Test LLM as by StrictReward.

    A wrong answer then still teaches the Code LLM, with the ground truth's value, and earns the Test LLM nothing. A
    second spelling of an input is a duplicate to both, and a program is read as by StrictReward.
    """

    read_program, signature = Reward.read_program, Reward.signature

    def test_reward(self, solution: SolutionOutcome, suite: SuiteOutcome) -> SuiteReward:
        right = tuple(verdict for place, verdict in suite.right if place < self.num_tests)
        # Infrastructure may have failed on a test that is not right, which `right` no longer shows.
        return StrictReward(self.alpha, self.num_tests, self.mutant_weight).test_reward(
            solution, replace(suite, verdicts=right, ground_truth_lost=suite.lost)
        )


class SimpleReward(StrictReward):
    """A simpler variant in circulation: a test passes on the reference and fails the candidate, or does not.

    Tests are right or wrong as by StrictReward, and only right ones run on the candidate. Its own alpha is 0.6, which
    the method `simple` sets.
    """

    asserts_that_count = 0  # a wrong assert lowers Right, wherever it stands

    def test_reward(self, solution: SolutionOutcome, suite: SuiteOutcome) -> SuiteReward:
        """Returns R_T = alpha Right + (1 - alpha) Fails; -0.5 for a suite without a readable assert on the function.

        Right is the share of right tests among the asserts written, of which the first K count. Fails is 1 where the
        candidate fails one of the right tests, as a program that cannot be loaded does, and else 0.
        """
        lost = solution.program_valid is None or suite.lost
        if suite.num_asserts == suite.num_rejected:
            return _masked(SuiteReward.of(self.alpha, 0.0, 0.0, -BROKEN_TEST), lost=lost)
        right = len(suite.verdicts) / suite.num_asserts
        fails = float(any(verdict in FAILED or not solution.program_valid for verdict in suite.verdicts))
        fails = suite.adversarial(fails, self.mutant_weight)
        return _masked(SuiteReward.of(self.alpha, right, fails), lost=lost)

    def code_reward(self, solution: SolutionOutcome) -> SolutionReward:
        """Returns R_C as by StrictReward; -1 for a program that does not parse, or whose definitions raise."""
        reward = super().code_reward(solution)
        is_broken = solution.program_valid is False and reward.masked != INFRA
        return replace(reward, total=BROKEN_CODE, masked="") if is_broken else reward


OFFICIAL = "official"
REWARDS: dict[str, Callable[..., Reward]] = {
    OFFICIAL: OfficialReward,
    "strict": StrictReward,
    "strict_tests": StrictTestsReward,
    "simple": SimpleReward,
}


def golden_reward(program_valid: bool | None, verdicts: Sequence[Verdict]) -> SolutionReward:
    """Returns the golden-tests baseline: the share of the dataset's valid tests passed, 0 by an invalid program."""
    if program_valid is None or Verdict.INFRA in verdicts:
        return SolutionReward(None, masked=INFRA)
    rate = _pass_rate(verdicts)
    if rate is None:
        return SolutionReward(None, masked=NO_TESTS)
    rate = rate if program_valid else 0.0
    return SolutionReward(rate, golden_pass_rate=rate)


def mean(values: Iterable[float | None]) -> float | None:
    """Returns the mean of the values that are not None; None when there are none."""
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None


def _share_passed(verdicts: Sequence[Verdict]) -> float:
    return sum(verdict is Verdict.PASS for verdict in verdicts) / len(verdicts)


def _pass_rate(verdicts: Sequence[Verdict]) -> float | None:
    """Returns the share of passes among the tests that are evidence about the program; None when there are none.

    One that was not run shows that the program was too slow: it chooses what it spends its time on.
    """
    telling = [verdict for verdict in verdicts if verdict not in BLAMELESS]
    return _share_passed(telling) if telling else None


def _all_failed(solution: SolutionOutcome) -> SolutionOutcome:
    """Returns the outcome of a program that cannot be loaded: it passes no test, whatever else became of them."""

    def failed(verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
        return tuple(verdict if verdict is Verdict.INFRA else Verdict.ERROR for verdict in verdicts)

    suites = tuple(replace(suite, verdicts=failed(suite.verdicts)) for suite in solution.suites)
    return replace(solution, suites=suites, history=failed(solution.history))


def _code_reward(solution: SolutionOutcome, reward: SolutionReward) -> SolutionReward:
    suites_lost = any(suite.lost for suite in solution.suites)
    reward = _masked(reward, lost=solution.program_valid is None or suites_lost or solution.history_lost)
    return reward if reward.masked or reward.total is not None else replace(reward, masked=NO_TESTS)


def _masked(reward: Paid, *, lost: bool) -> Paid:
    return replace(reward, total=None, masked=INFRA) if lost else reward
