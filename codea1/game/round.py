"""A Round: everything that happened to the questions of one step, and which of its suites train the Test LLM.

Rewards are computed from it, the Mistake Book is updated from it, and its statistics are the metrics of the step.
Records are made with all their verdicts; rewards, and then selection and advantages, are written into them.
"""

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Generic

import numpy as np

from codea1.game.answers import ExtractedProgram, ParsedSuite
from codea1.game.asserts import Mark, MarkedAssert, tests_of
from codea1.game.book_pages import Identity
from codea1.game.calls import CallTest
from codea1.game.mistake_book import BookChange, Evidence, MistakeBook, Place
from codea1.game.outcomes import FAILED, ShownTest, SolutionOutcome, SuiteOutcome, killed, passed
from codea1.game.question import AS_WRITTEN, Question, Signature
from codea1.game.rewards import MASK_REASONS, Paid, Reward, SolutionReward, SuiteReward, golden_reward, is_whole, mean
from codea1.values.verdict import Verdict


@dataclass(frozen=True)
class SampleRecord:
    """What one player was shown and what it sampled."""

    prompt_ids: tuple[int, ...]
    text: str
    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]  # of token_ids, as sampled
    finish_reason: str  # "stop" or "length"
    textless_tokens: int = 0  # of token_ids, those that the tokenizer does not have: they add nothing to the text
    prompt_routes: np.ndarray | None = field(default=None, compare=False)  # as `rollout.engine.Sample` has them
    routes: np.ndarray | None = field(default=None, compare=False)


@dataclass(frozen=True)
class GradedTest:
    """One test and its verdict on one program."""

    test: CallTest
    verdict: Verdict


@dataclass(kw_only=True)
class _Rewarded(Generic[Paid]):
    """What becomes of a sample once it is graded."""

    reward: Paid | None = None
    shaped_reward: float | None = None  # what the player learns from: minus what its length costs
    advantage: float = 0.0

    @property
    def total(self) -> float | None:
        """The reward; None where there is none, or none yet."""
        return self.reward.total if self.reward else None

    @property
    def masked(self) -> bool:
        """Whether the sample has no reward to learn from."""
        return self.total is None


@dataclass
class SuiteRecord(_Rewarded[SuiteReward]):
    """One answer of the Test LLM about one solution."""

    index: int  # n, among the solution's suites
    sample: SampleRecord
    parsed: ParsedSuite
    marked: list[MarkedAssert]
    verdicts: list[Verdict]  # of `tests`, in order
    # Of its right tests among the first K, by mutant: by those that the reward reads, and by those that metrics read.
    on_mutants: list[list[Verdict]] = field(default_factory=list)
    on_hidden: list[list[Verdict]] = field(default_factory=list)
    selected: bool = False  # it trains the Test LLM, unless it is masked

    @property
    def tests(self) -> list[CallTest]:
        """The tests that run on the solution, in the order written."""
        return tests_of(self.marked)

    @property
    def exposes(self) -> bool:
        """Whether a right test of the suite fails the solution."""
        tests = [item for item in self.marked if item.runs]
        return any(item.is_right and verdict in FAILED for item, verdict in zip(tests, self.verdicts, strict=True))

    @property
    def graded(self) -> list[GradedTest]:
        return [GradedTest(test, verdict) for test, verdict in zip(self.tests, self.verdicts, strict=True)]


@dataclass(frozen=True)
class SuiteGroup:
    """The suites of one solution, as a selection sees them.

    Selected are suites by their solution: by variance (TOPVAR), by learnability, or at random. All train where
    `config.game.trained_solutions` is the number of solutions.
    """

    rewards: tuple[float, ...]  # of those that are not masked
    exposes: tuple[bool, ...]  # of the same ones: a right test of the suite fails the solution
    key: str  # of a random choice: run, step, question and solution


def variance(group: SuiteGroup) -> float:
    """Returns std{R^{m,n}}_n, the population's, in float64: VAR^m of Code-A1, step 5-1."""
    # Sorted, so that the same rewards in another order are a tie to the last bit.
    return float(np.std(np.sort(np.array(group.rewards, np.float64))))


