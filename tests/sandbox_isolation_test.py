"""Levels of isolation: what programs see at each, and scratch folders that leave no trace."""

import contextlib
import fcntl
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.hostile.resources import CLONE
from bench.sandbox import descendants
from codea1.game.calls import Call, CallTest
from codea1.lab.sandbox.benchmarks import BenchmarkPool, Description, Inputs
from codea1.runtime.errors import BadInput
from codea1.sandbox.frames import Reply
from codea1.sandbox.host import Limits
from codea1.sandbox.host.grading import Grader
from codea1.sandbox.host.pool import SandboxPool
from codea1.sandbox.isolation import Isolation, seccomp
from codea1.sandbox.isolation.files import library_paths
from codea1.sandbox.isolation.limits import MAX_THREADS
from codea1.values import decode_exact, encode_exact

ROOT = Path(__file__).parents[1]
LIMITS = Limits(cpu_seconds_per_test=1.0, cpu_seconds_per_suite=3.0, memory_bytes=256 << 20, output_bytes=1 << 20)


@pytest.fixture(scope="module", params=list(Isolation))
def pool(request):
    try:
        with BenchmarkPool(2, LIMITS, request.param) as pool:
            yield pool
    except BadInput as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def full():
    try:
        with SandboxPool(2, LIMITS, Isolation.FULL) as pool:
            yield pool
    except BadInput as error:
        pytest.skip(str(error))


def answer(pool: SandboxPool, program: str, *arguments: object) -> object:
    """What `f(*arguments)` returns, or the text of what happened instead."""
    call = Call("f", encode_exact((arguments, {})))
    (outcome,) = pool.run_calls(textwrap.dedent(program), [call], reply=Reply.EXACT).result(60).outcomes
    return decode_exact(outcome.payload) if outcome.kind == "value" else f"{outcome.kind}: {outcome.payload.decode()}"


def test_no_limit_can_be_raised(pool):
    """A program that asks for more gets what it may have; what it lowers stays low, whatever names it calls."""
    program = """
        import ctypes, resource
        set_limit = resource.setrlimit.__closure__[0].cell_contents
        def f():
            kinds = [getattr(resource, name) for name in dir(resource) if name.startswith('RLIMIT_')]
            before = {kind: resource.getrlimit(kind) for kind in kinds}
            for kind, (soft, hard) in before.items():
                for more in (-1, hard + 1 if hard > 0 else -1, 1 << 50):
                    for set_it in (resource.setrlimit, set_limit):
                        try:
                            set_it(kind, (more, more))
                        except ValueError:
                            pass
            resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))
            resource.setrlimit(resource.RLIMIT_STACK, (-1, -1))
            after = {kind: resource.getrlimit(kind) for kind in kinds}
            raised = [kind for kind in kinds if before[kind][1] >= 0 and max(after[kind]) > before[kind][1]]
            return raised, after[resource.RLIMIT_STACK]
    """
    assert answer(pool, program) == ([], (1 << 20, 1 << 20))


DENIED = ("PermissionError", "FileNotFoundError", "OSError")


ATTEMPT = f"""
    import ctypes, os, socket
    CLONE, CLOSE_RANGE = {seccomp.native(seccomp.WITH_CONDITIONS["clone"])}, 436
    libc = ctypes.CDLL(None, use_errno=True)
    def called(*numbers):
        if libc.syscall(*map(ctypes.c_long, numbers)) < 0: raise OSError(ctypes.get_errno(), 'denied')
    def f(code):
        try: return eval(code)
        except Exception as error: return type(error).__name__
"""


