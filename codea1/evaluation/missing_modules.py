"""What benchmarks' programs import and is not installed here."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec


def missing_modules(*sources: str) -> list[str]:
    """The top-level modules that sources import by absolute names and that are not there.

    Raises SyntaxError, or what else `ast.parse` does: a source is no program.
    """
    return sorted(name for name in {name for source in sources for name in _imported(source)} if not _is_there(name))


def _imported(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


@cache
def _is_there(name: str) -> bool:
    return name in sys.modules or find_spec(name) is not None  # what runs already may have no spec, as __main__
