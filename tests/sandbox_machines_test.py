"""Which isolation a machine gets, what the doctor says of it, and what it takes: slots, descriptors, other users."""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from codea1.game.calls import Call
from codea1.runtime.errors import BadInput
from codea1.sandbox.frames import Reply
from codea1.sandbox.host import Limits
from codea1.sandbox.host.pool import SandboxPool
from codea1.sandbox.isolation import Isolation, seccomp
from codea1.values import encode_exact
from tests.sandbox_calls import python_for, run_python

LIMITS = Limits(cpu_seconds_per_test=1.0, cpu_seconds_per_suite=3.0, memory_bytes=256 << 20, output_bytes=1 << 20)
NOBODY = 65534


def require(level: Isolation) -> None:
    """Skips a test where this machine cannot have a level."""
    try:
        SandboxPool(1, LIMITS, level).close()
    except BadInput as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("level", list(Isolation))
def test_many_slots(level):
    """What each slot takes, descriptors and mounts, is there for the 240 cores of a large host."""
    require(level)
    with SandboxPool(240, LIMITS, level) as pool:
        runs = [pool.run_calls(f"x = {i}", [], reply=Reply.EXACT) for i in range(240)]
        assert all(run.result(60).loaded for run in runs)
        if level is Isolation.FULL:
            # Twice the requests to one zygote that its socket has room for: neither side may wait for the other.
            scripts = [pool.run_script("def check(c): assert c(1) == 1", "def f(x): return x", "f") for _ in range(240)]
            assert {script.result(60).verdict for script in scripts} == {"pass"}


@pytest.mark.parametrize(
    ("limit", "level"), [("STACK, [4 << 20]", "full"), ("CPU, [5]", "full"), ("FSIZE, [0]", "only no_landlock")]
)
def test_the_least_of_hard_limits_holds(limit, level):
    """A level whose programs could write nothing is refused, by name."""
    require(Isolation.FULL)
    done = run(
        f"""
        import resource
        from codea1.sandbox.host.pool import SandboxPool
        from tests.sandbox_calls import call, run, values
        from codea1.sandbox.frames import Reply
        resource.setrlimit(resource.RLIMIT_{limit} * 2)
        with SandboxPool(1, isolation="auto") as pool:
            print(pool.isolation_note, values(run(pool, "def f(x): return x", [call(3)])))
        """,
    )
    assert f"Sandbox isolation: {level}" in done.stdout, done
    assert ("0 bytes on this machine (ulimit -Hf)" in done.stdout) == ("FSIZE" in limit)
    assert done.stdout.endswith("[3]\n")


def test_without_proc_nothing_runs_and_that_is_said():
    require(Isolation.FULL)
    done = run(
        """
        import ctypes, os
        libc, uid = ctypes.CDLL(None), os.getuid()
        assert libc.unshare(0x10000000 | 0x20000) == 0
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1")):
            with open(f"/proc/self/{name}", "w") as file: file.write(text)
        assert libc.mount(b"tmpfs", b"/proc", b"tmpfs", 0, None) == 0
        from codea1.lab.sandbox import doctor
        print(doctor.examine())
        """,
    )
    assert done.stdout.splitlines()[1:] == ["the sandbox needs /proc, which is not mounted here.", "False"], done


def test_a_python_that_needs_library_paths_to_start(tmp_path, monkeypatch):
    """Its zygotes get them, and no program does."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n[ "$LD_LIBRARY_PATH" = {tmp_path} ] && exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    program = "import ctypes, os\ndef f(): return os.environ.get('{0}'), ctypes.CDLL(None).getenv(b'{0}')"
    with SandboxPool(1, LIMITS, "auto") as pool:
        seen = pool.run_calls(program.format("LD_LIBRARY_PATH"), [Call("f", encode_exact(((), {})))], reply=Reply.EXACT)
        assert seen.result(60).outcomes[0].payload == encode_exact((None, 0))


def test_too_many_slots_for_the_limit_on_descriptors():
    require(Isolation.FULL)
    done = run(
        """
        import resource
        from codea1.runtime.errors import BadInput
        from codea1.sandbox.host.pool import SandboxPool
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        try: SandboxPool(100)
        except BadInput as error: print(error)
        """,
    )
    assert "264 descriptors, and this machine allows 128 (ulimit -Hn)" in done.stdout, done


def run(program: str, *arguments: str) -> subprocess.CompletedProcess:
    return run_python(sys.executable, "-c", textwrap.dedent(program), *arguments)


def run_without(denied: str, program: str) -> subprocess.CompletedProcess:
    return run(f"from tests import denied_calls as calls\n{denied}\n{textwrap.dedent(program)}")


EXAMINE = """
    from codea1.runtime.errors import BadInput
    from codea1.lab.sandbox import doctor
    from codea1.sandbox.host.pool import SandboxPool
    doctor._SPEED_GRADINGS = 4
    print(doctor.examine())
    for level in {levels}:
        try:
            with SandboxPool(1, isolation=level) as pool: print(pool.isolation_note)
        except BadInput as error: print(error)
