"""Duels of a run: a program that tests pay although it is wrong, the assert that breaks it, and one that is right.

The samples say which programs a right assert broke, which were paid in full, and which of those came later. A row has
verdicts and no answers, so the sandbox runs what is shown again: every verdict shown was seen twice.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from codea1.game.asserts import Mark, golden_tests
from codea1.game.calls import CallTest, source_of, write_test
from codea1.game.grading import Judge, is_true
from codea1.game.outcomes import FAILED
from codea1.game.question import Question
from codea1.game.rewards import is_whole
from codea1.lab.runs.rendering import draw, join, picture, written
from codea1.lab.runs.story import Row, read_test
from codea1.runs.folder import RunFolder
from codea1.runs.samples import Samples
from codea1.runtime.errors import BadInput
from codea1.sandbox.host.grading import Grader
from codea1.storage.objects import location, write_atomically
from codea1.training.setup import questions_of, sandbox_pool
from codea1.training.stored_config import config_of
from codea1.values import decode_exact
from codea1.values.verdict import Verdict

_TRIED = 5  # programs that may be the right one of a duel
_COLUMNS = 112  # characters of a line of a picture


@dataclass(frozen=True)
class Duel:
    """What samples say of one: an assert with the right answer broke a program, and others were paid in full."""

    question_id: str
    step: int  # in which the Test LLM was shown the program
    program: str
    test: CallTest  # the assert: its source may call with names of what stands before it
    reward: float | None  # the program's, in that step
    paid_at: int | None  # the last step up to `step` whose tests paid the same program 1; None: none did
    others: tuple[tuple[int, str], ...]  # programs that were paid 1 in this step or later, each with its step


@dataclass(frozen=True)
class ProvenDuel:
    """A duel whose programs were run again."""

    duel: Duel
    question: Question
    golden: int  # tests of the dataset that the wrong program passes, all of them; 0: there are none, or it fails one
    truth: str  # what the ground truth answers
    answer: str  # what the wrong program does
    later: tuple[int, str]  # the step of a program that passes the assert and all that the dataset judges by, and it


def find(steps: Mapping[int, Sequence[Row]]) -> list[Duel]:
    """Returns the duels of one question, given its rows by step; the best to show first.

    First come those whose program the tests of that step had paid, and those with a right program in a later step; then
    the shortest. Of each program there is one duel: that with the shortest assert.
    """
    codes = [(step, row) for step, rows in steps.items() for row in rows if row["player"] == "code"]
    whole = [(step, row) for step, row in codes if is_whole(row["reward"])]
    stands = [(step, row.get("program", "")) for step, row in whole if row.get("passes_check") is not False]
    shown = {(step, row["solution"]): row for step, row in codes if row.get("program_valid")}
    duels_of: dict[str, list[Duel]] = {}
    for step, rows in steps.items():
        for suite in (row for row in rows if row["player"] == "test" and (step, row["solution"]) in shown):
            row = shown[step, suite["solution"]]
            program = row.get("program", "")
            others = tuple((at, other) for at, other in stands if at >= step and other != program)
            for item in suite.get("asserts") or () if others else ():
                if item["mark"] == Mark.RIGHT and item["verdict"] in FAILED:
                    try:
                        test = read_test(write_test(item["call"], item["truth"], item.get("form", "")))
                    except ValueError:  # too large to have been written out
                        continue
                    paid = [at for at, code in whole if at <= step and code.get("program", "") == program]
                    facts = suite["question_id"], step, program, test, row["reward"]
                    duels_of.setdefault(program, []).append(Duel(*facts, max(paid, default=None), others))
    return sorted((min(duels, key=_to_read) for duels in duels_of.values()), key=_to_read)


def _to_read(duel: Duel) -> tuple[bool, bool, int]:
    is_later = any(step > duel.step for step, _ in duel.others)
    shortest = min(len(program) for step, program in duel.others if step > duel.step or not is_later)
    return duel.paid_at is None, not is_later, len(duel.program) + len(duel.test.text) + shortest


def judge(duel: Duel, question: Question, grader: Grader) -> ProvenDuel | None:
    """Runs the programs of a duel again; None where that does not show one.

    It does where the ground truth answers as the assert says, the program does not, it was paid in full or the
    question's golden tests pay it, and a program of a later step, else of the same, passes the assert, the golden tests
    and the check script, as far as there are some. The one that resembles it most is taken.
    """
    judged, call, fixed = Judge(question, grader), duel.test.call, golden_tests(question)
    calls = [call, *(test.call for test in fixed)]  # the time that they take bounds the programs'
    truth, *_ = grader.ground_truth(question.module(question.ground_truth), calls).result()
    graded = judged.grade(duel.program, [*fixed, duel.test]).result()
    golden = len(fixed) * all(verdict is Verdict.PASS for verdict in graded.verdicts[:-1])
    if not is_true(duel.test, truth) or graded.verdicts[-1] not in FAILED or not (golden or duel.paid_at is not None):
        return None
    (ran,) = grader.ground_truth(question.module(duel.program), [call]).result()
    answer = f"raises {graded.details[-1]}" if graded.verdicts[-1] is Verdict.ERROR else "does not end in time"
    if ran.usable:
        answer = f"answers {source_of(decode_exact(ran.value))}"
    others = sorted(duel.others, key=lambda other: (other[0] == duel.step, -_resemblance(other[1], duel.program)))
    for later in others[:_TRIED]:
        passes = [*judged.grade(later[1], [*fixed, duel.test]).result().verdicts]
        if question.check_script:
            passes.append(judged.check(later[1]).result().verdict)
        if all(verdict is Verdict.PASS for verdict in passes):
            return ProvenDuel(duel, question, golden, source_of(decode_exact(truth.value)), answer, later)
    return None


def _resemblance(program: str, other: str) -> float:
    return difflib.SequenceMatcher(None, program, other, autojunk=False).ratio()


def read_duels(folder: RunFolder, question_id: str, step: int | None) -> Iterator[ProvenDuel]:
    """Yields the duels of a run that the sandbox confirms, the best first, of each question one.

    Args:
      question_id: of the only question that is looked at; "" for all.
      step: the only one in which a program is broken; None for all.

    Raises BadInput: the run's questions are not where its config says, or a file is damaged.
    """
    config, samples = config_of(folder), Samples(folder)
    questions = {question.id: question for question in questions_of(config, "train")}
    met: dict[str, dict[int, list[Row]]] = {}
    for number in samples.steps():
        for row in samples.for_people(number):
            if question_id in ("", row["question_id"]):
                met.setdefault(row["question_id"], {}).setdefault(number, []).append(row)
    if unknown := met.keys() - questions.keys():
        raise BadInput(f"question {min(unknown)} of {folder.path} is not in {config.data.train.source}.")
    duels = [duel for steps in met.values() for duel in find(steps) if step in (None, duel.step)]
    ids: set[str] = set()
    with sandbox_pool(config.sandbox) as pool:
        grader = Grader(pool)
        for duel in sorted(duels, key=_to_read):
            if duel.question_id not in ids and (judged := judge(duel, questions[duel.question_id], grader)):
                ids.add(duel.question_id)
                yield judged


def tell_duels(workdir: str, question_id: str = "", step: int | None = None, picture_file: str = "") -> None:
    """Prints the best duel of the run of `workdir`, or draws it; arguments as of `read_duels`.

    Args:
      picture_file: an SVG file, local or gs://, that gets the picture; "": it is printed.

    Raises BadInput: there is no duel, or as `read_duels` does.
    """
    folder = RunFolder.existing(workdir)
    file = location(picture_file, "--output") if picture_file else None
    best = next(read_duels(folder, question_id, step), None)
    if not best:
        raise BadInput(
            f"{folder.path} has no duel here: no wrong program that tests pay in full, that a right assert breaks, and "
            "after which one passes."
        )
    if file:
        write_atomically(file, picture(_question(best), _side_by_side(best, folder), _COLUMNS))
        print(f"wrote {file}")
        return
    for lines in (_heads(best, folder), *_acts(best)):
        draw(Console(), join(lines), "")


def _question(proven: ProvenDuel) -> str:
    return " ".join(proven.question.description.split())


def _heads(proven: ProvenDuel, folder: RunFolder) -> list[Text]:
    model = PurePath(folder.config["code"]["model"]).name
    source = f"{proven.question.id} in run {folder.path.name}; the Code LLM started from {model}"
    return [written(_question(proven), "bold"), written(source, "dim")]


def _acts(proven: ProvenDuel) -> tuple[list[Text], list[Text], list[Text]]:
    """Returns what happened with the wrong program, with the assert, and with the right program."""
    duel, (step, program) = proven.duel, proven.later
    paid = f"The tests of step {duel.paid_at} paid it 1.0."
    if proven.golden:
        tests = f"{proven.golden} golden tests" if proven.golden > 1 else "golden test"
        paid = f"The dataset's {tests} would pay it 1.0."
    when = f"{step - duel.step} steps later, step {step}" if step > duel.step else f"another program of step {step}"
    by = ", and of the dataset" if proven.golden or proven.question.check_script else ""
    broken = [written(f"The truth answers {proven.truth}.", "green"), written(f"The program {proven.answer}.", "red")]
    if duel.reward is not None:
        broken.append(written(f"With all suites and old failures the program is paid {duel.reward:.2f}.", "dim"))
    return (
        [
            written(f"1. The Code LLM, step {duel.step}: wrong", "bold"),
            written(duel.program.strip("\n"), indent=2),
            written(paid, "red"),
        ],
        [written("2. The Test LLM, against it", "bold"), written(duel.test.text, indent=2), *broken],
        [
            written(f"3. The Code LLM, {when}: passes", "bold"),
            written(program.strip("\n"), indent=2),
            written(f"It passes this assert, and all tests of step {step}{by}: 1.0.", "green"),
        ],
    )


def _side_by_side(proven: ProvenDuel, folder: RunFolder) -> Group:
    """Returns a duel for a picture: the wrong program and the assert on the left, the right program on the right."""
    wrong, against, right = map(join, _acts(proven))
    acts = Table.grid(padding=(0, 4, 0, 0), expand=True)
    acts.add_column(ratio=1, overflow="fold")
    acts.add_column(ratio=1, overflow="fold")
    acts.add_row(Group(wrong, "", against), right)
    return Group(join(_heads(proven, folder)), "", acts)
