"""The pool: calls answered in order, hangs and deaths that cost one call only, limits, and a queue with an end."""

import math
import os
import sys
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest

from codea1.game.question import Question
from codea1.lab.sandbox.benchmarks import BenchmarkPool, Inputs
from codea1.sandbox.frames import VALUE, FrameBuffer, Reply, pack
from codea1.sandbox.host import Limits, dispatcher
from codea1.sandbox.host.conversation import profile_of
from codea1.sandbox.host.pool import SandboxPool
from codea1.values import TooLarge, encode_exact
from tests.sandbox_calls import LIMITS, call, kinds, pool_of, run, values, wait_until

pool = pool_of(BenchmarkPool)


def test_calls_in_order_with_exact_types(pool):
    result = run(pool, "def f(*a, **k): return a, k", [call(1, 1.0, True, [(2,)]), call(k={1, 2}), call()])
    assert result.loaded
    assert values(result) == [((1, 1.0, True, [(2,)]), {}), ((), {"k": {1, 2}}), ((), {})]
    assert type(values(result)[0][0][2]) is bool


def test_program_is_a_module_that_is_not_main(pool):
    program = """
        import dataclasses, sys
        @dataclasses.dataclass
        class A: x: int
        if __name__ == '__main__': sys.exit()
        def f(): return __name__, sys.modules[__name__].f is f, A(3).x, sys.argv
    """
    assert values(run(pool, program, [call()])) == [("solution", True, 3, [""])]


def test_arguments_are_made_anew_for_each_call_but_the_program_keeps_its_state(pool):
    program = "seen = []\ndef f(x, y=[]): x.append(1); y.append(1); seen.append(x); return x, len(y), len(seen)"
    assert values(run(pool, program, [call([]), call([])])) == [([1], 1, 1), ([1], 2, 2)]


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("def f(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import no_such_module", "ModuleNotFoundError"),
        ("raise SystemExit", "SystemExit"),
        ("x = '\ud800'", "UnicodeEncodeError"),
        ("a\0b", "SyntaxError"),
        ("import os\nos._exit(3)", "the process exited with status 3"),
        ("while True: pass", "the process took too long"),
    ],
)
def test_programs_that_do_not_load(pool, program, error):
    result = pool.run_calls(program, [call(), call()], reply=Reply.EXACT).result(60)
    assert result.loaded is False
    assert result.load_error.startswith(error) or error == "SyntaxError"
    assert set(kinds(result)) == ({"timeout"} if "long" in error else {"error"})


def test_each_kind_of_outcome(pool):
    program = """
        import os
        def f(x):
            if x == 0: return 'value'
            if x == 1: raise ValueError('no')
            if x == 2: return object()
            if x == 3: return 'x' * (2 << 20)
            if x == 4: os._exit(0)
            if x == 5:
                while True: pass
            if x == 6: raise ValueError('x' * 9999)
    """
    calls = [*(call(x) for x in range(6)), call(0), call(0, name="g"), call(0, 0), call(6)]
    result = run(pool, program, calls)
    failures = ["error", "opaque", "too_large", "error", "timeout"]
    assert kinds(result) == ["value", *failures, "value", "error", "error", "error"]
    words = [outcome.payload.decode("utf-8", "replace") for outcome in result.outcomes]
    assert words[1] == "ValueError: no"
    assert words[2] == "builtins.object"
    assert words[4] == "the process exited with status 0"
    assert words[7].startswith("NameError")
    assert words[8].startswith("TypeError")
    assert len(words[9]) == 300


def test_beyond_the_budget_of_a_grading_nothing_runs(pool):
    result = run(pool, "def f(x):\n  while x: pass\n  return 1", [call(x) for x in (0, 1, 1, 1, 1, 1, 1, 0)])
    assert kinds(result)[:3] == ["value", "timeout", "timeout"]
    assert kinds(result)[-2:] == ["not_run", "not_run"]
    assert 1.5 < result.cpu_seconds < 4


def test_call_limits_may_be_tighter_but_never_wider(pool):
    program = (
        "import time\ndef f(seconds):\n  end = time.process_time() + seconds\n  while time.process_time() < end: pass"
    )
    assert kinds(run(pool, program, [call(1.5), call(0.3)], call_seconds=[0.1, 9.0])) == ["timeout", "value"]
    assert kinds(run(pool, "def f():\n  while True: pass", [call()], call_seconds=[900.0])) == ["timeout"]


