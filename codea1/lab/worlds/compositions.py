"""Compositions of a world's components: their texts and programs, and inputs to tell programs apart.

Functions of lists keep some elements, map each, and reduce what is left; those of integers are one of two maps of x, by
a condition.
"""

import hashlib
import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from itertools import combinations, product
from typing import Any

from codea1.data.sources import CLASSIC
from codea1.lab.worlds.worlds import ALL, LIST, SAME, WORLDS, Component, World

ENTRY_POINT = "f"
SPLITS = {"train": 0.75, "validation": 0.10, "test": 0.15}

Choices = tuple[int, int, int]  # per component: 0 for the correct expression, i for its mistake i - 1
CORRECT: Choices = (0, 0, 0)


@dataclass(frozen=True)
class Composition:
    """A function up to its constants: a family and the names of its three components."""

    family: str
    names: tuple[str, str, str]
    world: World = field(default=WORLDS[CLASSIC], repr=False)  # constants are drawn by what repr says

    @cached_property
    def components(self) -> tuple[Component, ...]:
        return tuple(table[name] for table, name in zip(self.world.families[self.family], self.names, strict=True))

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
        return f"def {ENTRY_POINT}({'a' if self.composition.family == LIST else 'x'})"

    @property
    def problem(self) -> str:
        """One short line: every token of it costs time in every prompt."""
        first, second, third = self._fill(lambda component: component.phrase)
        if self.composition.family != LIST:
            return f"int: if {first}, {second}, otherwise, {third}"
        kept = "keep all" if self.composition.names[0] == ALL else f"keep if {first}"
        mapped = "" if self.composition.names[1] == SAME else f", {second}"
        return f"list: {kept}{mapped}, return {third}"

    @property
    def description(self) -> str:
        """The problem in a full sentence."""
        first, second, third = self._fill(lambda component: component.meaning)
        if self.composition.family != LIST:
            return f"Given an integer x: if x is {first}, return {second}; otherwise return {third}."
        kept = "all elements" if self.composition.names[0] == ALL else f"the elements that are {first}"
        mapped = "" if self.composition.names[1] == SAME else f" replace each by {second},"
        return f"Given a list a of integers, keep {kept},{mapped} and return {third}."

    def program(self, choices: Choices = CORRECT, rng: random.Random | None = None) -> str:
        """Returns the source of the function, without a newline at its end, with the chosen mistakes.

        The constant of a special case that the program alone has is drawn from `rng`; by default the task decides it.
        """
        first, second, third = self._expressions(choices, rng)
        if self.composition.family != LIST:
            return f"{self.signature}:\n    if {first}:\n        return {second}\n    return {third}"
        condition = f" if {first}" if first else ""
        return f"{self.signature}:\n    b = [{second} for x in a{condition}]\n    return {third}"

    def working(self) -> str:
        """Returns the source of a function that stops a step before the answer: at b, or at whether x qualifies."""
        first, second, _ = self._expressions(CORRECT)
        if self.composition.family != LIST:
            return f"{self.signature}:\n    return {first}"
        condition = f" if {first}" if first else ""
        return f"{self.signature}:\n    return [{second} for x in a{condition}]"

    def near_misses(self, mistakes: int) -> Iterator[Choices]:
        """Yields all choices with exactly so many wrong components."""
        options = [range(1, len(component.mistakes) + 1) for component in self.composition.components]
        for wrong in combinations(range(3), mistakes):
            yield from product(*(options[i] if i in wrong else (0,) for i in range(3)))

    def own_constant(self, rng: random.Random) -> int:
        """Returns a constant for a special case that the question knows nothing of, with which it shows.

        It is an input that does not qualify by the question's condition.
        """
        world = self.composition.world
        is_list = self.composition.family == LIST
        qualify = behaviour(self.working(), (([x] if is_list else x,) for x in world.values))
        return rng.choice([x for x, qualifies in zip(world.values, qualify, strict=True) if not qualifies])

    def aimed_inputs(self, text: str, rng: random.Random) -> list[tuple]:
        """Returns different argument tuples, in random order, made of the constants in a program or problem.

        Of integers: each constant and its neighbours. Of lists: the empty one, one that repeats an element, and lists
        of a constant and its neighbours.
        """
        constants = [int(digits) for digits in re.findall(r"\d+", text)]
        near = [c + offset for c in constants for offset in (0, -1, 1)]
        lists = [[], [value := rng.choice(self.composition.world.elements)] * 2, [*reversed(near[:2]), value]]
        lists += [[x] * repeated for x in near for repeated in (1, 2)]
        if self.composition.family == LIST:
            inputs = [(list(values),) for values in dict.fromkeys(map(tuple, lists))]
        else:
            inputs = [(x,) for x in dict.fromkeys(near)]
        rng.shuffle(inputs)
        return inputs

    @cached_property
    def hidden_inputs(self) -> list[tuple]:
        """Different argument tuples, on which near misses show."""
        if self.composition.family != LIST:
            return [(x,) for x in self.composition.world.hidden_integers]
        rng = random.Random(self.id)
        # As a dict, for its order: a set of lists cannot be.
        inputs = {tuple(values): None for values in self._edge_lists()}
        while len(inputs) < self.composition.world.hidden_lists:
            inputs[tuple(rng.choices(self.composition.world.elements, k=rng.randint(2, 7)))] = None
        return [(list(values),) for values in inputs]

    def _edge_lists(self) -> Iterator[list[int]]:
        yield from map(list, self.composition.world.edges)
        for component, c in zip(self.composition.components, self.constants, strict=True):
            if component.has_constant:
                yield from ([c], [c, c], [c + 1, c - 1, c], [c - 1, c, c + 1, c + 2, c + 3], [c + 1, c + 2], [c - 1])

    def _fill(self, template: Callable[[Component], str]) -> list[str]:
        return [k.fill(template(k), c) for k, c in zip(self.composition.components, self.constants, strict=True)]

    def _expressions(self, choices: Choices, rng: random.Random | None = None) -> list[str]:
        parts = zip(self.composition.components, choices, strict=True)
        templates = [component.mistakes[choice - 1] if choice else component.correct for component, choice in parts]
        has_own = any("{own}" in template for template in templates)
        own = self.own_constant(rng or random.Random(f"{self.id}/own")) if has_own else 0
        return [Component.fill(*part, own) for part in zip(templates, self.constants, strict=True)]


