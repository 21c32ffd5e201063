"""The parts that procedural functions are made of, and the mistakes that the SFT corpus plants in them.

The mistakes are deliberate. Policies made from nothing must start mediocre for reinforcement learning to have something
to show, so the corpus gets each part wrong with the part's own rate: for some parts the mistake is what most programs
do. `codea1.data.corpus.planted_misconceptions` lists them all.
"""

from dataclasses import dataclass


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
