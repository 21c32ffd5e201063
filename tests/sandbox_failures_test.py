"""What fails around programs: processes killed, no room, bugs; no verdict is lost and no process stays behind."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.sandbox import descendants
from codea1.runtime.errors import BadInput
from codea1.sandbox.frames import Reply
from codea1.sandbox.host import ProgramRun, dispatcher
from codea1.sandbox.host.pool import SandboxPool
from codea1.sandbox.host.runs import CallRun
from tests.sandbox_calls import LIMITS, ROOT, call, kinds, run, run_python, values, wait_until

LASTING = replace(LIMITS, cpu_seconds_per_test=60.0, cpu_seconds_per_suite=60.0)


def sandbox_processes(pool: SandboxPool) -> set[int]:
    """Process ids of the pool's zygotes and of all their descendants."""
    return descendants({zygote._process.pid for zygote in pool._dispatcher._zygotes.values()})


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


def is_confined(pid: int) -> bool:
    own, its = (Path(f"/proc/{each}/status").read_text().partition("Seccomp_filters:")[2] for each in ("self", pid))
    return int(its.split()[0]) == int(own.split()[0]) + 2


def kill_zygotes(pool: SandboxPool) -> None:
    """Kills them, and waits until the pool has noticed: for milliseconds a killed one may still take gradings."""
    killed = set(pool._dispatcher._zygotes.values())
    for zygote in killed:
        os.kill(zygote._process.pid, signal.SIGKILL)
    wait_until(lambda: not killed & set(pool._dispatcher._zygotes.values()))


def test_no_process_outlives_its_grading():
    program = """
import threading, time
def f():
    threading.Thread(target=time.sleep, args=(99,)).start()
    time.sleep(1)
"""
    with SandboxPool(1, LASTING, isolation="auto") as pool:
        future = pool.run_calls(program, [call()], reply=Reply.EXACT)
        ended = new_grading_processes(pool, set())
        future.result()
        wait_until(lambda: not any(map(is_alive, ended)))
        future = pool.run_calls("def f():\n  while True: pass", [call()], reply=Reply.EXACT)
        everyone = new_grading_processes(pool, ended) | sandbox_processes(pool)
    assert future.exception() is not None
    assert not [pid for pid in everyone if is_alive(pid)]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_a_killed_trainer(how):
    program = """
        import signal, time
        signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell has in its background ignores it
        from codea1.game.calls import Call
        from codea1.sandbox.frames import Reply
        from codea1.sandbox.host.pool import SandboxPool
        from codea1.values import encode_exact
        pool = SandboxPool(1, isolation="auto")
        sleeps = "import time\\ndef f():\\n  time.sleep(9)"
        pool.run_calls(sleeps, [Call("f", encode_exact(((), {})))], reply=Reply.EXACT)
        while not any(child.pid for child in list(pool._dispatcher._owners)): time.sleep(0.01)
        print(*[z._process.pid for z in pool._dispatcher._zygotes.values()], flush=True)
        time.sleep(60)
    """
    command, quiet = [sys.executable, "-c", textwrap.dedent(program)], subprocess.DEVNULL
    trainer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=quiet, cwd=ROOT)
    zygotes = set(map(int, trainer.stdout.readline().split()))
    everyone = descendants(zygotes)
    assert len(everyone) > len(zygotes)
    trainer.send_signal(how)
    trainer.communicate(timeout=60)
    wait_until(lambda: not [pid for pid in everyone if is_alive(pid)])


def test_a_killed_child_is_replaced_and_its_grading_runs_again():
    program = "import time\ndef f():\n  time.sleep(2)\n  return 2"
    with SandboxPool(1, LIMITS, isolation="auto") as pool:
        for begin in (
            lambda: pool.run_calls(program, [call()], reply=Reply.EXACT),
            lambda: pool.run_script("def check(candidate): assert candidate() == 2", program, "f"),
        ):
            wait_until(lambda: not grading_processes(pool))  # a result may come before its process has gone
            future = begin()
            for pid in new_grading_processes(pool, set()):
                with suppress(ProcessLookupError):  # it has ended: this process was late, on a busy machine
                    os.kill(pid, signal.SIGKILL)
            result = future.result(30)
            assert getattr(result, "verdict", "pass") == "pass", result
            assert "error" not in kinds(result) if isinstance(result, ProgramRun) else True


def test_a_lost_zygote_is_replaced_and_its_grading_runs_again():
    with SandboxPool(1, LIMITS, isolation="auto") as pool:
        kill_zygotes(pool)
        assert values(run(pool, "def f(): return 1", [call()])) == [1]
        future = pool.run_calls("import time\ndef f():\n  time.sleep(1)\n  return 2", [call()], reply=Reply.EXACT)
        wait_until(lambda: grading_processes(pool))
        kill_zygotes(pool)
        assert values(future.result(30)) == [2]
        assert pool.counters()["zygotes_lost"] >= 2
        assert pool.counters()["infra"] == 0


