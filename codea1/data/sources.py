"""Data sources that are worlds of procedural functions, whose questions `codea1.lab worlds` prepares."""

from pathlib import Path

from codea1.storage.objects import in_home

PROCEDURAL = "procedural"  # the source; "procedural/WORLD" of another world than the classic one
CLASSIC = "classic"
SPLITS = ("train", "validation", "test")  # of a world


def world_of(source: str) -> str | None:
    """Returns the name of the world whose questions a data source is; None where it is another source."""
    name, _, world = source.partition("/")
    return (world or CLASSIC) if name == PROCEDURAL else None


def source_of(world: str) -> str:
    """Returns the data source of a world by its name."""
    return PROCEDURAL if world == CLASSIC else f"{PROCEDURAL}/{world}"


def world_folder(world: str, data_folder: str | None) -> Path:
    """Returns the folder that the questions of a world are prepared in, under its version.

    `data_folder` is where prepared worlds go; None for ~/.cache/codea1.
    """
    version = "1.0.0" if world == CLASSIC else "1.1.0"
    return cache(data_folder) / PROCEDURAL / f"{world}-{version}"


def cache(data_folder: str | None) -> Path:
    """Returns the folder for what is prepared and copied. Raises BadInput: its user has no home folder."""
    return Path(in_home(data_folder or "~/.cache/codea1", "config.data.folder"))


def world_file(world: str, split: str, data_folder: str | None) -> Path:
    """Returns the file in `world_folder` that holds the questions of a split."""
    return world_folder(world, data_folder) / f"{split}.jsonl.gz"
