"""Every procedural function: compositions of components, how they read, what they do, and inputs to tell them apart.

Two families. list: keep some elements of a, map each, reduce what is left. int: one of two maps of x, by a condition.
"""

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import combinations, product
from typing import Any

from codea1.data.components import ALL, CONDITIONS, FILTERS, MAPS, REDUCES, SAME, Component

ENTRY_POINT = "f"
SPLITS = {"train": 0.75, "validation": 0.10, "test": 0.15}
VALUES = range(8)  # of list elements
INTEGERS = range(10)  # x of the int family
_EDGES = ("", "0", "1", "7", "00", "246", "735", "370", "5242", "61641", "070")  # lists, one digit per element
_TABLES = {"list": (FILTERS, MAPS, REDUCES), "int": (CONDITIONS, MAPS, MAPS)}

Choices = tuple[int, int, int]  # per component: 0 for the correct expression, i for its mistake i - 1
CORRECT: Choices = (0, 0, 0)


@dataclass(frozen=True)
class Composition:
    """A function up to its constants: a family and the names of its three components."""

    family: str
    names: tuple[str, str, str]

    @cached_property
    def components(self) -> tuple[Component, ...]:
        return tuple(table[name] for table, name in zip(_TABLES[self.family], self.names, strict=True))

    def draw(self, rng: random.Random) -> "Task":
        """Returns a task with random constants."""
        constants = [rng.choice(component.constants) for component in self.components]
        return Task(self, (constants[0], constants[1], constants[2]))


@dataclass(frozen=True)
class Task:
    """A composition with its constants: one function, its problem and all its near misses."""

    composition: Composition
    constants: tuple[int, int, int]

    @property
    def id(self) -> str:
        """Readable, and equal for equal functions: "list/ge3/cap4/max"."""
        parts = zip(self.composition.names, self.composition.components, self.constants, strict=True)
        return "/".join([self.composition.family, *(f"{n}{c}" if k.has_constant else n for n, k, c in parts)])

    @property
    def signature(self) -> str:
        """The line that declares the function, without its colon."""
        return f"def {ENTRY_POINT}({'a' if self.composition.family == 'list' else 'x'})"

    @property
    def problem(self) -> str:
        """One short line: every token of it costs time in every prompt."""
        first, second, third = self._fill(lambda component: component.phrase)
        if self.composition.family == "int":
            return f"int: if {first}, {second}, otherwise, {third}"
        kept = "keep all" if self.composition.names[0] == ALL else f"keep if {first}"
        mapped = "" if self.composition.names[1] == SAME else f", {second}"
        return f"list: {kept}{mapped}, return {third}"

    @property
    def description(self) -> str:
        """The problem in a full sentence."""
        first, second, third = self._fill(lambda component: component.meaning)
        if self.composition.family == "int":
            return f"Given an integer x: if x is {first}, return {second}; otherwise return {third}."
        kept = "all elements" if self.composition.names[0] == ALL else f"the elements that are {first}"
        mapped = "" if self.composition.names[1] == SAME else f" replace each by {second},"
        return f"Given a list a of integers, keep {kept},{mapped} and return {third}."

    def program(self, choices: Choices = CORRECT) -> str:
        """Returns the source of the function, without a newline at its end, with the chosen mistakes."""
        first, second, third = self._expressions(choices)
        if self.composition.family == "int":
            return f"{self.signature}:\n    if {first}:\n        return {second}\n    return {third}"
        condition = f" if {first}" if first else ""
        return f"{self.signature}:\n    b = [{second} for x in a{condition}]\n    return {third}"

    def working(self) -> str:
        """The source of a function that stops one step before the answer: at the list b, or at whether x qualifies."""
        first, second, _ = self._expressions(CORRECT)
        if self.composition.family == "int":
            return f"{self.signature}:\n    return {first}"
        condition = f" if {first}" if first else ""
        return f"{self.signature}:\n    return [{second} for x in a{condition}]"

    def near_misses(self, mistakes: int) -> Iterator[Choices]:
        """Yields all choices with exactly so many wrong components."""
        options = [range(1, len(component.mistakes) + 1) for component in self.composition.components]
        for wrong in combinations(range(3), mistakes):
            yield from product(*(options[i] if i in wrong else (0,) for i in range(3)))

    def hidden_inputs(self) -> list[tuple]:
        """24 (int) or 36 (list) different argument tuples that leave near misses nowhere to hide."""
        if self.composition.family == "int":
            return [(x,) for x in range(-3, 21)]
        rng = random.Random(self.id)
        # As a dict, for its order: a set of lists cannot be.
        inputs = {tuple(values): None for values in self._edge_lists()}
        while len(inputs) < 36:
            inputs[tuple(rng.choices(VALUES, k=rng.randint(2, 7)))] = None
        return [(list(values),) for values in list(inputs)[:36]]

    def _edge_lists(self) -> Iterator[list[int]]:
        yield from ([int(digit) for digit in digits] for digits in _EDGES)
        for component, c in zip(self.composition.components, self.constants, strict=True):
            if component.has_constant:
                yield from ([c], [c, c], [c + 1, c - 1, c], [c - 1, c, c + 1, c + 2, c + 3], [c + 1, c + 2], [c - 1])

    def _fill(self, template: Callable[[Component], str]) -> list[str]:
        return [k.fill(template(k), c) for k, c in zip(self.composition.components, self.constants, strict=True)]

    def _expressions(self, choices: Choices) -> list[str]:
        parts = zip(self.composition.components, self.constants, choices, strict=True)
        return [k.fill(k.mistakes[choice - 1] if choice else k.correct, c) for k, c, choice in parts]