def test_a_call_is_timed_even_where_its_child_was_dead_before_it_was_looked_at(pool, monkeypatch):
    monkeypatch.setattr("codea1.sandbox.host.zygote.Child.cpu_seconds", lambda self: 0.0)
    program = "import time\ndef f():\n  while time.process_time() < 0.3: pass"
    (outcome,) = run(pool, program, [call()]).outcomes
    assert 0.3 < outcome.cpu_seconds < 1
    assert kinds(run(pool, program.replace("0.3", "1.5"), [call()], call_seconds=[0.1])) == ["timeout"]


def test_large_requests_and_answers_pass_through_small_socket_buffers(pool):
    big = ["x" * 1000] * 500
    padding = "#" * 1_000_000 + "\n"
    assert values(run(pool, padding + "def f(x): return x", [call(big)] * 1)) == [big]
    result = run(pool, "def f(x): return x", [call(big)] * 3)
    assert kinds(result) == ["value", "value", "too_large"]


def test_hash_seed_and_random_depend_on_the_seed_alone(pool):
    program = "import random\ndef f(): return [list({'a', 'b', 'c', 'd', 'e'}), random.random()]"
    first, again = (values(run(pool, program, [call()], hash_seed=0)) for _ in range(2))
    other = values(run(pool, program, [call()], hash_seed=1))
    assert first == again != other


def test_numpy_programs(pool):
    program = "import numpy as np\ndef f(x): return [np.float64(x).item(), np.int64(3), np.arange(2)[1]]"
    assert values(run(pool, program, [call(0.5)])) == [[0.5, 3, 1]]
    assert kinds(run(pool, "import numpy as np\ndef f(): return np.zeros(3)", [call()])) == ["opaque"]


OF_STDOUT = Question("q", None, "", "", "print(1)", "stdout")


@pytest.mark.parametrize(
    ("program", "imports"),
    [
        ("import numpy", True),
        ("x = 1\n  from numpy.linalg import norm", True),
        ("import os, numpy as np", True),
        ("import numpylike", False),
        ("# import numpy", False),
        ("import os  # not numpy", False),
        ("\n" * 200_000 + "import" + " " * 200_000, False),
        (OF_STDOUT.module("import numpy as np\nprint(np.sum([1]))"), True),
        (OF_STDOUT.module("if 1:\n\tfrom numpy import *\n"), True),
        (OF_STDOUT.module("print('numpy')"), False),
    ],
    ids=range(10),
)
def test_which_programs_get_the_zygote_with_numpy(program, imports):
    assert profile_of(program).with_numpy is imports


def test_what_cannot_be_sent_fails_at_once(pool):
    with pytest.raises(TooLarge):
        pool.run_script("x = '" + "x" * (17 << 20) + "'", "", "f")
    assert run(pool, "x = 1", []).loaded


def test_honest_programs_with_threads_generators_and_deep_recursion(pool):
    program = """
        import concurrent.futures, functools, sys
        sys.setrecursionlimit(20000)
        @functools.lru_cache(None)
        def depth(n): return 0 if n == 0 else 1 + depth(n - 1)
        def f(n):
            with concurrent.futures.ThreadPoolExecutor(2) as threads: return sum(threads.map(lambda x: x + 1, range(n)))
        def g(n): return depth(n)
    """
    assert values(run(pool, program, [call(10)])) == [55]
    deep = run(pool, program, [call(3000, name="g")])
    if sys.version_info[:2] == (3, 12):  # which bounds calls through C, here lru_cache's, whatever the program sets
        assert kinds(deep) == ["error"]
    else:
        assert values(deep) == [3000]


@pytest.mark.parametrize(
    "bytes_",
    ["b'x' * 99", "bytes(9)", "struct.pack('>IIc', 0, 5, b'V')", "b'\\xff' * 9", "struct.pack('>IIc', 1000, 2, b'Z')"],
)
def test_a_broken_protocol_fails_the_suite_and_is_counted(pool, bytes_):
    violations = pool.counters()["violations"]
    program = f"import os, struct\ndef f(x):\n  if x == 2: os.write(3, {bytes_})\n  return x"
    assert kinds(run(pool, program, [call(x) for x in range(4)])) == ["error"] * 4
    assert pool.counters()["violations"] == violations + 1


