"""One function on many inputs: what comes back is judged by digests and descriptions, and nothing else counts."""

import textwrap
from collections.abc import Sequence

import pytest

from codea1.lab.sandbox.benchmarks import BenchmarkPool, Description, Inputs
from codea1.lab.sandbox.child import value_digest
from codea1.sandbox.host import Limits, ScriptRun
from codea1.values import decode_exact, encode_exact
from codea1.values.encoding import Members, Pairs
from codea1.values.verdict import Verdict
from tests.sandbox_calls import pool_of

LIMITS = Limits(cpu_seconds_per_script=3.0, script_memory_bytes=512 << 20)
pool = pool_of(BenchmarkPool, Limits())


class _Equal:
    """Accepts the expected values, also by their exact encodings; notes what was described."""

    def __init__(self, expected: Sequence[object]) -> None:
        self.expected, self.described = expected, {}

    def agrees(self, index: int, digest_: bytes, seconds: float) -> bool:
        return digest_ == value_digest(self.expected[index])

    def accepts(self, index: int, value: Description) -> bool:
        self.described[index] = value
        return bool(value.exact) and decode_exact(value.exact) == self.expected[index]


def run(
    pool: BenchmarkPool, program: str, count: int = 100, seconds: float = 0.5, **options
) -> tuple[ScriptRun, _Equal]:
    """Judges a program that is to add one to 0, 1, ..."""
    judge = _Equal([i + 1 for i in range(count)])
    inputs = Inputs([[i] for i in range(count)], [seconds] * count, **options)
    return pool.run_batch(textwrap.dedent(program), "f", inputs, judge, LIMITS).result(60), judge


def test_a_right_program_is_never_asked_for_values(pool):
    for count in (0, 1, 8, 9, 1000):
        result, judge = run(pool, "def f(x): return x + 1", count)
        assert (result.verdict, result.detail, judge.described) == (Verdict.PASS, "", {})


def test_only_values_in_doubt_are_described(pool):
    result, judge = run(pool, "def f(x): return x + 1.0 if x in (3, 70) else x + 1")
    assert result.verdict is Verdict.PASS
    assert {index: each.type_name for index, each in judge.described.items()} == {
        3: "builtins.float",
        70: "builtins.float",
    }


@pytest.mark.parametrize(
    ("program", "verdict", "detail"),
    [
        ("def f(x): return x + 1 if x != 60 else 0", Verdict.FAIL, "input 60: another value than expected"),
        ("def f(x): return x + 1 if x != 60 else object()", Verdict.FAIL, "input 60: another value than expected"),
        ("def f(x): return x + 1 if x < 60 else 1 // 0", Verdict.ERROR, "raised on input 60: ZeroDivisionError"),
        ("def f(x): return x + 1 if x < 8 else 1 // 0", Verdict.ERROR, "raised on input 8"),
        ("def f(x): raise SystemExit(0)", Verdict.ERROR, "raised on input 0: SystemExit"),
        ("import os\ndef f(x): os._exit(0)", Verdict.ERROR, "the process exited with status 0"),
        ("def f(x", Verdict.ERROR, "raised on load: SyntaxError"),
        ("def g(x): return x + 1", Verdict.ERROR, "raised on load: KeyError: 'f'"),
        ("def f(x, y): return x + 1", Verdict.ERROR, "raised on input 0: TypeError"),
        ("def f(x):\n    while x == 60: pass\n    return x + 1", Verdict.TIMEOUT, "input 5"),
        ("while True: pass", Verdict.TIMEOUT, "input 0"),
        ("import time\ndef f(x): time.sleep(100)", Verdict.TIMEOUT, "input 0 or a later one took more than 0.6 CPU"),
    ],
)
def test_everything_else_does_not_pass(pool, program, verdict, detail):
    result, _ = run(pool, program)
    assert result.verdict is verdict, result
    assert result.detail.startswith(detail), result


HEAD = """
import os, struct
def send(index, kind, payload): os.write(3, struct.pack('>IIc', len(payload), index, kind) + payload)
"""


@pytest.mark.parametrize(
    "program",
    [
        HEAD + "send(0, b'D', bytes(24 * 100))\ndef f(x): return 0",  # digests of nothing
        HEAD + "send(0, b'D', bytes(24 * 101))\ndef f(x): return x + 1",  # more than there are inputs
        HEAD + "send(100, b'D', b'')\ndef f(x): return x + 1",
        HEAD + "send(0, b'V', b'')\ndef f(x): return x + 1",
        HEAD + "send(0, b'D', b'')\nsend(0, b'V', b'N')\ndef f(x): return x + 1",
        HEAD + "send(0, b'R', b'')\ndef f(x): return x + 1",
        "import os\nos.write(3, bytes(1000))\ndef f(x): return x + 1",
        "import os\nos.close(3)\ndef f(x): return x + 1",
        "class E:\n    def __eq__(self, other): return True\ndef f(x): return E()",
        "class E(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\ndef f(x): return E(-5)",
    ],
)
def test_a_program_that_writes_to_the_socket_or_lies_does_not_pass(pool, program):
    result, _ = run(pool, program)
    assert result.verdict in (Verdict.ERROR, Verdict.FAIL), result


