"""Data sources that are worlds of procedural functions, whose questions `codea1.lab worlds` prepares."""

from pathlib import Path

PROCEDURAL = "procedural"  # the source; "procedural/WORLD" of another world than the classic one
CLASSIC = "classic"


def world_of(source: str) -> str | None:
    """Returns the name of the world whose questions a data source is; None where it is another source."""
    name, _, world = source.partition("/")
    return (world or CLASSIC) if name == PROCEDURAL else None


def source_of(world: str) -> str:
    """Returns the data source of a world by its name."""
    return PROCEDURAL if world == CLASSIC else f"{PROCEDURAL}/{world}"


def world_folder(world: str, data_folder: str | None) -> Path:
    """Returns the folder, as tensorflow-datasets names it, that the questions of a world are prepared in.

    `data_folder` is where prepared datasets go; None for ~/tensorflow_datasets.
    """
    name = f"{PROCEDURAL}/1.0.0" if world == CLASSIC else f"rare_{PROCEDURAL}/{world}/1.1.0"
    return Path(data_folder or "~/tensorflow_datasets").expanduser() / name
