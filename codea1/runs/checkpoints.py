"""Checkpoints: both players, the Mistake Book and the state of the host, one atomic folder per step.

A step is complete when its folder holds the commit marker, which Orbax writes after everything else, the manifest
with the checksums of all files included. A step that is to go loses its marker first and then its manifest, so a crash
at any moment leaves only folders that are complete or known not to be. What has a manifest that is right and no marker
has lost the marker in another way, and is never deleted.
"""

import contextlib
import json
import logging
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint.checkpoint_managers import LatestN

from codea1.game.book_pages import Pages
from codea1.game.mistake_book import ALL_SHARDS
from codea1.runs.book_files import BookSave, read_shards
from codea1.runtime.errors import BadInput
from codea1.storage.checksums import MANIFEST, check_manifest, checksum_of, write_manifest
from codea1.storage.faults import translate_storage_errors
from codea1.storage.json_lines import loads
from codea1.storage.objects import exists, names, read, remove, remove_folder, sync, write_atomically

PyTree = Any

MARKER = "commit_success.txt"
_LATE_SCORE = "late_score.json"
_PATIENCE = 4 * 10**9  # seconds that Orbax waits, by a clock that may jump: the watchdog decides what takes too long
_UNFINISHED = "orbax-checkpoint-tmp"  # what follows a step's number and a dot while its folder is being written
# Orbax logs the traceback of an error that it raises as well.
logging.getLogger("absl").addFilter(lambda record: not (record.exc_info and "orbax" in record.pathname))
# Where one array cannot be written, TensorStore may tell of another after the loop that waited for both has closed.
_print = sys.unraisablehook
sys.unraisablehook = lambda late: None if str(late.exc_value) == "Event loop is closed" else _print(late)


