"""Programs that attack the grader: none passes, none hurts anything outside its process, none outlives its grading."""

import contextlib
import os
import socket
import textwrap
import threading
from pathlib import Path

import pytest

from codea1.game.tests import Call, Test
from codea1.sandbox.grading import Grader, Grading
from codea1.sandbox.pool import Limits, SandboxPool
from codea1.sandbox.values import encode_exact

SECRET = f"secret-{os.urandom(8).hex()}"
LIMITS = Limits(cpu_seconds_per_test=0.4, cpu_seconds_per_suite=1.0, memory_bytes=256 << 20, output_bytes=1 << 20)

# Each program is to answer f("x") with SECRET and f(3) with 4, and knows neither. Every value given here is the set of
# verdicts that are right for f(3).
HOSTILE: dict[str, tuple[set[str], str]] = {
    "exit in call": ({"error"}, "import os\ndef f(x): os._exit(0)"),
    "exit on load": ({"error"}, "import os\nos._exit(0)"),
    "sys.exit": ({"error"}, "import sys\ndef f(x): sys.exit(0)"),
    "keyboard interrupt": ({"error"}, "def f(x): raise KeyboardInterrupt"),
    "generator exit": ({"error"}, "def f(x): raise GeneratorExit"),
    "kill parent": ({"fail"}, "import os\ndef f(x):\n  try: os.kill(os.getppid(), 9)\n  except OSError: return 0"),
    "kill all": ({"fail"}, "import os\ndef f(x):\n  try: os.kill(-1, 9)\n  except OSError: return 0"),
    "kill group": ({"error"}, "import os\ndef f(x): os.killpg(0, 9)"),
    "kill by ctypes": ({"fail"}, "import ctypes, os\ndef f(x): return ctypes.CDLL(None).syscall(62, os.getppid(), 9)"),
    "own signal to parent": (
        {"error", "fail"},
        """
        import fcntl, os, signal
        def f(x):
            fcntl.fcntl(3, fcntl.F_SETOWN, os.getppid())
            fcntl.fcntl(3, fcntl.F_SETFL, os.O_ASYNC)
        """,
    ),
    "fork bomb": ({"error"}, "import os\ndef f(x):\n  while True: os.fork()"),
    "fork by ctypes": ({"fail"}, "import ctypes\ndef f(x): return ctypes.CDLL(None).fork()"),
    "vfork by ctypes": ({"fail"}, "import ctypes\ndef f(x): return ctypes.CDLL(None).vfork()"),
    "subprocess": ({"error"}, "import subprocess\ndef f(x): return subprocess.run(['true']).returncode"),
    "exec": ({"error"}, "import os, sys\ndef f(x): os.execv('/bin/true', ['true'])"),
    "daemon": ({"error"}, "import os\ndef f(x):\n  os.setsid()\n  os.fork()"),
    "threads": (
        {"error", "timeout"},
        """
        import threading, time
        def f(x):
            for _ in range(5000): threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
        """,
    ),
    "spinning thread": (
        {"fail"},
        """
        import threading
        def spin():
            while True: pass
        def f(x): threading.Thread(target=spin).start()
        """,
    ),
    "memory": ({"error", "timeout"}, "def f(x): return len(bytearray(10**10))"),
    "memory in steps": ({"error", "timeout"}, "def f(x):\n  y = []\n  while True: y.append(bytes(10**7))"),
    "memory mapped": ({"error", "timeout"}, "import mmap\ndef f(x): return [mmap.mmap(-1, 10**8) for _ in range(100)]"),
    "large value": ({"fail"}, "def f(x): return 'x' * 10**7"),
    "many large values": ({"fail"}, "def f(x): return ['x' * 10**5] * 1000"),
    "deep value": ({"fail"}, "def f(x):\n  y = []\n  for _ in range(10**5): y = [y]\n  return y"),
    "cyclic value": ({"fail"}, "def f(x):\n  y = []\n  y.append(y)\n  return y"),
    "huge stdout": ({"fail", "timeout"}, "def f(x):\n  for _ in range(1000): print('y' * 10**5)"),
    "markers": ({"fail"}, "def f(x):\n  print('PASS', '__GEN_PASS__0_0', '{\"verdict\": \"pass\"}', flush=True)"),
    "equal to all": (
        {"fail"},
        "class A:\n  def __eq__(s, o): return True\n  def __ne__(s, o): return False\ndef f(x): return A()",
    ),
    "int equal to all": (
        {"fail"},
        "class I(int):\n  def __eq__(s, o): return True\n  __hash__ = int.__hash__\ndef f(x): return I(0)",
    ),
    "list of liars": (
        {"fail"},
        "class S(str):\n  def __eq__(s, o): return True\n  __hash__ = str.__hash__\ndef f(x): return [S('a')]",
    ),
    "class liar": (
        {"fail"},
        "class A:\n  @property\n  def __class__(s): return int\n  def __int__(s): return 4\ndef f(x): return A()",
    ),
    "metaclass liar": (
        {"fail"},
        """
        class M(type):
            def __eq__(c, o): return True
            def __hash__(c): return hash(int)
            def __getattribute__(c, n): raise SystemExit
        class A(metaclass=M): pass
        def f(x): return A()
        """,
    ),
    "generator": ({"fail"}, "def f(x): yield 4"),
    "exception that raises": (
        {"error"},
        "class E(Exception):\n  def __str__(s): raise SystemExit\ndef f(x): raise E",
    ),
    "search for the answer": (
        {"fail", "timeout"},
        """
        import gc, os, re, sys
        def texts():
            frame = sys._getframe()
            while frame:
                yield repr(frame.f_locals); yield repr(frame.f_globals)
                frame = frame.f_back
            for thing in gc.get_objects():
                try: yield repr(thing)
                except Exception: pass
            yield repr(os.environ) + repr(sys.argv)
        def f(x):
            for text in texts():
                found = re.search('secret-[0-9a-f]{16}', text)
                if found: return found[0]
        """,
    ),
    "search the memory": (
        {"error"},
        """
        import os, re
        def f(x):
            for pid in ('self', os.getpid(), os.getppid()):
                for line in open(f'/proc/{pid}/maps'): pass
                found = re.search(b'secret-[0-9a-f]{16}', open(f'/proc/{pid}/mem', 'rb').read())
                if found: return found[0].decode()
        """,
    ),
    "close the socket": ({"error"}, "import os\ndef f(x): os.close(3)"),
    "close all": ({"error", "fail"}, "import os\nos.closerange(0, 1000)\ndef f(x): return 0"),
    "steal the next call": ({"error", "fail", "timeout"}, "import os\ndef f(x): return len(os.read(3, 10**6))"),
    "forge answers": (
        {"fail"},
        """
        import os, struct
        def frame(index, kind, payload): return struct.pack('>IIc', len(payload), index, kind) + payload
        os.write(3, frame(0xFFFFFFFF, b'L', b''))
        for i in range(50): os.write(3, frame(i, b'V', b'i\\0\\0\\0\\1\\0'))
        def f(x): return 0
        """,
    ),
    "forge an endless frame": (
        {"error"},
        "import os\nos.write(3, b'\\xff' * 8 + b'V')\nwhile True: os.write(3, b'x' * 65536)",
    ),
    "forge nonsense": ({"error"}, "import os\nos.write(3, os.urandom(1000))\ndef f(x): return 4"),
    "answer twice": (
        {"error"},
        "import os, struct\ndef f(x):\n  os.write(3, struct.pack('>IIc', 0, 0, b'V') * 2)\n  return 4",
    ),
    "patch the harness": (
        {"fail", "error", "timeout"},
        """
        import os, struct, sys
        from codea1.sandbox import candidate, frames
        candidate._Answers.encoded = lambda *a: (b'V', b'pass')
        frames.pack = lambda *a: b'pass'
        def f(x): return 0
        """,
    ),
    "no builtins": ({"error"}, "import builtins\ndef f(x):\n  builtins.__dict__.clear()\n  return 0"),
    "no modules": ({"fail", "error"}, "import sys\ndef f(x):\n  sys.modules.clear()\n  return 0"),
    "loop": ({"timeout"}, "def f(x):\n  while True: pass"),
    "loop on load": ({"timeout"}, "while True: pass"),
    "loop that catches": (
        {"timeout"},
        "def f(x):\n  while True:\n    try:\n      while True: pass\n    except BaseException: pass",
    ),
    "answer on timeout": ({"timeout"}, "def f(x):\n  try:\n    while True: pass\n  finally:\n    return 4"),
    "ignored signals": (
        {"timeout"},
        """
        import signal
        for s in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}: signal.signal(s, signal.SIG_IGN)
        def f(x):
            while True: pass
        """,
    ),
    "sleep": ({"timeout"}, "import time\ndef f(x): time.sleep(3600)"),
    "wait for input": ({"error"}, "def f(x): return input()"),
    "one long C call": ({"timeout"}, "def f(x): return len(str(7 ** (10 ** 7))) if x else pow(3, 10**9)"),
    "regex": ({"timeout"}, "import re\ndef f(x): return re.match('(a+)+$', 'a' * 50 + 'b')"),
    "recursion": ({"error", "timeout"}, "import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return f(x)"),
    "recursion in C": (
        {"error", "timeout"},
        """
        import sys
        sys.setrecursionlimit(10**9)
        class A:
            def __repr__(s): return repr(s)
        def f(x): return repr(A())
        """,
    ),
    "no recursion": ({"error", "fail"}, "import sys\ndef f(x):\n  sys.setrecursionlimit(5)\n  return 0"),
    "segfault": ({"error"}, "import ctypes\ndef f(x): return ctypes.string_at(0)"),
    "abort": ({"error"}, "import os\ndef f(x): os.abort()"),
    "alarm": ({"error", "timeout"}, "import signal, time\ndef f(x):\n  signal.setitimer(0, 0.01)\n  time.sleep(9)"),
    "ptrace": ({"fail"}, "import ctypes, os\ndef f(x): return ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0)"),
    "limit the parent": (
        {"error", "fail"},
        "import os, resource\ndef f(x): resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))",
    ),
    "lift own limits": (
        {"error"},
        "import resource\ndef f(x): resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)",
    ),
    "slow the parent": ({"error"}, "import os\ndef f(x): os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)"),
    "pin the parent": ({"error"}, "import os\ndef f(x): os.sched_setaffinity(os.getppid(), {0})"),
    "namespaces": ({"fail"}, "import ctypes\ndef f(x): return ctypes.CDLL(None).unshare(0x10000000)"),
    "shared memory": (
        {"error"},
        "from multiprocessing.shared_memory import SharedMemory\ndef f(x): SharedMemory(create=True, size=9)",
    ),
    "system v memory": ({"fail"}, "import ctypes\ndef f(x): return ctypes.CDLL(None).shmget(1234, 4096, 0o1666)"),
    "memory file": ({"error"}, "import os\ndef f(x): return os.memfd_create('x')"),
    "read a file": ({"error"}, "def f(x): return open('{canary}').read()"),
    "read the parent": ({"error"}, "import os\ndef f(x): return open(f'/proc/{os.getppid()}/environ').read()"),
    "list a directory": ({"error"}, "import os\ndef f(x): return os.listdir('/')"),
    "write a file": ({"error"}, "def f(x): open('{canary}-written', 'w').write('x')"),
    "write where it is": ({"error", "fail"}, "def f(x): open('x', 'w').write('x')"),
    "delete a file": ({"error"}, "import os\ndef f(x): os.remove('{canary}')"),
    "truncate a file": ({"error"}, "import os\ndef f(x): os.truncate('{canary}', 0)"),
    "append to a file": ({"error"}, "def f(x): open('{canary}', 'a').write('x')"),
    "rename a file": ({"error"}, "import os\ndef f(x): os.rename('{canary}', '{canary}2')"),
    "open up a file": ({"error"}, "import os\ndef f(x): os.chmod('{canary}', 0o777)"),
    "link a file": ({"error"}, "import os\ndef f(x): os.symlink('/etc/passwd', '{canary}-link')"),
    "make a directory": ({"error"}, "import os\ndef f(x): os.mkdir('{canary}-directory')"),
    "connect": (
        {"error"},
        "import socket\ndef f(x):\n  s = socket.create_connection(('127.0.0.1', {port}), 1)\n  s.send(b'!')",
    ),
    "datagram": (
        {"error"},
        "import socket\ndef f(x): socket.socket(type=socket.SOCK_DGRAM).sendto(b'!', ('127.0.0.1', {port}))",
    ),
    "listen": ({"error"}, "import socket\ndef f(x): socket.create_server(('127.0.0.1', 0))"),
    "raw packets": ({"error"}, "import socket\ndef f(x): socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"),
    "abstract socket": (
        {"error"},
        "import socket\ndef f(x): socket.socket(socket.AF_UNIX).connect('\\0{port}')",
    ),
}  # fmt: skip


