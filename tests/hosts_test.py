"""When a host joins others, what it tells them, and what a host alone does with the ways to reach them."""

import glob
import importlib.util

import jax
import pytest

from codea1.runtime import hosts
from codea1.runtime.errors import RESTART_EXIT_CODE, BadInput, HostsLate
from codea1.runtime.hosts import Hosts
from tests.host_processes import finish, start_two


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


def test_what_jax_cannot_find_out_is_asked_for(monkeypatch):
    monkeypatch.undo()
    with pytest.raises(BadInput, match="give --coordinator_address"):
        hosts.join("127.0.0.1:1234", 2, None)


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


def test_a_frozen_host_is_reported_and_ends_the_other():
    main, frozen = start_two(("tests/frozen_host.py",))
    try:
        assert main.wait() == RESTART_EXIT_CODE
    finally:
        frozen.kill()
    _, errors = main.printed()
    assert "watchdog: host 0 has made no progress" in errors
    assert "in: step 1 > collective. All its threads:" in errors
    assert "process_allgather" in errors
