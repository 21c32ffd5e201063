"""Writing a small file so that a reader, or a crash, sees the old content or the new and never a part."""

from etils import epath


def write_atomically(path: epath.Path, content: str | bytes) -> None:
    """Writes `content` (text as UTF-8) beside `path` and moves it there; makes the folder where it is missing.

    One writer per path: the name of the temporary file is fixed, so one left by a crash is overwritten by the next.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}.tmp"
    try:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
