"""When a host joins others, what it tells them, and what a host alone does with the ways to reach them."""

import glob
import importlib.util
import re
import signal
import socket
import threading

import jax
import pytest

from codea1.runtime import hosts
from codea1.runtime.errors import RESTART_EXIT_CODE, BadInput, HostsLate, runtime_exit_code
from codea1.runtime.hosts import Hosts
from codea1.runtime.roll_call import is_served
from tests.host_processes import Process, finish, start, start_two


class _Joined(Exception):
    """Says what JAX was given."""


@pytest.fixture(autouse=True)
def no_joining(monkeypatch: pytest.MonkeyPatch) -> None:
    def initialize(*given: object, initialization_timeout: int) -> None:
        assert initialization_timeout > hosts.WAIT_SECONDS
        raise _Joined(given)

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    for name in ("JAX_COORDINATOR_ADDRESS", "TPU_WORKER_HOSTNAMES", "TPU_PROCESS_ADDRESSES"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def tpu_chips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glob, "glob", lambda pattern: ["/dev/accel0"] if "accel" in pattern else [])
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())


def test_a_machine_without_tpus_is_alone_unless_told_otherwise(monkeypatch):
    monkeypatch.setattr(glob, "glob", lambda _: [])
    assert hosts.join(None, None, None) == Hosts(0, 1)
    assert hosts.join(None, 1, None) == Hosts(0, 1)
    with pytest.raises(_Joined, match=r"'10\.0\.0\.1:1234', 4, 2"):
        hosts.join("10.0.0.1:1234", 4, 2)
    with pytest.raises(_Joined, match="None, 4, None"):  # Slurm knows the rest
        hosts.join(None, 4, None)
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "10.0.0.1:1234")
    with pytest.raises(_Joined, match="None, None, None"):
        hosts.join(None, None, None)


@pytest.mark.usefixtures("tpu_chips")
def test_a_tpu_machine_asks_jax_unless_it_is_the_only_one(monkeypatch):
    with pytest.raises(_Joined, match="None, None, None"):
        hosts.join(None, None, None)
    assert hosts.join(None, 1, None) == Hosts(0, 1)
    monkeypatch.setenv("TPU_WORKER_HOSTNAMES", "worker-0,worker-1")
    with pytest.raises(_Joined, match="None, None, None"):
        hosts.join(None, None, None)
    monkeypatch.setenv("TPU_WORKER_HOSTNAMES", "localhost")
    assert hosts.join(None, None, None) == Hosts(0, 1)


def test_hosts_that_jax_cannot_reach_are_late(monkeypatch):
    def initialize(*_: object, **__: object) -> None:
        raise jax.errors.JaxRuntimeError("DEADLINE_EXCEEDED: Barrier timed out.")

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    with pytest.raises(HostsLate, match=r"cannot be reached \(DEADLINE_EXCEEDED"):
        hosts.join("127.0.0.1:1234", 2, 1)


def test_a_host_alone_agrees_with_itself():
    alone, value = Hosts(), object()
    assert alone.is_main
    assert alone.exchange(value)[0] is value
    assert alone.of_main(lambda: value) is value
    alone.require_same("anything", b"")
    with pytest.raises(BadInput, match=r"^bad$"):
        alone.of_main(_bad)


def _bad() -> None:
    raise BadInput("bad")


def test_two_hosts_tell_each_other_things():
    finish(*start_two(("tests/hosts_two_processes.py",)))


def lose(count: int, lost: int, what: str, *flags: str) -> list[tuple[int, str]]:
    """The exit code and stderr of each host of which one is lost; a stopped one is killed in the end."""
    runs = start(count, ("tests/lost_host.py",), f"--lost={lost}", f"--what={what}", *flags, devices=1)
    try:
        return [(0, "") if (index, what) == (lost, "stop") else _ended(run) for index, run in enumerate(runs)]
    finally:
        for run in runs:
            run.kill()


def _ended(run: Process) -> tuple[int, str]:
    return run.wait(120), run.printed()[1]


def sentences(errors: str) -> list[str]:
    return [line for line in errors.splitlines() if line.startswith("error: ")]