def test_a_child_that_sends_a_byte_at_a_time_is_read_now_and_then(pool, monkeypatch):
    reads = []
    take = FrameBuffer.frames
    monkeypatch.setattr(FrameBuffer, "frames", lambda *arguments: reads.append(1) or take(*arguments))
    drip = """
        import os, time
        def f(frame, seconds):
            end = time.monotonic() + seconds
            for at in range(len(frame)):
                os.write(3, frame[at : at + 1])
            while time.monotonic() < end:
                os.write(3, b'x')
    """
    assert kinds(run(pool, drip, [call(pack(0, VALUE, bytes(1 << 20))[:9], 0.4)])) == ["error"]
    assert len(reads) < 100
    assert values(run(pool, drip, [call(pack(0, VALUE, encode_exact("late")), 9.0)])) == ["late"]


def test_gradings_that_wait_share_their_arguments(pool):
    class Equal:
        def agrees(self, index: int, digest: bytes, seconds: float) -> bool:
            return True

        def accepts(self, index: int, value: object) -> bool:
            return False

    text = "x" * (1 << 20)
    calls, inputs = [call(text)], Inputs([[text]], [1.0])
    slots = [pool.run_calls("import time\ntime.sleep(1.5)", [], reply=Reply.EXACT) for _ in range(pool.slots)]
    tracemalloc.start()
    futures = [pool.run_calls("def f(x): return len(x)", calls, reply=Reply.EXACT) for _ in range(10)]
    batches = [pool.run_batch("def f(x): return len(x)", "f", inputs, Equal(), LIMITS) for _ in range(10)]
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert not any(slot.done() for slot in slots)
    assert held < 1 << 20
    assert [values(future.result(60)) for future in futures] == [[1 << 20]] * 10
    assert {batch.result(60).verdict for batch in batches} == {"pass"}


def test_who_submits_too_much_waits(monkeypatch):
    monkeypatch.setattr(dispatcher, "MAX_QUEUED", 3)
    with SandboxPool(1, LIMITS, isolation="auto") as pool:
        start = time.monotonic()
        futures = [pool.run_calls("import time\ntime.sleep(0.2)", [], reply=Reply.EXACT) for _ in range(8)]
        assert time.monotonic() - start > 0.5
        assert sum(future.done() for future in futures) >= 3
        assert all(future.result(30).loaded for future in futures)
        counters = pool.counters()
        assert counters["gradings"] == 8 + 3  # those that show that the pool works
        assert counters["run_seconds"] > 8 * 0.2
        assert counters["queue_seconds"] > 8 * 0.2


def test_a_callback_that_takes_long_holds_up_no_grading():
    """What awaits verdicts parses what policies wrote: no clock of a program may stand still meanwhile."""
    parsed = threading.Event()
    with SandboxPool(1, LIMITS, isolation="auto") as pool:
        before = pool.counters()["gradings"]
        first = pool.run_calls("import time\ntime.sleep(0.2)", [], reply=Reply.EXACT)
        first.add_done_callback(lambda _: parsed.wait(30))
        second = pool.run_calls("", [], reply=Reply.EXACT)
        wait_until(lambda: pool.counters()["gradings"] == before + 2)
        parsed.set()
        assert second.result(30).loaded


def test_closing_wakes_who_waits_to_submit(monkeypatch):
    monkeypatch.setattr(dispatcher, "MAX_QUEUED", 1)
    pool = SandboxPool(1, LIMITS, isolation="auto")
    with ThreadPoolExecutor(4) as threads:
        waiting = [
            threads.submit(pool.run_calls, "import time\ntime.sleep(9)", [], reply=Reply.EXACT) for _ in range(4)
        ]
        wait_until(lambda: sum(submitted.done() for submitted in waiting) == 2)
        pool.close()
        assert sum(isinstance(submitted.exception(10), RuntimeError) for submitted in waiting) == 2


def test_closing_fails_what_is_left_and_refuses_more():
    pool = SandboxPool(1, LIMITS, isolation="auto")
    futures = [pool.run_calls("import time\ntime.sleep(9)", [], reply=Reply.EXACT) for _ in range(3)]
    pool.close()
    assert all(future.cancelled() or isinstance(future.exception(5), RuntimeError) for future in futures)
    with pytest.raises(RuntimeError, match="closed"):
        pool.run_calls("", [], reply=Reply.EXACT)


