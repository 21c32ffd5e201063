"""One question's story in a run: each step in which it was asked, and its Mistake Book, rebuilt from the samples."""

import contextlib
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group
from rich.rule import Rule
from rich.syntax import Syntax
from rich.text import Text

from codea1.game.answers import without_thoughts
from codea1.game.asserts import Rejected, parse_assert
from codea1.game.calls import CallTest, write_test
from codea1.game.methods import METHODS
from codea1.game.mistake_book import Bound, Evidence, MistakeBook
from codea1.game.outcomes import FAILED
from codea1.game.rewards import OFFICIAL, mean
from codea1.lab.report.tables import LEGEND, TextTable
from codea1.lab.runs.rendering import draw, join, page, written
from codea1.runs.folder import RunFolder
from codea1.runs.samples import Samples
from codea1.runtime.errors import BadInput, visible
from codea1.storage.objects import location, write_atomically

Row = Mapping[str, Any]  # of `codea1.runs.samples`
_ENTRY_POINT = re.compile(  # of a test as `write_test` writes it
    r"(?:assert (?:not |(?:abs|list|tuple|set|sorted|round|bool)\((?=[A-Za-z_]))?|with pytest\.raises\(\w+\): )"
    r"(\w+(?:\(\)\.\w+)?)\("
)
_NAMED = 5  # questions that an error names
_COLORS = {
    **{"pass": "green", "fail": "red", "error": "red", "timeout": "yellow", "infra": "magenta"},  # verdicts
    **{"right": "green", "wrong answer": "red", "unusable": "yellow", "rejected": "yellow"},  # marks of asserts
}
_HEADS = ("step", "solutions", "code reward", "pass new", "pass history", "test reward", "validity", "book")


@dataclass(frozen=True)
class SolutionRows:
    """One program with the suites that were written for it."""

    row: Row
    suites: tuple[Row, ...]


@dataclass(frozen=True)
class BookLine:
    """One test of the question in the Mistake Book around a step: its frequency, 0 where it is not in the book."""

    test: str
    before: int
    after: int


@dataclass(frozen=True)
class Meeting:
    """One step in which the question was sampled."""

    step: int
    solutions: tuple[SolutionRows, ...]
    book: tuple[BookLine, ...] | None  # most frequent first; None: there is none, or samples do not show it

    @property
    def suites(self) -> list[Row]:
        return [suite for solution in self.solutions for suite in solution.suites]


@dataclass(frozen=True)
class Story:
    """All that a run keeps of one question."""

    run: str
    method: str
    question_id: str
    prompt: str  # what the Code LLM read
    meetings: tuple[Meeting, ...]
    note: str = ""  # what is left out, and why


def explain(workdir: str, question_id: str = "", step: int | None = None, html_file: str = "") -> None:
    """Shows one question's story in the run of `workdir`, or writes it as a page.

    Args:
      question_id: "" for the one that `most_improved` names.
      step: the only step that is shown; None for all.
      html_file: file of the page, local or gs://; "" for the terminal.

    Raises BadInput as `read_story` and `most_improved` do, and where the file cannot be written.
    """
    folder = RunFolder.existing(workdir)
    story = read_story(folder, question_id or most_improved(folder), step)
    if not html_file:
        show(story, Console())
        return
    file = location(html_file, "--html")
    try:
        write_atomically(file, story_page(story))
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise BadInput(f"{file} cannot be written: {error.strerror}.") from None
    print(f"wrote {file}")


def most_improved(folder: RunFolder) -> str:
    """Returns the question in which the Test LLM learned most to expose programs.

    It is the one whose suites' mean adversarial part rose most from the first step that asked it to the last.

    Raises BadInput: no suite in the samples has an adversarial part; or a file is damaged.
    """
    samples = Samples(folder)
    paid: dict[str, dict[int, list[float]]] = {}
    for step in samples.steps():
        for row in samples.for_people(step):
            if row["player"] == "test" and (part := row["reward_parts"].get("adversarial")) is not None:
                paid.setdefault(row["question_id"], {}).setdefault(step, []).append(part)
    means = {question: [sum(parts) / len(parts) for parts in steps.values()] for question, steps in paid.items()}
    if not means:
        raise BadInput(f"{folder.path} has no samples of suites that were paid for exposing programs: give --question.")
    return max(means, key=lambda question: means[question][-1] - means[question][0])


