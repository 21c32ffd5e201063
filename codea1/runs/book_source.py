"""Wherever a Mistake Book lies that a person names: a run, one of its checkpoints, or an exported file."""

from etils import epath

from codea1.game.mistake_book import Pages
from codea1.runs.book_export import read_export
from codea1.runs.book_folder import read_shards
from codea1.runs.book_manifest import MANIFEST
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from codea1.runtime.errors import BadInput
from codea1.storage.objects import exists, is_folder


def open_book(path: str, step: str) -> tuple[str, Pages]:
    """Returns a book and how to call it; nothing is written, so a live run is not disturbed.

    Args:
      path: a run folder, the folder of a book (`checkpoints/50/book`) or an exported file.
      step: of a run: "last", "best" or a number. Other books have one state and ignore it.

    Raises:
      BadInput: there is no such book or step, or it is damaged.
    """
    there = epath.Path(path)
    if not exists(there):
        raise BadInput(f"{path} does not exist.")
    if not is_folder(there):
        return str(there), read_export(there)
    if exists(there / MANIFEST):
        return str(there), read_shards(there)
    return _of_run(RunFolder.existing(path), step)


def _of_run(run: RunFolder, step: str) -> tuple[str, Pages]:
    checkpoints = Checkpoints.reader(run.checkpoints)
    number = checkpoints.named(step, files="book/")
    try:
        return f"{run.path} after step {number}", checkpoints.restore_book(number)
    except BadInput:
        if number not in checkpoints.steps():
            raise BadInput(f"{run.checkpoints}: the run replaced step {number} while it was read; ask again.") from None
        raise
    finally:
        checkpoints.close()
