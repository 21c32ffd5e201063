"""Work dealt over hosts; hosts here are threads."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codea1.runtime.hosts import Hosts, Shares, deal

IDS = st.lists(st.text(max_size=8), unique=True, max_size=60)


@given(IDS, st.integers(1, 9))
def test_no_host_has_more_than_its_share(ids, num_hosts):
    host_of = deal(ids, num_hosts)
    assert list(host_of) == ids
    assert all(0 <= host < num_hosts for host in host_of.values())
    assert max(Counter(host_of.values()).values(), default=0) <= -(-len(ids) // num_hosts)


def test_most_questions_stay_with_their_host_whatever_comes_with_them():
    batches = [[f"q{number}" for number in range(start, 4000, 7)] for start in range(7)]
    alone = {question_id: deal([question_id] * 1, 8)[question_id] for batch in batches for question_id in batch}
    stayed = [deal(batch, 8)[question_id] == alone[question_id] for batch in batches for question_id in batch[::10]]
    assert sum(stayed) / len(stayed) > 0.85


@dataclass(frozen=True)
class _Meeting(Hosts):
    """Hosts that are threads of one process."""

    barrier: threading.Barrier | None = None
    said: dict[int, Any] | None = None

    def exchange(self, value: Any) -> list:
        self.said[self.index] = value
        self.barrier.wait(timeout=60)
        heard = [self.said[index] for index in range(self.count)]
        self.barrier.wait(timeout=60)
        return heard


def on_hosts(count: int, program: Callable[[Hosts], Any]) -> list:
    barrier, said = threading.Barrier(count), {}
    with ThreadPoolExecutor(count) as pool:
        runs = [pool.submit(program, _Meeting(index, count, barrier, said)) for index in range(count)]
        return [run.result() for run in runs]


@pytest.mark.parametrize("num_hosts", [1, 2, 3])
def test_each_piece_is_done_once_and_known_everywhere(num_hosts):
    ids = [f"q{number}" for number in range(7)]
    started: list[tuple[int, str, int]] = []

    def program(hosts: Hosts) -> dict:
        shares = Shares(hosts, ids)
        futures: list[tuple[Future, Any]] = []

        def start(question_id: str, piece: int) -> Future:
            started.append((hosts.index, question_id, piece))
            future: Future = Future()
            futures.append((future, (question_id, piece)))
            return future

        for piece in range(3):
            for question_id in ids:
                shares.add((question_id, piece), start=lambda q=question_id, p=piece: start(q, p))
        for future, result in reversed(futures):  # in whatever order they finish
            future.set_result(result)
        return shares.collect()

    expected = [(question_id, piece) for piece in range(3) for question_id in ids]
    assert on_hosts(num_hosts, program) == [{key: key for key in expected}] * num_hosts
    assert sorted((question_id, piece) for _, question_id, piece in started) == sorted(expected)
    host_of = deal(ids, num_hosts)
    assert all(host == host_of[question_id] for host, question_id, _ in started)


def test_a_failed_piece_fails_its_host():
    def program(hosts: Hosts) -> None:
        shares, future = Shares(hosts, ["q"]), Future()
        future.set_exception(RuntimeError("the sandbox is closed"))
        shares.add(("q",), start=lambda: future)
        shares.collect()

    with pytest.raises(RuntimeError, match="the sandbox is closed"):
        on_hosts(1, program)