def learnability(group: SuiteGroup) -> float:
    """Returns p (1 - p), p the share of suites that expose the solution (Rutherford et al. 2024, arXiv 2408.15099)."""
    share = sum(group.exposes) / len(group.exposes)
    return share * (1 - share)


def chance(group: SuiteGroup) -> float:
    """Returns a number in [0, 1) that depends on the group's key alone."""
    return random.Random(group.key).random()


SELECTIONS: dict[str, Callable[[SuiteGroup], float]] = {
    "variance": variance,
    "learnability": learnability,
    "random": chance,
}


def select(groups: Sequence[SuiteGroup], count: int, score: Callable[[SuiteGroup], float]) -> list[int]:
    """Chooses the `count` solutions of one question that score highest.

    Ties go to the solution whose rewards vary more, then to the lowest index. Where some are left out, a solution whose
    rewards are all masked is not chosen. Nothing is left out when `count` is at least the number of solutions M.

    Returns:
      Indices of the chosen solutions, ascending; fewer than `count` where fewer have a reward.
    """
    if count >= len(groups):
        return list(range(len(groups)))
    graded = [m for m, group in enumerate(groups) if group.rewards]
    ranked = sorted(graded, key=lambda m: (-score(groups[m]), -variance(groups[m])))
    return sorted(ranked[:count])


@dataclass
class SolutionRecord(_Rewarded[SolutionReward]):
    """One answer of the Code LLM to one question."""

    index: int  # m, among the question's solutions
    sample: SampleRecord
    program: ExtractedProgram
    program_valid: bool | None  # it could be loaded; None: the sandbox failed
    suites: list[SuiteRecord] = field(default_factory=list)
    history: list[GradedTest] = field(default_factory=list)  # replayed from the Mistake Book
    golden: list[GradedTest] = field(default_factory=list)
    test_prompt_fits: bool = True  # False: too long with this program in it, so there are no suites
    lost: str = ""  # why the sandbox failed on the replayed or golden tests; empty where it did not
    passes_check: bool | None = None  # the question's check script, which no reward reads; None: not run, or lost
    selected: bool = True  # it trains the Code LLM, unless it is masked
    question: Question | None = None  # None: no reward in a plain function reads it

    @property
    def paid_but_wrong(self) -> bool | None:
        """Whether it has the whole reward of 1 and fails its question's check script; None: the script was not run."""
        return None if self.passes_check is None else is_whole(self.total) and not self.passes_check

    @property
    def exposed(self) -> bool:
        """Whether it cannot be loaded, or fails a test that runs on it and is new or golden; replayed ones are old.

        A test whose suite states a wrong answer counts where it runs: with the ground truth's, it teaches as others do.
        """
        verdicts = chain((run.verdict for run in self.golden), *(suite.verdicts for suite in self.suites))
        return self.program_valid is False or any(verdict in FAILED for verdict in verdicts)

    def assign_rewards(self, reward: Reward) -> None:
        """Gives the solution and its suites their rewards; all verdicts must be in."""
        suites = tuple(
            SuiteOutcome.of(s.parsed, s.marked, s.verdicts, s.on_mutants, s.sample.text, s.sample.token_ids)
            for s in self.suites
        )
        outcome = SolutionOutcome(
            self.program_valid,
            suites,
            history=tuple(graded.verdict for graded in self.history),
            golden=tuple(graded.verdict for graded in self.golden),
            fenced=self.program.fenced,
            text=self.sample.text,
            token_ids=self.sample.token_ids,
            program=self.program.source,
            question=self.question,
            fixed=tuple(ShownTest(run.test.text, True, passed(run.verdict)) for run in (*self.history, *self.golden)),
        )
        self.reward = reward.code_reward(outcome)
        for suite, suite_outcome in zip(self.suites, suites, strict=True):
            suite.reward = reward.test_reward(outcome, suite_outcome)

    def suite_group(self, key: str) -> SuiteGroup:
        """Returns its suites as a selection sees them."""
        exposes = tuple(suite.exposes for suite in self.suites if not suite.masked)
        return SuiteGroup(tuple(suite.total for suite in self.suites if suite.total is not None), exposes, key)

    def assign_golden_reward(self) -> None:
        """Gives the solution the golden-tests reward; all verdicts must be in."""
        self.reward = golden_reward(self.program_valid, [graded.verdict for graded in self.golden])


