"""Files of benchmarks, and of what was written for them: their rows, and what can be wrong with one."""

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from os import fspath

from codea1.data.loader import Row, json_rows, parquet_rows
from codea1.data.staging import staged_file
from codea1.runtime.errors import BadInput, MissingFile
from codea1.storage.objects import location


def benchmark_rows(path: str, where_from: str = "") -> Iterator[tuple[str, Row]]:
    """The rows of a local or gs:// file, each with its place for messages.

    A .parquet file is read as one; any other is JSON Lines, or one JSON array, whatever it is called.

    Args:
      where_from: a sentence on where to get the file, told where it is missing.

    Raises:
      StorageFailed: the bucket fails.
      BadInput: there is no such file, or it is not of that form.
    """
    rows = parquet_rows if path.endswith(".parquet") else json_rows
    try:
        yield from rows(path, staged_file(fspath(location(path, "a benchmark's file")), None))
    except MissingFile as error:
        raise MissingFile(f"{error} {where_from}".rstrip()) from None


def require_text(row: Row, names: Sequence[str], where: str) -> None:
    """Raises BadInput unless each of these fields holds text."""
    for name in names:
        if not isinstance(row.get(name), str):
            raise BadInput(f"{where}: the field {name!r} is {'missing' if row.get(name) is None else 'not text'}.")


def require_unique(ids: Sequence[str], path: str) -> None:
    """Raises BadInput where there is no question, or one comes twice."""
    if not ids:
        raise BadInput(f"{path} holds no question of this benchmark.")
    if repeated := [id for id, count in Counter(ids).items() if count > 1]:
        raise BadInput(f"{path}: question {repeated[0]} comes twice.")


def require_python(source: str, what: str) -> None:
    """Raises BadInput where a source does not compile; `what` it is, with its place, begins the sentence."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about programs that are not ours
            compile(source, "<program>", "exec", dont_inherit=True)
    except SyntaxError as error:
        raise BadInput(f"{what} does not compile: {error.msg}.") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise BadInput(f"{what} does not compile: {type(error).__name__}.") from None
