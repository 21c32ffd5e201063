"""Typed settings: frozen dataclasses whose fields state their default, meaning and range, and how values are read."""

import dataclasses
import difflib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, Self, TypeVar

from codea1.runtime.errors import BadInput
from codea1.runtime.removed import removed_field


class Where(NamedTuple):
    """Where a field is read. Elsewhere only its default is accepted, because another value would decide nothing."""

    condition: str
    of: Callable[[Any, Any], bool]  # the whole config, and its section that has the field

    def holds(self, config: "Section", name: str) -> bool:
        """Returns whether the field of that dotted name is read in `config`."""
        return self.of(config, getattr(config, name.partition(".")[0]))


class Range(NamedTuple):
    """The values that a field may have."""

    must: str  # ends the sentence "it must ..."
    holds: Callable[[Any], bool]
    may_be_infinite: bool = False


ANY = Range("", lambda _: True)
POSITIVE = Range("be greater than 0", lambda value: value > 0)
NOT_NEGATIVE = Range("be 0 or greater", lambda value: value >= 0)
SHARE = Range("lie between 0 and 1", lambda value: 0 <= value <= 1)


def one_of(choices: Collection[str]) -> Range:
    """Returns the range of what is chosen by name."""
    return Range(f"be one of {', '.join(sorted(choices))}", lambda value: value in choices)


@dataclass(frozen=True)
class Rule:
    """What a field means, the values that it may have, and where it is read: where all of `where` hold."""

    about: str
    range: Range
    where: tuple[Where, ...]


def field(default: Any, range: Range, about: str, *where: Where) -> Any:
    """Returns a dataclass field that is no section."""
    return dataclasses.field(default=default, metadata={"rule": Rule(about, range, where)})


class WrongSetting(ValueError):
    """A value that a field, by its dotted name, cannot have."""


class Section:
    """A section of the config, which checks its fields when it is made."""

    def __post_init__(self) -> None:
        """Raises WrongSetting: a field is out of range. Classes extend this with what two fields must satisfy."""
        for name, rule in self.rules():
            if "." not in name:  # sections have checked themselves
                self.require(name, rule.range.holds(getattr(self, name)), rule.range.must)
                self.require(name, rule.range.may_be_infinite or getattr(self, name) != math.inf, "be finite")

    def require(self, name: str, holds: bool, must: str) -> None:
        """Raises WrongSetting for a field, by its dotted name, unless it `holds`."""
        if not holds:
            raise WrongSetting(f"{name} is {attrgetter(name)(self)!r}; it must {must}.")

    def rules(self) -> Iterator[tuple[str, Rule]]:
        """Yields the dotted name and the rule of every field, those of sections included."""
        for field in dataclasses.fields(self):  # type: ignore[arg-type]  # every section is a dataclass
            if "rule" in field.metadata:
                yield field.name, field.metadata["rule"]
            else:
                inner: Section = getattr(self, field.name)
                yield from ((f"{field.name}.{name}", rule) for name, rule in inner.rules())

    def to_dict(self) -> dict[str, Any]:
        """Returns the values as nested dicts."""
        return dataclasses.asdict(self)  # type: ignore[call-overload]

    def with_changes(self, changes: Mapping[str, Any]) -> Self:
        """Returns a copy with new values by dotted name. Raises BadInput: a field is unknown, or a value is wrong."""
        values = self.to_dict()
        for name, value in changes.items():
            *path, field = name.split(".")
            inner = values
            for part in path:
                inner = inner[part]
            inner[field] = value
        return read(type(self)(), values)  # by the lengths that its tuples may have, not by those that they have


Fields = Mapping[str, Any]  # defaults by dotted name
NO_FIELDS: Fields = {}
S = TypeVar("S", bound=Section)


def read(default: S, values: Mapping[str, Any]) -> S:
    """Returns a config like `default` with other values, which are a user's.

    Raises BadInput, one sentence: a field is unknown or missing, of another type than the default's, or out of range.
    """
    known, given = dict(leaves(default.to_dict())), dict(leaves(values))
    for name in sorted(given.keys() - known.keys()):
        if any(field.startswith(f"{name}.") for field in known):
            raise BadInput(f"config.{name} is {given[name]!r}; it must be a section of fields.")
        if gone := removed_field(name):
            raise BadInput(gone)
        raise unknown_field(name, known)
    for name in sorted(known.keys() - given.keys()):
        raise BadInput(f"the config lacks the field {name}: begin with default_config().")
    for name, value in known.items():
        if not _is_like(given[name], value):
            count = "numbers" if value == () else len(value) if isinstance(value, tuple) else ""
            kind = f"a tuple of {count}" if count else f"of type {type(value).__name__}"
            raise BadInput(f"config.{name} is {given[name]!r}; it must be {kind}.")
    return _made(default, values, "config.")


def _made(default: S, values: Mapping[str, Any], path: str) -> S:
    made: dict[str, Any] = {}
    for name, value in values.items():
        old = getattr(default, name)
        if isinstance(old, Section):
            made[name] = _made(old, value, f"{path}{name}.")
        else:  # 1 for 1.0, and JSON has lists
            made[name] = type(old)(value) if isinstance(old, float | tuple) else value
    try:
        return dataclasses.replace(default, **made)  # type: ignore[type-var]
    except WrongSetting as error:
        raise BadInput(f"{path}{error}") from None


def _is_like(value: Any, default: Any) -> bool:
    """Returns whether a value has the type of a default; JSON has lists for tuples, and 1 for 1.0."""
    if isinstance(default, tuple):
        like = default or (0,) * len(value) if isinstance(value, tuple | list) else ()
        return isinstance(value, tuple | list) and len(like) == len(value) and all(map(_is_like, value, like))
    kinds = (int, float) if isinstance(default, float) else type(default)
    return isinstance(value, kinds) and isinstance(value, bool) == isinstance(default, bool)


def leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the dotted name and the value of every field of a config."""
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def split_changes(words: Sequence[str], fields: Fields) -> tuple[dict[str, str], list[str]]:
    """Returns the text of each --config.FIELD of a command line, and its other words.

    `fields` has defaults by dotted name: a flag of a bool needs no value.
    """
    changes, others, rest = {}, [], iter(words)
    for word in rest:
        name, equals, text = word.lstrip("-").partition("=")
        if word[:1] == "-" and name.startswith("config."):
            name = name.removeprefix("config.")
            is_bool = isinstance(fields.get(name), bool)
            changes[name] = text if equals else "True" if is_bool else next(rest, "")
        else:
            others.append(word)
    return changes, others


def unknown_field(name: str, known: Collection[str]) -> BadInput:
    """Returns the error for a dotted name that no field has."""
    near = nearest(name, known)
    return BadInput(f"config.{name} is not a field{f'; did you mean config.{near}?' if near else '.'}")


def nearest(name: str, known: Collection[str]) -> str:
    """Returns the dotted field that `name` most likely means, one of its own section first; "" where none is near.

    A field is near by its spelling, or where its initials are the name, as `lr` is of `learning_rate`.
    """
    section, _, field = name.rpartition(".")
    candidates: Sequence[Collection[str]] = ([other for other in known if other.rpartition(".")[0] == section], known)
    for names in candidates:
        last: dict[str, str] = {}
        for other in sorted(names, key=lambda other: other.count(".")):
            last.setdefault(other.rpartition(".")[2], other)
        initials = {"".join(word[0] for word in other.split("_") if word): other for other in last if "_" in other}
        for near in (initials.get(field), *difflib.get_close_matches(field, last, n=1)):
            if near:
                return last[near]
    return ""
