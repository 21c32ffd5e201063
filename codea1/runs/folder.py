"""A run folder, on a disk or in a bucket: where all that a run writes lies, and the config that says what run it is.

config.json                 the whole config
checkpoints/                one folder per saved step
metrics.jsonl               one object per step
tensorboard/                the same numbers as TensorBoard events
samples/step_000001.jsonl   what was sampled, executed and rewarded in a step
evaluations/before.json     benchmark results, per question
profile/                    a profiler's trace of a few steps, where the config asks for one
report.md, report.png       the tables and curves drawn from the above
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

from codea1.runtime.errors import BadInput
from codea1.storage.objects import exists, is_folder, is_remote, location, read, remove, write_atomically

_ABSENT = object()
# What a run may be continued with another value of: it decides nothing that the run learns.
_FREE = ("profile.", "watchdog.", "sandbox.memo_mb")


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The paths of one run. Made by `open` (a run that writes) or `existing` (a reader)."""

    path: epath.Path
    config: dict[str, Any]  # as JSON holds it

    @classmethod
    def open(cls, workdir: str, config: Mapping[str, Any]) -> "RunFolder":
        """Makes the folder for a new run, or continues the run that lies there.

        Args:
          workdir: a local folder, made where it is missing, or gs://BUCKET/FOLDER.
          config: what the run is; anything that JSON can hold.

        Raises:
          BadInput: the folder cannot be written, or holds a run with another config or the remains of one without a
            config. Nothing is left behind that was not there.
        """
        folder = cls(location(str(workdir), "workdir"), json.loads(json.dumps(dict(config))))
        with _usable(folder.path):
            if _is_there(folder):
                _check_writable(folder)
            else:
                _create(folder)
        return folder

    @classmethod
    def check(cls, workdir: str, config: Mapping[str, Any]) -> None:
        """Raises what `open` would, and leaves everything as it was: for asking before slow work."""
        folder = cls(location(str(workdir), "workdir"), json.loads(json.dumps(dict(config))))
        with _usable(folder.path):
            missing = _missing(folder.path)
            _is_there(folder)
            try:
                _check_writable(folder)
            finally:
                _remove_empty(missing)

    @classmethod
    def existing(cls, workdir: str) -> "RunFolder":
        """Returns the run that lies in `workdir`, for reading.

        Raises:
          BadInput: there is none.
        """
        path = location(str(workdir), "workdir")
        with _usable(path):
            if not exists(path / "config.json"):
                raise BadInput(f"{path} is not a run folder: it has no config.json.")
        return cls(path, _read_config(path / "config.json"))

    def require_visible(self) -> None:
        """Raises BadInput where another host opened the run and this one does not see it."""
        if not exists(self.config_file):
            raise BadInput(f"workdir {self.path} is not the folder that host 0 has there: all hosts must share it.")

    @property
    def config_file(self) -> epath.Path:
        return self.path / "config.json"

    @property
    def checkpoints(self) -> epath.Path:
        return self.path / "checkpoints"

    @property
    def metrics(self) -> epath.Path:
        return self.path / "metrics.jsonl"

    @property
    def tensorboard(self) -> epath.Path:
        return self.path / "tensorboard"

    @property
    def samples(self) -> epath.Path:
        return self.path / "samples"

    @property
    def evaluations(self) -> epath.Path:
        return self.path / "evaluations"

    @property
    def profile(self) -> epath.Path:
        return self.path / "profile"

    @property
    def report(self) -> epath.Path:
        return self.path / "report.md"

    @property
    def figure(self) -> epath.Path:
        return self.path / "report.png"


def _read_config(path: epath.Path) -> dict[str, Any]:
    try:
        config = json.loads(read(path))
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read as JSON: {error}.") from None
    if not isinstance(config, dict):
        raise BadInput(f"{path} is not a JSON object.")
    return config


def _check_same(path: epath.Path, there: dict[str, Any], given: dict[str, Any]) -> None:
    there, given = dict(_leaves(there)), dict(_leaves(given))
    differences = [
        f"{key} is {_shown(there.get(key, _ABSENT))} there and {_shown(given.get(key, _ABSENT))} here"
        for key in sorted(there.keys() | given.keys())
        if there.get(key, _ABSENT) != given.get(key, _ABSENT) and not key.startswith(_FREE)
    ]
    if differences:
        raise BadInput(f"{path} holds a run with another config: {'; '.join(differences)}.")


def _leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _shown(value: Any) -> str:
    return "absent" if value is _ABSENT else json.dumps(value)


def _is_there(folder: RunFolder) -> bool:
    """Whether the run is there. Raises BadInput where something else is."""
    path = folder.path
    if exists(path) and not is_folder(path):
        raise BadInput(f"workdir {path} is not a folder.")
    if exists(folder.config_file):
        _check_same(path, _read_config(folder.config_file), folder.config)
        return True
    for part in (folder.checkpoints, folder.metrics, folder.samples, folder.evaluations):
        if exists(part):
            raise BadInput(f"{path} holds {part.name} but no config.json, so what run it was is not known.")
    return False


def _check_writable(folder: RunFolder) -> None:
    probe = folder.path / ".probe"
    write_atomically(probe, b"")
    remove(probe)


def _create(folder: RunFolder) -> None:
    missing = _missing(folder.path)
    try:
        write_atomically(folder.config_file, json.dumps(folder.config, indent=2) + "\n")
    except OSError:
        _remove_empty(missing)
        raise


def _missing(path: epath.Path) -> list[epath.Path]:
    """The folders that are to be made for `path`, innermost first; buckets have none."""
    return [] if is_remote(path) else [folder for folder in (path, *path.parents) if not folder.exists()]


def _remove_empty(folders: list[epath.Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):  # not made, or no longer empty
            os.rmdir(folder)


@contextlib.contextmanager
def _usable(path: epath.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadInput(f"workdir {path} cannot be used: {(error.strerror or str(error)).rstrip('.')}.") from None
