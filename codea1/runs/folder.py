"""A run folder, on a disk or in a bucket: the paths of all that a run writes, and the config that identifies it.

config.json                   the whole config, the versions that the run was made with, what its players started from
checkpoints/                  one folder per saved step
metrics.jsonl                 one object per step
tensorboard/                  the same numbers as TensorBoard events
samples/step_000001.jsonl.zst what was sampled, executed and rewarded in a step
evaluations/before.json       results on the test split before training, per question
set_aside/1/                  what was damaged or given up, each under its path here; nothing reads it. Checkpoints are
                              in checkpoints/set_aside/1/: that folder may be a link or on another disk
profile/                      a profiler's trace of a few steps, where the config asks for one
own/                          the files of a reward and of templates that the config names
restarts.json                 how often it was started again since its last new step; see restarts.py
report.md, report.png         the tables and curves drawn from the above
report.html                   the same with samples, as one page that opens anywhere
"""

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

from codea1.game.methods import METHODS
from codea1.runs.forms import fits
from codea1.runtime.errors import BadInput, StorageOutage
from codea1.runtime.removed import removed_field
from codea1.runtime.settings import leaves
from codea1.runtime.versions import versions
from codea1.storage.json_lines import loads
from codea1.storage.objects import exists, is_folder, is_remote, location, move, names, read, remove, write_atomically

FORMAT = 1  # of all files of a run; a version that reads them otherwise has another. Runs before 0.1.0 say none
_ABSENT = object()
# In config.json and no config: `versions` when the run was made, which others may continue; where what the config names
# by relative paths was found last; and what the players started from, by `codea1.players.base.Start.digests`.
_NOTES = _MADE_WITH, _PATHS, _STARTS = "made_with", "paths", "starts"
_SHOWN = 5  # differences between configs that an error lists
# A run may be continued with other values of these: they decide nothing that the run learns.
_FREE = ("profile.", "watchdog.", "log.", "sandbox.memo_mb", "data.max_dropped", "data.folder", "max_sampler_kl")
_MODELS = ("code.model", "test.model")  # free, too, where the digests of what they hold decide
Own = Mapping[str, tuple[str, bytes]]
_GAME = {**dict.fromkeys(("history_size", "book_cap", "book_total_cap"), int), "book_policy": str, "reward": str}
_FORM = {  # of a config, as far as it is read without being compared with this version's
    **{"method": (str, ...), "steps": (int, ...), "seed": (int, ...), "sft": ({"steps": (int, ...)}, ...)},
    "game": ({name: (form, ...) for name, form in _GAME.items()}, ...),
}