@dataclass
class QuestionRecord:
    """One question of the batch with its M solutions."""

    question: Question
    solutions: list[SolutionRecord] = field(default_factory=list)
    signature: Signature = AS_WRITTEN  # by which its calls are compared

    @property
    def rewards_differ(self) -> bool:
        """Whether its solutions can be learned from: not all of them have the same reward."""
        return len({solution.total for solution in self.solutions if not solution.masked}) > 1

    def evidence(self, book: MistakeBook) -> Evidence:
        """Returns what the verdicts on the question's valid programs tell the Mistake Book.

        Only verdicts of tests that ran count: one that was not run, though the program is paid as if it had failed it,
        or that was lost to infrastructure, neither enters the book nor wears off. A test enters with the answer in
        which two runs of the ground truth agreed (`MarkedAssert.test`). Which tests run, and so may enter,
        is the reward's choice (`Reward.mark`): `strict` and `simple` run only right ones, of the first K asserts;
        `official` and `strict_tests` also run those whose stated answer was wrong, and those beyond K. Of several
        spellings of an input the oldest is the entry.
        """

        def key(test: CallTest) -> tuple[str, bytes, bytes]:
            return test.call.form, *self.signature.key(test.call, test.expected)

        spellings = {key(test): test for test in reversed(book.tests(self.question.id))}

        def spelled(test: CallTest) -> CallTest:
            return spellings.setdefault(key(test), test)

        valid = [solution for solution in self.solutions if solution.program_valid]
        failed_new = [
            [spelled(test) for suite in solution.suites for test in _with_verdict(suite.graded, FAILED)]
            for solution in valid
        ]
        rewards: dict[Identity, float] = {}
        if book.bound.by_reward:
            suites = [suite for solution in self.solutions for suite in solution.suites]
            paid = [(suite.total, suite.tests) for suite in suites if suite.total is not None]
            for total, tests in sorted(paid, key=lambda pair: pair[0]):  # the best paid last
                rewards |= {spelled(test).identity: total for test in tests}
        return Evidence(
            failed_new=failed_new,
            passed_history=[_with_verdict(solution.history, {Verdict.PASS}) for solution in valid],
            failed_history=[_with_verdict(solution.history, FAILED) for solution in valid],
            rewards=rewards,
        )


