"""Solutions of a row are run: which is its ground truth, and which tests, check script and mutants hold with it."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from codea1.data.loader import parsed
from codea1.game.asserts import golden_tests
from codea1.game.calls import CallTest
from codea1.game.grading import Judge
from codea1.game.question import Question
from codea1.lab.data.conversion_parts import RowOutcome
from codea1.runtime.futures import Awaiting
from codea1.sandbox.host import Limits, ScriptRun
from codea1.sandbox.host.grading import (
    GROUND_TRUTH_FACTOR,
    LOST,
    Grader,
    Grading,
    GroundTruthAnswer,
    why_unjudged,
)
from codea1.values import canonical_of, decode_exact, encode_canonical
from codea1.values.entry_points import RAISES, same_answer
from codea1.values.verdict import Verdict

NOT_PASSED = "its solution passes none of its tests, twice"
TOO_SLOW = "its solution runs out of time"
UNSTEADY = "its solution answers otherwise when it is run again"
FAILS = "its solution fails one of its tests"
NOT_HERE = "its solution imports {}, which is not here"
SCRIPT_CANNOT_RUN = "its check script cannot run"

WRONG = "the solution fails them"
_DROPPED = {  # why a test of a question that is kept is left out, by the ground truth's answer
    "raises": WRONG,
    "does not raise": WRONG,
    "set order": "their answer depends on the order of a set",
    "disagrees": "their answer is another when it is run again",
    "timeout": "the solution runs out of time",
}
MAX_SOLUTIONS = 5  # of a row that are tried
SLOW_SECONDS = Limits.cpu_seconds_per_test / GROUND_TRUTH_FACTOR  # of a test
# Of a check script: what values may be besides Python's own, and a test that a call raises an exception of a name.
_NAMES = "from collections import deque\nfrom decimal import Decimal\nfrom fractions import Fraction\n"
_RAISES = """\
    try:
        {}
    except Exception as error:
        assert {!r} in (str(error).partition(":")[0], *(each.__name__ for each in type(error).__mro__))
    else:
        assert False
"""
_FAILED_SCRIPT = "their solution fails them"
_DEPENDS = "a test of theirs depends on the run (they are made of the others)"
_ASKED_AT_ONCE = 4  # tests of a ground truth, of which the first that runs out of time is the end
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")


@dataclass(frozen=True)
class Solved:
    """A question as it is read of a row, whose ground truth is yet to be run."""

    question: Question
    others: tuple[str, ...] = ()  # more solutions of the row, for where that one does not pass all of its tests
    unread: int = 0  # tests of the row that state no data, or too much, and stand in no script
    as_json: bool = False  # tests state lists for tuples, and may state an answer as the one item of a list
    script_of_held: bool = False  # its check script is made of the tests that hold


def script_of_tests(tests: Iterable[CallTest]) -> str:
    """Returns a check script that states what one test or more do."""
    calls = {test: replace(test.call, entry_point=f"{test.call.form} candidate".strip()) for test in tests}
    lines = (
        _RAISES.format(call.text, call.form.split()[1])
        if call.form.startswith(RAISES)
        else f"    {replace(test, call=call).text}\n"
        for test, call in calls.items()
    )
    return f"{_NAMES}\n\ndef check(candidate):\n{''.join(lines)}"


class LostError(Exception):
    """The sandbox failed on one of a row's programs, so what the row is is not known."""


def _graded(judge: Judge, program: str, tests: Sequence[CallTest]) -> Awaiting[Grading]:
    """Grades a program. Raises LostError."""
    grading = yield judge.grade(program, tests)
    lost = [
        detail for verdict, detail in zip(grading.verdicts, grading.details, strict=True) if verdict is Verdict.INFRA
    ]
    if grading.program_valid is None or lost:
        raise LostError(next(filter(None, lost), LOST))
    return grading


def _checked(judge: Judge, program: str) -> Awaiting[ScriptRun]:
    """Runs the check script on a program. Raises LostError."""
    run = yield judge.check(program)
    if run.verdict is Verdict.INFRA:
        raise LostError(run.detail)
    return run


