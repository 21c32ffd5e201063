"""The worlds of procedural functions: their components with right and wrong forms, and what inputs are like in each.

`classic` is the world of the paper's tables on the tiny pair: most mistakes show on most inputs. In `blind` a mistake
shows on one or a few of 32 values, and on no bland input, since those are smaller than every threshold. An input aimed
at a mistake always exposes it. Its kinds of mistake are off-by-one at a threshold, a special case left over in the
program alone, one branch of several, empties, duplicates and ties.

The mistakes are deliberate. Policies made from nothing must start mediocre for reinforcement learning to have something
to show, so the SFT corpus gets each component wrong with the component's own rate: for some the mistake is what most
programs do. results/misconceptions.md lists them all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from codea1.data.sources import CLASSIC
from codea1.runtime import removed
from codea1.runtime.errors import BadInput

LIST = "list"  # the family of functions of a list; those of all others take an integer


@dataclass(frozen=True)
class Component:
    """One part of a function: what a question says of it, the right expression, and near misses of it.

    In all texts {c} stands for the part's constant, {prev}, {next} and {top} for c - 1, c + 1 and c + 2, and {own} for
    a constant that the program alone has, an input that the question treats like any other.
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
    def fill(template: str, constant: int, own: int = 0) -> str:
        """Returns one of the component's texts with the constants put in."""
        return template.format(c=constant, prev=constant - 1, next=constant + 1, top=constant + 2, own=own)


Table = Mapping[str, Component]  # by name


@dataclass(frozen=True, eq=False)
class World:
    """A set of functions with the inputs that are usual in it."""

    name: str
    families: Mapping[str, tuple[Table, Table, Table]]  # what the three components of a family's functions can be
    values: Sequence[int]  # that special cases of a program alone are drawn from
    integers: range  # that bland inputs are drawn from
    elements: range  # of bland lists
    repeats: bool  # whether bland lists may hold an element twice
    suite_lengths: tuple[int, ...]  # of the lists in the corpus's suites, equally likely
    golden_lengths: tuple[int, ...]  # of the lists in golden tests; never empty: most tests people write are not
    hidden_integers: range  # that the hidden tests of functions of integers hold
    hidden_lists: int  # how many lists the hidden tests of all others hold,
    edges: tuple[tuple[int, ...], ...]  # and some that are among them
    preference: tuple[int, ...]  # how often a wrong component has its first mistake, its second, ...
    slips: float  # share of the corpus's asserts that state a wrong answer
    min_mutants: int  # questions with fewer are left out


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


# What becomes of one x, and what is returned instead by mistake, in a branch that is seldom taken.
_SMALL = (1, 2, 3)
_RARE_MAPS = {
    SAME: Component("same", "it", "x", ("x + 1",), 0.65),
    "add": Component("plus {c}", "it plus {c}", "x + {c}", ("x - {c}",), 0.65, _SMALL),
    "sub": Component("minus {c}", "it minus {c}", "x - {c}", ("x + {c}",), 0.65, _SMALL),
    "zero": Component("zero", "zero", "0", ("1",), 0.65),
    "one": Component("one", "one", "1", ("0",), 0.65),
    "two": Component("two", "two", "2", ("1",), 0.65),
    "three": Component("three", "three", "3", ("2",), 0.65),
    "ten": Component("ten", "ten", "10", ("0",), 0.65),
}