"""


def test_report_of_the_doctor():
    done = run_python(sys.executable, "-m", "codea1.sandbox")
    assert (done.returncode, done.stderr) == (0, ""), done
    names = [line.split()[0] for line in done.stdout.splitlines()]
    for name in ("isolation", "rlimits", "seccomp", "namespaces", "landlock", "scratch", "self-test", "speed"):
        assert name in names
    assert "12 of 12 programs judged as they should be" in done.stdout


@pytest.mark.parametrize(
    ("denied", "best", "advice"),
    [
        ("calls.deny(calls.UNSHARE)", "no_namespaces", "to get namespaces: "),
        ("calls.deny(calls.LANDLOCK_CREATE_RULESET)", "no_landlock", "to get Landlock: Linux 5.13"),
        ("calls.deny(calls.UNSHARE, calls.LANDLOCK_CREATE_RULESET)", "seccomp_only", "to get Landlock: Linux 5.13"),
    ],
)
def test_a_machine_that_lacks_a_layer(denied, best, advice):
    require(Isolation.FULL)
    has_other_layer = best != "seccomp_only"
    done = run_without(denied, EXAMINE.format(levels=["auto", "full", best] if has_other_layer else []))
    report = done.stdout.splitlines()
    assert "True" in report, done
    assert f"isolation   {best}: weaker than full" in report
    assert any(line.startswith(advice) for line in report)
    assert any("12 of 12" in line for line in report)
    if not has_other_layer:
        return
    auto, refusal, chosen = report[-3:]
    assert auto.startswith(f"Sandbox isolation: only {best}; full is not available here: "), done
    assert "The sandbox cannot confine untrusted code on this machine: " in refusal
    assert "--config.sandbox.isolation=auto" in refusal
    assert ("a user namespace" if "UNSHARE" in denied else "Landlock") in refusal
    assert chosen == f"Sandbox isolation: {best}."


def test_without_seccomp_nothing_runs():
    levels = [level.value for level in Isolation]
    _, refusal, works, *others = run_without("calls.deny_seccomp()", EXAMINE.format(levels=levels)).stdout.splitlines()
    assert works == "False"
    assert len(others) == 4
    assert all("refused a seccomp filter" in line for line in (refusal, *others))


def test_unknown_levels_are_named():
    with pytest.raises(BadInput, match="isolation 'strong' is unknown; known are auto, full, no_landlock, no_names"):
        SandboxPool(1, LIMITS, "strong")


@pytest.mark.skipif(os.getuid() != 0, reason="this is not root, who may lack what else root has")
@pytest.mark.parametrize(
    "lacking",
    ["--drop-capabilities", "--only-root"],
    ids=["root without capabilities", "root alone in a user namespace"],
)
def test_a_root_who_cannot_become_another_user(lacking):
    """As in a container without capabilities, or in one that an ordinary user started."""
    require(Isolation.FULL)
    program = """
        import ctypes, os, struct, sys
        from codea1.sandbox.host import zygote
        from codea1.sandbox.isolation import kernel
        libc = ctypes.CDLL(None)
        if sys.argv[1] == "--only-root":
            uid = os.getuid()
            assert libc.unshare(0x10000000) == 0
            for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {uid} 1")):
                with open(f"/proc/self/{name}", "w") as file: file.write(text)
        else:
            for capability in range(41): libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP: for what it starts
            kernel.keep_only()
        from codea1.sandbox.frames import Reply
        from codea1.sandbox.host.pool import SandboxPool
        with SandboxPool(1, isolation="auto") as pool:
            print(pool.run_calls("x = 1", [], reply=Reply.EXACT).result().loaded, zygote.can_change_user(1234))
    """
    done = run(program, lacking)
    assert done.stdout.split() == ["True", "False"], done


@pytest.mark.skipif(os.getuid() != 0, reason="this is not root, who may become another user")
def test_a_user_without_privileges_gets_the_same_levels():
    require(Isolation.FULL)
    program = """
        import json, os
        from codea1.sandbox.isolation import Isolation
        from codea1.sandbox.frames import Reply
        from codea1.sandbox.host.pool import SandboxPool
        from codea1.values import decode_exact, encode_exact
        class Call: entry_point, arguments = "f", encode_exact(((), {}))
        seen = {}
        for level in Isolation:
            with SandboxPool(1, isolation=level) as pool:
                program = "import os\\ndef f(): return os.getpid() == 1, os.getuid()"
                (outcome,) = pool.run_calls(program, [Call], reply=Reply.EXACT).result(60).outcomes
                seen[level] = decode_exact(outcome.payload)
        print(json.dumps(seen))
    """
    done = run_python(python_for(NOBODY), "-c", textwrap.dedent(program), user=NOBODY)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "full": [True, 1000],
        "no_landlock": [True, 1000],
        "no_namespaces": [False, NOBODY],
        "seccomp_only": [False, NOBODY],
    }


def header_numbers(path: str) -> dict[str, int]:
    text = Path(path).read_text()
    return {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)", text)}


@pytest.mark.parametrize(
    ("column", "header"),
    [(0, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), (1, "/usr/include/asm-generic/unistd.h")],
)
def test_numbers_of_system_calls(column, header):
    if not Path(header).exists():
        pytest.skip(f"there is no {header}")
    known = header_numbers(header)
    tables = [seccomp.ALLOWED, seccomp.CHANGING_FILES, seccomp.OF_THE_ZYGOTE, seccomp.WITH_CONDITIONS]
    for table in tables:
        for name, numbers in table.items():
            if name in ("newfstatat", "fstatat"):
                assert numbers[column] == known.get("newfstatat", known.get("fstatat"))
            else:
                assert numbers[column] == known.get(name), name