@cache
def compositions(split: str, world: World = WORLDS[CLASSIC]) -> tuple[Composition, ...]:
    """Returns the compositions of one split of a world, in an order that mixes families and components.

    The split of a composition depends on its own name alone, so it stays where it is when components are added. What is
    held out is the combination; each component is in every split.
    """
    names = list(SPLITS)
    low = sum(SPLITS[name] for name in names[: names.index(split)])
    ranked = sorted(_universe(world), key=_rank)
    return tuple(composition for composition in ranked if low <= _rank(composition) < low + SPLITS[split])


def _universe(world: World) -> Iterator[Composition]:
    for family, tables in world.families.items():
        for names in product(*tables):
            if family == LIST or names[1] != names[2]:
                yield Composition(family, names, world)


def _rank(composition: Composition) -> float:
    """Returns a number in [0, 1) that depends on the composition's name alone."""
    name = "/".join([composition.family, *composition.names])
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big") / 2**48


def random_input(composition: Composition, lengths: tuple[int, ...], rng: random.Random) -> tuple:
    """Returns bland arguments for a function; of a list, the length is drawn from `lengths`."""
    if composition.family != LIST:
        return (rng.choice(composition.world.integers),)
    draw = rng.choices if composition.world.repeats else rng.sample
    return (draw(composition.world.elements, k=rng.choice(lengths)),)


RAISED = object()  # the outcome of a call that raised, equal to no value


@lru_cache(maxsize=1 << 16)
def compiled(program: str) -> Callable[..., Any]:
    """Returns the function that a trusted program defines."""
    namespace: dict[str, Any] = {}
    exec(program, namespace)
    return namespace[ENTRY_POINT]


def outcome(program: str, arguments: tuple) -> Any:
    """Returns the value of one call, or RAISED. No generated program changes its arguments."""
    return behaviour(program, [arguments])[0]


def behaviour(program: str, inputs: Iterable[tuple]) -> tuple[Any, ...]:
    """Returns the outcomes on all inputs, in order."""
    function, outcomes = compiled(program), []
    for arguments in inputs:
        try:
            outcomes.append(function(*arguments))
        except (ValueError, IndexError, TypeError, ZeroDivisionError):
            outcomes.append(RAISED)
    return tuple(outcomes)


def assert_line(arguments: tuple, value: Any) -> str:
    """Returns the test as the policies write it: assert f([1, 2]) == 3."""
    return f"assert {ENTRY_POINT}({', '.join(map(repr, arguments))}) == {value!r}"
