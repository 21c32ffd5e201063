"""What became of a program and of its suites, as rewards read it: verdicts and marks, counted."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from codea1.game.answers import ParsedSuite
from codea1.game.asserts import Mark, MarkedAssert
from codea1.game.question import Question
from codea1.values.verdict import Verdict

FAILED = frozenset({Verdict.FAIL, Verdict.ERROR, Verdict.TIMEOUT})  # by them new tests enter the Mistake Book
BLAMELESS = frozenset({Verdict.INVALID, Verdict.INFRA})  # no evidence about the program

_COSTS_VALIDITY = frozenset({Mark.REJECTED, Mark.UNUSABLE, Mark.DUPLICATE, Mark.WRONG_ANSWER})


Kill = bool | None  # whether one of some tests fails a program; None: the sandbox failed


def killed(verdicts: Sequence[Verdict]) -> Kill:
    """Returns whether a program with these verdicts fails one of the tests."""
    return None if Verdict.INFRA in verdicts else any(verdict in FAILED for verdict in verdicts)


class ShownTest(NamedTuple):
    """A test as a reward that is a plain function reads it."""

    source: str  # the assert
    is_right: bool  # it states what the ground truth answers
    passed: bool | None  # by the program; None: the sandbox lost it, or nothing can pass it


def passed(verdict: Verdict | None) -> bool | None:
    """Returns whether a program passes a test; None where the test says nothing about it."""
    return None if verdict is None or verdict in BLAMELESS else verdict is Verdict.PASS


@dataclass(frozen=True)
class SuiteOutcome:
    """What the rewards read of one suite on one program."""

    verdicts: tuple[Verdict, ...]  # of the tests that the reward runs, in the order written
    invalid: int = 0  # asserts that were rejected, unusable, duplicate or stated a wrong answer
    nonprintable_ratio: float = 0.0  # share of the answer's characters that are not ASCII printable
    ground_truth_lost: bool = False  # the sandbox failed to run the ground truth on a call of the suite
    right: tuple[tuple[int, Verdict], ...] = ()  # places among the asserts, and verdicts, of the right tests that ran
    num_asserts: int = 0  # that the reward looks at: not those dropped, nor under strict rules those beyond K
    num_rejected: int = 0  # of them: not read, or asserting nothing of the function under test
    on_mutants: tuple[tuple[Verdict, ...], ...] = ()  # by paid mutant, of the right tests among the first K
    fenced: bool = False  # they stood in closed code blocks
    text: str = ""  # the whole answer
    token_ids: tuple[int, ...] = ()  # of the answer as it was sampled, thoughts included
    tests: tuple[ShownTest, ...] = ()  # all asserts, in the order written

    @classmethod
    def of(
        cls,
        parsed: ParsedSuite,
        marked: Sequence[MarkedAssert],
        verdicts: Sequence[Verdict],
        on_mutants: Iterable[Sequence[Verdict]] = (),
        text: str = "",
        token_ids: tuple[int, ...] = (),
    ) -> "SuiteOutcome":
        """Counts the marks of a suite whose tests, those with `marked.test`, got these verdicts.

        `on_mutants` are the verdicts of its right tests among the first K, by mutant.
        """
        marks = [item.mark for item in marked]
        places = [place for place, item in enumerate(marked) if item.runs]
        runs = dict(zip(places, verdicts, strict=False))
        return cls(
            tuple(verdicts),
            sum(mark in _COSTS_VALIDITY for mark in marks),
            parsed.nonprintable_ratio,
            Mark.INFRA in marks,
            tuple((place, verdict) for place, verdict in runs.items() if marked[place].is_right),
            num_asserts=sum(mark not in (Mark.DROPPED, Mark.SURPLUS) for mark in marks),
            num_rejected=marks.count(Mark.REJECTED),
            on_mutants=tuple(map(tuple, on_mutants)),
            fenced=parsed.fenced,
            text=text,
            token_ids=token_ids,
            tests=tuple(
                ShownTest(item.parsed.source, item.is_right, passed(runs.get(place)))
                for place, item in enumerate(marked)
            ),
        )

    @property
    def kills(self) -> tuple[Kill, ...]:
        """Which of the mutants fail one of the tests."""
        return tuple(map(killed, self.on_mutants))

    @property
    def lost(self) -> bool:
        """Whether infrastructure failed while the suite was graded."""
        return self.ground_truth_lost or Verdict.INFRA in self.verdicts or None in self.kills

    def adversarial(self, of_program: float, mutant_weight: float) -> float:
        """Returns Adv with a share of `mutant_weight` for the mutants killed, the rest for the program's own part."""
        if not self.kills or not mutant_weight:
            return of_program
        killed = sum(map(bool, self.kills)) / len(self.kills)
        return (1 - mutant_weight) * of_program + mutant_weight * killed


@dataclass(frozen=True)
class SolutionOutcome:
    """What the rewards read of one program: its fresh suites and the replayed tests."""

    program_valid: bool | None  # it could be loaded; None: the sandbox failed before that showed
    suites: tuple[SuiteOutcome, ...] = ()  # those written for it, in their order
    history: tuple[Verdict, ...] = ()  # of the Mistake Book's tests
    golden: tuple[Verdict, ...] = ()  # of the dataset's own tests, where they run
    fenced: bool = False  # the program stood in a closed code block
    text: str = ""  # the whole answer
    token_ids: tuple[int, ...] = ()  # of the answer as it was sampled, thoughts included
    program: str = ""  # its source
    question: Question | None = None  # the row of the data; None outside of training
    fixed: tuple[ShownTest, ...] = ()  # the Mistake Book's tests, or the dataset's

    @property
    def history_lost(self) -> bool:
        """Whether infrastructure failed while the replayed tests ran."""
        return Verdict.INFRA in self.history
