"""What a checkpoint records of the files that a run had written by then.

The files of a checkpoint are in its manifest. What else there was, its state holds in "record": the name of each file
in the run's folder with its size and CRC-32C; of metrics.jsonl as it was, for it grows.
"""

import re
from collections.abc import Mapping
from typing import Any

from codea1.runs.folder import RunFolder
from codea1.runtime.errors import BadInput
from codea1.storage.checksums import Checksum, check_same, checksum_of, checksums
from codea1.storage.objects import read

_OF_THE_RECORD = re.compile(r"metrics\.jsonl|(samples|evaluations)/[\w.]+")  # nothing outside the run's folder


def recorded(state: Mapping[str, Any]) -> dict[str, Checksum]:
    """Returns what a checkpoint's state holds of the run's other files, by name in its folder."""
    record = state.get("record") or {}
    return {name: Checksum(*entry) for name, entry in record.items() if entry and _OF_THE_RECORD.fullmatch(name)}


def compare(folder: RunFolder, record: Mapping[str, Checksum]) -> tuple[dict[str, str], list[str]]:
    """Compares the files of a run with `recorded` ones: those on a disk are read, those in a bucket are not.

    Returns a sentence about each file that is damaged, by name, and the names of those that are missing.
    """
    damaged: dict[str, str] = {}
    now = checksums(folder.path, record)
    if now.get(folder.metrics.name):  # rows of later steps may follow
        now[folder.metrics.name] = checksum_of(read(folder.metrics)[: record[folder.metrics.name].size])
    missing = [name for name in record if now[name] is None]
    for name in record.keys() - missing:
        try:
            check_same(folder.path / name, now[name], record[name])
        except BadInput as damage:
            damaged[name] = str(damage)
    return damaged, missing
