"""The pool: calls answered in order, hangs and deaths that cost one call only, and processes that never stay behind."""

import contextlib
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from codea1.game.tests import Call
from codea1.runtime.errors import BadInput
from codea1.sandbox.host import dispatcher
from codea1.sandbox.host import pool as pool_module
from codea1.sandbox.host.calls import CallRun
from codea1.sandbox.host.conversation import profile_of
from codea1.sandbox.host.pool import Limits, ProgramRun, SandboxPool
from codea1.sandbox.isolation import limits
from codea1.values import TooLarge, decode_exact, encode_canonical, encode_exact

LIMITS = Limits(cpu_seconds_per_test=0.5, cpu_seconds_per_suite=2.0, memory_bytes=256 << 20, output_bytes=1 << 20)


@pytest.fixture(scope="module")
def pool():
    with SandboxPool(2, LIMITS, isolation="auto") as pool:
        yield pool


def call(*args: object, name: str = "f", **kwargs: object) -> Call:
    return Call(name, encode_exact((args, kwargs)))


def run(pool: SandboxPool, program: str, calls: Sequence[Call], reply: str = "exact", **options: object) -> ProgramRun:
    return pool.run_calls(textwrap.dedent(program), calls, reply=reply, **options).result(60)


def values(run: ProgramRun) -> list[object]:
    assert [outcome.kind for outcome in run.outcomes] == ["value"] * len(run.outcomes), run
    return [decode_exact(outcome.payload) for outcome in run.outcomes]


def kinds(run: ProgramRun) -> list[str]:
    return [outcome.kind for outcome in run.outcomes]


def test_calls_in_order_with_exact_types(pool):
    result = run(pool, "def f(*a, **k): return a, k", [call(1, 1.0, True, [(2,)]), call(k={1, 2}), call()])
    assert result.loaded
    assert values(result) == [((1, 1.0, True, [(2,)]), {}), ((), {"k": {1, 2}}), ((), {})]
    assert type(values(result)[0][0][2]) is bool


def test_canonical_reply(pool):
    result = run(pool, "def f(x): return {x: [True, (2.0,)]}", [call(1.0)], "canonical")
    assert result.outcomes[0].payload == encode_canonical({1: [1, (2,)]})


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
    result = pool.run_calls(program, [call(), call()], reply="exact").result(60)
    assert result.loaded is False
    assert result.load_error.startswith(error) or error == "SyntaxError"
    assert set(kinds(result)) == ({"timeout"} if "long" in error else {"error"})


def test_a_program_without_calls_is_still_loaded(pool):
    assert run(pool, "x = 1", []).loaded is True
    assert run(pool, "x = ", []).loaded is False


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


def test_every_death_and_hang_costs_only_itself(pool):
    program = "import os\ndef f(x):\n  if x % 2: os._exit(0)\n  return x"
    assert kinds(run(pool, program, [call(x) for x in range(12)])) == ["value", "error"] * 6


def test_beyond_the_suite_budget_nothing_runs(pool):
    result = run(pool, "def f(x):\n  while x: pass\n  return 1", [call(x) for x in (0, 1, 1, 1, 1, 1, 1, 0)])
    assert kinds(result)[:4] == ["value", "timeout", "timeout", "timeout"]
    assert kinds(result)[-2:] == ["not_run", "not_run"]
    assert 1.5 < result.cpu_seconds < 4


def test_call_limits_may_be_tighter_but_never_wider(pool):
    program = "import time\ndef f():\n  start = time.process_time()\n  while time.process_time() < start + 0.3: pass"
    calls = [call(), call()]
    assert kinds(run(pool, program, calls, call_seconds=[0.1, 9.0])) == ["timeout", "value"]
    assert kinds(run(pool, "def f():\n  while True: pass", [call()], call_seconds=[900.0])) == ["timeout"]


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
    ],
    ids=range(7),
)
def test_which_programs_get_the_zygote_with_numpy(program, imports):
    assert profile_of(program).with_numpy is imports