def running_child(pool: SandboxPool, is_ready: Callable[[str], bool]) -> str:
    """The folder in /proc of the one child that a pool has, once it is ready."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for child in list(pool._dispatcher._owners):
            with contextlib.suppress(OSError):
                if child.pid and is_ready(f"/proc/{child.pid}"):
                    return f"/proc/{child.pid}"
        time.sleep(0.02)
    raise TimeoutError("no child is ready")


def test_a_program_runs_at_every_level(pool):
    assert answer(pool, "def f(x): return x + 1", 3) == 4
    assert pool.isolation_note == f"Sandbox isolation: {pool.isolation}."


@pytest.mark.parametrize(
    "code",
    [
        "open('/etc/passwd').read()",
        "open('/etc/hostname').read()",
        "open('/proc/self/environ').read()",
        "open('/proc/1/cmdline').read()",
        "os.listdir('/proc')",
        "os.listdir(os.path.expanduser('~root'))",
        "open('/tmp/x', 'w')",
        "open('/dev/shm/x', 'w')",
        "open('/usr/lib/x', 'w')",
        "os.mkdir('/x')",
        "os.mkdir('/scratch/x')",
        "os.chroot('/')",
        "os.fork()",
        "os.kill(os.getppid(), 0) if os.getppid() else 1 / 0",
        "socket.create_connection(('127.0.0.1', 1))",
        "socket.socket().bind(('127.0.0.1', 0))",
        "os.symlink('/etc/passwd', 'x')",
        "os.link('/etc/passwd', 'x')",
        "os.mkfifo('x')",
        "os.memfd_create('x')",
        "__import__('time').clock_gettime((~os.getppid() << 3) | 2)",
        "socket.socketpair()[0].send(b'x', socket.MSG_OOB)",
        "socket.socketpair()[0].recv(1, socket.MSG_OOB)",
        "socket.socketpair()[0].getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)",
        "socket.socketpair()[0].getsockopt(socket.SOL_SOCKET, 77)",  # SO_PEERPIDFD
        "socket.socketpair()[0].getsockopt(socket.IPPROTO_TCP, 1)",
        "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
        "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)",
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM, 1)",
        "__import__('fcntl').fcntl(0, 4, 0o2000)",  # F_SETFL: what others have open, too
        "__import__('fcntl').flock(os.open(os.__file__, 0), 2)",
        "called(CLOSE_RANGE, 3, 3, 2)",  # CLOSE_RANGE_UNSHARE
        "called(CLONE, 0x3D0B00, 0, 0, 0, 0)",  # a thread with descriptors of its own
        "called(CLONE, 0x10D00, 0, 0, 0, 0)",
        "called(CLONE, 0x103D0F00, 0, 0, 0, 0)",  # and a user namespace of its own
    ],
)
def test_denied_at_every_level(pool, code):
    assert answer(pool, ATTEMPT, code) in (*DENIED, "ZeroDivisionError"), code


def test_of_the_temporary_folder_nothing_but_the_way_to_a_library_is_seen(pool):
    folder = Path(tempfile.gettempdir()).resolve()
    with tempfile.NamedTemporaryFile(dir=folder) as secret:
        os.chmod(secret.name, 0o644)
        seen = answer(pool, ATTEMPT, f"os.listdir({str(folder)!r})")
        assert answer(pool, ATTEMPT, f"open({secret.name!r}).read()") in DENIED
    # Without Landlock, a virtual environment that lies there is found by the names of the folders above it.
    libraries = [Path(path).resolve() for path in library_paths()]
    above = {path.relative_to(folder).parts[0] for path in libraries if path.is_relative_to(folder)}
    assert seen in DENIED or set(seen) <= above, seen


@pytest.mark.parametrize(
    ("code", "namespaces", "without"),
    [
        ("os.getpid()", lambda pid: pid == 1, lambda pid: pid > 1),
        ("os.getppid()", lambda pid: pid == 0, lambda pid: pid > 1),
        ("os.getuid()", lambda uid: uid == 1000, lambda uid: isinstance(uid, int)),
        ("os.path.exists('/proc')", lambda there: not there, lambda there: there),
        ("os.path.exists('/etc/passwd')", lambda there: not there, lambda there: there),
        ("os.path.exists('/home')", lambda there: not there, lambda there: isinstance(there, bool)),
    ],
)
def test_what_namespaces_hide(pool, code, namespaces, without):
    seen = answer(pool, ATTEMPT, code)
    assert (namespaces if pool.isolation.namespaces else without)(seen), seen


def test_locks_seem_to_be_taken_and_are_seen_by_nobody(pool):
    program = """
        import fcntl, os, time
        def f(writes, *paths):
            for fd in [0, *(os.open(path, os.O_RDONLY) for path in paths)]:
                fcntl.lockf(fd, fcntl.LOCK_SH)
                fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 4)
            if writes:
                own = open("own", "w")
                fcntl.lockf(own, fcntl.LOCK_EX)
            time.sleep(0.3)
            return True
    """
    paths = [os.__file__] if pool.isolation.hides_files else []
    asked = Call("f", encode_exact(((pool.isolation.has_scratch, *paths), {})))
    held = set()
    future = pool.run_calls(textwrap.dedent(program), [asked], reply=Reply.EXACT)
    while not future.done():
        for path in (os.devnull, os.__file__):
            with open(path) as file:
                found = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
                held.add(struct.unpack_from("h", found)[0])
        time.sleep(0.01)
    assert future.result().outcomes[0].payload == encode_exact(True)
    assert held == {fcntl.F_UNLCK}


def test_honest_use_of_sockets_and_descriptors(pool):
    program = """
        import os, socket
        def f():
            first, second = socket.socketpair()
            first.sendall(b'abc'); second.settimeout(1)
            peeked = second.recv(1, socket.MSG_PEEK)
            with socket.socket(fileno=os.dup(first.fileno())) as again:
                kind = again.type == socket.SOCK_STREAM and again.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            for pair in (first, second): pair.close()
            os.closerange(40, 50)
            return peeked, kind
    """
    assert answer(pool, program) == (b"a", 0)


@pytest.mark.parametrize("imports", ["", "import numpy\n"])
def test_each_kind_of_grading_at_every_level(pool, imports):
    """Each passes a right program and fails a wrong one: none says so because it cannot run at all."""
    right, wrong = f"{imports}def f(x): return x + 1", f"{imports}def f(x): return x"
    tests = "import unittest\nclass TestCases(unittest.TestCase):\n  def test_f(self): self.assertEqual(f(1), 2)"

    class Equal:
        def agrees(self, index: int, digest: bytes, seconds: float) -> bool:
            return False

        def accepts(self, index: int, value: Description) -> bool:
            return value.exact == encode_exact(2)

    def verdicts(program: str) -> list[str]:
        grader = Grader(pool)
        test = CallTest(Call("f", encode_exact(((1,), {}))), encode_exact(2))
        (calls,) = grader.grade(program, [test]).result(60).verdicts
        script = pool.run_script(f"{imports}def check(candidate): assert candidate(1) == 2", program, "f")
        batch = pool.run_batch(program, "f", Inputs([[1]], [1.0]), Equal(), LIMITS)
        suite = pool.run_suite(program, ["assert f(1) == 2"], module="m", cpu_seconds=1.0)
        runs = [script, batch, suite, *([pool.run_unittest(program, tests)] if pool.isolation.hides_files else [])]
        return [calls, *(run.result(60).verdict for run in runs)]

    assert set(verdicts(right)) == {"pass"}
    assert set(verdicts(wrong)) == {"fail"}


def test_descriptors_of_the_trainer_are_nobodys(full):
    """Whatever numbers a zygote's own descriptors get, a child's sockets do not take theirs, nor they a child's."""
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
    try:
        for level in Isolation:
            with contextlib.suppress(BadInput), SandboxPool(1, LIMITS, level) as pool:
                run = pool.run_script("def check(candidate): assert candidate(1) == 2", "def f(x): return x + 1", "f")
                assert run.result(60).verdict == "pass", level
                listed = "import os\ndef f(): return [fd for fd in range(64) if is_open(fd)]\n"
                listed += "def is_open(fd):\n  try: return bool(os.fstat(fd))\n  except OSError: return False"
                assert answer(pool, listed) == [0, 1, 2, 3]
    finally:
        for fd in held:
            os.close(fd)