@dataclass
class Round:
    """A batch of questions asked in one step, or all batches of the step added up."""

    step: int
    questions: list[QuestionRecord] = field(default_factory=list)
    book_change: BookChange = field(default_factory=BookChange)
    book_size: int = 0  # tests in the Mistake Book after the step

    @property
    def solutions(self) -> Iterator[SolutionRecord]:
        return (solution for question in self.questions for solution in question.solutions)

    @property
    def suites(self) -> Iterator[SuiteRecord]:
        return (suite for solution in self.solutions for suite in solution.suites)

    def code_groups(self) -> list[list[SolutionRecord]]:
        """Returns the groups in which the Code LLM's samples are compared: the solutions of one question."""
        return [question.solutions for question in self.questions]

    def test_groups(self) -> list[list[SuiteRecord]]:
        """Returns the groups in which the Test LLM's samples are compared: the suites of one (question, solution)."""
        return [solution.suites for solution in self.solutions if solution.suites]

    def __add__(self, later: "Round") -> "Round":
        """Returns this round with a later one of the same step, of other questions."""
        change = self.book_change + later.book_change
        return Round(self.step, self.questions + later.questions, change, later.book_size)

    def train_on_first(self, count: int) -> None:
        """Selects for training the first `count` questions whose solutions' rewards differ, and no other."""
        for question in self.questions:
            if question.rewards_differ and count > 0:
                count -= 1
                continue
            for solution in question.solutions:
                solution.selected = False
                for suite in solution.suites:
                    suite.selected = False

    def update_book(self, book: MistakeBook) -> None:
        """Updates the Mistake Book with each of its questions that the book holds, and records what changed."""
        self.book_change = BookChange()
        for record in self.questions:
            id, digest = record.question.id, record.question.ground_truth_digest
            if book.holds(id):
                self.book_change += book.update(id, digest, self.step, record.evidence(book))
        self.book_size = book.size

    def evict(self, book: MistakeBook, surplus: Sequence[Place]) -> None:
        """Evicts from the Mistake Book the tests that are too many in all, and records how many they were."""
        self.book_change += BookChange(evicted=book.evict(surplus))
        self.book_size = book.size

    def select(self, count: int, score: Callable[[SuiteGroup], float], seed: int) -> None:
        """Selects the suites that train: those of each question's `count` solutions that score highest."""
        for question in self.questions:
            key = f"select/{seed}/{self.step}/{question.question.id}"
            groups = [solution.suite_group(f"{key}/{solution.index}") for solution in question.solutions]
            chosen = select(groups, count, score)
            for m, solution in enumerate(question.solutions):
                for suite in solution.suites:
                    suite.selected = m in chosen


def _with_verdict(graded: Sequence[GradedTest], verdicts: Collection[Verdict]) -> list[CallTest]:
    return [run.test for run in graded if run.verdict in verdicts]


def statistics(round_: Round) -> dict[str, float]:
    """Returns the metrics of a Round whose rewards are in, by name.

    A mean or share over nothing is left out; counts are always there. Shares and rates lie in [0, 1]. Masked rewards
    count in no mean.
    """
    groups, solutions, suites = round_.code_groups(), list(round_.solutions), list(round_.suites)
    leads = [lead for group in groups for lead in _leads(group)]
    num_too_long = sum(not solution.test_prompt_fits for solution in solutions)
    paid = [solution.reward for solution in solutions if solution.reward and not solution.masked]
    metrics = {
        "code/pass_rate_new": mean(reward.generated_pass_rate for reward in paid),
        "code/pass_rate_history": mean(reward.history_pass_rate for reward in paid),
        "code/pass_rate_golden": mean(reward.golden_pass_rate for reward in paid),
        "code/program_valid": mean(solution.program_valid for solution in solutions),
        "code/hidden_pass_rate": mean(solution.passes_check for solution in solutions),
        "code/paid_but_wrong": mean(solution.paid_but_wrong for solution in solutions),
        "code/misranked": mean(lead < 0 for lead in leads),
        "code/misranked_ties": mean(lead == 0 for lead in leads),
        "code/contrast": mean(len({s.exposed for s in group if not s.masked}) > 1 for group in groups if group),
        **_of_samples("code", solutions, [s.program.fenced for s in solutions]),
    }
    if suites or num_too_long:
        metrics |= {**_of_suites(solutions), **_of_samples("test", suites, [s.parsed.fenced for s in suites])}
        metrics["test/prompt_too_long"] = float(num_too_long)
    selected = [[suite for suite in group if suite.selected] for group in round_.test_groups()]
    verdicts = Counter(
        run.verdict
        for solution in solutions
        for run in [*solution.history, *solution.golden, *(run for suite in solution.suites for run in suite.graded)]
    )
    metrics |= {
        "code/questions": float(len(round_.questions)),
        "code/questions_that_teach": float(sum(question.rewards_differ for question in round_.questions)),
        "code/prompt_too_long": float(sum(not question.solutions for question in round_.questions)),
        "code/group_zero_std_frac": _zero_std_share(groups),
        "test/group_zero_std_frac": _zero_std_share(selected),
        **{f"verdict/{verdict.value}": _share(verdicts[verdict], verdicts.total()) for verdict in Verdict},
        "book/added": float(round_.book_change.added),
        "book/removed": float(round_.book_change.removed),
        "book/evicted": float(round_.book_change.evicted),
        "book/size": float(round_.book_size),
    }
    return {name: value for name, value in metrics.items() if value is not None}