def test_what_cannot_be_sent_fails_at_once(pool):
    with pytest.raises(TooLarge):
        pool.run_script("x = '" + "x" * (17 << 20) + "'", "", "f")
    assert run(pool, "x = 1", []).loaded


def test_an_unimported_standard_module_can_be_imported(pool):
    assert values(run(pool, "def f():\n  import colorsys\n  return colorsys.ONE_THIRD", [call()])) == [1 / 3]


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
    assert values(run(pool, program, [call(10), call(3000, name="g")])) == [55, 3000]


def test_special_floats(pool):
    nan, inf = values(run(pool, "def f(x): return x", [call(math.nan), call(-math.inf)]))
    assert math.isnan(nan)
    assert inf == -math.inf


def sandbox_processes(pool: SandboxPool) -> set[int]:
    """Process ids of the pool's zygotes and of all their descendants."""
    zygotes = {zygote._process.pid for zygote in pool._dispatcher._zygotes.values()}
    return zygotes | descendants_of(zygotes)


def descendants_of(ancestors: set[int]) -> set[int]:
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found: set[int] = set()
    while more := {pid for pid, parent in parents.items() if parent in ancestors | found} - found:
        found |= more
    return found


def grading_processes(pool: SandboxPool) -> set[int]:
    return {child.pid for child in list(pool._dispatcher._owners)} - {0}


def new_grading_processes(pool: SandboxPool, known: set[int]) -> set[int]:
    wait_until(lambda: grading_processes(pool) - known)
    return grading_processes(pool) - known


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(condition, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def kill_zygotes(pool: SandboxPool) -> None:
    for zygote in list(pool._dispatcher._zygotes.values()):
        os.kill(zygote._process.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "bytes_",
    ["b'x' * 99", "bytes(9)", "struct.pack('>IIc', 0, 5, b'V')", "b'\\xff' * 9", "struct.pack('>IIc', 1000, 2, b'Z')"],
)
def test_a_broken_protocol_fails_the_suite_and_is_counted(pool, bytes_):
    violations = pool.counters()["violations"]
    program = f"import os, struct\ndef f(x):\n  if x == 2: os.write(3, {bytes_})\n  return x"
    assert kinds(run(pool, program, [call(x) for x in range(4)])) == ["error"] * 4
    assert pool.counters()["violations"] == violations + 1


def test_no_process_outlives_its_grading():
    program = """
import threading, time
def f():
    threading.Thread(target=time.sleep, args=(99,)).start()
    time.sleep(1)
"""
    with SandboxPool(1, LIMITS, isolation="auto") as pool:
        future = pool.run_calls(program, [call()], reply="exact")
        ended = new_grading_processes(pool, set())
        future.result()
        wait_until(lambda: not any(map(is_alive, ended)))
        future = pool.run_calls("def f():\n  while True: pass", [call()], reply="exact")
        everyone = new_grading_processes(pool, ended) | sandbox_processes(pool)
    assert future.exception() is not None
    assert not [pid for pid in everyone if is_alive(pid)]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_a_killed_trainer(how):
    program = """
        import time
        from codea1.game.tests import Call
        from codea1.sandbox.host.pool import SandboxPool
        from codea1.values import encode_exact
        pool = SandboxPool(1, isolation="auto")
        pool.run_calls("def f():\\n  while True: pass", [Call("f", encode_exact(((), {})))], reply="exact")
        while not any(child.pid for child in list(pool._dispatcher._owners)): time.sleep(0.01)
        print(*[z._process.pid for z in pool._dispatcher._zygotes.values()], flush=True)
        time.sleep(60)
    """
    root = Path(__file__).parents[1]
    trainer = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=root
    )
    zygotes = set(map(int, trainer.stdout.readline().split()))
    everyone = zygotes | descendants_of(zygotes)
    assert len(everyone) > len(zygotes)
    trainer.send_signal(how)
    trainer.communicate()
    wait_until(lambda: not [pid for pid in everyone if is_alive(pid)])


