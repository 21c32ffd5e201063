"""Every procedural function: components, their compositions with texts and programs, and inputs to tell them apart.

Two families. list: keep some elements of a, map each, reduce what is left. int: one of two maps of x, by a condition.

The mistakes in components are deliberate. Policies made from nothing must start mediocre for reinforcement learning to
have something to show, so the SFT corpus gets each component wrong with the component's own rate: for some the mistake
is what most programs do. docs/misconceptions.md lists them all.
"""

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import combinations, product
from typing import Any


@dataclass(frozen=True)
class Component:
    """One part of a function: what a question says of it, the right expression, and near misses of it.

    In all texts {c} stands for the part's constant, {prev}, {next} and {top} for c - 1, c + 1 and c + 2.
    """

    phrase: str  # in the problem, in as few words as can be
    meaning: str  # in the description, without ambiguity
    correct: str
    mistakes: tuple[str, ...]  # the first is the misconception the corpus prefers
    rate: float  # share of corpus programs with a mistake in this part
    constants: tuple[int, ...] = (1, 2, 3, 4, 5)

    @property
    def has_constant(self) -> bool:
        return "{c}" in self.correct

    @staticmethod
    def fill(template: str, constant: int) -> str:
        """Returns one of the component's texts with the constant put in."""
        return template.format(c=constant, prev=constant - 1, next=constant + 1, top=constant + 2)


def _condition(
    phrase: str, correct: str, mistakes: tuple[str, ...], rate: float, **constants: tuple[int, ...]
) -> Component:
    return Component(phrase, phrase, correct, mistakes, rate, **constants)


# Conditions on x: filters of lists and branches of ints.
CONDITIONS = {
    "gt": _condition("above {c}", "x > {c}", ("x >= {c}", "x > {next}"), 0.35),
    "ge": _condition("at least {c}", "x >= {c}", ("x > {c}", "x >= {prev}"), 0.65),
    "lt": _condition("below {c}", "x < {c}", ("x <= {c}", "x > {c}"), 0.35),
    "le": _condition("at most {c}", "x <= {c}", ("x < {c}", "x <= {next}"), 0.65),
    "even": _condition("even", "x % 2 == 0", ("x % 2 == 1", "x // 2"), 0.15),
    "odd": _condition("odd", "x % 2 == 1", ("x % 2 == 0", "x // 2"), 0.15),
    "ne": _condition("other than {c}", "x != {c}", ("x > {c}", "x == {c}"), 0.3),
    "near": _condition("within 1 of {c}", "abs(x - {c}) <= 1", ("abs(x - {c}) < 1", "x - {c} <= 1"), 0.45),
    "multiple": _condition("a multiple of {c}", "x % {c} == 0", ("x % {c} == 1", "x % {c}"), 0.25, constants=(3, 4)),
    "between": _condition("from {c} to {top}", "{c} <= x <= {top}", ("{c} < x < {top}", "{c} <= x < {top}"), 0.6),
    "nonzero": _condition("nonzero", "x != 0", ("x > 1", "x == 0"), 0.25),
}
ALL = "all"
FILTERS = {ALL: Component("all", "all", "", ("x",), 0.1), **CONDITIONS}

# What becomes of one x.
SAME = "same"
MAPS = {
    SAME: Component("same", "it", "x", ("x + 1",), 0.1),
    "add": Component("plus {c}", "it plus {c}", "x + {c}", ("x + {next}", "x - {c}"), 0.2, (1, 2, 3, 4)),
    "sub": Component("minus {c}", "it minus {c}", "x - {c}", ("{c} - x", "x - {next}"), 0.25, (1, 2, 3, 4)),
    "double": Component("doubled", "two times it", "x * 2", ("x + 2", "x * x"), 0.3),
    "times": Component("times {c}", "{c} times it", "x * {c}", ("x + {c}", "x ** {c}"), 0.3, (2, 3)),
    "half": Component("halved", "half of it, rounded down", "x // 2", ("x / 2", "(x + 1) // 2"), 0.35),
    "gap": Component("gap to {c}", "its distance to {c}", "abs(x - {c})", ("x - {c}", "{c} - x"), 0.65),
    "cap": Component("capped at {c}", "it or {c}, the smaller", "min(x, {c})", ("max(x, {c})", "x"), 0.4),
    "floor": Component("floored at {c}", "it or {c}, the larger", "max(x, {c})", ("min(x, {c})", "x"), 0.4),
    "modulo": Component(
        "modulo {c}", "its remainder modulo {c}", "x % {c}", ("x // {c}", "x % {next}"), 0.25, (2, 3, 4)
    ),
}

# What is returned of the list b that is left.
_NONE = ", or 0 if there are none"
REDUCES = {
    "sum": Component("sum", "their sum", "sum(b)", ("len(b)", "sum(b[1:])"), 0.2),
    "count": Component("count", "how many there are", "len(b)", ("sum(b)", "len(set(b))"), 0.25),
    "max": Component(
        "max or zero", "the largest" + _NONE, "max(b) if b else 0", ("max(b)", "min(b) if b else 0"), 0.65
    ),
    "min": Component(
        "min or zero", "the smallest" + _NONE, "min(b) if b else 0", ("min(b)", "max(b) if b else 0"), 0.65
    ),
    "first": Component("first or zero", "the first" + _NONE, "b[0] if b else 0", ("b[0]", "b[-1] if b else 0"), 0.6),
    "last": Component("last or zero", "the last" + _NONE, "b[-1] if b else 0", ("b[-1]", "b[0] if b else 0"), 0.6),
    "spread": Component(
        phrase="spread or zero",
        meaning="the largest minus the smallest" + _NONE,
        correct="max(b) - min(b) if b else 0",
        mistakes=("max(b) - min(b)", "max(b) if b else 0"),
        rate=0.65,
    ),
    "sort": Component("sorted", "them in ascending order", "sorted(b)", ("b", "sorted(set(b))"), 0.3),
    "down": Component("sorted down", "them in descending order", "sorted(b)[::-1]", ("sorted(b)", "b[::-1]"), 0.4),
    "reverse": Component("reversed", "them in reverse order", "b[::-1]", ("b", "sorted(b)[::-1]"), 0.3),
    "rest": Component("all but first", "them without the first", "b[1:]", ("b[:-1]", "b"), 0.35),
    "distinct": Component(
        "distinct count", "how many different ones", "len(set(b))", ("len(b)", "len(set(b[1:]))"), 0.4
    ),
    "any": Component("whether any", "whether there are any", "len(b) > 0", ("any(b)", "len(b) > 1"), 0.45),
    "equal": Component(
        phrase="whether all equal",
        meaning="whether they are all equal, as no elements are",
        correct="len(set(b)) <= 1",
        mistakes=("len(set(b)) == 1", "len(b) <= 1"),
        rate=0.6,
    ),
}

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
        """Returns the source of a function that stops a step before the answer: at b, or at whether x qualifies."""
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
        """Returns 24 (int) or 36 (list) different argument tuples, on which near misses show."""
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

    The split of a composition depends on its own name alone, so it stays where it is when components are added. What is
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
    """Returns a number in [0, 1) that depends on the composition's name alone."""
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