def _leads(group: Sequence[SolutionRecord]) -> list[float]:
    """Returns the reward of a right program minus that of a wrong one, for all such pairs of a group."""
    judged = [(solution.total, solution.passes_check) for solution in group if solution.passes_check is not None]
    right, wrong = ([paid for paid, passes in judged if passes is kind and paid is not None] for kind in (True, False))
    return [a - b for a in right for b in wrong]


def _of_suites(solutions: Sequence[SolutionRecord]) -> dict[str, float | None]:
    """Returns the metrics of the suites on solutions."""
    suites = [suite for solution in solutions for suite in solution.suites]
    paid = [suite.reward for suite in suites if suite.reward and not suite.masked]
    marks = Counter(item.mark for suite in suites for item in suite.marked)
    # On a program that cannot be loaded every test fails, which says nothing about the tests.
    valid = [solution for solution in solutions if solution.program_valid]
    of_wrong = [suite for solution in valid if solution.passes_check is False for suite in solution.suites]
    kills_of_right_tests = [killed(ran) for suite in suites for ran in zip(*suite.on_hidden, strict=True)]
    runs = Counter(verdict for solution in valid for suite in solution.suites for verdict in suite.verdicts)
    written = marks.total() - marks[Mark.DROPPED] - marks[Mark.SURPLUS]
    num_killed = sum(runs[verdict] for verdict in FAILED)
    return {
        "test/validity": mean(reward.validity for reward in paid),
        "test/adversarial": mean(reward.adversarial for reward in paid),
        "test/hidden_kill_rate": mean(mean(map(killed, suite.on_hidden)) for suite in suites),
        "test/own_kill_rate": mean(None if Verdict.INFRA in suite.verdicts else suite.exposes for suite in of_wrong),
        "test/trivial_rate": mean(None if kills is None else not kills for kills in kills_of_right_tests),
        "test/kill_rate": _share(num_killed, num_killed + runs[Verdict.PASS]),
        "test/answer_mismatch_rate": _share(marks[Mark.WRONG_ANSWER], marks[Mark.WRONG_ANSWER] + marks[Mark.RIGHT]),
        "test/duplicate_rate": _share(marks[Mark.DUPLICATE], written),
        "test/rejected_rate": _share(marks[Mark.REJECTED], written),
        "test/suite_tests": mean(len(suite.parsed.asserts) for suite in suites),
    }


def _of_samples(
    player: str, records: Sequence[SolutionRecord] | Sequence[SuiteRecord], fenced: Iterable[bool]
) -> dict[str, float | None]:
    """Returns the metrics that both players' samples have."""
    totals = [record.total for record in records if record.total is not None]
    reasons = Counter(record.reward.masked for record in records if record.masked and record.reward)
    return {
        f"{player}/reward": mean(totals),
        f"{player}/reward_std": float(np.std(totals)) if totals else None,
        f"{player}/response_tokens": mean(len(record.sample.token_ids) for record in records),
        f"{player}/textless_tokens": float(sum(record.sample.textless_tokens for record in records)),
        f"{player}/truncated_frac": mean(record.sample.finish_reason == "length" for record in records),
        f"{player}/no_code_block_frac": mean(not is_fenced for is_fenced in fenced),
        **{f"{player}/masked_{reason.replace(' ', '_')}": float(reasons[reason]) for reason in MASK_REASONS},
    }


def _zero_std_share(groups: Iterable[Sequence[SolutionRecord] | Sequence[SuiteRecord]]) -> float | None:
    """Returns the share of groups that teach nothing, because all of their rewards are equal."""
    totals = [[record.total for record in group if record.total is not None] for group in groups]
    return mean(min(group) == max(group) for group in totals if group)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