def test_a_killed_child_is_replaced_and_its_grading_runs_again():
    program = "import time\ndef f():\n  time.sleep(0.5)\n  return 2"
    with SandboxPool(1, LIMITS, isolation="auto") as pool:
        for future in (
            pool.run_calls(program, [call()], reply="exact"),
            pool.run_script("def check(candidate): assert candidate() == 2", program, "f"),
        ):
            wait_until(lambda: grading_processes(pool))
            for pid in grading_processes(pool):
                os.kill(pid, signal.SIGKILL)
            result = future.result(30)
            assert getattr(result, "verdict", "pass") == "pass", result
            assert "error" not in kinds(result) if isinstance(result, ProgramRun) else True


def test_a_lost_zygote_is_replaced_and_its_grading_runs_again():
    with SandboxPool(1, LIMITS, isolation="auto") as pool:
        kill_zygotes(pool)
        assert values(run(pool, "def f(): return 1", [call()])) == [1]
        future = pool.run_calls("import time\ndef f():\n  time.sleep(1)\n  return 2", [call()], reply="exact")
        wait_until(lambda: grading_processes(pool))
        kill_zygotes(pool)
        assert values(future.result(30)) == [2]
        assert pool.counters()["zygotes_lost"] >= 2
        assert pool.counters()["infra"] == 0


def test_a_grading_whose_zygote_is_lost_twice_is_an_infrastructure_failure():
    with SandboxPool(1, LIMITS, isolation="auto") as pool:
        future = pool.run_calls("import time\ndef f():\n  time.sleep(3)", [call(), call()], reply="exact")
        killed: set[int] = set()
        for _ in range(2):
            killed |= new_grading_processes(pool, killed)
            kill_zygotes(pool)
        result = future.result(30)
        assert result.loaded is None
        assert kinds(result) == ["infra", "infra"]
        assert pool.counters()["infra"] == 1
        assert values(run(pool, "def f(): return 1", [call()])) == [1]


@pytest.mark.parametrize(("zygote_first", "outcome"), [(True, "infra"), (False, "error")])
def test_a_program_is_to_blame_for_kills_alone(zygote_first, outcome):
    with SandboxPool(1, LIMITS, isolation="auto") as pool:
        future = pool.run_calls("import time\ndef f():\n  time.sleep(3)", [call()], reply="exact")
        killed: set[int] = set()
        for zygote in (zygote_first, False):
            fresh = new_grading_processes(pool, killed)
            time.sleep(0.3)  # a child that is killed before it is confined is the sandbox's failure
            if zygote:
                kill_zygotes(pool)
            else:
                for pid in fresh:
                    os.kill(pid, signal.SIGKILL)
            killed |= fresh
        assert kinds(future.result(30)) == [outcome]


def test_a_bug_in_the_dispatcher_costs_no_verdict(monkeypatch, capfd):
    take, bugs = CallRun._take, iter([ValueError("a bug")])

    def failing(run, *arguments):
        for bug in bugs:
            raise bug
        return take(run, *arguments)

    with SandboxPool(2, LIMITS, isolation="auto") as pool:
        monkeypatch.setattr(CallRun, "_take", failing)
        program = "import time\ndef f(x):\n  time.sleep(0.3)\n  return x"
        futures = [pool.run_calls(program, [call(x)], reply="exact") for x in range(4)]
        assert [values(future.result(30)) for future in futures] == [[0], [1], [2], [3]]
        assert pool.counters()["restarts"] == 1
    assert "a bug" in capfd.readouterr().err


