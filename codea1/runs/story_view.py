"""Draws a question's story with rich: on a terminal, or as one HTML page that needs nothing but itself.

Policies wrote most of it, and what they wrote is hostile: `visible` escapes what steers a terminal or turns the reading
order, no text is taken for rich's markup, and rich escapes all of it as HTML. The page's own policy forbids scripts,
frames and anything from elsewhere, should that ever fail.
"""

import html
import io
from collections.abc import Iterable, Iterator

from rich.console import Console, RenderableType
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

from codea1.runs.story import BookLine, Meeting, Row, Solution, Story

_COLORS = {
    **{"pass": "green", "fail": "red", "error": "red", "timeout": "yellow", "infra": "magenta"},  # verdicts
    **{"right": "green", "wrong answer": "red", "unusable": "yellow", "rejected": "yellow"},  # marks of asserts
}
_HEADS = ("step", "solutions", "code reward", "pass new", "pass history", "test reward", "validity", "book")
_STYLE = """
body { margin: 0 auto; max-width: 68rem; padding: 1rem; background: #292929; color: #c5c8c6; }
pre { margin: 0 0 1rem; font: 13px/1.5 ui-monospace, Menlo, Consolas, monospace; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; } pre.table { white-space: pre; overflow-x: auto; }
summary { cursor: pointer; padding: .5rem 0; font: 15px/1.5 system-ui, sans-serif; }
"""
_PAGE_HEAD = f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style>"""


def show(story: Story, console: Console) -> None:
    """Prints the whole story."""
    _print(console, _introduction(story), _overview(story))
    for meeting in story.meetings:
        _print(console, Rule(f"step {meeting.step}"), _join(_meeting(meeting)))


def page(story: Story) -> str:
    """Returns the story as a page that fits a phone; the last meeting is open, what led to it is folded."""
    parts = [
        f"{_PAGE_HEAD}<title>{html.escape(visible(f'{story.question_id} in {story.run}'))}</title></head><body>",
        f"<pre>{_recorded(_introduction(story))}</pre><pre class='table'>{_recorded(_overview(story))}</pre>",
    ]
    for meeting in story.meetings:
        is_open = " open" * (meeting is story.meetings[-1])
        body = _recorded(_join(_meeting(meeting)))
        parts.append(f"<details{is_open}><summary>step {meeting.step}</summary><pre>{body}</pre></details>")
    return "\n".join([*parts, "</body></html>"])


def visible(text: str) -> str:
    """Returns `text` with every character that is not printable, but line ends and tabs, as Python escapes it.

    So no escape sequence reaches a terminal, no direction mark hides what a program says ("Trojan Source",
    CVE-2021-42574), and lone surrogates, which no file takes, are written out.
    """
    return "".join(
        char if char in "\n\t" or char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def _recorded(part: RenderableType) -> str:
    """Returns what rich draws as HTML, without anything around it."""
    console = Console(record=True, file=io.StringIO(), width=100)
    _print(console, part)
    return console.export_html(theme=SVG_EXPORT_THEME, code_format="{code}", inline_styles=True)


def _print(console: Console, *parts: RenderableType) -> None:
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, Text))  # the terminal, or the browser, wraps text


def _join(lines: Iterable[Text]) -> Text:
    return Text("\n").join(lines)


def _text(text: str, style: str = "", indent: int = 0) -> Text:
    return Text(" " * indent + visible(text).replace("\n", "\n" + " " * indent), style)


def _introduction(story: Story) -> Text:
    title = Text.assemble(_text(story.question_id, "bold"), _text(f"  in run {story.run} ({story.method})"))
    return _join([title, Text(), _text(story.prompt.strip(), "dim", indent=2), Text(), _text(story.note, "yellow")])


def _overview(story: Story) -> Table:
    table = Table(*_HEADS, box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for meeting in story.meetings:
        codes, suites = [solution.row for solution in meeting.solutions], meeting.suites
        book = meeting.book
        table.add_row(
            str(meeting.step),
            f"{sum(bool(row.get('program_valid')) for row in codes)} of {len(codes)} load",
            _mean(row["reward"] for row in codes),
            _mean(row["reward_parts"].get("generated_pass_rate") for row in codes),
            _mean(row["reward_parts"].get("history_pass_rate") for row in codes),
            _mean(row["reward"] for row in suites),
            _mean(row["reward_parts"].get("validity") for row in suites),
            "" if book is None else f"{sum(line.before > 0 for line in book)} → {sum(line.after > 0 for line in book)}",
        )
    return table


def _meeting(meeting: Meeting) -> Iterator[Text]:
    for solution in meeting.solutions:
        yield from _solution(solution)
    if meeting.book:
        yield Text("Mistake Book", "bold")
        for line in meeting.book:
            color = "green" if line.after < line.before else "red" if line.after > line.before else "dim"
            yield Text.assemble((f"  {_book_change(line):14}  ", color), visible(line.test))
        yield Text()


def _solution(solution: Solution) -> Iterator[Text]:
    row = solution.row
    head = _text(f"solution {row['solution']}: {_standing(row)}", "bold")
    yield Text.assemble(head, _text(f"  {_code_parts(row)}"))
    program, answer = row.get("program", ""), row.get("text", "")
    yield Syntax("", "python", theme="ansi_dark").highlight(_text(program, indent=2).plain)
    if not row.get("program_valid") and answer != program:
        yield _text(f"the whole answer:\n{answer}", "dim", indent=2)
    for name in ("history", "golden"):
        for run in row.get(name) or ():
            yield Text.assemble(f"  {name} test  ", _verdict(run["verdict"]), _text(run["test"]))
    for suite in solution.suites:
        parts = ", ".join(f"{name.replace('_', ' ')} {_number(part)}" for name, part in suite["reward_parts"].items())
        yield _text(f"suite {suite['suite']}: {_standing(suite)}  {parts}", indent=2)
        for item in suite.get("asserts") or ():
            yield Text.assemble("    ", _verdict(item["verdict"]), _text(item["source"]), _mark(item))
        if not suite.get("asserts"):
            yield _text(suite.get("text", "") or "an empty answer", "dim", indent=4)
    yield Text()


def _verdict(verdict: str | None) -> Text:
    return _text(f"{verdict or 'not run on it':13}  ", _COLORS.get(verdict, "dim"))


def _mark(item: Row) -> Text:
    """What the ground truth says about an assert."""
    said = item["mark"] + (f": {item['detail']}" if item["detail"] else "")
    if item["truth"] is not None and item["source"] != f"assert {item['call']} == {item['truth']}":
        said += f"; {item['call']} is {item['truth']}"
    return _text(f"  # {said}", _COLORS.get(item["mark"], "dim"))


def _standing(row: Row) -> str:
    """What a sample earned and whether it trains."""
    if row["reward"] is None:
        return f"masked, {row['masked'] or 'not graded'}"
    shaped = row.get("shaped_reward")
    length = f" ({_number(shaped)} after its length)" if shaped is not None and shaped != row["reward"] else ""
    trains = "trains" if row["selected"] else "not selected"
    return f"reward {_number(row['reward'])}{length}, advantage {row['advantage']:+.3f}, {trains}"


def _code_parts(row: Row) -> str:
    """The parts of a solution's reward."""
    parts, valid = row["reward_parts"], row.get("program_valid")
    said = ["not graded" if valid is None else "loads" if valid else "cannot be loaded"]
    rates = {"new tests": "generated_pass_rate", "history": "history_pass_rate", "golden tests": "golden_pass_rate"}
    said += [f"passes {100 * parts[key]:.0f} % of {name}" for name, key in rates.items() if parts.get(key) is not None]
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
    there = [value for value in values if value is not None]
    return _number(sum(there) / len(there) if there else None)