@pytest.mark.parametrize("kind", ["{n * (2**61 - 1) for n in range(300)}", "{n * (2**61 - 1): 0 for n in range(300)}"])
def test_a_description_that_takes_long_to_hash_is_refused(pool, kind):
    """As large as a frame may be, it would hold up all gradings."""
    lie = f"""
from codea1.values import encode_exact
send(0, b'D', bytes(24))
send(0, b'V', encode_exact(({kind}, b'', b'')))
def f(x): return x + 1
"""
    result, judge = run(pool, HEAD + lie)
    assert (result.verdict, result.detail) == (Verdict.ERROR, "the process broke the protocol")
    assert judge.described == {}


def test_objects_that_raise_when_looked_at_are_described_as_nothing(pool):
    program = """
        class Meta(type):
            def __getattribute__(cls, name): raise KeyboardInterrupt
        class Bad(list, metaclass=Meta):
            def __iter__(self): raise SystemExit
        def f(x): return Bad()
    """
    result, judge = run(pool, program)
    assert (result.verdict, judge.described[0].exact) == (Verdict.FAIL, b"")


def test_sets_of_members(pool):
    _, judge = run(pool, "def f(x): return [2, 1, 1] if x else (1, 2)", 2, as_set=True)
    result, other = run(pool, "def f(x): return (each for each in (2, 1))", 2, as_set=True)
    assert result.verdict is Verdict.FAIL  # the values themselves differ
    assert judge.described[0].compared == other.described[0].compared != b""


def test_hostile_values_need_not_be_hashed():
    payload = encode_exact([1, {2}, {3: 4}])
    assert decode_exact(payload) == [1, {2}, {3: 4}]
    assert decode_exact(payload, hashed=False) == [1, Members([2]), Pairs([(3, 4)])]
    assert decode_exact(encode_exact([1, (2.0, "a")]), hashed=False) == [1, (2.0, "a")]


CLAIMS = """
import os, struct
def frame(index, kind, payload): return struct.pack('>IIc', len(payload), index, kind) + payload
def say(data):
    view = memoryview(data)
    while view: view = view[os.write(3, view):]
def length(n): return n.to_bytes(4, 'big')
def number(n):
    data = n.to_bytes(n.bit_length() // 8 + 1, 'big', signed=True)
    return b'i' + length(len(data)) + data
def fields(*parts): return b't' + length(len(parts)) + b''.join(parts)
def f(x): return x + 1
"""


@pytest.mark.parametrize(
    "claim",
    [
        "fields(b'q' + fields(number(1 << 70000), number(1)), b'N', b'N')",  # a ratio that is slow to reduce
        "b'r' + fields(number(0), number(10**18), number(1))",  # which must not be unpacked
        "b'r' + fields(number(0), number(1 << 70), number(1))",  # whose length is no length
        "fields(b'N', b'N', b'r' + fields(number(0), number(1 << 70), number(1)))",
        "fields(*[b's' + length(0)] * 4)",
        "number(1 << 5_000_000)",
        "b'l' + length(1) * 65",
    ],
)
def test_a_claim_costs_its_own_grading_alone(claim):
    with BenchmarkPool(2, isolation="auto") as pool:
        for _ in range(5):  # more than the dispatcher would begin anew
            honest = pool.run_script("def check(c): assert c(1) == 2", "def f(x): return x + 1", "f")
            result, _ = run(
                pool, CLAIMS + f"say(frame(0, b'D', bytes(24)) + frame(0, b'V', {claim}))\nwhile True: pass"
            )
            assert (result.verdict, result.detail) == (Verdict.ERROR, "the process broke the protocol")
            assert honest.result(60).verdict is Verdict.PASS
        assert pool.counters()["restarts"] == pool.counters()["zygotes_lost"] == 0


@pytest.mark.parametrize(
    "flood",
    [
        "frame(0, b'D', b'') * 200_000",
        "frame(0, b'D', b'') + frame(0, b'D', b'')",
        "struct.pack('>IIc', 60 << 20, 0, b'E') + bytes(60 << 20)",
        "frame(0xFFFFFFFF, b'E', b'x' * 301)",
    ],
)
def test_a_flood_is_read_no_further_than_its_first_lie(pool, flood):
    result, _ = run(pool, CLAIMS + f"say({flood})\nwhile True: pass")
    assert (result.verdict, result.detail) == (Verdict.ERROR, "the process broke the protocol")


def test_what_a_judge_cannot_read_is_the_programs_failure(pool, capfd):
    class Broken(_Equal):
        def accepts(self, index: int, value: Description) -> bool:
            raise MemoryError("a bug")

    batch = pool.run_batch("def f(x): return x", "f", Inputs([[1]], [0.5]), Broken([2]), LIMITS)
    assert batch.result(60).verdict is Verdict.ERROR
    assert "a bug" in capfd.readouterr().err
    assert run(pool, "def f(x): return x + 1")[0].verdict is Verdict.PASS