def _blind() -> World:
    """Returns the world of 32 values, in which a mistake shows on one to three of them, and on no bland input."""
    num_bland, num_values = 12, 32
    values = range(num_bland, num_values)
    inner = tuple(values[2:-3])  # constants whose neighbours are values too
    high = inner[-len(inner) // 3 :]  # filters by them leave most elements
    middle = num_values // 2

    def threshold(phrase: str, correct: str, *mistakes: str) -> Component:
        # A case is left over in half of the programs, be the rest right or wrong, and most of them have the wrong sign:
        # the most likely program is wrong, and a policy this small learns independent mistakes alone.
        left_over = (f"{condition} or x == {{own}}" for condition in (correct, mistakes[0]))
        return _condition(phrase, correct, (*mistakes, *left_over), 0.8)

    thresholds = {
        "gt": threshold("above {c}", "x > {c}", "x >= {c}", "x > {next}"),
        "ge": threshold("at least {c}", "x >= {c}", "x > {c}", "x >= {prev}"),
        "lt": threshold("below {c}", "x < {c}", "x <= {c}", "x < {prev}"),
        "le": threshold("at most {c}", "x <= {c}", "x < {c}", "x <= {next}"),
    }
    conditions = {name: replace(rule, constants=inner) for name, rule in thresholds.items()}
    branches = {
        "eq": _condition("just {c}", "x == {c}", (), 0.0, constants=inner),
        "pair": _condition("{c} or {next}", "{c} <= x <= {next}", ("{c} <= x < {next}",), 0.3, constants=inner),
        "between": _condition("from {c} to {top}", "{c} <= x <= {top}", ("{c} < x <= {top}",), 0.3, constants=inner),
    }
    filters = {
        ALL: Component("all", "all", "", (), 0.0),
        **{name: replace(thresholds[name], constants=high) for name in ("lt", "le")},
        "ne": _condition("other than {c}", "x != {c}", ("x != {next}", "x != {prev}"), 0.8, constants=inner),
    }
    right_maps = {name: replace(rule, mistakes=(), rate=0.0) for name, rule in _RARE_MAPS.items()}

    def reduce(phrase: str, meaning: str, correct: str, *mistakes: str) -> Component:
        return Component(phrase, meaning, correct, mistakes, 0.65)

    def or_zero(phrase: str, meaning: str, of_any: str) -> Component:
        return reduce(f"{phrase} or zero", meaning + _NONE, f"{of_any} if b else 0", of_any, f"{of_any} if b else -1")

    reduces = {
        "count": reduce("count", "how many there are", "len(b)", "len(set(b))", "len(b) or 1"),
        "distinct": reduce("distinct count", "how many different ones", "len(set(b))", "len(b)", "len(set(b)) or 1"),
        "sort": reduce("sorted", "them in ascending order", "sorted(b)", "sorted(set(b))", "sorted(b) or [0]"),
        "different": reduce(
            "the different", "the different ones, ascending", "sorted(set(b))", "sorted(b)", "sorted(set(b)) or [0]"
        ),
        "ascending": reduce(
            "whether ascending", "whether none is below the one before it", "b == sorted(b)", "b == sorted(set(b))"
        ),
        "rising": reduce(
            "whether rising", "whether each is above the one before it", "b == sorted(set(b))", "b == sorted(b)"
        ),
        "max": or_zero("max", "the largest", "max(b)"),
        "min": or_zero("min", "the smallest", "min(b)"),
        "first": or_zero("first", "the first", "b[0]"),
        "last": or_zero("last", "the last", "b[-1]"),
        "spread": or_zero("spread", "the largest minus the smallest", "max(b) - min(b)"),
        "place": or_zero("place of max", "the index of the first largest", "b.index(max(b))"),
    }
    return World(
        name="blind",
        families={
            "int": (conditions, right_maps, right_maps),
            "branch": (branches, _RARE_MAPS, right_maps),
            LIST: (filters, {name: right_maps[name] for name in (SAME, "add", "sub")}, reduces),
        },
        values=values,
        integers=range(num_bland),
        elements=range(num_bland),
        repeats=False,
        suite_lengths=(2, 2, 3, 3, 3),
        golden_lengths=(2, 3, 3, 4),
        hidden_integers=range(-1, num_values + 1),
        hidden_lists=2 * num_values + 50,
        edges=(
            *((), (0,), (num_values - 1,), (middle,), (middle, middle), (middle, middle + 1), (middle + 1, middle)),
            *((middle, middle, middle + 1), (middle + 1, middle, middle), (middle, middle + 1, middle)),
            *(edge for value in values for edge in ((value,), (value, middle, value))),  # any may be a left-over case
        ),
        preference=(6, 1, 4, 6),
        slips=0.25,
        min_mutants=2,
    )


WORLDS = {
    world.name: world
    for world in (
        World(
            name=CLASSIC,
            families={LIST: (FILTERS, MAPS, REDUCES), "int": (CONDITIONS, MAPS, MAPS)},
            values=range(10),
            integers=range(10),
            elements=range(8),
            repeats=True,
            suite_lengths=(0, 1, 1, 2, 2, 2, 3, 3, 3, 3),  # short ones keep answers learnable
            golden_lengths=(1, 2, 3, 4),
            hidden_integers=range(-3, 21),
            hidden_lists=36,
            edges=tuple(
                tuple(map(int, digits))
                for digits in ("", "0", "1", "7", "00", "246", "735", "370", "5242", "61641", "070")
            ),
            preference=(5, 1),
            slips=0.0,
            min_mutants=4,
        ),
        _blind(),
    )
}


def world_named(name: str) -> World:
    """Returns the world of a name. Raises BadInput: there is none."""
    if name not in WORLDS:
        gone = removed.removed_name("the world", name, removed.WORLDS)
        raise BadInput(gone or f"there is no world {name!r}; there are {', '.join(WORLDS)}.")
    return WORLDS[name]