@dataclass(frozen=True)
class _Tried:
    """A question with one of its row's solutions as the ground truth, and what that answers."""

    question: Question
    answers: list[GroundTruthAnswer]  # of its golden tests' calls
    held: list[CallTest]  # of its golden tests

    @property
    def dropped(self) -> Counter[str]:
        """How many of the tests did not hold, by the reason."""
        reasons = Counter(_DROPPED.get(answer.reason, WRONG if answer.usable else "no data") for answer in self.answers)
        reasons[WRONG] -= len(self.held)  # they are usable, too
        return +reasons


def outcome_of(solved: Solved, answers_are_json: bool, grader: Grader, min_passed: float) -> Awaiting[RowOutcome]:
    """Runs the programs of a question, with one solution after another as its ground truth, until one passes all.

    Args:
      answers_are_json: tests state lists where a solution may answer tuples.
      min_passed: the share of the row's tests that a solution must pass. A test on which it runs out of time, or on
        which its runs disagree, counts neither as passed nor as failed. A check script that fails counts as one test
        where all tests hold.

    Raises LostError.
    """
    if not solved.question.ground_truth:
        return RowOutcome("", solved.question.id, question=solved.question, unread=solved.unread)
    tests = golden_tests(solved.question)
    all_tried: list[_Tried] = []
    for program in (solved.question.ground_truth, *solved.others):
        question = replace(solved.question, ground_truth=program)
        answers = yield from _answers(Judge(question, grader), tests)
        pairs = list(zip(tests, answers, strict=True))
        as_json = answers_are_json or solved.as_json
        held = [test for pair in pairs if (test := _held(*pair, as_json, solved.as_json)) is not None]
        all_tried.append(_Tried(question, answers, held))
        if len(held) == len(tests):
            break
    # The first of equals.
    tried = max(all_tried, key=lambda tried: (bool(tried.held) and not tried.dropped[WRONG], len(tried.held)))
    question, run, dropped = tried.question, None, tried.dropped
    depends = bool(question.check_script) and any(_DROPPED[reason] in dropped for reason in ("set order", "disagrees"))
    if tried.held and (solved.script_of_held or depends):
        question = replace(question, check_script=script_of_tests(tried.held))
    judge, script = Judge(question, grader), question.check_script
    # A script has a longer limit: what ends for a test may end there. That of a whole program has only the same calls.
    is_late = any(answer.reason == "timeout" for answer in tried.answers)
    if script and not (is_late and (not tried.held or question.form == "program")):
        run = yield from _checked(judge, question.ground_truth)
    passes = run is not None and run.verdict is Verdict.PASS
    if not tried.held and not passes:
        reason, detail = yield from _why_left_out(tried, tests, run, judge)
        details = [detail, f"{len(all_tried)} of its solutions were tried"] if solved.others else [detail]
        return RowOutcome("", question.id, reason=reason, detail="; ".join(filter(None, details)))
    lost_script = _DEPENDS if depends else "" if passes or not script else _why_lost_script(script, run)
    failed = dropped[WRONG] + (lost_script == _FAILED_SCRIPT and not dropped)
    passed = len(tried.held) / (len(tried.held) + failed) if failed else 1.0
    if passed < min_passed:
        detail = f"it passes {passed:.0%} of them"
        return RowOutcome("", question.id, reason=FAILS, detail=detail, passed=passed)
    mutants = []
    for mutant in question.mutants:
        if (yield from _is_exposed(judge, mutant, tried.held, passes)):
            mutants.append(mutant)
    kept = replace(
        question,
        golden_tests=tuple(test.text for test in tried.held),
        mutants=tuple(mutants),
        check_script=script if passes else None,
    )
    return RowOutcome(
        "",
        question.id,
        question=kept,
        lost_script=lost_script,
        unexposed=len(question.mutants) - len(mutants),
        unread=solved.unread,
        passed=passed,
        dropped=dropped,
        is_slow=any(answer.cpu_seconds > SLOW_SECONDS for answer in tried.answers),
    )