def _part(name: str) -> property:
    return property(lambda self: self.path / name)


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The paths of one run. Made by `open` (a run that writes) or `existing` (a reader)."""

    path: epath.Path
    config: dict[str, Any]  # as JSON holds it

    config_file = _part("config.json")
    checkpoints = _part("checkpoints")
    metrics = _part("metrics.jsonl")
    tensorboard = _part("tensorboard")
    samples = _part("samples")
    evaluations = _part("evaluations")
    profile = _part("profile")
    own = _part("own")
    aside = _part("set_aside")
    compiled = _part("compiled")  # of JAX, where the run is in a bucket
    report = _part("report.md")
    figure = _part("report.png")
    page = _part("report.html")
    tracker = _part("wandb_id")

    @classmethod
    def open(
        cls, workdir: str, config: Mapping[str, Any], own: Own | None = None, *, is_made: bool = True
    ) -> "RunFolder":
        """Makes the folder for a new run, or continues the run that lies there.

        Args:
          workdir: a local folder, made where it is missing, or gs://BUCKET/FOLDER.
          config: what the run is; anything that JSON can hold.
          own: path and content of files that the config names, by what names them; the folder keeps a copy.
          is_made: False: nothing is changed, as by `check`.

        Raises:
          BadInput: the folder cannot be written, or holds a run with another config or other files, or the remains of
            one without a config. Nothing is left behind that was not there.
          StorageOutage: the storage does not answer.
        """
        path = location(str(workdir), "workdir")
        folder = cls(path, json.loads(json.dumps(dict(config))))
        with _errors_as_bad_input(path):
            # Innermost first; buckets have no folders.
            missing = [] if is_remote(path) else [parent for parent in (path, *path.parents) if not parent.exists()]
            try:
                holds_run = folder._holds_run()
                for setting, (source, given) in (own or {}).items():
                    folder._keep(setting, source, given, holds_run, is_made)
                if not holds_run and is_made:
                    content = {**folder.config, "format": FORMAT, _MADE_WITH: versions()}
                    write_atomically(folder.config_file, json.dumps(content, indent=2) + "\n")
                else:
                    write_atomically(path / ".probe", b"")
                    remove(path / ".probe")
            finally:
                for parent in missing:
                    with contextlib.suppress(OSError):  # not made, or not empty
                        os.rmdir(parent)
        return folder

    @classmethod
    def check(cls, workdir: str, config: Mapping[str, Any], own: Own | None = None) -> "RunFolder":
        """Returns or raises what `open` would, and changes nothing: a check before slow work."""
        return cls.open(workdir, config, own, is_made=False)

    @classmethod
    def existing(cls, workdir: str) -> "RunFolder":
        """Returns the run that lies in `workdir`, for reading. Raises BadInput: there is none."""
        path = location(str(workdir), "workdir")
        if (config := cls.config_in(workdir)) is None:
            raise BadInput(f"{path} is not a run folder: it has no config.json.")
        return cls(path, config)

    @staticmethod
    def config_in(workdir: str) -> dict[str, Any] | None:
        """Returns the config of the run that lies in `workdir`, if one does. Raises BadInput, StorageOutage."""
        path = location(str(workdir), "workdir")
        with _errors_as_bad_input(path):
            return _read_config(path / "config.json") if exists(path / "config.json") else None

    @property
    def made_with(self) -> dict[str, str]:
        """The `versions` of when the run was made. Raises BadInput."""
        return {name: str(version) for name, version in self._notes(_MADE_WITH).items()}

    @property
    def paths(self) -> dict[str, str]:
        """Where the run found what its config names by relative paths, by field. Raises BadInput."""
        return {name: str(path) for name, path in self._notes(_PATHS).items()}

    @property
    def starts(self) -> dict[str, Any]:
        """What the players started from, as `update` was given it. Raises BadInput."""
        return self._notes(_STARTS)

    def _notes(self, name: str) -> dict[str, Any]:
        notes = read_json(self.config_file).get(name, {}) if exists(self.config_file) else {}
        return notes if isinstance(notes, dict) else {}

    def update(self, paths: Mapping[str, str], begins: Mapping[str, Any] | None = None) -> None:
        """Writes to config.json the steps that the run takes now, and where its files lie now.

        Args:
          paths: see `paths`.
          begins: of a run that begins, further entries of `made_with` and `starts`, under these names.
        """
        there = read_json(self.config_file)
        here = there | {"steps": self.config["steps"], _PATHS: {**self.paths, **paths}}
        here |= {name: {**there.get(name, {}), **entries} for name, entries in (begins or {}).items()}
        places = {"code": "model", "test": "model", "data": "folder"}
        here |= {part: there[part] | {place: self.config[part][place]} for part, place in places.items()}
        if (content := json.dumps(here, indent=2)) != json.dumps(there, indent=2):
            write_atomically(self.config_file, content + "\n")

    def set_aside(self, path: epath.Path, copies: bool = False) -> epath.Path:
        """Moves what lies in this folder to its set_aside/, under a number and its name, and returns where it is.

        With `copies` the file stays where it is, too. Raises BadInput: `require_inside`.
        """
        home = self.checkpoints if path.parent == self.checkpoints else self.path
        aside = home / self.aside.name
        self.require_inside(path.parent, home)
        self.require_inside(aside, home)
        number = 1 + max((int(name) for name in names(aside) if name.isdecimal()), default=0)
        to = aside / str(number) / os.fspath(path).removeprefix(f"{home}/")
        if copies:
            write_atomically(to, read(path))
        else:
            move(path, to)
        return to

    def require_inside(self, folder: epath.Path, home: epath.Path | None = None) -> None:
        """Raises BadInput: a folder is a link that leads out of the run, or of `home` in it, and may have been sent."""
        inside = os.path.realpath(home or self.path)
        if not is_remote(folder) and not epath.Path(os.path.realpath(folder)).is_relative_to(inside):
            raise BadInput(f"{folder} is a link that leads out of the run; nothing is written through it.")

    def require_visible(self) -> None:
        """Raises BadInput where another host opened the run and this one does not see it."""
        if not exists(self.config_file):
            raise BadInput(f"workdir {self.path} is not the folder that host 0 has there: all hosts must share it.")

    def kept(self, source: str) -> str:
        """Returns the path of the copy of a file that the config names; its own where there is none."""
        copy = self.own / os.path.basename(source)
        return os.fspath(copy) if exists(copy) else source

    def _keep(self, setting: str, source: str, given: bytes, holds_run: bool, is_made: bool) -> None:
        """Keeps a copy of a file. Raises BadInput where the run has one of another content."""
        copy = self.own / os.path.basename(source)
        if holds_run and exists(copy):
            there, here = (hashlib.sha256(content).hexdigest()[:12] for content in (read(copy), given))
            if there != here:
                raise BadInput(
                    f"{self.path} holds a run with another file for config.game.{setting}: {source} has the SHA-256 "
                    f"{here}, and had {there} when the run began, as {copy} has."
                )
        elif is_made:
            write_atomically(copy, given)

    def _holds_run(self) -> bool:
        """Returns whether the run is there. Raises BadInput where something else is."""
        if exists(self.path) and not is_folder(self.path):
            raise BadInput(f"workdir {self.path} is not a folder.")
        if exists(self.config_file):
            free = (*_FREE, *(_MODELS if self.starts else ()))
            _check_same(self.path, _read_config(self.config_file), self.config, free, self.paths)
            return True
        for part in (self.checkpoints, self.metrics, self.samples, self.evaluations):
            if exists(part):
                raise BadInput(f"{self.path} holds {part.name} but no config.json, so what run it was is not known.")
        return False


def _read_config(path: epath.Path) -> dict[str, Any]:
    config = read_json(path)
    made_with, *_ = [config.pop(note, None) for note in _NOTES]
    if (number := config.pop("format", FORMAT)) != FORMAT:
        raise BadInput(
            f"{path}: the run has format {number}, this version reads {FORMAT}; it was made with {made_with}."
        )
    for name, form in _FORM.items():
        if not fits(config.get(name, ...), form):
            raise BadInput(f"{path}: {name} is not what a run's config has there.")
    if gone := next(filter(None, map(removed_field, dict(leaves(config)))), ""):
        raise BadInput(f"{path}: {gone}")
    return config


def read_json(path: epath.Path) -> dict[str, Any]:
    """Returns the object that a file holds. Raises BadInput, StorageOutage."""
    try:
        content = loads(read(path))
    except StorageOutage:
        raise
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read as JSON: {error}.") from None
    if not isinstance(content, dict):
        raise BadInput(f"{path} is not a JSON object.")
    return content


def _check_same(
    path: epath.Path, there: dict[str, Any], here: dict[str, Any], free: tuple[str, ...], paths: Mapping[str, str]
) -> None:
    if _kind(there) != _kind(here):
        raise BadInput(f"{path} holds {_kind(there)}, and this is {_kind(here)}: it needs a folder of its own.")
    there, here = dict(leaves(there)), dict(leaves(here))
    differences = []
    for key in sorted(there.keys() | here.keys()):
        values = there.get(key, _ABSENT), here.get(key, _ABSENT)
        is_free = key.startswith(free) or (key in paths and values[1] == paths[key])
        if values[0] != values[1] and not is_free:
            shown = ["absent" if value is _ABSENT else json.dumps(value) for value in values]
            difference = f"{key} is {shown[0]} there and {shown[1]} here"
            if key == "steps" and _ABSENT not in values and values[0] < values[1] and "method" in here:
                if not (falling := _falling(here)):
                    continue  # more steps follow on those that there are
                rates = " and ".join(f"{name}.decay is {here[f'{name}.decay']}" for name in falling)
                difference += f", and {rates}: the steps until now would have had other learning rates"
            differences.append(difference)
    if differences:
        hint = " It was made by another version, which can continue it." if there.keys() != here.keys() else ""
        if (more := len(differences) - _SHOWN) > 0:
            differences[_SHOWN:] = [f"and {more} more"]
        raise BadInput(f"{path} holds a run with another config: {'; '.join(differences)}.{hint}")


def _falling(config: Mapping[str, Any]) -> list[str]:
    """Returns the players that learn, of a flat config, whose learning rate depends on the number of steps."""
    learn = [name for name in METHODS[config["method"]].policies if name != config["frozen"]]
    return [name for name in learn if config[f"{name}.decay"] != "constant"]


def _kind(config: Mapping[str, Any]) -> str:
    return "a training run" if "method" in config else "a model of codea1.sft" if "sft" in config else "a run"


@contextlib.contextmanager
def _errors_as_bad_input(path: epath.Path) -> Iterator[None]:
    try:
        yield
    except StorageOutage:  # it passes, and the run is started again
        raise
    except OSError as error:
        raise BadInput(f"workdir {path} cannot be used: {(error.strerror or str(error)).rstrip('.')}.") from None