def read_story(folder: RunFolder, question_id: str, step: int | None = None) -> Story:
    """Reads one question's story from a run's samples.

    Args:
      step: the only meeting that is returned; None for all.

    Raises:
      BadInput: the run has no samples, or none of the question, or none in that step; or a file is damaged.
    """
    samples = Samples(folder)
    met: dict[int, list[dict[str, Any]]] = {}
    asked: set[str] = set()
    for number in samples.steps():
        for row in samples.for_people(number):
            asked.add(row["question_id"])
            if row["question_id"] == question_id:
                met.setdefault(number, []).append(row)
    if not asked:
        raise BadInput(f"{folder.path} has no samples, which a story is made of.")
    if not met:
        near = difflib.get_close_matches(question_id, sorted(asked), n=_NAMED, cutoff=0.4) or sorted(asked)[:_NAMED]
        known = f"the {len(asked)} that {folder.path} has samples of, such as {', '.join(near)}"
        raise BadInput(f"question {question_id} is none of {known}.")
    if step is not None and step not in met:
        steps = ", ".join(map(str, met))
        raise BadInput(f"question {question_id} was not asked in step {step} of {folder.path}, but in {steps}.")
    book, meetings = _Book(folder.config, question_id), []
    for number, rows in met.items():
        solutions = _solutions(rows)
        lines = book.update(number, solutions)
        meetings.append(Meeting(number, solutions, lines))
    chosen = tuple(meeting for meeting in meetings if step in (None, meeting.step))
    prompt = next(iter(met.values()))[0].get("prompt", "")
    return Story(folder.path.name, folder.config.get("method", ""), question_id, prompt, chosen, book.note)


def _solutions(rows: Sequence[Row]) -> tuple[SolutionRows, ...]:
    suites: dict[int, list[Row]] = {}
    for row in rows:
        if row["player"] == "test":
            suites.setdefault(row["solution"], []).append(row)
    return tuple(SolutionRows(row, tuple(suites.get(row["solution"], ()))) for row in rows if row["player"] == "code")


class _Book:
    """The question's page of the Mistake Book, rebuilt from the samples."""

    def __init__(self, config: Mapping[str, Any], question_id: str):
        game = config.get("game", {})
        self._question_id = question_id
        self._size = game.get("history_size", 0)
        bound = Bound(game.get("book_cap", 0), game.get("book_policy", "frequency"), config.get("seed", 0))
        self._book = MistakeBook(bound=bound, reference_ties=game.get("reward", OFFICIAL) == OFFICIAL)
        method = METHODS.get(config.get("method", ""))
        has_book = bool(method and method.mistake_book and game.get("mistake_book"))
        self.note = ""  # what is left out of the page's changes, and why
        if has_book and game.get("book_total_cap"):
            self.note = (
                "What the Mistake Book keeps of a question depends on all of them here: its changes are left out."
            )
        elif has_book and bound.by_reward:
            self.note = "The Mistake Book keeps and draws tests by reward here: its changes are left out."
        self._has_book = has_book

    def update(self, step: int, solutions: Sequence[SolutionRows]) -> tuple[BookLine, ...] | None:
        """Adds a step; returns the page's changes, or None where there is no book or it is not known."""
        if not self._has_book or self.note:
            return None
        replayed = [run["test"] for run in solutions[0].row.get("history", [])] if solutions else []
        held = [test.text for test in self._book.retrieve(self._question_id, self._size)]
        evidence = None
        if replayed in ([], held):
            with contextlib.suppress(ValueError):
                evidence = _evidence(solutions)
        if evidence is None:
            self.note = (
                f"The Mistake Book is left out from step {step} on: the samples do not lead to what it replayed."
            )
            return None
        before = self._frequencies()
        self._book.update(self._question_id, "", step, evidence)
        after = self._frequencies()
        lines = [BookLine(test, before.get(test, 0), after.get(test, 0)) for test in {**before, **after}]
        return tuple(sorted(lines, key=lambda line: -max(line.before, line.after)))

    def _frequencies(self) -> dict[str, int]:
        page = self._book.pages().get(self._question_id)
        return {entry.test.text: entry.frequency for entry in page.entries.values()} if page else {}


