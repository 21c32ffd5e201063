"""Text into statements, by brackets and quotes: a broken statement costs itself, not those after it."""

import re
from collections.abc import Iterator

from codea1.values.literals import MAX_SOURCE_BYTES

_TOKENS = re.compile(r"\\.|\"{3}|'{3}|[\"'#()\[\]{}]")


def split_statements(text: str) -> Iterator[str]:
    """Yields the statements of `text`: whole lines, joined while a bracket or a triple-quoted string is open.

    A line that starts with `assert` always begins a statement, whatever was left open before it. What grows
    beyond MAX_SOURCE_BYTES, which nobody will read, ends there. Linear in the length of the text.
    """
    lines: list[str] = []
    size = depth = 0
    quote = ""
    for line in text.split("\n"):
        if lines and line.lstrip().startswith(("assert ", "assert(")):
            yield "\n".join(lines)
            lines, size, depth, quote = [], 0, 0, ""
        if not lines and not line.strip():
            continue
        lines.append(line)
        size += len(line) + 1
        depth, quote = _scan(line, depth, quote)
        complete = depth <= 0 and not quote and not line.endswith("\\")
        if complete or size > MAX_SOURCE_BYTES:
            yield "\n".join(lines)
            lines, size, depth, quote = [], 0, 0, ""
    if lines:
        yield "\n".join(lines)


def _scan(line: str, depth: int, quote: str) -> tuple[int, str]:
    """Follows open brackets and an open triple quote through one line."""
    for found in _TOKENS.finditer(line):
        token = found[0]
        if quote:
            if token.startswith(quote):
                quote = ""
        elif token[0] in "\"'":
            quote = token
        elif token == "#":
            break
        elif token in "([{":
            depth += 1
        elif token in ")]}":
            depth -= 1
    return depth, quote if len(quote) == 3 else ""
