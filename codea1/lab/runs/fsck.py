"""Examines a run folder: what has a checksum is compared with it, and what has none is read."""

import contextlib
from collections import deque
from collections.abc import Callable, Collection, Iterator
from functools import partial

from etils import epath

from codea1.runs.book_files import read_shards
from codea1.runs.checkpoints import MARKER, check_step, score_of
from codea1.runs.folder import RunFolder, read_json
from codea1.runs.lock import is_held, locked
from codea1.runs.metrics import read_metrics
from codea1.runs.recorded import compare, recorded
from codea1.runs.samples import Samples
from codea1.runtime.errors import BadInput, visible
from codea1.storage import json_lines
from codea1.storage.checksums import Checksum, read_manifest
from codea1.storage.objects import exists, files, location, names, read

Check = Callable[[], object]  # raises BadInput
_STOPS = "The run does not go on while it is there."


def fsck(workdir: str, quarantine: bool) -> bool:
    """Examines a run, tells what is damaged, and returns whether it is sound.

    Args:
      workdir: the run's folder, local or gs://.
      quarantine: moves aside what is damaged, after which the run is sound; a damaged config.json stays.

    Raises BadInput: there is no run; or it is to be changed, and a process works there.
    """
    path, is_sound = location(workdir, "RUN"), True
    try:
        folder = RunFolder.existing(workdir)
    except BadInput as damage:
        if not exists(path / "config.json"):
            raise
        folder, is_sound = RunFolder(path, {}), False
        print(visible(f"{damage} What run it is is not known: put the file back."))
    with locked(folder) if quarantine else contextlib.nullcontext():
        damages, missing, step = _examine(folder, is_live=not quarantine and is_held(folder))
        for path, damage in damages.items():
            print(visible(damage))
            if quarantine:
                print(visible(f"  moved to {folder.set_aside(path)}"))
    if missing:
        print(f"{len(missing)} of the files that step {step} was saved with are not there, such as {missing[-1]}.")
    after = (
        "The run has no checkpoint and starts from step 0" if step is None else f"The run continues from step {step}"
    )
    once = " once codea1 fsck --quarantine has moved that aside" if damages and not quarantine else ""
    print(f"{'' if damages else 'Nothing is damaged. '}{after}{once}.")
    return is_sound and (quarantine or not damages)


def _examine(folder: RunFolder, is_live: bool) -> tuple[dict[epath.Path, str], list[str], int | None]:
    """Examines all that a run has written, and changes nothing.

    Args:
      is_live: whether the run's process makes and deletes steps meanwhile.

    Returns:
      Of each damaged file, or folder of a checkpoint, what is wrong and what follows; the files that are missing from
      those that the newest sound checkpoint has recorded, which is no damage; and its step, None where none is sound.
    """
    damages: dict[epath.Path, str] = {}
    record: dict[str, Checksum] = {}
    missing: list[str] = []
    sound = None
    for step in sorted((int(name) for name in names(folder.checkpoints) if name.isdecimal()), reverse=True):
        path = folder.checkpoints / str(step)
        was_saved = exists(path / MARKER)
        damage = _damage_of(partial(_check_step, path))
        if damage and (exists(path / MARKER) if was_saved else not is_live):  # else it comes, or has gone meanwhile
            damages[path] = f"{damage} {_STOPS if was_saved and sound is None else 'The run does not go on from it.'}"
        elif not damage and sound is None:
            sound, record = step, recorded(json_lines.loads(read(path / "state" / "metadata")))
            damaged, missing = compare(folder, record)
            damages |= {folder.path / name: f"{defect} {_STOPS}" for name, defect in damaged.items()}
    for path, check, follows in _readable(folder, record):
        if path not in damages and (damage := _damage_of(check)):
            damages[path] = f"{damage} {follows}"
    return damages, missing, sound


def _readable(folder: RunFolder, record: Collection[str]) -> Iterator[tuple[epath.Path, Check, str]]:
    """Yields what is not in the record as a whole, what raises BadInput where it cannot be read, and what follows."""
    yield folder.metrics, partial(read_metrics, folder.metrics), _STOPS
    samples = Samples(folder)
    for path, step in ((samples.path(step), step) for step in samples.steps()):
        if f"{folder.samples.name}/{path.name}" not in record:
            yield path, partial(deque, samples.read(step), 0), f"Step {step} is neither replayed nor explained."
    for name in files(folder.evaluations) if exists(folder.evaluations) else ():
        path = folder.evaluations / name
        if path.suffix == ".json" and f"{folder.evaluations.name}/{name}" not in record:
            yield path, partial(read_json, path), "There is no report while it is there."
        elif path.suffix == ".jsonl":
            yield path, partial(deque, json_lines.whole_lines(path), 0), "Its evaluation is not continued."


def _check_step(path: epath.Path) -> None:
    if not exists(path / MARKER):
        raise BadInput(f"{path} has no {MARKER}: it was not saved as a whole, is being saved now, or lost that file.")
    check_step(path)
    with contextlib.suppress(FileNotFoundError):
        score_of(path)
    if read_manifest(path, "book/"):
        read_shards(path / "book")


def _damage_of(check: Check) -> str:
    try:
        check()
    except BadInput as damage:
        return str(damage)
    return ""
