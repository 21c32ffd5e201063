"""Cases of a file: does a candidate pass a test that the ground truth confirms?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from codea1.data.rows import file_rows
from codea1.game.asserts import Rejected, parse_assert
from codea1.runtime.errors import BadInput
from codea1.runtime.futures import Awaiting, start
from codea1.sandbox.host.grading import Grader
from codea1.values.entry_points import same_answer
from codea1.values.verdict import Verdict


@dataclass(frozen=True)
class Case:
    """One row: does `candidate` pass `test`, an assert on `entry_point` whose answer `ground_truth` must confirm?"""

    name: str
    entry_point: str
    ground_truth: str
    candidate: str
    test: str


@dataclass(frozen=True)
class CaseVerdict:
    """What came of a case; `detail` says why where the verdict does not."""

    name: str
    verdict: Verdict
    detail: str


def read_cases(path: str) -> list[Case]:
    """Returns the cases of a JSONL file. Raises BadInput naming the file and line that is wrong."""
    names, cases = [field.name for field in fields(Case)], []
    for where, row in file_rows(path):
        for name in names:
            if not isinstance(row.get(name), str):
                raise BadInput(f"{where}: {name!r} is missing or not a string.")
        cases.append(Case(*(row[name] for name in names)))
    return cases


def grade_cases(cases: Sequence[Case], grader: Grader) -> Iterator[CaseVerdict]:
    """Grades cases; yields the verdicts in their order."""
    verdicts = [start(_graded(case, grader)) for case in cases]
    yield from (CaseVerdict(case.name, *verdict.result()) for case, verdict in zip(cases, verdicts, strict=True))


def _graded(case: Case, grader: Grader) -> Awaiting[tuple[Verdict, str]]:
    """Returns the verdict on a case, and why where that does not say it."""
    test = parse_assert(case.test, case.entry_point)
    if isinstance(test, Rejected):
        return Verdict.INVALID, test.reason
    (answer,) = yield grader.ground_truth(case.ground_truth, [test.call])
    if answer.reason == "infra":
        return Verdict.INFRA, "the sandbox failed"
    if not answer.usable:
        return Verdict.INVALID, f"the ground truth gives no usable answer: {answer.reason}"
    if not same_answer(test.call.entry_point, test.expected, answer.value):
        return Verdict.INVALID, "the stated answer is not the ground truth's"
    grading = yield grader.grade(case.candidate, [test], ground_truth=case.ground_truth)
    return grading.verdicts[0], grading.details[0]