def test_a_scratch_where_the_level_has_one(pool):
    program = """
        import os
        def f():
            try:
                with open('file', 'w') as file: file.write('text')
            except PermissionError: return 'denied'
            os.makedirs('a/b')
            os.rename('file', 'a/b/file')
            places = {os.path.abspath(os.environ[name]) for name in ('TMPDIR', 'HOME')}
            return open('a/b/file').read(), os.listdir('.'), places == {os.getcwd()}
    """
    for _ in range(4):  # the same places again: nothing is left of the earlier ones
        expected = ("text", ["a"], True) if pool.isolation.has_scratch else "denied"
        assert answer(pool, program) == expected


def test_temporary_files_in_full_isolation(full):
    program = """
        import os, tempfile
        def f():
            with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile('w+') as file:
                open(os.path.join(folder, 'x'), 'w').close()
                file.write('text'); file.seek(0)
                os.chdir('/')
                return file.read(), os.listdir(folder), os.path.exists(file.name)
    """
    assert answer(full, program) == ("text", ["x"], True)


@pytest.mark.parametrize(
    "mess",
    [
        "os.makedirs('/'.join(['d' * 200] * 15))",
        "deep(300)",
        "os.mkdir('closed', 0)",
        "os.chmod('.', 0)",
        "(open('kept', 'w').close(), os.chmod('.', 0o500))",
        "(os.umask(0o777), os.mkdir('closed'), os.mkdir('closed2', 0o777))",
        "[open(f'{i}' * 40, 'w').close() for i in range(200)]",
        "[os.mkdir(str(i)) for i in range(200)]",
        "open('\\n\\t', 'w').close()",
        "open(b'\\xff\\xfe', 'w').close()",
        "open('full', 'wb').write(bytes(1 << 20))",
    ],
)
def test_no_scratch_survives_its_grading(full, mess):
    program = """
        import os
        def deep(count):
            for _ in range(count):
                os.mkdir('d'); os.chdir('d')
        def f(code):
            try: eval(code)
            except OSError as error: return str(error)
            return 'made'
    """
    lost = full.counters()["zygotes_lost"]
    for _ in range(4):
        said = answer(full, program, mess)
        assert said == "made" or ("No space" in said and "deep" in mess), said
        assert answer(full, ATTEMPT, "os.listdir('.')") == []
    assert full.counters()["zygotes_lost"] == lost


