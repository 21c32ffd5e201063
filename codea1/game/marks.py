"""How the ground truth's answers mark the asserts of a suite, under the official or the strict rule."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from codea1.game.answers import ParsedSuite
from codea1.game.asserts import ParsedAssert
from codea1.game.calls import MAX_VALUE_BYTES, Call, CallTest
from codea1.game.signature import Signature
from codea1.sandbox.host.grading import GroundTruthAnswer
from codea1.values.entry_points import same_answer


class Mark(StrEnum):
    """What became of one assert."""

    RIGHT = "right"  # the answer it states is the ground truth's; officially under any comparison, not only `==`
    WRONG_ANSWER = "wrong answer"  # the ground truth answers the call with another value
    DUPLICATE = "duplicate"  # an earlier assert has the same input
    UNUSABLE = "unusable"  # the ground truth gives no comparable answer
    REJECTED = "rejected"  # not a form the reward accepts
    DROPPED = "dropped"  # the official extraction loses it without counting it
    SURPLUS = "surplus"  # beyond the number of asserts asked for, where those do not count
    INFRA = "infra"  # the sandbox failed to run the ground truth


@dataclass(frozen=True)
class MarkedAssert:
    """An assert with its mark and the ground truth's answer."""

    parsed: ParsedAssert
    mark: Mark
    detail: str = ""  # the reason of a rejection or of an unusable answer
    truth: bytes | None = None  # exact encoding of the ground truth's answer, where it gives one
    runs: bool = False  # its call runs on the solution, with `truth` as the expected value

    @property
    def is_right(self) -> bool:
        """Whether the assert, as it is written, is unique and states the ground truth's answer with `==`."""
        return self.mark is Mark.RIGHT and not self.parsed.rejection

    @property
    def test(self) -> CallTest | None:
        """What runs on the solution: the call with the ground truth's answer; None where the call does not run."""
        if not self.runs:
            return None
        assert self.parsed.call is not None
        assert self.truth is not None
        return CallTest(self.parsed.call, self.truth)

    @property
    def stated(self) -> CallTest | None:
        """The test with the answer that it states; None for what is rejected."""
        return self.test if self.is_right else self.parsed.test


def mark_official(
    parsed: ParsedSuite, answers: Mapping[Call, GroundTruthAnswer], signature: Signature
) -> list[MarkedAssert]:
    """Marks every assert as the Code-A1 reference implementation does.

    Any comparison is a claim of equality. A call that the ground truth answers is usable with the ground truth's
    value, whatever the assert states: a wrong answer costs validity and the test runs. Asserts beyond the number
    asked for are marked like the others. What the reference would execute but is not data is not executed: a call of
    anything but the entry point, or with other arguments than plain data, is rejected, and an answer that is not plain
    data is a wrong one. The reference compares calls AS_WRITTEN.
    """
    marked = []
    seen: dict[bytes, set[bytes]] = {}
    for item in parsed.asserts:
        if item.dropped:
            marked.append(MarkedAssert(item, Mark.DROPPED, item.rejection))
        elif item.call is None:
            marked.append(MarkedAssert(item, Mark.REJECTED, item.rejection))
        else:
            marked.append(_mark_call(item, answers[item.call], signature, seen, run_wrong=True))
    return marked


def mark_strict(
    parsed: ParsedSuite, answers: Mapping[Call, GroundTruthAnswer], signature: Signature, num_tests: int
) -> list[MarkedAssert]:
    """Marks the first `num_tests` asserts; only right tests run, and no later assert counts for anything.

    A test is right when its input is unique under the signature, it is on the entry point, with plain-data arguments,
    and states with `==` the ground truth's own answer.
    """
    marked = []
    seen: dict[bytes, set[bytes]] = {}
    for item in parsed.asserts[:num_tests]:
        if item.rejection or item.call is None:
            marked.append(MarkedAssert(item, Mark.REJECTED, item.rejection))
        else:
            marked.append(_mark_call(item, answers[item.call], signature, seen, run_wrong=False))
    return marked + [MarkedAssert(item, Mark.SURPLUS) for item in parsed.asserts[num_tests:]]


def _mark_call(
    item: ParsedAssert,
    answer: GroundTruthAnswer,
    signature: Signature,
    seen: dict[bytes, set[bytes]],
    *,
    run_wrong: bool,
) -> MarkedAssert:
    """Marks an assert whose call is data by the answer to it; adds its input to those `seen` in the suite.

    An input counts once, in whatever form its answers are compared: of two forms nobody knows whether they differ.
    """
    assert item.call is not None
    if not answer.usable:
        return MarkedAssert(item, Mark.INFRA if answer.reason == "infra" else Mark.UNUSABLE, answer.reason)
    if len(answer.value) > MAX_VALUE_BYTES:
        return MarkedAssert(item, Mark.UNUSABLE, "too large")
    given, answered = signature.key(item.call, answer.value)
    if given in seen and (not answered or not seen[given].isdisjoint((answered, b""))):
        return MarkedAssert(item, Mark.DUPLICATE, truth=answer.value)
    seen.setdefault(given, set()).add(answered)
    if item.answer is None or not same_answer(item.call.entry_point, item.answer, answer.value):
        return MarkedAssert(item, Mark.WRONG_ANSWER, item.rejection, answer.value, runs=run_wrong)
    return MarkedAssert(item, Mark.RIGHT, truth=answer.value, runs=True)
