"""Canonical bytes against Python's `==`, for every pair of some thousand values: a million pairs and more.

  python -m bench.sandbox_equality [--values 2000] [--seed 0]

A third of the values are drawn, a third say the same in other types (1, 1.0, True, Fraction(1)), a third are near
misses. Exits with 1, and prints the pair, where the two equalities disagree.
"""

import argparse
import datetime as dt
import random
import sys
from collections import deque
from decimal import Decimal
from fractions import Fraction
from itertools import combinations_with_replacement

from codea1.values import encode_canonical

NUMBERS = [0, 1, -1, 2, 255, 2**53, 2**53 + 1, 10**30, 0.5, 0.1, -0.0, 1e30, float("inf"), Fraction(1, 3), 1j]
LEAVES = [*NUMBERS, None, "", "a", "é", "\ud800", b"", b"a", range(3), range(0), dt.date(2020, 1, 1)]
LEAVES += [dt.datetime(2020, 1, 1), dt.timedelta(1), Decimal("0.1")]


def drawn(random_: random.Random, depth: int = 3) -> object:
    """Any plain value without NaN."""
    kind = random_.random()
    if depth == 0 or kind < 0.5:
        number = random_.choice((random_.randint, random_.uniform))(-9, 9)
        return random_.choice(LEAVES) if random_.random() < 0.8 else number
    items = [drawn(random_, depth - 1) for _ in range(random_.randrange(4))]
    if kind < 0.85:
        return random_.choice((list, tuple, deque))(items)
    hashable = [item for item in items if is_hashable(item)]
    if kind < 0.93:
        return random_.choice((set, frozenset))(hashable)
    return {key: drawn(random_, depth - 1) for key in hashable}


def is_hashable(value: object) -> bool:
    """Whether it can be in a set."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def retold(random_: random.Random, value: object, hashable: bool = False) -> object:
    """A value that is equal, in other types where there are some; one that can be in a set where it must."""
    if isinstance(value, int | float | Fraction | Decimal) and value == value and abs(value) != float("inf"):
        types = (int, bool, float, complex, Fraction, *(() if isinstance(value, Fraction) else (Decimal,)))
        return random_.choice([value, *(told for told in (kind(value) for kind in types) if told == value)])
    if type(value) in (list, tuple, deque):
        return type(value)([retold(random_, item, hashable) for item in value])
    if isinstance(value, set | frozenset):
        items = [retold(random_, item, hashable=True) for item in value]
        random_.shuffle(items)
        return frozenset(items) if hashable else random_.choice((set, frozenset))(items)
    if isinstance(value, dict):
        items = [(retold(random_, key, hashable=True), retold(random_, item)) for key, item in value.items()]
        random_.shuffle(items)
        return dict(items)
    return value


def missed(random_: random.Random, value: object) -> object:
    """A value that differs a little, if it can."""
    if isinstance(value, bool | int):
        return value + random_.choice((1, -1, 0.5, 2**-40))
    if isinstance(value, float):
        return value * (1 + 2**-52) if value else 5e-324
    if isinstance(value, Fraction):
        return value + Fraction(1, 10**20)
    if isinstance(value, Decimal):
        return value + Decimal("1e-20")
    if isinstance(value, str):
        return random_.choice((value + "a", value.encode("utf-8", "surrogatepass")))
    if type(value) in (list, tuple, deque):
        items = list(value)
        if items and random_.random() < 0.7:
            place = random_.randrange(len(items))
            items[place] = missed(random_, items[place])
            return type(value)(items)
        return random_.choice((list, tuple, deque))(items)
    if isinstance(value, set | frozenset):
        return random_.choice((value | {7}, list(value)))
    if isinstance(value, dict):
        return {**value, 7: None}
    return value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    random_ = random.Random(options.seed)
    first = [drawn(random_) for _ in range(-(-options.values // 3))]
    values = [*first, *(retold(random_, value) for value in first), *(missed(random_, value) for value in first)]
    known = [(value, encode_canonical(value)) for value in values]
    pairs = equal = wrong = 0
    for (left, left_bytes), (right, right_bytes) in combinations_with_replacement(known, 2):
        is_equal = bool(left == right)
        pairs, equal = pairs + 1, equal + is_equal
        if is_equal != (left_bytes == right_bytes):
            wrong += 1
            print(f"== says {is_equal}: {left!r} and {right!r}")
    print(f"{pairs:,} pairs of {len(values)} values, {equal:,} of them equal; {wrong} disagreements")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