def test_who_submits_too_much_waits(monkeypatch):
    monkeypatch.setattr(dispatcher, "MAX_QUEUED", 3)
    with SandboxPool(1, LIMITS, isolation="auto") as pool:
        start = time.monotonic()
        futures = [pool.run_calls("import time\ntime.sleep(0.2)", [], reply="exact") for _ in range(8)]
        assert time.monotonic() - start > 0.5
        assert sum(future.done() for future in futures) >= 3
        assert all(future.result(30).loaded for future in futures)
        counters = pool.counters()
        assert counters["gradings"] == 8 + 3  # those that show that the pool works
        assert counters["run_seconds"] > 8 * 0.2
        assert counters["queue_seconds"] > 8 * 0.2


def test_closing_wakes_who_waits_to_submit(monkeypatch):
    monkeypatch.setattr(dispatcher, "MAX_QUEUED", 1)
    pool = SandboxPool(1, LIMITS, isolation="auto")
    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(pool.run_calls, "import time\ntime.sleep(9)", [], reply="exact") for _ in range(4)]
        wait_until(lambda: sum(submitted.done() for submitted in waiting) == 2)
        pool.close()
        assert sum(isinstance(submitted.exception(10), RuntimeError) for submitted in waiting) == 2


def test_closing_fails_what_is_left_and_refuses_more():
    pool = SandboxPool(1, LIMITS, isolation="auto")
    futures = [pool.run_calls("import time\ntime.sleep(9)", [], reply="exact") for _ in range(3)]
    pool.close()
    assert all(future.cancelled() or isinstance(future.exception(5), RuntimeError) for future in futures)
    with pytest.raises(RuntimeError, match="closed"):
        pool.run_calls("", [], reply="exact")


def test_cancelled_before_its_turn(pool):
    running = [pool.run_calls("import time\ntime.sleep(0.5)", [], reply="exact") for _ in range(2)]
    waiting = pool.run_calls("x = 1", [], reply="exact")
    assert waiting.cancel()
    assert all(future.result(30).loaded for future in running)


def test_machines_that_cannot_confine_are_refused(monkeypatch):
    monkeypatch.setattr(pool_module, "why_unsupported", lambda: "the sandbox needs Linux")
    with pytest.raises(BadInput, match="needs Linux"):
        SandboxPool(1)


def test_a_zygote_that_cannot_confine_itself_says_why(monkeypatch):
    monkeypatch.setattr("codea1.sandbox.host.zygote.can_change_user", lambda uid: True)
    monkeypatch.setattr("codea1.sandbox.host.zygote.FIRST_UNPRIVILEGED_UID", -7)  # no user has it
    with pytest.raises(BadInput, match="cannot confine untrusted code on this machine"):
        SandboxPool(1)


def test_unsupported_systems_are_named(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "Linux container" in limits.why_unsupported()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(machine="riscv64"))
    assert "processor" in limits.why_unsupported()


def in_a_process(program: str, **popen: object) -> subprocess.CompletedProcess:
    """Runs Python source that finds `call` and SandboxPool; its limits and descriptors are its own."""
    head = "from tests.sandbox_pool_test import *\n"
    root = Path(__file__).parents[1]
    command = [sys.executable, "-c", head + textwrap.dedent(program)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, **popen)


def test_a_shortage_of_descriptors_costs_time_and_no_verdict():
    done = in_a_process(
        """
        import resource
        with SandboxPool(2, LIMITS, isolation="auto") as pool:
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, hard))
            futures = [pool.run_calls(f"def f(x): return x + {i}", [call(1)], reply="exact") for i in range(50)]
            time.sleep(0.7)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            print([values(future.result(60)) for future in futures] == [[1 + i] for i in range(50)])
            print(pool.counters()["infra"], pool.counters()["restarts"])
        """
    )
    assert done.stdout.split() == ["True", "0", "0"], done


