"""The fields of a config by their dotted names, and which of them a name that is none of them means."""

import difflib
from collections.abc import Collection, Iterator, Mapping
from typing import Any


def leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the dotted name and the value of every field of a config."""
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def nearest(name: str, known: Collection[str]) -> str:
    """Returns the dotted field that `name` most likely means, one of its own section first; "" where none is near.

    A field is near by its spelling, or where its initials are the name, as `lr` is of `learning_rate`.
    """
    section, _, field = name.rpartition(".")
    for fields in ([each for each in known if each.rpartition(".")[0] == section], [*known]):
        last: dict[str, str] = {}
        for each in sorted(fields, key=lambda each: each.count(".")):
            last.setdefault(each.rpartition(".")[2], each)
        initials = {"".join(word[0] for word in each.split("_") if word): each for each in last if "_" in each}
        for found in (initials.get(field), *difflib.get_close_matches(field, last, n=1)):
            if found:
                return last[found]
    return ""