def _evidence(solutions: Sequence[SolutionRows]) -> Evidence:
    """Returns what valid programs failed and passed. Raises ValueError: a test is too large to be written out."""
    failed_new, passed_history, failed_history = [], [], []
    for solution in solutions:
        if solution.row.get("program_valid"):
            asserts = [item for suite in solution.suites for item in suite.get("asserts", ())]
            missed = [item for item in asserts if item["verdict"] in FAILED]
            new = [write_test(item["call"], item["truth"], item.get("form", "")) for item in missed]
            runs = solution.row.get("history", ())
            failed_new.append([read_test(source) for source in new])
            passed_history.append([read_test(run["test"]) for run in runs if run["verdict"] == "pass"])
            failed_history.append([read_test(run["test"]) for run in runs if run["verdict"] in FAILED])
    return Evidence(failed_new, passed_history, failed_history)


def read_test(source: str) -> CallTest:
    """Reads a test as `write_test` writes it. Raises ValueError: it is too large to have been written out."""
    entry_point = _ENTRY_POINT.match(source)
    parsed = parse_assert(source, entry_point[1] if entry_point else "")
    if isinstance(parsed, Rejected):
        raise ValueError(source)
    return parsed


def show(story: Story, console: Console) -> None:
    """Prints the whole story."""
    draw(console, _introduction(story), _overview(story))
    for meeting in story.meetings:
        draw(console, Rule(f"step {meeting.step}"), join(_meeting(meeting)))


def story_page(story: Story) -> str:
    """Returns the story as a page in HTML; the last meeting is open, what led to it is folded."""
    meetings = [(f"step {meeting.step}", join(_meeting(meeting))) for meeting in story.meetings]
    title = f"{story.question_id} in {story.run}"
    return page(
        title,
        [("", _introduction(story)), ("", _overview(story)), ("what the words mean", LEGEND.terminal()), *meetings],
    )


def _introduction(story: Story) -> Text:
    title = Text.assemble(written(story.question_id, "bold"), written(f"  in run {story.run} ({story.method})"))
    return join([title, Text(), written(story.prompt.strip(), "dim", indent=2), Text(), written(story.note, "yellow")])


def _overview(story: Story) -> Group:
    rows = []
    for meeting in story.meetings:
        codes, suites = [solution.row for solution in meeting.solutions], meeting.suites
        book = meeting.book
        cells = (
            str(meeting.step),
            f"{sum(bool(row.get('program_valid')) for row in codes)} of {len(codes)} load",
            _mean(row["reward"] for row in codes),
            _mean(row["reward_parts"].get("generated_pass_rate") for row in codes),
            _mean(row["reward_parts"].get("history_pass_rate") for row in codes),
            _mean(row["reward"] for row in suites),
            _mean(row["reward_parts"].get("validity") for row in suites),
            "" if book is None else f"{sum(line.before > 0 for line in book)} → {sum(line.after > 0 for line in book)}",
        )
        rows.append(cells)
    return TextTable(_HEADS, rows).terminal()


def _meeting(meeting: Meeting) -> Iterator[Text]:
    for solution in meeting.solutions:
        yield from _solution(solution)
    if meeting.book:
        yield Text("Mistake Book", "bold")
        for line in meeting.book:
            color = "green" if line.after < line.before else "red" if line.after > line.before else "dim"
            yield Text.assemble((f"  {_book_change(line):14}  ", color), visible(line.test))
        yield Text()