def test_a_grading_whose_zygote_is_lost_twice_is_an_infrastructure_failure():
    with SandboxPool(1, LIMITS, isolation="auto") as pool:
        future = pool.run_calls("import time\ndef f():\n  time.sleep(3)", [call(), call()], reply=Reply.EXACT)
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
        future = pool.run_calls("import time\ndef f():\n  time.sleep(3)", [call()], reply=Reply.EXACT)
        killed: set[int] = set()
        for zygote in (zygote_first, False):
            fresh = new_grading_processes(pool, killed)
            wait_until(lambda pids=fresh: all(map(is_confined, pids)))  # or it is the sandbox's failure
            if zygote:
                kill_zygotes(pool)
            else:
                for pid in fresh:
                    os.kill(pid, signal.SIGKILL)
            killed |= fresh
        assert kinds(future.result(30)) == [outcome]


def test_gradings_are_lost_only_alone():
    """Two losses beside others say nothing: a third attempt, alone, does."""
    with SandboxPool(2, LIMITS, isolation="auto") as pool:
        futures = [
            pool.run_calls("import time\ndef f(x):\n  time.sleep(1)\n  return x", [call(x)], reply=Reply.EXACT)
            for x in range(2)
        ]
        killed: set[int] = set()
        for _ in range(2):
            wait_until(lambda known=frozenset(killed): len(grading_processes(pool) - known) == 2)
            killed |= grading_processes(pool)
            kill_zygotes(pool)
        assert [values(future.result(30)) for future in futures] == [[0], [1]]
        assert pool.counters()["infra"] == 0


def test_a_grading_that_waited_for_cores_is_judged_again_alone(monkeypatch):
    """It ran out of time, not of CPU time, beside others: without this they would decide its verdict."""
    waits = iter([1.0])  # seconds for which its first child found no core, and then none

    def see_waiting(child):
        child.waited = max(child.waited, next(waits, 0.0))
        return False

    monkeypatch.setattr("codea1.sandbox.host.zygote.Child.see_waiting", see_waiting)
    limits = replace(LIMITS, cpu_seconds_per_test=0.1)  # 2.4 s of time
    with SandboxPool(2, limits, isolation="auto") as pool:
        sleeps = pool.run_calls("import time\ndef f():\n  time.sleep(60)", [call()], reply=Reply.EXACT)
        assert kinds(sleeps.result(30)) == ["timeout"]
        assert pool.counters()["starved"] == 1
        again = pool.run_calls("import time\ndef f():\n  time.sleep(61)", [call()], reply=Reply.EXACT)
        assert kinds(again.result(30)) == ["timeout"]  # it slept: judged once
        assert pool.counters()["starved"] == 1


def test_machines_that_cannot_confine_are_refused(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("codea1.sandbox.host.zygote.can_change_user", lambda uid: True)
        patch.setattr("codea1.sandbox.host.zygote.FIRST_UNPRIVILEGED_UID", -7)  # no user has it
        with pytest.raises(BadInput, match="cannot confine untrusted code on this machine"):
            SandboxPool(1)
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(machine="riscv64"))
    with pytest.raises(BadInput, match="processor"):
        SandboxPool(1)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(BadInput, match="Linux container"):
        SandboxPool(1)


def test_a_shortage_of_descriptors_costs_time_and_no_verdict():
    program = """
        import os, resource, time
        from codea1.sandbox.frames import Reply
        from codea1.sandbox.host.pool import SandboxPool
        from tests.sandbox_calls import LIMITS, call, values
        with SandboxPool(2, LIMITS, isolation="auto") as pool:
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, hard))
            futures = [pool.run_calls(f"def f(x): return x + {i}", [call(1)], reply=Reply.EXACT) for i in range(50)]
            time.sleep(0.7)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            print([values(future.result(60)) for future in futures] == [[1 + i] for i in range(50)])
            print(pool.counters()["infra"], pool.counters()["restarts"])
    """
    done = run_python(sys.executable, "-c", textwrap.dedent(program))  # whose limit on descriptors is its own
    assert done.stdout.split() == ["True", "0", "0"], done


@pytest.fixture
def zygote_module(tmp_path, monkeypatch):
    """Makes a module the zygotes' program, and says where it is found: its source changes how they work."""

    def use(source: str) -> None:
        (tmp_path / "changed_zygote.py").write_text(
            f"from codea1.sandbox.child.zygote import start\n{textwrap.dedent(source)}"
        )
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
        futures = [pool.run_calls(f"def f(x): return x + {i}", [call(1)], reply=Reply.EXACT) for i in range(12)]
        scripts = [pool.run_script("def check(c): assert c(1) == 1", "def f(x): return x", "f") for _ in range(6)]
        assert [values(future.result(60)) for future in futures] == [[1 + i] for i in range(12)]
        assert {script.result(60).verdict for script in scripts} == {"pass"}
        counters = pool.counters()
        assert (counters["zygotes_lost"], counters["restarts"], counters["infra"]) == (0, 0, 0)