@pytest.fixture
def zygote_module(tmp_path, monkeypatch):
    """Makes a module the zygotes' program, and says where it is found: its source changes how they work."""

    def use(source: str) -> None:
        (tmp_path / "changed_zygote.py").write_text(textwrap.dedent(source))
        monkeypatch.setattr("codea1.sandbox.host.zygote.MODULE", "changed_zygote")
        spawn = subprocess.Popen

        def with_path(*arguments: object, env: dict[str, str], **options: object) -> subprocess.Popen:
            return spawn(*arguments, env={**env, "PYTHONPATH": f"{env['PYTHONPATH']}:{tmp_path}"}, **options)

        monkeypatch.setattr("codea1.sandbox.host.zygote.subprocess.Popen", with_path)

    return use


def test_forks_that_fail_are_tried_again_later(zygote_module):
    zygote_module(
        """
        import errno, os
        from codea1.sandbox.child.zygote import start
        fork, count = os.fork, 0
        def failing():
            global count
            count += 1
            if count % 3 == 0:
                raise OSError(errno.EAGAIN, "no room")
            return fork()
        os.fork = failing
        """
    )
    with SandboxPool(2, LIMITS, isolation="no_namespaces") as pool:
        futures = [pool.run_calls(f"def f(x): return x + {i}", [call(1)], reply="exact") for i in range(12)]
        scripts = [pool.run_script("def check(c): assert c(1) == 1", "def f(x): return x", "f") for _ in range(6)]
        assert [values(future.result(60)) for future in futures] == [[1 + i] for i in range(12)]
        assert {script.result(60).verdict for script in scripts} == {"pass"}
        counters = pool.counters()
        assert (counters["zygotes_lost"], counters["restarts"], counters["infra"]) == (0, 0, 0)


def test_a_machine_without_room_for_long_loses_the_grading(monkeypatch):
    monkeypatch.setattr(dispatcher, "_MAX_SHORTAGE", 0.5)
    with SandboxPool(1, LIMITS, isolation="auto") as pool:
        monkeypatch.setattr("codea1.sandbox.host.conversation.socket.socketpair", no_room)
        result = pool.run_calls("", [call()], reply="exact").result(30)
        assert result.loaded is None
        assert "Too many open files" in result.load_error


def no_room(*_: object) -> None:
    raise OSError(24, "Too many open files")


CANNOT_CONFINE = """
from codea1.sandbox.isolation import limits
from codea1.sandbox.child.zygote import start
confine, count = limits.ChildLimits.confine, 0
def broken(self, place, cpu_seconds, memory_bytes):
    {condition}: raise OSError(13, "the kernel changed its mind")
    confine(self, place, cpu_seconds, memory_bytes)
limits.ChildLimits.confine = broken
"""


def test_a_child_that_cannot_confine_itself_runs_nothing_and_says_why(zygote_module):
    zygote_module(CANNOT_CONFINE.format(condition="if True"))
    with pytest.raises(BadInput, match=r"a child could not confine itself: .*the kernel changed its mind"):
        SandboxPool(1, LIMITS, isolation="no_namespaces")


def test_what_a_child_cannot_do_is_the_sandboxs_failure(zygote_module):
    """Not the program's, and not that of a check script, which ends with the same status."""
    zygote_module(CANNOT_CONFINE.format(condition="import os\n    if os.environ['PYTHONHASHSEED'] == '1'"))
    with SandboxPool(1, LIMITS, isolation="no_namespaces") as pool:
        result = pool.run_calls("def f(): return 1", [call()], reply="exact", hash_seed=1).result(30)
        assert (result.loaded, kinds(result)) == (None, ["infra"])
        assert "the kernel changed its mind" in result.load_error
        assert pool.run_script("def check(c): c()", "def f(): pass", "f").result(30).verdict == "pass"


def test_a_program_cannot_claim_that_it_was_not_confined(pool):
    program = "import os, mmap\ndef f(): os._exit(1)"
    assert kinds(run(pool, program, [call(), call()])) == ["error", "error"]