def _answers(judge: Judge, tests: Sequence[CallTest]) -> Awaiting[list[GroundTruthAnswer]]:
    """Asks a ground truth about its tests from the smallest; those behind one that takes too long, it is not asked.

    One that takes too long or is lost is asked again, alone.

    Raises LostError.
    """
    answers = [GroundTruthAnswer(False, b"", "timeout", 0.0)] * len(tests)
    order = _from_the_smallest(tests)
    for first in (0, *range(1, len(tests), _ASKED_AT_ONCE)):
        numbers = order[first : first + _ASKED_AT_ONCE] if first else order[:1]
        given = yield from judge.answers(tests[number].call for number in numbers)
        for number in numbers:
            answers[number] = given[tests[number].call]
            if answers[number].reason in ("timeout", "infra"):  # the machine was busy with other rows, perhaps
                module = judge.question.module(judge.question.ground_truth)
                (answers[number],) = yield judge.grader.ground_truth_again(module, tests[number].call)
        if any(answers[number].reason == "infra" for number in numbers):
            raise LostError(LOST)
        if any(answers[number].reason == "timeout" for number in numbers):
            break
    return answers


def _from_the_smallest(tests: Sequence[CallTest]) -> list[int]:
    return sorted(range(len(tests)), key=lambda number: len(tests[number].call.arguments))


def _is_exposed(judge: Judge, mutant: str, tests: Sequence[CallTest], passes_check: bool) -> Awaiting[bool]:
    """Returns whether a golden test fails a mutant or, where the ground truth passes it, the check script."""
    verdicts = (yield from _graded(judge, mutant, tests)).verdicts
    if Verdict.INFRA not in verdicts and any(verdict is not Verdict.PASS for verdict in verdicts):
        return True
    return passes_check and (yield from _checked(judge, mutant)).verdict is not Verdict.PASS


def _why_left_out(
    tried: _Tried, tests: Sequence[CallTest], run: ScriptRun | None, judge: Judge
) -> Awaiting[tuple[str, str]]:
    """Returns why none of a question's tests holds, by what the smallest says, and more in words."""
    if not tests and run is None:
        return NOT_PASSED, "none of its tests states data"
    if run is not None and not tests:  # the check script is all of them
        if run.verdict is Verdict.TIMEOUT:
            return TOO_SLOW, run.detail
        return (SCRIPT_CANNOT_RUN, run.detail) if why_unjudged(run) else _why_raised(run.detail)
    first = _from_the_smallest(tests)[0]
    answer = tried.answers[first]
    if answer.reason == "timeout":
        return TOO_SLOW, f"its smallest test takes more than {Limits.cpu_seconds_per_test:g} s of CPU time"
    if answer.reason in ("disagrees", "set order"):
        return UNSTEADY, "with sets in another order" if answer.reason == "set order" else ""
    if answer.reason != "raises":
        return NOT_PASSED, answer.reason
    grading = yield from _graded(judge, tried.question.ground_truth, [tests[first]])
    return _why_raised(grading.details[0])


def _why_raised(raised: str) -> tuple[str, str]:
    missing = _NO_MODULE.search(raised)
    return (NOT_HERE.format(missing[1]), "") if missing else (NOT_PASSED, " ".join(raised.split()))


def _why_lost_script(script: str, run: ScriptRun | None) -> str:
    """Returns why the check script of a question that is kept is left out; `run` is None where it was not run."""
    if parsed(script) is None:
        return "they do not parse"
    if run is None or run.verdict is Verdict.TIMEOUT:
        return "their solution runs out of time"
    return "they cannot run" if why_unjudged(run) else _FAILED_SCRIPT


def _held(test: CallTest, answer: GroundTruthAnswer, as_json: bool, may_be_wrapped: bool) -> CallTest | None:
    """Returns a test that a ground truth passes, stating what it answers; None where it does not pass it."""
    if not answer.usable:
        return None
    if same_answer(test.call.entry_point, answer.value, test.expected):
        return test
    # No set is built: a program chooses its members, which may take for ever to compare.
    if not as_json:
        return None
    answered, expected = _as_lists(decode_exact(answer.value, hashed=False)), canonical_of(test.expected)
    is_same = encode_canonical(answered) == expected or (may_be_wrapped and encode_canonical([answered]) == expected)
    return replace(test, expected=answer.value) if is_same else None


def _as_lists(value: Any) -> Any:
    return [_as_lists(item) for item in value] if type(value) in (list, tuple) else value