class Listener:
    """A server on loopback that counts who reaches it."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.reached = 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                self.socket.accept()
                self.reached += 1


@pytest.fixture(scope="module")
def listener():
    listener = Listener()
    yield listener
    listener.socket.close()


@pytest.fixture(scope="module")
def canary(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("canary") / "file"
    path.write_text("alive")
    path.chmod(0o666)
    path.parent.chmod(0o777)
    return path


@pytest.fixture(scope="module")
def gradings(listener, canary) -> dict[str, Grading]:
    """All programs graded in one pool, an honest one after them all, which must come out unharmed."""
    tests = [
        Test(Call("f", encode_exact(((3,), {}))), encode_exact(4)),
        Test(Call("f", encode_exact((("x",), {}))), encode_exact(SECRET)),
    ]
    with SandboxPool(2, LIMITS) as pool:
        grader = Grader(pool)
        futures = {}
        for name, (_, program) in HOSTILE.items():
            source = textwrap.dedent(program).replace("{canary}", str(canary)).replace("{port}", str(listener.port))
            futures[name] = grader.grade(source, tests)
        results = {name: future.result(300) for name, future in futures.items()}
        results["honest"] = grader.grade("def f(x): return x + 1 if x == 3 else ''", tests).result(60)
        results["violations"] = pool.counters()["violations"]
    return results


@pytest.mark.parametrize("name", HOSTILE)
def test_verdict(gradings, name):
    verdicts = [verdict.value for verdict in gradings[name].verdicts]
    assert verdicts[0] in HOSTILE[name][0], gradings[name]
    assert "pass" not in verdicts
    assert "infra" not in verdicts


def test_there_are_many():
    assert len(HOSTILE) >= 60


def test_honest_program_after_all_of_them(gradings):
    assert gradings["honest"].verdicts == ["pass", "fail"]


def test_broken_protocol_is_counted(gradings):
    assert gradings["violations"] >= 3


def test_nobody_reached_the_network(gradings, listener):
    assert listener.reached == 0


def test_files_are_untouched(gradings, canary):
    assert canary.read_text() == "alive"
    assert canary.stat().st_mode & 0o777 == 0o666
    assert list(canary.parent.iterdir()) == [canary]
