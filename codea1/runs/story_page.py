"""A question's story as one HTML page that needs nothing but itself and runs no script.

What policies wrote is hostile text: `_shown` is the only way for it into the page, and the page's own policy forbids
scripts, frames and anything from elsewhere, should that ever fail.
"""

import html
from collections.abc import Iterable, Iterator, Sequence

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from codea1.runs.story import Meeting, Row, Solution, Story
from codea1.runs.story_words import book_change, code_parts, number, overview, standing, suite_parts
from codea1.runs.visible import visible

_HEADS = ("step", "solutions", "code reward", "new tests", "history", "test reward", "validity", "book")
_LEGEND = (
    "solutions: programs that load; new tests, history: share passed of fresh and of replayed tests; validity: share "
    "of right tests; book: tests kept, before → after. In a suite ✓ passed, ✗ failed, · not run."
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_TONES = {
    **{"pass": "good", "right": "good"},
    **{"fail": "bad", "error": "bad", "wrong answer": "bad"},
    **{"timeout": "odd", "infra": "odd", "unusable": "odd", "rejected": "odd"},
}
_STYLE = """
:root { color-scheme: light dark; --ink: light-dark(#1d2530, #dfe5ee); --faint: light-dark(#667180, #8d99ab);
  --paper: light-dark(#fbfaf7, #14181f); --card: light-dark(#ffffff, #1b212b); --line: light-dark(#e3e0d8, #2c3542);
  --code: light-dark(#1f6fb4, #6db3f2); --test: light-dark(#c2541c, #f0935c); --good: light-dark(#2c7a3f, #6cc886);
  --bad: light-dark(#b3261e, #ff8a80); --odd: light-dark(#8a6100, #e0b95a); --shade: light-dark(#f4f2ec, #10141a); }
:root:has(#light:checked) { color-scheme: light; } :root:has(#dark:checked) { color-scheme: dark; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 2rem 1.25rem 6rem; background: var(--paper); color: var(--ink);
  font: 15px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; display: inline; }
.faint { color: var(--faint); } .right { float: right; font-size: .85rem; }
pre, code { font: 13px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
pre { margin: .5rem 0; padding: .75rem 1rem; background: var(--shade); border-radius: 6px; overflow-x: auto;
  white-space: pre-wrap; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0; font-size: .9rem; }
th { text-align: left; font-weight: 500; color: var(--faint); border-bottom: 1px solid var(--line); }
th, td { padding: .25rem .75rem .25rem 0; vertical-align: top; overflow-wrap: anywhere; }
@media (max-width: 48rem) { table { display: block; overflow-x: auto; } th { white-space: nowrap; } }
.numbers :is(th, td) { text-align: right; }
td.n { white-space: nowrap; font-variant-numeric: tabular-nums; }
details { border: 1px solid var(--line); border-radius: 8px; background: var(--card); margin: .6rem 0;
  padding: 0 1rem; }
details[open] { padding-bottom: .75rem; }
summary { cursor: pointer; padding: .6rem 0; list-style-position: outside; margin-left: .4rem; }
details details { background: none; } 
.meeting > summary { position: sticky; top: 0; background: var(--card); z-index: 1; }
.solution > summary b { color: var(--code); } .suite > summary b { color: var(--test); }
.tag { border-radius: 99px; padding: 0 .55em; font-size: .85em; border: 1px solid currentColor; white-space: nowrap; }
.good { color: var(--good); } .bad { color: var(--bad); } .odd { color: var(--odd); }
.marks { letter-spacing: .1em; font-size: .85rem; }
svg { width: 100%; height: auto; display: block; margin: 1rem 0; } svg text { font-size: 11px; fill: var(--faint); }
@media (max-width: 48rem) { th, td code { white-space: nowrap; } .right { float: none; } svg text { font-size: 24px; } }
.k, .kn, .kc, .ow { color: light-dark(#8250a8, #c9a0f0); } .s, .s1, .s2, .sd { color: var(--good); }
.mi, .mf { color: var(--test); } .c1 { color: var(--faint); font-style: italic; } .nf, .nb { color: var(--code); }
"""


def page(story: Story) -> str:
    """Returns the whole page; the last meeting is open, what led to it is folded."""
    title = _shown(f"{story.question_id} in {story.run}")
    *earlier, last = story.meetings
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title><style>{_STYLE}</style></head><body>",
            _themes(),
            f"<h1>{_shown(story.question_id)}</h1>",
            _under_title(story),
            f"<pre>{_shown(story.prompt.strip())}</pre>",
            _curves(story.meetings),
            _table(_HEADS, (map(_number_cell, overview(meeting)) for meeting in story.meetings), kind="numbers"),
            f'<p class="faint">{_LEGEND}</p>',
            f'<p class="odd">{_shown(story.note)}</p>' if story.note else "",
            *(_meeting(meeting, is_open=False) for meeting in earlier),
            _meeting(last, is_open=True),
            "</body></html>",
        ]
    )


def _shown(text: str) -> str:
    """Text as HTML shows it, every character of it as text."""
    return html.escape(visible(text))


def _under_title(story: Story) -> str:
    said = f"run {story.run}, method {story.method}, asked in {_count(len(story.meetings), 'step')}"
    return f'<p class="faint">{_shown(said)}</p>'


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _themes() -> str:
    choices = (f'<label><input type="radio" name="theme" id="{name}"> {name}</label>' for name in ("light", "dark"))
    return f'<div class="right faint">{" ".join(choices)}</div>'


def _meeting(meeting: Meeting, is_open: bool) -> str:
    _, solutions, code, _, _, test, _, book = overview(meeting)
    said = f"{solutions}, code reward {code}, test reward {test}" + (f", book {book}" if book else "")
    head = f"<h2>Step {meeting.step}</h2> <span class='faint'>{_shown(said)}</span>"
    return _details("meeting", head, "".join(map(_solution, meeting.solutions)) + _book(meeting), is_open)


