"""The doctor: what isolation this machine has, layer by layer, whether it works and how fast it is."""

import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path

from codea1.game.calls import Call
from codea1.runtime.errors import BadInput
from codea1.sandbox.frames import Reply
from codea1.sandbox.host import Limits
from codea1.sandbox.host.pool import SandboxPool
from codea1.sandbox.host.zygote import FIRST_UNPRIVILEGED_UID, can_change_user
from codea1.sandbox.isolation import AUTO, Isolation
from codea1.sandbox.isolation.files import landlock_version
from codea1.sandbox.isolation.limits import MAX_THREADS
from codea1.sandbox.self_test import SELF_TEST, misjudged
from codea1.values import encode_exact

_LIMITS = Limits(cpu_seconds_per_test=0.5, cpu_seconds_per_suite=1.5, memory_bytes=256 << 20)
_SPEED_GRADINGS, _SPEED_CALLS = 400, 7


def examine() -> bool:
    """Prints the report; returns whether untrusted programs can be run here and the self-test agrees."""
    kernel = f"{platform.system()} {platform.release()} {platform.machine()}"
    print(f"system      {kernel}, Python {platform.python_version()}")
    try:
        with SandboxPool(0, _LIMITS, AUTO) as pool:
            for line in _layers(pool):
                print(line)
            wrong = misjudged(pool)
            print(f"self-test   {len(SELF_TEST) - len(wrong)} of {len(SELF_TEST)} programs judged as they should be")
            for line in wrong:
                print(f"            {line}")
            _measure_speed(pool)
            return not wrong
    except BadInput as error:
        print(error)
        return False


def _layers(pool: SandboxPool) -> Iterator[str]:
    level, version = pool.isolation, landlock_version()
    yield f"isolation   {level}" + ("" if level is Isolation.FULL else ": weaker than full")
    yield "rlimits     yes: CPU time, memory, file sizes, descriptors"
    yield "seccomp     yes: an allowlist of system calls; no network, no signals, no other process"
    why = "; ".join(dict.fromkeys(pool.refusals.values()))
    yield f"namespaces  {'yes' if level.namespaces else f'no: {why}'}"
    yield f"landlock    yes, version {version}" if version else "landlock    no"
    yield f"scratch     {'yes' if level.has_scratch else 'no: it takes namespaces and Landlock; programs cannot write'}"
    no_user = (
        "not started as root" if os.getuid() else "root cannot change its user here, or only root can read this Python"
    )
    counted = (
        f"at most {MAX_THREADS} of each program" if pool.has_threads else "none: this kernel cannot limit their number"
    )
    yield f"threads     {counted}"
    together = f"{pool.max_memory_bytes / 2**30:.1f} GiB of all programs together, by a cgroup"
    yield f"memory      {together if pool.max_memory_bytes else 'of each program alone: no cgroup can be made here'}"
    yield f"own user    {'yes' if can_change_user(FIRST_UNPRIVILEGED_UID) else f'no: {no_user}'}"
    if not level.namespaces:
        yield f"to get namespaces: {_how_to_get_namespaces()}"
    if not version:
        yield (
            "to get Landlock: Linux 5.13 or newer with landlock in the kernel's lsm= list, and a container runtime "
            "that allows its calls (Docker 23 or newer)"
        )


def _how_to_get_namespaces() -> str:
    for setting, closed, advised in (
        ("user.max_user_namespaces", "0", "10000"),
        ("kernel.unprivileged_userns_clone", "0", "1"),
        ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ):
        path = Path("/proc/sys", *setting.split("."))
        if path.exists() and path.read_text().strip() == closed:
            return f"sysctl {setting}={advised}"
    return (
        "if this is a container, start it with --security-opt seccomp=unconfined --security-opt apparmor=unconfined; "
        "the sandbox brings a stricter filter of its own"
    )


def _measure_speed(pool: SandboxPool) -> None:
    calls = [Call("f", encode_exact(((number,), {}))) for number in range(_SPEED_CALLS)]
    start = time.perf_counter()
    runs = [
        pool.run_calls(f"def f(x): return x + {number}", calls, reply=Reply.CANONICAL)
        for number in range(_SPEED_GRADINGS)
    ]
    cpu_seconds = sum(run.result().cpu_seconds for run in runs)
    seconds = time.perf_counter() - start
    print(
        f"speed       {_SPEED_GRADINGS / seconds:.0f} gradings of {_SPEED_CALLS} calls a second with "
        f"{len(os.sched_getaffinity(0))} slots, {1000 * cpu_seconds / _SPEED_GRADINGS:.1f} CPU-ms in each child"
    )
