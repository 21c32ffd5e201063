"""Work on questions, dealt over the hosts: each piece is done by one host, and all hosts learn what came of it."""

import hashlib
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any

from codea1.runtime.hosts import Hosts
from codea1.runtime.phases import doing, progress

Key = tuple[str, *tuple[Hashable, ...]]  # of a piece of work: its question, and which of the question's pieces it is


class Shares:
    """Pieces of work that run in the background while all hosts do something else together.

    Every host adds the same pieces, and starts its own at once. What comes of them is known when `collect` returns and
    not before: hosts finish their pieces at different times, and nothing that they do together may depend on that.
    """

    def __init__(self, hosts: Hosts, question_ids: Sequence[str]) -> None:
        """Deals the questions over the hosts: `question_ids` are all that there will be work on."""
        self._hosts = hosts
        self._host_of = deal(question_ids, hosts.count)
        self._own: dict[Key, Future] = {}

    def add(self, key: Key, start: Callable[[], Future]) -> Future | None:
        """Adds a piece of work: `start` begins it, on one host; its result must pickle.

        Returns its future, for other pieces on the same question, which are of the same host; None on other hosts.
        """
        if self._host_of[key[0]] != self._hosts.index:
            return None
        self._own[key] = start()
        return self._own[key]

    def collect(self) -> dict[Key, Any]:
        """Waits for all pieces of all hosts and returns every result."""
        own: dict[Key, Any] = {}
        with doing("sandbox"):
            for key, future in self._own.items():
                own[key] = future.result()
                progress()
        return {key: result for part in self._hosts.exchange(own) for key, result in part.items()}


def deal(question_ids: Sequence[str], num_hosts: int) -> dict[str, int]:
    """Returns the host that works on each question.

    No host gets more than its even share, rounded up; within that, a question goes to the same host whenever it comes,
    which remembers what its ground truth answers (consistent hashing with bounded loads, Mirrokni et al. 2016).
    """
    room = [-(-len(question_ids) // num_hosts)] * num_hosts
    host_of = {}
    for question_id in question_ids:
        host = stable_hash(question_id) % num_hosts
        while not room[host]:
            host = (host + 1) % num_hosts
        room[host] -= 1
        host_of[question_id] = host
    return host_of


def stable_hash(text: str) -> int:
    """Returns 32 bits of BLAKE2b: the same in every process and on every machine, unlike Python's `hash`."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")
