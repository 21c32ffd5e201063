"""Whole programs judged by their questions' own check scripts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from codea1.game.question import Question
from codea1.sandbox.grading import Grader
from codea1.sandbox.verdict import Verdict


@dataclass(frozen=True)
class Judgement:
    """What became of one question's program."""

    question_id: str
    verdict: Verdict
    detail: str  # what failed, in a sentence; empty for a pass


@dataclass(frozen=True)
class ScriptScore:
    """A set of programs judged."""

    judgements: Sequence[Judgement]  # of the programs that could be judged
    lost: Sequence[Judgement]  # questions on which the sandbox itself failed: nothing is known
    broken: Sequence[Judgement]  # questions whose script not even the ground truth passes: nobody's fault but the row's
    missing: Sequence[str]  # ids of questions without a program

    @property
    def passed(self) -> int:
        return sum(judgement.verdict is Verdict.PASS for judgement in self.judgements)


def judge(
    questions: Sequence[Question], programs: Mapping[str, str], grader: Grader, seen: Callable[[], None]
) -> ScriptScore:
    """Runs each question's ground truth, and then its program in `programs`, by its check script.

    Args:
      questions: each with a check script.
      programs: question id to program.
      grader: runs them.
      seen: called after each run.

    Returns:
      The judgements in the order of the questions. A question whose ground truth does not pass is `broken` and its
      program is not judged.
    """
    truths = {question.id: question.ground_truth for question in questions}
    ground = {judgement.question_id: judgement for judgement in _run(questions, truths, grader, seen)}
    broken = [judgement for judgement in ground.values() if judgement.verdict not in (Verdict.PASS, Verdict.INFRA)]
    sound = [question for question in questions if ground[question.id].verdict is Verdict.PASS]
    given = [question for question in sound if question.id in programs]
    if all(programs[question.id] == question.ground_truth for question in given):
        judgements = [ground[question.id] for question in given]
    else:
        judgements = list(_run(given, programs, grader, seen))
    lost = [judgement for judgement in [*ground.values(), *judgements] if judgement.verdict is Verdict.INFRA]
    judged = [judgement for judgement in judgements if judgement.verdict is not Verdict.INFRA]
    return ScriptScore(judged, lost, broken, [question.id for question in sound if question.id not in programs])


def _run(
    questions: Sequence[Question], programs: Mapping[str, str], grader: Grader, seen: Callable[[], None]
) -> Iterator[Judgement]:
    futures = [grader.check(programs[q.id], q.check_script, q.entry_point) for q in questions]
    for question, future in zip(questions, futures, strict=True):
        result = future.result()
        seen()
        yield Judgement(question.id, result.verdict, result.detail)