KILLED, FAILED = -signal.SIGKILL, 1
LOST = [
    pytest.param(2, 0, "kill", KILLED, "is gone"),
    pytest.param(4, 2, "kill", KILLED, "is gone"),
    pytest.param(2, 1, "exhaust", FAILED, "ended with exit code 1"),
    *(
        pytest.param(count, lost, what, code, told, marks=pytest.mark.long)
        for count, lost, what, code, told in [
            (2, 1, "kill", KILLED, "is gone"),
            (4, 0, "kill", KILLED, "is gone"),
            (2, 1, "throw", FAILED, "ended with exit code 1"),
            (4, 2, "throw", FAILED, "ended with exit code 1"),
            (2, 0, "throw", FAILED, "is gone"),
            (4, 0, "throw", FAILED, "is gone"),
            (4, 1, "exhaust", FAILED, "ended with exit code 1"),
            (4, 2, "stop", 0, "is gone"),
        ]
    ),
]


@pytest.mark.parametrize(("count", "lost", "what", "code", "told"), LOST)
def test_a_lost_host_is_named_by_the_others_which_ask_for_a_restart(count, lost, what, code, told):
    done = lose(count, lost, what)
    assert [each for each, _ in done] == [code if index == lost else RESTART_EXIT_CODE for index in range(count)], done
    for index, (_, errors) in enumerate(done):
        if index != lost:
            sentence = f"error: host {lost} {told}, during step 1 > collective; start all hosts again."
            assert sentences(errors) == [sentence], errors
            assert "Traceback" not in errors
    if what == "exhaust":
        assert "a restart would fail again during step 1; lower micro_batch_size" in sentences(done[lost][1])[0]


@pytest.mark.long
@pytest.mark.parametrize(("count", "lost"), [(2, 0), (2, 1), (4, 0), (4, 2)])
def test_where_only_the_heartbeat_ends_the_others_they_say_so(count, lost):
    done = lose(count, lost, "stop", "--heartbeat=10", "--limit=300")
    for code, errors in (each for index, each in enumerate(done) if index != lost):
        assert code == RESTART_EXIT_CODE
        assert re.search(r"error: (JAX aborted this process for what it says above|host 0 .*), during step 1", errors)


def test_an_abort_after_all_hosts_are_done_is_none_of_theirs():
    done = lose(2, 1, "late")
    assert [code for code, _ in done] == [0, 0], done


def test_a_frozen_host_is_reported_and_ends_the_other():
    (code, errors), _ = lose(2, 1, "stop")
    assert code == RESTART_EXIT_CODE
    assert "watchdog: host 0 has made no progress" in errors
    assert "in: step 1 > collective. All its threads:" in errors
    assert "process_allgather" in errors
    assert sentences(errors) == ["error: host 1 is gone, during step 1 > collective; start all hosts again."]


@pytest.mark.parametrize("is_ended", [False, True])
def test_a_service_that_ends_once_it_was_reached_is_not_served(is_ended):
    with socket.create_server(("127.0.0.1", 0)) as service:
        if is_ended:
            threading.Timer(0.2, service.shutdown, [socket.SHUT_RDWR]).start()
        assert is_served(f"127.0.0.1:{service.getsockname()[1]}") is not is_ended


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("UNKNOWN: Gloo AllGather failed: [pair.cc:547] Connection closed by peer [127.0.0.1]:1"), 75),
        (jax.errors.JaxRuntimeError("INTERNAL: NCCL operation ncclGroupEnd() failed: remote process exited"), 75),
        (jax.errors.JaxRuntimeError("UNAVAILABLE: the device was preempted"), 75),
        (jax.errors.JaxRuntimeError("DEADLINE_EXCEEDED: Barrier timed out."), 75),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory; connection closed by peer"), 1),
        (jax.errors.JaxRuntimeError("INTERNAL: Mosaic failed to compile TPU kernel"), 1),
        (jax.errors.JaxRuntimeError("UNKNOWN: CpuCallback error calling callback: Traceback"), 1),
        (jax.errors.JaxRuntimeError("UNIMPLEMENTED: dynamic shapes"), 1),
        (ValueError("shapes do not fit: (2,) and (3,)"), None),
        (KeyError("UNAVAILABLE: of somebody else"), None),
    ],
)
def test_what_a_restart_can_mend_of_the_xla_runtimes_errors(error, code):
    assert runtime_exit_code(error) == code