def test_cancelled_before_its_turn(pool):
    running = [pool.run_calls("import time\ntime.sleep(2)", [], reply=Reply.EXACT) for _ in range(2)]
    waiting = pool.run_calls("x = 1", [], reply=Reply.EXACT)
    assert waiting.cancel()
    assert all(future.result(30).loaded for future in running)


def test_a_program_cannot_claim_that_it_was_not_confined(pool):
    program = "import os, mmap\ndef f(): os._exit(1)"
    assert kinds(run(pool, program, [call(), call()])) == ["error", "error"]


def test_sleeping_calls_share_one_limit():
    limits = Limits(cpu_seconds_per_test=0.1, cpu_seconds_per_suite=0.5)  # asleep: 2.4 s a call, 4 s the suite
    with SandboxPool(1, limits, isolation="auto") as pool:
        start = time.monotonic()
        result = run(pool, "import time\ndef f(): time.sleep(99)", [call()] * 20)
        assert kinds(result)[0] == "timeout"
        assert kinds(result)[2:] == ["not_run"] * 18
        assert time.monotonic() - start < 10


def test_a_call_that_used_more_than_its_limit_is_late_though_it_answered(monkeypatch):
    """CPU time of several threads, here fifty, passes faster than the time until the limit is looked at."""
    program = "import time\ndef f(seconds):\n  time.sleep(seconds)\n  return 1"
    calls = [call(1.0), call(0.0)]
    with SandboxPool(1, Limits(cpu_seconds_per_test=900.0, cpu_seconds_per_suite=9000.0), isolation="auto") as pool:
        assert kinds(run(pool, program, calls, call_seconds=[1.5] * 2)) == ["value"] * 2
        start = time.monotonic()
        cpu_seconds = "codea1.sandbox.host.zygote.Child.cpu_seconds"
        # None passes after 0.7 s, when the first call sleeps: the second takes none.
        monkeypatch.setattr(cpu_seconds, lambda child: 50 * min(time.monotonic() - start, 0.7))
        assert kinds(run(pool, program, calls, call_seconds=[1.5] * 2)) == ["timeout", "value"]


def test_a_suite_says_no_more_however_many_processes_it_takes(pool):
    program = "import os\ndef f(x):\n  if x % 2: os._exit(0)\n  return 'x' * 300_000"
    result = run(pool, program, [call(x) for x in range(20)])
    assert sum(len(outcome.payload) for outcome in result.outcomes) <= LIMITS.output_bytes + 300 * 20
    assert kinds(result) == ["value", "error"] * 3 + ["too_large", "error"] * 7


def test_a_program_that_closes_its_socket_and_lives_on_is_ended_once(pool):
    gradings = pool.counters()["gradings"]
    program = "import os, time\ndef f():\n  os.close(3)\n  time.sleep(99)"
    start = time.monotonic()
    result = run(pool, program, [call()])
    assert (kinds(result), result.outcomes[0].payload) == (["error"], b"the process closed its socket and went on")
    assert time.monotonic() - start < 3  # where its limit asleep is 4 s
    assert pool.counters()["gradings"] == gradings + 1


def test_the_threads_of_a_child_get_together_what_one_does_and_the_trainer_comes_first(pool):
    """By the kernel's weights: 1.25 to the power of a thread's niceness is what it gives up."""
    program = """
        import os, threading
        def f(n):
            done = threading.Event()
            threads = [threading.Thread(target=done.wait) for _ in range(n)]
            for thread in threads: thread.start()
            niceness = [os.getpriority(os.PRIO_PROCESS, thread.native_id) for thread in threads]
            done.set()
            for thread in threads: thread.join()
            return niceness + [os.getpriority(os.PRIO_PROCESS, 0)]
        """
    own = os.getpriority(os.PRIO_PROCESS, 0)
    for count in (0, 1, 4, 31):
        levels = values(run(pool, program, [call(count)]))[0]
        assert len(set(levels)) == 1
        assert levels[0] == min(19, own + 10 + math.ceil(math.log(count + 1, 1.25)))
    two = [call(2), call(1), call(3)]  # nobody takes back what a child gave up
    assert [each[-1] for each in values(run(pool, program, two))] == [min(19, own + 10 + more) for more in (5, 5, 7)]