def _solution(solution: Solution) -> str:
    row = solution.row
    head = _head(f"Solution {row['solution']}", standing(row), code_parts(row))
    replayed = "".join(_runs(name, row[name]) for name in ("history", "golden") if row.get(name))
    inner = f"<pre>{_highlighted(row.get('program', ''))}</pre>{replayed}{''.join(map(_suite, solution.suites))}"
    return _details("solution", head, inner + _answer(row))


def _runs(name: str, runs: Sequence[Row]) -> str:
    heads = ("replayed from the Mistake Book" if name == "history" else "golden test", "verdict")
    return _table(heads, ((_code(run["test"]), _tag(run["verdict"])) for run in runs))


def _suite(row: Row) -> str:
    asserts = row.get("asserts") or ()
    head = _head(f"Suite {row['suite']}", standing(row), suite_parts(row), marks="".join(map(_symbol, asserts)))
    heads = ("written", "call", "mark", "ground truth", "verdict on the program")
    inner = _table(heads, map(_assert_cells, asserts)) if asserts else ""
    return _details("suite", head, inner + _answer(row))


def _head(name: str, earned: str, parts: str, marks: str = "") -> str:
    marks = f" <span class='marks'>{marks}</span>" if marks else ""
    return f"<b>{_shown(name)}</b> {_shown(earned)}{marks}<br><span class='faint'>{_shown(parts)}</span>"


def _answer(row: Row) -> str:
    return _details("answer", "the whole answer", f"<pre>{_shown(row.get('text', ''))}</pre>")


def _assert_cells(item: Row) -> Iterator[str]:
    yield _code(item["source"])
    yield _code(item["call"] or "")
    yield _tag(item["mark"], item["detail"])
    yield _code("" if item["truth"] is None else item["truth"])
    yield _tag(item["verdict"]) if item["verdict"] else "<td class='faint'>not run on it</td>"


def _symbol(item: Row) -> str:
    symbol = "✓" if item["verdict"] == "pass" else "✗" if item["verdict"] else "·"
    return f"<span class='{_TONES.get(item['verdict'], 'faint')}'>{symbol}</span>"


def _book(meeting: Meeting) -> str:
    if not meeting.book:
        return ""
    rows = ((_code(line.test), _number_cell(book_change(line))) for line in meeting.book)
    return _details("book", "<b>Mistake Book</b> of the question", _table(("test", "frequency"), rows))


def _curves(meetings: Sequence[Meeting]) -> str:
    """Both players' mean rewards over the meetings, as a drawing."""
    series = {"code": _means(meetings, code=True), "test": _means(meetings, code=False)}
    values = [value for points in series.values() for _, value in points]
    if len(meetings) < 2 or not values:
        return ""
    low, high = min(0.0, *values), max(1.0, *values)
    first, last = meetings[0].step, meetings[-1].step

    def at(step: int, value: float) -> str:
        return f"{40 + 820 * (step - first) / (last - first):.1f},{130 - 110 * (value - low) / (high - low):.1f}"

    drawn = [f'<text x="0" y="{y}">{number(value)}</text>' for y, value in ((134, low), (24, high))]
    drawn += [f'<line x1="40" x2="860" y1="{y}" y2="{y}" stroke="var(--line)"/>' for y in (130, 20)]
    for place, (player, points) in enumerate(series.items()):
        line = " ".join(at(*point) for point in points)
        drawn.append(f'<polyline points="{line}" fill="none" stroke="var(--{player})" stroke-width="2"/>')
        drawn += [_dot(at(*point), player) for point in points]
        drawn.append(f'<text x="{40 + 300 * place}" y="152" style="fill:var(--{player})">mean {player} reward</text>')
    drawn.append(f'<text x="860" y="152" text-anchor="end">steps {first} to {last}</text>')
    return f'<svg viewBox="0 0 870 160" role="img">{"".join(drawn)}</svg>'


def _dot(place: str, player: str) -> str:
    x, y = place.split(",")
    return f'<circle cx="{x}" cy="{y}" r="3" fill="var(--{player})"/>'


def _means(meetings: Sequence[Meeting], code: bool) -> list[tuple[int, float]]:
    points = []
    for meeting in meetings:
        rows = [solution.row for solution in meeting.solutions] if code else meeting.suites
        rewards = [row["reward"] for row in rows if row["reward"] is not None]
        if rewards:
            points.append((meeting.step, sum(rewards) / len(rewards)))
    return points


def _details(kind: str, head: str, inner: str, is_open: bool = False) -> str:
    return f"<details class='{kind}'{' open' * is_open}><summary>{head}</summary>{inner}</details>"


def _table(heads: Sequence[str], rows: Iterable[Iterable[str]], kind: str = "plain") -> str:
    """A table of cells that are HTML already."""
    lines = ["".join(f"<th>{each}</th>" for each in heads), *("".join(cells) for cells in rows)]
    return f"<table class='{kind}'>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _code(text: str) -> str:
    return f"<td><code>{_shown(text)}</code></td>"


def _number_cell(text: str) -> str:
    return f"<td class='n'>{_shown(text)}</td>"


def _tag(word: str, detail: str = "") -> str:
    detail = f"<br><span class='faint'>{_shown(detail)}</span>" if detail else ""
    return f"<td><span class='tag {_TONES.get(word, 'faint')}'>{_shown(word)}</span>{detail}</td>"


def _highlighted(program: str) -> str:
    """A program with its words coloured; the highlighter escapes all of it."""
    return highlight(visible(program), PythonLexer(), HtmlFormatter(nowrap=True))