class Checkpoints:
    """The checkpoints of one run. In a multi-process run every process makes the same calls in the same order."""

    def __init__(self, directory: epath.Path, keep_last: int, keep_best: int, *, read_only: bool = False):
        """Opens `directory`, made where it is missing.

        Args:
          directory: holds one folder per step.
          keep_last: newest complete steps that are kept, at least 1.
          keep_best: steps with the highest score that are kept besides; between equal scores the earlier step.
          read_only: for a reader of a live run: nothing is made or saved.
        """
        self._directory = epath.Path(directory)
        self._keep_last = keep_last
        self._keep_best = keep_best
        self._read_only = read_only
        names(self._directory)  # raises where it is a link to a disk that is not mounted
        with translate_storage_errors(f"opening {self._directory}"):
            self._manager = ocp.CheckpointManager(
                self._directory,
                options=ocp.CheckpointManagerOptions(
                    preservation_policy=LatestN(None),  # all: superseded steps are deleted here, marker first
                    create=not read_only,  # Orbax's own read_only warns on every use
                    # Despite its name it is called before the marker is written: by the main host, when all files of
                    # all hosts are there, in the background.
                    async_options=ocp.options.AsyncOptions(_PATIENCE, post_finalization_callback=self._write_manifest),
                ),
            )
        self.sound = -1  # a step that is kept besides, until another is
        self.notes: list[str] = []  # on what was damaged and is not needed; emptied by the caller that prints them
        self._scores: dict[int, float | None] = {}
        self._unknown: set[int] = set()  # steps whose score is damaged
        self._being_saved = -1

    @classmethod
    def reader(cls, directory: epath.Path) -> "Checkpoints":
        """Opens the checkpoints of a run that may be live, for reading: nothing is made or cleaned up."""
        return cls(directory, keep_last=1, keep_best=0, read_only=True)

    def save(
        self,
        step: int,
        arrays: PyTree,
        state: Mapping[str, Any],
        score: float | None,
        book: BookSave | None = None,
    ) -> None:
        """Starts writing a step and returns when the arrays and the state may change again.

        The step before is complete by then; this one is after `wait`, the next `save`, or `close`.

        Args:
          step: greater than every saved step.
          arrays: pytree of jax.Array, typed random keys and bfloat16 included, sharded in any way.
          state: what JSON can hold, with text keys: counters, the best score so far.
          score: validation score of this step, higher is better; None where it was not measured.
          book: this host's part of the Mistake Book; None on every host where there is no book.

        Raises:
          TypeError: `state` holds what JSON cannot.
          RuntimeError: the step was not written because it, or a later one, is already there, or this is a reader.
          StorageFailed: this write or the one before failed, for example on a full disk.
        """
        if self._read_only:
            raise RuntimeError(f"step {step} was not saved: {self._directory} is open for reading only")
        state = json.loads(json.dumps(state))  # written in the background: the caller's may change meanwhile
        score = None if score is None else float(score)
        self.wait()
        self._being_saved = step
        with translate_storage_errors(f"saving step {step} in {self._directory}"):
            saved = self._manager.save(
                step,
                args=ocp.args.Composite(
                    arrays=ocp.args.StandardSave(arrays),
                    state=ocp.args.JsonSave(state),
                    score=ocp.args.JsonSave({"score": score, "step": step}),
                    **({"book": book} if book else {}),
                ),
            )
        if not saved:
            raise RuntimeError(f"step {step} was not saved: {self._directory} holds step {self._manager.latest_step()}")
        self._scores[step] = score

    def set_score(self, step: int, score: float) -> None:
        """Gives its score to a step that was saved without one; see `save`."""
        self.wait()
        if jax.process_index() == 0:
            write_atomically(self._directory / str(step) / _LATE_SCORE, json.dumps(_sealed(float(score))))
        self._scores[step] = float(score)

    def wait(self) -> None:
        """Returns when every save is complete and superseded steps are gone. Raises StorageFailed where one failed."""
        with translate_storage_errors(f"saving step {self._being_saved} in {self._directory}"):
            self._manager.wait_until_finished()
        if not self._read_only:
            self._delete_superseded()

    def check(self) -> None:
        """Raises StorageFailed where a save in the background has failed by now; waits for nothing."""
        if not self._manager.is_saving_in_progress():
            with translate_storage_errors(f"saving step {self._being_saved} in {self._directory}"):
                self._manager.wait_until_finished()

    def settle(self) -> None:
        """Returns when what is being saved is complete or has failed, whichever it is: for a run that ends anyway."""
        with contextlib.suppress(Exception):
            self._manager.wait_until_finished()

    def close(self) -> None:
        """Waits, and releases threads and files."""
        self.wait()
        self._manager.close()

    def steps(self) -> list[int]:
        """Returns the complete steps, oldest first; a reader sees those of the moment it opened the folder."""
        self._manager.wait_until_finished()
        return [step for step in sorted(self._manager.all_steps()) if exists(self._directory / str(step) / MARKER)]

    def best_step(self) -> int | None:
        """Returns the complete step with the highest score, the earliest of equals; None where none has a score."""
        return next(iter(self._by_score(self.steps())), None)

    def latest(self, allow_previous: bool = False) -> tuple[int | None, list[str]]:
        """Returns the newest complete step, None where there is none, after comparing the checksums of its files.

        Args:
          allow_previous: takes the newest step that is undamaged, and ignores those after it. Not for readers.

        Returns:
          The step, and a sentence about each damaged one that was given up.

        Raises:
          BadInput: the newest step is damaged, and an older one is not allowed, or none is undamaged.
          StorageFailed: the files cannot be read.
        """
        damages = []
        for step in reversed(self.steps()):
            try:
                check_step(self._directory / str(step))
            except BadInput as damage:
                damages.append(str(damage))
                continue
            if damages and not allow_previous:
                remedy = f"Step {step} is undamaged: --allow_previous_step goes on from there."
                raise BadInput(f"{' '.join(damages)} {remedy}")
            return step, damages
        if damages:
            raise BadInput(f"{' '.join(damages)} No step is undamaged.")
        return None, []

    def continue_from(self, step: int | None, set_aside: Callable[[epath.Path], epath.Path]) -> list[str]:
        """Removes what was not saved as a whole, and moves aside what lies after the step that the run continues from.

        All that can refuse to continue comes before. Every process calls it. Not for readers.

        Args:
          step: from `latest`.
          set_aside: moves a folder and returns where it is.

        Returns:
          A sentence about each step that was moved aside, on the main host.
        """
        notes = []
        for name in names(self._directory) if jax.process_index() == 0 else ():
            path, (number, dot, suffix) = self._directory / name, name.partition(".")
            if not number.isdecimal() or (dot and not suffix.startswith(_UNFINISHED)):
                continue
            if dot or not (exists(path / MARKER) or _is_whole(path)):
                remove_folder(path)
            elif not exists(path / MARKER):
                notes.append(f"step {name} has lost its {MARKER}, and is now {set_aside(path)}")
            elif step is None or int(number) > step:
                notes.append(f"step {name} is now {set_aside(path)}")
        ocp.multihost.sync_global_processes("codea1.checkpoints.continue_from")
        self._manager.reload()
        return notes

    def restore(self, step: int, abstract_arrays: PyTree) -> tuple[PyTree, dict[str, Any]]:
        """Returns the arrays and the state of one step, bit for bit as saved.

        Args:
          step: from `latest` or `named`, which look for damage; here damage may raise any error.
          abstract_arrays: pytree of jax.ShapeDtypeStruct with the shardings wanted now, on any mesh.

        Raises:
          BadInput: the step is not there.
          StorageFailed: it cannot be read.
          ValueError: the saved arrays have other names or shapes.
        """
        self._require(step)
        with translate_storage_errors(f"reading {self._directory / str(step)}"):
            restored = self._manager.restore(
                step,
                args=ocp.args.Composite(arrays=ocp.args.StandardRestore(abstract_arrays), state=ocp.args.JsonRestore()),
            )
        return restored.arrays, restored.state

    def state(self, step: int) -> dict[str, Any]:
        """Returns the state of one step, without its arrays. See `restore`."""
        self._require(step)
        return loads(read(self._directory / str(step) / "state" / "metadata"))

    def restore_book(self, step: int, shards: range = ALL_SHARDS) -> Pages:
        """Returns what some shards of a step's Mistake Book hold; no host waits for another.

        Raises BadInput: the step is not there, or a file of the book is missing or damaged.
        """
        self._require(step)
        return read_shards(self._directory / str(step) / "book", shards)

    def restore_part(self, step: int, abstract_part: PyTree) -> PyTree:
        """Returns those arrays of a step that are named in `abstract_part`, nested dicts of jax.ShapeDtypeStruct.

        Nothing else is read: the parameters of one player need not share memory with what trained them. See `restore`.
        """
        self._require(step)
        translated = translate_storage_errors(f"reading {self._directory / str(step)}")
        with translated, ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
            restore_args = ocp.checkpoint_utils.construct_restore_args(abstract_part)
            args = ocp.args.PyTreeRestore(item=abstract_part, restore_args=restore_args, partial_restore=True)
            return reader.restore(self._directory / str(step) / "arrays", args=args)

    def named(self, step: str, files: str = "") -> int:
        """Returns the complete step that "last", "best" or a number names.

        Raises BadInput where there is none, or as `check_step` does.
        """
        steps = self.steps()
        if step == "last":
            number = steps[-1] if steps else None
        elif step == "best":
            number = self.best_step()
        else:
            number = int(step) if step.isdecimal() else None
        if number not in steps:
            raise BadInput(f"{self._directory} has no step {step}; it has {', '.join(map(str, steps)) or 'none'}.")
        check_step(self._directory / str(number), files)
        return number

    def _require(self, step: int) -> None:
        steps = self.steps()
        if step not in steps:
            raise BadInput(f"{self._directory} has no complete step {step}; it has {steps or 'none'}.")

    def _delete_superseded(self) -> None:
        steps = sorted(self._manager.all_steps())  # not those on disk: another process may have unmarked one already
        unknown = self._without_known_score(steps) if self._keep_best else []
        best = self._by_score([step for step in steps if step not in unknown])[: self._keep_best]
        kept = {*steps[-self._keep_last :], *best, *unknown, self.sound}
        superseded = [step for step in steps if step not in kept]
        if superseded and jax.process_index() == 0:  # what supersedes them would be there after a loss of power
            for path in (self._directory / str(steps[-1]) / MARKER, self._directory / str(steps[-1]), self._directory):
                sync(path)
        for step in superseded:
            self._delete(step)

    def _without_known_score(self, steps: list[int]) -> list[int]:
        """Returns the steps whose score is damaged. They are kept, since one of them may be the best, and told once."""
        for step in steps:
            try:
                if step not in self._unknown:
                    self._score(step)
            except BadInput as damage:
                self.notes.append(str(damage))
                self._unknown.add(step)
        return [step for step in steps if step in self._unknown]

    def _delete(self, step: int) -> None:
        if jax.process_index() == 0:
            remove(self._directory / str(step) / MARKER)
            remove(self._directory / str(step) / MANIFEST)
        with translate_storage_errors(f"deleting {self._directory / str(step)}"):
            self._manager.delete(step)

    def _write_manifest(self) -> None:
        """Writes that of the step being saved: on a disk Orbax gives its folder the step's name when all is written."""
        name = str(self._being_saved)
        unfinished = f"{name}.{_UNFINISHED}"  # and no copy that a user has next to it, such as 3.bak
        (folder,) = (folder for folder in names(self._directory) if folder == name or folder.startswith(unfinished))
        write_manifest(self._directory / folder)

    def _by_score(self, steps: list[int]) -> list[int]:
        scored = [(self._score(step), step) for step in steps]
        ranked = sorted((-score, step) for score, step in scored if score is not None and not math.isnan(score))
        return [step for _, step in ranked]

    def _score(self, step: int) -> float | None:
        if step not in self._scores:
            try:
                self._scores[step] = score_of(self._directory / str(step))
            except BadInput as damage:
                raise BadInput(
                    f"{damage} The score of step {step} is not known: codea1 fsck --quarantine moves that step aside."
                ) from None
        return self._scores[step]