def test_a_machine_that_stands_still_is_nobodys_time():
    """The dispatcher is held up, as by a pause of the machine; what sleeps then is asked for its answer after that."""
    sleeper = "import time\ndef f():\n  time.sleep(3.2)\n  return 1"
    with SandboxPool(2, LIMITS, isolation="auto") as pool:
        sleeping = pool.run_calls(sleeper, [call()], reply="exact", call_seconds=[0.1])  # its wall limit is 2.4 s
        wait_until(lambda: grading_processes(pool))
        pool.run_calls("", [], reply="exact").add_done_callback(lambda _: time.sleep(2.7))
        assert values(sleeping.result(30)) == [1]
        again = pool.run_calls(sleeper, [call()], reply="exact", call_seconds=[0.1])
        assert kinds(again.result(30)) == ["timeout"]


def test_sleeping_calls_share_one_limit():
    limits = Limits(cpu_seconds_per_test=0.1, cpu_seconds_per_suite=0.5)  # asleep: 2.4 s a call, 4 s the suite
    with SandboxPool(1, limits, isolation="auto") as pool:
        start = time.monotonic()
        result = run(pool, "import time\ndef f(): time.sleep(99)", [call()] * 20)
        assert kinds(result) == ["timeout"] + ["not_run"] * 19
        assert time.monotonic() - start < 10


def test_a_call_that_used_more_than_its_limit_is_late_though_it_answered(monkeypatch):
    """CPU time of several threads, here five, passes faster than the time until the limit is looked at."""
    program = "import time\ndef f(seconds):\n  time.sleep(seconds)\n  return 1"
    calls = [call(0.3), call(0.0)]
    with SandboxPool(1, Limits(cpu_seconds_per_test=9.0, cpu_seconds_per_suite=90.0), isolation="auto") as pool:
        assert kinds(run(pool, program, calls, call_seconds=[0.5] * 2)) == ["value"] * 2
        start = time.monotonic()
        cpu_seconds = "codea1.sandbox.host.zygote.Child.cpu_seconds"
        monkeypatch.setattr(cpu_seconds, lambda child: 5 * (time.monotonic() - start))
        assert kinds(run(pool, program, calls, call_seconds=[0.5] * 2)) == ["timeout", "value"]


@pytest.mark.parametrize("with_child", [True, False])
def test_a_bug_that_returns_costs_the_grading_that_has_it_and_no_zygote(monkeypatch, capfd, with_child):
    ask_child = CallRun._ask_child

    def failing(run, task):
        is_poisoned = any(b"poison" in frame for frame in run.calls)
        if with_child or not is_poisoned:
            yield from ask_child(run, task)
        if is_poisoned:
            raise KeyError("a bug")

    with SandboxPool(2, LIMITS, isolation="auto") as pool:
        monkeypatch.setattr(CallRun, "_ask_child", failing)
        poisoned = [pool.run_calls("def f(x): return x", [call("poison")], reply="exact") for _ in range(5)]
        honest = [pool.run_calls("def f(x): return x", [call(i)], reply="exact") for i in range(20)]
        assert {kinds(each.result(30))[0] for each in poisoned} == {"infra"}
        assert [values(each.result(30)) for each in honest] == [[i] for i in range(20)]
        assert pool.counters()["zygotes_lost"] == 0
    assert "a bug" in capfd.readouterr().err