def test_a_machine_without_room_for_long_loses_the_grading(monkeypatch):
    monkeypatch.setattr(dispatcher, "_MAX_SHORTAGE", 0.5)
    with SandboxPool(1, LIMITS, isolation="auto") as pool:
        monkeypatch.setattr("codea1.sandbox.host.conversation.socket.socketpair", no_room)
        result = pool.run_calls("", [call()], reply=Reply.EXACT).result(30)
        assert result.loaded is None
        assert "Too many open files" in result.load_error


def no_room(*_: object) -> None:
    raise OSError(24, "Too many open files")


CANNOT_CONFINE = """
from codea1.sandbox.isolation import limits
confine = limits.ChildLimits.confine
def broken(self, file_access, cpu_seconds, memory_bytes):
    {condition}: raise OSError(13, "the kernel changed its mind")
    confine(self, file_access, cpu_seconds, memory_bytes)
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
        result = pool.run_calls("def f(): return 1", [call()], reply=Reply.EXACT, hash_seed=1).result(30)
        assert (result.loaded, kinds(result)) == (None, ["infra"])
        assert "the kernel changed its mind" in result.load_error
        assert pool.run_script("def check(c): c()", "def f(): pass", "f").result(30).verdict == "pass"


def test_a_machine_that_stands_still_is_nobodys_time(monkeypatch):
    """The dispatcher is held up, as by a pause of the machine; what sleeps then is asked for its answer after that."""
    sleeper = "import time\ndef f():\n  time.sleep(3.2)\n  return 1"
    with SandboxPool(2, LIMITS, isolation="auto") as pool:
        sleeping = pool.run_calls(sleeper, [call()], reply=Reply.EXACT, call_seconds=[0.1])  # its wall limit is 2.4 s
        wait_until(lambda: grading_processes(pool))
        hold_up = iter([lambda: time.sleep(2.7)])
        admit = pool._dispatcher._admit
        monkeypatch.setattr(pool._dispatcher, "_admit", lambda: next(hold_up, admit)())
        assert values(sleeping.result(30)) == [1]
        again = pool.run_calls(sleeper.replace("3.2", "60"), [call()], reply=Reply.EXACT, call_seconds=[0.1])
        assert kinds(again.result(30)) == ["timeout"]


@pytest.mark.parametrize("with_child", [True, False])
def test_a_bug_that_returns_costs_the_grading_that_has_it_and_no_zygote(monkeypatch, capfd, with_child):
    ask_child = CallRun._ask_child

    def failing(run, task):
        is_poisoned = any(b"poison" in each.arguments for each in run.calls)
        if with_child or not is_poisoned:
            yield from ask_child(run, task)
        if is_poisoned:
            raise KeyError("a bug")

    with SandboxPool(2, LIMITS, isolation="auto") as pool:
        monkeypatch.setattr(CallRun, "_ask_child", failing)
        poisoned = [pool.run_calls("def f(x): return x", [call("poison")], reply=Reply.EXACT) for _ in range(5)]
        honest = [pool.run_calls("def f(x): return x", [call(i)], reply=Reply.EXACT) for i in range(20)]
        assert {kinds(each.result(30))[0] for each in poisoned} == {"infra"}
        assert [values(each.result(30)) for each in honest] == [[i] for i in range(20)]
        assert pool.counters()["zygotes_lost"] == 0
    assert "a bug" in capfd.readouterr().err


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
        future = pool.run_calls("def f(): return 1", [call()], reply=Reply.EXACT)
        if ends:
            pool._dispatcher._thread.join(60)
            with pytest.raises(RuntimeError):
                pool.run_calls("", [], reply=Reply.EXACT).result(30)
        else:
            assert values(future.result(60)) == [1]
            assert pool.counters()["restarts"] == 1
    assert "a bug" in capfd.readouterr().err


def test_where_nobody_counts_threads_there_are_none(zygote_module):
    zygote_module(
        """
        from codea1.sandbox.isolation import seccomp
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
        from codea1.sandbox.isolation import limits
        limits.MAX_QUESTIONS = 50
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


def test_where_there_is_room_for_one_process_a_check_script_is_given_up(zygote_module, monkeypatch):
    monkeypatch.setattr(dispatcher, "_MAX_SHORTAGE", 1.0)
    zygote_module(
        """
        import errno, os
        from codea1.sandbox.child import zygote
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
            pool.run_calls(f"x = {i}", [], reply=Reply.EXACT).result(30)
        script = pool.run_script("def check(c): c()", "def f(): pass", "f").result(30)
        assert (script.verdict, script.detail) == ("infra", "no process could be started for it")