def _solution(solution: SolutionRows) -> Iterator[Text]:
    row = solution.row
    head = written(f"solution {row['solution']}: {_standing(row)}", "bold")
    yield Text.assemble(head, written(f"  {_code_parts(row)}"))
    program, answer = row.get("program", ""), row.get("text", "")
    yield from _thoughts(row, indent=2)
    yield Syntax("", "python", theme="ansi_dark").highlight(written(program, indent=2).plain)
    if not row.get("program_valid") and answer != program:
        yield written(f"the whole answer:\n{answer}", "dim", indent=2)
    for name in ("history", "golden"):
        for run in row.get(name) or ():
            yield Text.assemble(f"  {name} test  ", _verdict(run["verdict"]), written(run["test"]))
    for suite in solution.suites:
        parts = ", ".join(f"{name.replace('_', ' ')} {_number(part)}" for name, part in suite["reward_parts"].items())
        yield written(f"suite {suite['suite']}: {_standing(suite)}  {parts}", indent=2)
        yield from _thoughts(suite, indent=4)
        for item in suite.get("asserts") or ():
            yield Text.assemble("    ", _verdict(item["verdict"]), written(item["source"]), _mark(item))
        if not suite.get("asserts"):
            yield written(suite.get("text", "") or "an empty answer", "dim", indent=4)
    yield Text()


def _thoughts(row: Row, indent: int) -> Iterator[Text]:
    """Yields what a player thought before its answer, where it did."""
    text = row.get("text", "")
    answer = without_thoughts(text)
    if answer != text:
        unfinished = "" if answer else ", and did not end"
        yield written(f"thought{unfinished}:\n{text.removesuffix(answer).strip()}", "dim", indent=indent)


def _verdict(verdict: str | None) -> Text:
    return written(f"{verdict or 'not run on it':13}  ", _COLORS.get(verdict or "", "dim"))


def _mark(item: Row) -> Text:
    """Returns what the ground truth says about an assert."""
    said = item["mark"] + (f": {item['detail']}" if item["detail"] else "")
    if item["truth"] is not None and item["source"] != write_test(item["call"], item["truth"], item.get("form", "")):
        asked = f"{item.get('form', '')} {item['call']}".strip()
        said += f"; {asked} is {item['truth']}"
    return written(f"  # {said}", _COLORS.get(item["mark"], "dim"))


def _standing(row: Row) -> str:
    """Returns what a sample earned and whether it trains."""
    if row["reward"] is None:
        return f"masked, {row['masked'] or 'not graded'}"
    shaped = row.get("shaped_reward")
    length = f" ({_number(shaped)} after its length)" if shaped is not None and shaped != row["reward"] else ""
    trains = "trains" if row["selected"] else "not selected"
    return f"reward {_number(row['reward'])}{length}, advantage {row['advantage']:+.3f}, {trains}"


def _code_parts(row: Row) -> str:
    """Returns the components of a solution's reward."""
    parts, valid = row["reward_parts"], row.get("program_valid")
    said = ["not graded" if valid is None else "loads" if valid else "cannot be loaded"]
    rates = {"new tests": "generated_pass_rate", "history": "history_pass_rate", "golden tests": "golden_pass_rate"}
    said += [f"passes {100 * parts[key]:.0f} % of {name}" for name, key in rates.items() if parts.get(key) is not None]
    if (passes := row.get("passes_check")) is not None:
        said.append(f"{'passes' if passes else 'fails'} its check script")
    if parts.get("suites"):
        said.append(f"by suite {' '.join(map(_number, parts['suites']))}")
    return "; ".join(said)


def _book_change(line: BookLine) -> str:
    if line.before == line.after:
        return str(line.after)
    if not line.before:
        return f"enters with {line.after}"
    return f"{line.before} → {line.after}" if line.after else f"{line.before}, leaves"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _mean(values: Iterable[float | None]) -> str:
    return _number(mean(values))
