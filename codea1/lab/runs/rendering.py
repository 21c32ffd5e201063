"""Texts of a run for people: on a terminal, as HTML, or as an SVG picture; page and picture need nothing else.

Policies wrote most of what is drawn, and what they wrote is hostile: `written` escapes what steers a terminal or turns
the reading order, no text is taken for rich's markup, and rich escapes all of it as HTML. The page's own policy forbids
scripts, frames and anything from elsewhere, should that ever fail.
"""

import html
import io
import re
from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.terminal_theme import SVG_EXPORT_THEME, TerminalTheme
from rich.text import Text

from codea1.runtime.errors import visible

_COLOR = re.compile(r"#\w{6}")
_DARK = SVG_EXPORT_THEME
_LIGHT = TerminalTheme(  # its colors are dark enough to be read on white
    *((255, 255, 255), (34, 34, 34)),
    [
        (34, 34, 34),
        (179, 38, 30),
        (26, 127, 55),
        (138, 95, 0),
        (9, 105, 218),
        (130, 80, 223),
        (0, 110, 120),
        (90, 90, 90),
    ],
    [(90, 90, 90), (207, 34, 46), (17, 99, 41), (122, 80, 0), (5, 80, 174), (102, 57, 186), (0, 90, 100), (34, 34, 34)],
)
_STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; max-width: 68rem; padding: 1rem; background: light-dark(#fff, #292929);
  color: light-dark(#222, #c5c8c6); }
pre { margin: 0 0 1rem; font: 13px/1.5 ui-monospace, Menlo, Consolas, monospace; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; } pre.table { white-space: pre; overflow-x: auto; }
summary { cursor: pointer; padding: .5rem 0; font: 15px/1.5 system-ui, sans-serif; }
"""
_PAGE_HEAD = f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style>"""
_PICTURE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="-16 -16 {width} {height}" role="img"
 aria-label="LABEL"><style>
text {{ font: {char_height}px ui-monospace, Menlo, Consolas, monospace }} .back {{ fill: #fff; stroke: #d1d9e0 }}
{styles}
@media (prefers-color-scheme: dark) {{ .back {{ fill: #292929; stroke: #3d444d }}
DARK }}</style>
<rect class="back" x="-16" y="-16" width="{width}" height="{height}" rx="8"/>
{backgrounds}{matrix}</svg>
"""


def written(text: str, style: str = "", indent: int = 0) -> Text:
    """Returns text that somebody wrote, with what steers a terminal escaped, in a style of rich."""
    return Text(" " * indent + visible(text).replace("\n", "\n" + " " * indent), style)


def join(lines: Iterable[Text]) -> Text:
    """Returns lines as one text."""
    return Text("\n").join(lines)


def draw(console: Console, *parts: RenderableType) -> None:
    """Prints parts one below the other; the terminal, or the browser, wraps text."""
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, Text))


def page(title: str, parts: Sequence[tuple[str, RenderableType]]) -> str:
    """Returns a page in HTML that fits a phone.

    Args:
      title: of the page; it is plain text.
      parts: each under a heading, all but the last folded; one without a heading is not folded.
    """
    lines = [f"{_PAGE_HEAD}<title>{html.escape(visible(title))}</title></head><body>"]
    for heading, part in parts:
        kind = "" if isinstance(part, Text) else " class='table'"
        body = f"<pre{kind}>{_html(part)}</pre>"
        is_open = " open" * (part is parts[-1][1])
        summary = f"<summary>{html.escape(heading)}</summary>"
        lines.append(f"<details{is_open}>{summary}{body}</details>" if heading else body)
    return "\n".join([*lines, "</body></html>"])


def _html(part: RenderableType) -> str:
    """Returns what rich draws as HTML, without anything around it; each color is one for light and one for dark."""
    console = Console(record=True, file=io.StringIO(), width=100)
    draw(console, part)
    light, dark = (
        console.export_html(theme=theme, code_format="{code}", inline_styles=True, clear=False)
        for theme in (_LIGHT, _DARK)
    )
    # A quote in a text is escaped, so this begins a style and nothing else; both have the same ones in the same order.
    styles = iter(re.findall(r'style="([^"]*)"', dark))

    def both(style: re.Match[str]) -> str:
        others = iter(_COLOR.findall(next(styles)))
        return 'style="' + _COLOR.sub(lambda color: f"light-dark({color[0]}, {next(others)})", style[1]) + '"'

    return re.sub(r'style="([^"]*)"', both, light)


def picture(label: str, part: RenderableType, columns: int) -> str:
    """Returns a part as an SVG picture, `columns` characters wide, light or dark as its reader's screen is.

    `label` is read out in its place.
    """
    console = Console(record=True, file=io.StringIO(), width=columns)
    console.print(part)
    dark = console.export_svg(theme=_DARK, code_format="{styles}", clear=False, unique_id="t")
    template = _PICTURE.replace("DARK", dark.replace("{", "{{").replace("}", "}}"))
    drawn = console.export_svg(theme=_LIGHT, code_format=template, unique_id="t")
    # Texts fit their places: nothing need be clipped.
    drawn = re.sub(r' clip-path="url\(#[\w-]+\)"', "", drawn)
    return drawn.replace('aria-label="LABEL"', f'aria-label="{html.escape(visible(label))}"', 1)