def test_a_suite_says_no_more_however_many_processes_it_takes(pool):
    program = "import os\ndef f(x):\n  if x % 2: os._exit(0)\n  return 'x' * 300_000"
    result = run(pool, program, [call(x) for x in range(20)])
    assert sum(len(outcome.payload) for outcome in result.outcomes) <= LIMITS.output_bytes + 300 * 20
    assert kinds(result) == ["value", "error"] * 3 + ["too_large", "error"] * 7


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # which is the dispatcher's end
@pytest.mark.parametrize(("bugs", "ends"), [(1, False), (4, True)])
def test_a_bug_outside_of_any_grading(monkeypatch, capfd, bugs, ends):
    left = iter(range(bugs))
    with SandboxPool(1, LIMITS, isolation="auto") as pool:
        advance_due = pool._dispatcher._advance_due

        def failing() -> float:
            if next(left, None) is not None:
                raise ValueError("a bug")
            return advance_due()

        monkeypatch.setattr(pool._dispatcher, "_advance_due", failing)
        future = pool.run_calls("def f(): return 1", [call()], reply="exact")
        if ends:
            pool._dispatcher._thread.join(60)
            with pytest.raises(RuntimeError):
                pool.run_calls("", [], reply="exact").result(30)
        else:
            assert values(future.result(60)) == [1]
            assert pool.counters()["restarts"] == 1
    assert "a bug" in capfd.readouterr().err


def test_where_nobody_counts_threads_there_are_none(zygote_module):
    zygote_module(
        """
        from codea1.sandbox.isolation import seccomp
        from codea1.sandbox.child.zygote import start
        seccomp.Filter.install_with_listener = lambda self: None
        """
    )
    with SandboxPool(1, LIMITS, isolation="no_namespaces") as pool:
        assert not pool.has_threads
        assert "cannot start threads" in pool.isolation_note
        program = "import threading\ndef f(): threading.Thread(target=len, args=['']).start()"
        assert run(pool, program, [call()]).outcomes[0].payload == b"RuntimeError: can't start new thread"


def test_questions_of_threads_are_counted(monkeypatch, zygote_module):
    """Each takes CPU time of the zygote: a child that asks without end is killed, and not only when its time is up."""
    zygote_module(
        """
        from codea1.sandbox.child.zygote import start
        from codea1.sandbox.isolation import threads
        threads.MAX_QUESTIONS = 50
        """
    )
    program = """
        import threading
        def f(count):
            for _ in range(count):
                thread = threading.Thread(target=int)
                thread.start()
                thread.join()
            return count
    """
    with SandboxPool(1, LIMITS, isolation="no_namespaces") as pool:
        assert kinds(run(pool, program, [call(20), call(40), call(1)])) == ["value", "error", "value"]


def test_a_program_that_closes_its_socket_and_lives_on_is_ended_once(pool):
    gradings = pool.counters()["gradings"]
    program = "import os, time\ndef f():\n  os.close(3)\n  time.sleep(99)"
    start = time.monotonic()
    result = run(pool, program, [call()])
    assert (kinds(result), result.outcomes[0].payload) == (["error"], b"the process closed its socket and went on")
    assert time.monotonic() - start < 3  # where its limit asleep is 4 s
    assert pool.counters()["gradings"] == gradings + 1


def test_where_there_is_room_for_one_process_a_check_script_is_given_up(zygote_module, monkeypatch):
    monkeypatch.setattr(dispatcher, "_MAX_SHORTAGE", 1.0)
    zygote_module(
        """
        import errno, os
        from codea1.sandbox.child import zygote
        from codea1.sandbox.child.zygote import start
        begin, begun = zygote._Zygote.start, []
        def start_one(self, token, fds, cpu_seconds, memory_bytes):
            begun.append(token)
            if len(self.children) and len(begun) > 10:
                self.free_slots, free = [], self.free_slots
                begin(self, token, fds, cpu_seconds, memory_bytes)
                self.free_slots = free
            else:
                begin(self, token, fds, cpu_seconds, memory_bytes)
        zygote._Zygote.start = start_one
        """
    )
    with SandboxPool(1, LIMITS, isolation="no_namespaces") as pool:
        for i in range(8):
            pool.run_calls(f"x = {i}", [], reply="exact").result(30)
        script = pool.run_script("def check(c): c()", "def f(): pass", "f").result(30)
        assert (script.verdict, script.detail) == ("infra", "no process could be started for it")
