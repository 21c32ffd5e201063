"""Which tests of a Mistake Book that is kept by reward are replayed in a step."""

import hashlib
import math
from collections.abc import Sequence

from codea1.game.book_entry import BookEntry
from codea1.values import encode_exact


def draw(entries: Sequence[BookEntry], k: int, key: tuple[int, int, str]) -> list[BookEntry]:
    """At most `k` different entries, drawn one after the other in proportion to reward; those without one never.

    Sampling without replacement by the largest u ** (1 / reward) (Efraimidis and Spirakis 2006). Each u in (0, 1) is a
    function of `key` and the test, so it does not depend on what else is in the book, nor on the host.
    """
    paid = [entry for entry in entries if entry.reward]
    return sorted(paid, key=lambda entry: math.log(_uniform(key, entry)) / entry.reward, reverse=True)[:k]


def _uniform(key: tuple[int, int, str], entry: BookEntry) -> float:
    digest = hashlib.blake2b(encode_exact((*key, *entry.test.identity)), digest_size=6).digest()
    return (int.from_bytes(digest, "little") + 0.5) / 2**48
