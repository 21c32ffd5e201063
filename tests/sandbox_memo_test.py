"""What a grader remembers: the latest used, within its bytes, and nothing that is not worth keeping."""

import gc
import os
from pathlib import Path

from codea1.game.calls import Call, CallTest
from codea1.runtime.futures import Memo, digest
from codea1.sandbox.host import Limits
from codea1.sandbox.host.grading import Grader
from codea1.sandbox.host.pool import SandboxPool
from codea1.values import encode_exact

KEYS = [digest(name) for name in "abcd"]


def size(value: int) -> int | None:
    return None if value == 0 else 10_000


def test_the_least_recently_used_is_forgotten_first():
    memo = Memo(25_000)
    for key in KEYS[:2]:
        future, is_new = memo.claim("kind", key, size)
        assert is_new
        assert memo.claim("kind", key, size) == (future, False)  # what is under way is asked for once
        future.set_result(1)
    assert memo.claim("kind", KEYS[0], size)[0].result() == 1  # used again
    memo.claim("kind", KEYS[2], size)[0].set_result(3)
    assert [memo.claim("kind", key, size)[1] for key in KEYS[:3]] == [False, True, False]
    assert (memo.hits["kind"], memo.misses["kind"]) == (5, 4)
    assert memo.bytes < 25_000


def test_what_is_not_worth_keeping_is_forgotten_at_once():
    memo = Memo(25_000)
    memo.claim("kind", KEYS[0], size)[0].set_result(0)
    assert memo.claim("kind", KEYS[0], size)[1]
    memo.claim("kind", KEYS[1], size)[0].set_exception(KeyError("x"))
    assert memo.claim("kind", KEYS[1], size)[1]
    assert memo.bytes == 0


def test_values_are_replaced_and_forgotten_like_results():
    memo = Memo(25_000)
    memo.put(KEYS[0], "old", 9_000)
    memo.put(KEYS[0], "new", 9_000)
    assert memo.get(KEYS[0]) == "new"
    for key in KEYS[1:3]:
        memo.put(key, "x", 9_000)
    assert memo.get(KEYS[0]) is None
    assert memo.get(KEYS[3]) is None


def test_digests_tell_where_a_part_ends():
    assert digest("ab", "c") != digest("a", "bc") != digest("abc")
    assert digest("a", b"b") == digest(b"a", "b")


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_long_arguments_do_not_stay():
    with SandboxPool(2, Limits(memo_bytes=4 << 20), isolation="auto") as pool:
        grader = Grader(pool)

        def grade(count: int) -> None:
            for number in range(count):
                calls = [Call("f", encode_exact(((f"{number}:{i}" + "x" * 20_000,), {}))) for i in range(32)]
                tests = [CallTest(call, encode_exact("y" * 10_000)) for call in calls]
                grader.grade(f"def f(s): return 'y' * 10_000  # {number}", tests).result(60)

        grade(20)
        before = resident_bytes()
        grade(80)  # 80 MiB of arguments and answers
        assert resident_bytes() - before < 8 << 20