def _is_whole(folder: epath.Path) -> bool:
    """Returns whether a step's folder has a manifest that is right."""
    try:
        check_manifest(folder)
    except BadInput:
        return False
    return True


def check_step(folder: epath.Path, beginning: str = "") -> None:
    """Raises BadInput where files of a step whose names have this beginning are damaged, or it is another step."""
    check_manifest(folder, beginning)
    with contextlib.suppress(FileNotFoundError, ValueError, AttributeError):
        step = loads(read(folder / "score" / "metadata")).get("step")
        if step is not None and str(step) != folder.name:  # else an older version saved it
            raise BadInput(f"{folder} is step {step} under another number; give the folder its name again.")


def score_of(folder: epath.Path) -> float | None:
    """Returns the score of a step, None where it was not measured. Raises BadInput: it is damaged.

    Not by Orbax, which waits for all hosts: one may ask alone.
    """
    path, is_late = folder / _LATE_SCORE, exists(folder / _LATE_SCORE)  # it got the score after it was saved
    if not is_late:
        check_manifest(folder, "score/")
        path = folder / "score" / "metadata"
    try:
        content = loads(read(path))
        if is_late and content != _sealed(content["score"]):
            raise ValueError
        return content["score"]
    except (ValueError, KeyError, TypeError):
        raise BadInput(f"{path} is damaged.") from None


def _sealed(score: float) -> dict[str, Any]:
    """Returns a step's later score with a checksum of its own: the manifest, written before, does not list it."""
    return {"score": score, "crc32c": checksum_of(json.dumps(score).encode()).crc32c}