@cache
def compositions(split: str) -> tuple[Composition, ...]:
    """Returns the compositions of one split, in an order that mixes families and components.

    The split of a composition hangs on its own name alone, so it stays where it is when components are added. What is
    held out is the combination; each component is in every split.
    """
    names = list(SPLITS)
    low = sum(SPLITS[name] for name in names[: names.index(split)])
    ranked = sorted(_universe(), key=_rank)
    return tuple(composition for composition in ranked if low <= _rank(composition) < low + SPLITS[split])


def _universe() -> Iterator[Composition]:
    yield from (Composition("list", names) for names in product(FILTERS, MAPS, REDUCES))
    yield from (Composition("int", names) for names in product(CONDITIONS, MAPS, MAPS) if names[1] != names[2])


def _rank(composition: Composition) -> float:
    """Returns a number in [0, 1) that hangs on nothing but the composition's name."""
    name = "/".join([composition.family, *composition.names])
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big") / 2**48


def random_input(family: str, lengths: tuple[int, ...], rng: random.Random) -> tuple:
    """Returns arguments for a function of the family; of a list, the length is drawn from `lengths`."""
    if family == "int":
        return (rng.choice(INTEGERS),)
    return (rng.choices(VALUES, k=rng.choice(lengths)),)


class _Raised:
    """The outcome of a call that raised, equal to no value."""

    def __repr__(self) -> str:
        return "RAISED"


RAISED = _Raised()


@lru_cache(maxsize=1 << 16)
def compiled(program: str) -> Callable[..., Any]:
    """Returns the function that a trusted program defines."""
    namespace: dict[str, Any] = {}
    exec(program, namespace)
    return namespace[ENTRY_POINT]


def outcome(program: str, arguments: tuple) -> Any:
    """Returns the value of one call, or RAISED. No generated program changes its arguments."""
    try:
        return compiled(program)(*arguments)
    except (ValueError, IndexError, TypeError, ZeroDivisionError):
        return RAISED


def behaviour(program: str, inputs: Iterable[tuple]) -> tuple[Any, ...]:
    """Returns the outcomes on all inputs, in order."""
    return tuple(outcome(program, arguments) for arguments in inputs)


def assert_line(arguments: tuple, value: Any) -> str:
    """Returns the test as the policies write it: assert f([1, 2]) == 3."""
    return f"assert {ENTRY_POINT}({', '.join(map(repr, arguments))}) == {value!r}"