def test_a_scratch_is_small(full):
    program = """
        def f(count, size):
            try:
                for i in range(count): open(str(i), 'wb').write(bytes(size))
            except OSError as error: return i, error.strerror
    """
    assert answer(full, program, 100, 1 << 20) == (8, "No space left on device")
    assert answer(full, program, 1, 2 << 20) == (0, "File too large")
    assert answer(full, program, 400, 0) == (255, "No space left on device")


def test_modes_and_times_of_own_files_alone_can_be_changed(full):
    program = f"""
        import ctypes, os, shutil
        from pathlib import Path
        libc = ctypes.CDLL(None, use_errno=True)
        def utimensat(path, flags):
            number = {seccomp.native(seccomp.WITH_CONDITIONS["utimensat"])}
            if libc.syscall(number, 0, path, None, flags): raise OSError(ctypes.get_errno(), 'denied')
        def attempt(action):
            try: return action()
            except OSError as error: return type(error).__name__
        def f():
            shutil.copy2(os.__file__, 'x')
            Path('touched').touch()
            os.chmod('x', 0o400)
            os.utime('x', (7, 7))
            own = oct(os.stat('x').st_mode), os.stat('x').st_mtime, os.path.exists('touched')
            return own, open('/dev/null', 'w').write('x'), [attempt(action) for action in (
                lambda: os.chmod(os.__file__, 0o777), lambda: os.utime('/usr'), lambda: os.chmod('/dev/null', 0),
                lambda: os.utime('/dev/null'), lambda: os.fchmod(0, 0), lambda: os.utime(0),
                lambda: utimensat(None, 0), lambda: utimensat(b'', 0x1000),
            )]
    """

    def of_null() -> tuple[int, int, int]:
        stat = os.stat("/dev/null")
        return stat.st_mode, stat.st_mtime_ns, stat.st_ctime_ns

    before = of_null()
    own, written, denied = answer(full, program)
    assert own == ("0o100400", 7.0, True)
    assert written == 1
    assert set(denied) <= {"OSError", "PermissionError"}
    assert of_null() == before


def test_neighbours_cannot_reach_each_others_scratch(full):
    stay = "import time\ndef f():\n  open('mine', 'w').write('secret')\n  time.sleep(2)\n  return open('mine').read()"
    program = """
        import os
        def attempt(action):
            try: return action()
            except OSError: return None
        def f(folder):
            listed = attempt(lambda: os.listdir('/scratch'))
            return listed, {attempt(action) for action in (
                lambda: os.listdir(folder), lambda: open(f'{folder}/mine').read(),
                lambda: open(f'{folder}/mine', 'w').close() or 1, lambda: os.unlink(f'{folder}/mine') or 1,
                lambda: os.truncate(f'{folder}/mine', 0) or 1, lambda: os.rmdir(folder) or 1,
                lambda: os.rename(f'{folder}/mine', 'mine') or 1, lambda: os.mkdir(f'{folder}/new') or 1,
                lambda: open(f'{folder}/new', 'w').close() or 1,
            )}
    """
    staying = full.run_calls(stay, [Call("f", encode_exact(((), {})))], reply=Reply.EXACT)
    child = running_child(full, lambda child: os.readlink(f"{child}/cwd") != "/")
    folder = os.readlink(f"{child}/cwd")  # which no program can guess
    assert re.fullmatch("/scratch/[0-9a-f]{16}", folder)
    assert answer(full, program, folder) == (None, {None})
    assert decode_exact(staying.result(60).outcomes[0].payload) == "secret"


