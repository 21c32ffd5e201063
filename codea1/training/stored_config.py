"""The config of a run that has begun, and where the files are that it names by relative paths."""

import os
from collections.abc import Mapping
from operator import attrgetter

from codea1.config import DEFAULT, Config, settings
from codea1.data.sources import world_of
from codea1.game.prompts import TEMPLATES
from codea1.runs.folder import RunFolder
from codea1.runtime.errors import BadInput
from codea1.runtime.settings import leaves

_SOURCES = tuple(f"data.{name}.source" for name in ("train", "validation", "test"))
_PATHS = ("code.model", "test.model", "data.folder", "data.static_tests", *_SOURCES)


def config_of(folder: RunFolder) -> Config:
    """Returns the config of a training run. Raises BadInput for another kind of run, or one of another version."""
    there, here = (set(dict(leaves(values))) for values in (folder.config, DEFAULT.to_dict()))
    if there != here:
        others = ", ".join(sorted(there ^ here)[:3])
        raise BadInput(f"{folder.path} is not a training run of this version: its config.json differs in {others}.")
    config = settings(folder.config)
    if config.game.prompts not in TEMPLATES:
        config = config.with_changes({"game.prompts": folder.kept(config.game.prompts)})
    return with_paths(config, folder.paths)


def paths_of(config: Config) -> dict[str, str]:
    """Returns where the files and folders are that a config names by relative paths, by field."""
    named = {name: attrgetter(name)(config) for name in _PATHS}
    is_world = {name: name in _SOURCES and world_of(path) is not None for name, path in named.items()}
    relative = {name: path for name, path in named.items() if path and not (os.path.isabs(path) or is_world[name])}
    return {name: os.path.abspath(path) for name, path in relative.items() if os.path.exists(path)}


def with_paths(config: Config, paths: Mapping[str, str], is_resumed: bool = False) -> Config:
    """Returns the config with relative paths set to where a run found them, by `paths_of`.

    In a resumed run those alone that are not there.
    """
    changes = {}
    for name in (name for name in _PATHS if name in paths):
        given = attrgetter(name)(config)
        is_relative = not (os.path.isabs(given) or "://" in given)
        if is_relative and (not os.path.exists(given) or (os.path.exists(paths[name]) and not is_resumed)):
            changes[name] = paths[name]
    return config.with_changes(changes) if changes else config