def test_what_a_child_has_from_outside(pool):
    run = pool.run_calls("import time\ndef f(): time.sleep(4)", [Call("f", encode_exact(((), {})))], reply=Reply.EXACT)

    def status_of(child: str) -> dict[str, str]:
        lines = Path(f"{child}/status").read_text().splitlines()
        return dict(line.split(":\t", 1) for line in lines if ":\t" in line)

    own = int(status_of("/proc/self")["Seccomp_filters"])
    child = running_child(pool, lambda child: int(status_of(child)["Seccomp_filters"]) == own + 2)
    status = status_of(child)
    assert all(int(status[name], 16) == 0 for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"))
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert Path(f"{child}/oom_score_adj").read_text() == "1000\n"
    limits = Path(f"{child}/limits").read_text()
    for name, value in {
        "Max open files": 64,
        "Max core file size": 0,
        "Max locked memory": 0,
        "Max cpu time": 2 * 3 + 2,  # LIMITS.cpu_seconds_per_suite is 3
        "Max file size": 1 << 20 if pool.isolation.has_scratch else 0,
    }.items():
        assert re.search(rf"{name} +{value} +{value} ", limits), (name, limits)
    assert run.result(60).outcomes[0].kind == "value"


@pytest.mark.parametrize("level", list(Isolation))
def test_an_installed_package_is_hidden(full, level, tmp_path):
    """Installed beside numpy, questions and their answers would be a file to read like any library."""
    site = tmp_path / "site-packages"
    shutil.copytree(ROOT / "codea1", site / "codea1")
    (site / "neighbour.py").write_text("here = True")
    for folder in (tmp_path, site, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    ask = """
        import json, sys
        from codea1.game.calls import Call
        from codea1.sandbox.frames import Reply
        from codea1.sandbox.host.pool import SandboxPool
        from codea1.values import decode_exact, encode_exact
        level, program, *codes = sys.argv[1:]
        calls = [Call("f", encode_exact(((code,), {}))) for code in codes]
        with SandboxPool(1, isolation=level) as pool:
            outcomes = pool.run_calls(program, calls, reply=Reply.EXACT).result(60).outcomes
        print(json.dumps([decode_exact(outcome.payload) for outcome in outcomes]))
    """
    worlds = site / "codea1/lab/worlds"
    codes = (
        "bool(__import__('codea1.lab.worlds.procedural'))",
        *(f"open('{worlds}/procedural.py').read()", f"os.listdir('{worlds}')"),
        "__import__('neighbour').here",
    )
    command = [sys.executable, "-c", textwrap.dedent(ask), level.value, textwrap.dedent(ATTEMPT), *codes]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    imported, read, listed, neighbour = json.loads(done.stdout)
    assert imported in ("ModuleNotFoundError", "PermissionError")
    assert {read, listed} <= {"FileNotFoundError", "PermissionError"}
    assert neighbour is True if level.hides_files else neighbour in ("ModuleNotFoundError", "PermissionError")


def test_what_a_pool_takes_at_most(pool):
    """Each program starts all the threads it can; the trainer has a descriptor for each slot, and a few."""
    slots, started = 8, 2
    program = f"{CLONE}\ndef f(x):\n  import time\n  count = started(0x3D0F00)\n  time.sleep(4)\n  return count"
    call = Call("f", encode_exact(((0,), {})))
    before = len(os.listdir("/proc/self/fd"))
    with SandboxPool(slots, LIMITS, pool.isolation) as busy:
        runs = [busy.run_calls(f"{program}  # {i}", [call], reply=Reply.EXACT) for i in range(slots)]
        zygotes = {zygote._process.pid for zygote in busy._dispatcher._zygotes.values()}
        deadline, counts = time.monotonic() + 20, []
        while counts.count(MAX_THREADS) < slots and time.monotonic() < deadline:
            counts = [len(os.listdir(f"/proc/{pid}/task")) for pid in descendants(zygotes)]
        descriptors = len(os.listdir("/proc/self/fd")) - before
        assert [decode_exact(run.result(60).outcomes[0].payload) for run in runs] == [MAX_THREADS - 1] * slots
    assert counts.count(MAX_THREADS) == slots
    assert sum(counts) <= slots * MAX_THREADS + 2 * started
    assert descriptors <= slots + started + 7
