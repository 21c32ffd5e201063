"""Programs, honest and hostile, whose verdicts are known: whether a sandbox judges them so."""

from typing import NamedTuple

from codea1.sandbox.host import BareCall
from codea1.sandbox.host.grading import Grader
from codea1.sandbox.host.pool import SandboxPool
from codea1.values import encode_exact


class _Test(NamedTuple):
    call: BareCall
    expected: bytes


_TEST = _Test(BareCall("f", encode_exact(((3,), {}))), encode_exact(4))  # f(3) == 4
# What each program is to be judged by it.
SELF_TEST = {
    "an honest program": ("pass", "def f(x): return x + 1"),
    "a wrong one": ("fail", "def f(x): return x"),
    "equality that lies": ("fail", "class A(int):\n  def __eq__(s, o): return True\ndef f(x): return A(0)"),
    "an early exit": ("error", "import os\ndef f(x): os._exit(0)"),
    "an endless loop": ("timeout", "def f(x):\n  while True: pass"),
    "too much memory": ("error", "def f(x): return len(bytearray(1 << 32)) and 4"),
    "another process": ("error", "import os\ndef f(x):\n  os.fork()\n  return 4"),
    "a connection": ("error", "import socket\ndef f(x):\n  socket.create_connection(('127.0.0.1', 1))\n  return 4"),
    "a file of the machine": ("error", "def f(x):\n  open('/etc/passwd').read()\n  return 4"),
    "a file left behind": ("error", "def f(x):\n  open('/tmp/codea1-self-test', 'w').close()\n  return 4"),
    "the environment": ("fail", "import os\ndef f(x): return 4 if os.environ['PATH'] != '/nonexistent' else 0"),
    "an honest program after them": ("pass", "def f(x): return x + 1"),
}


def misjudged(pool: SandboxPool) -> list[str]:
    """Returns a line for each program of the self-test that a sandbox judges otherwise than it should."""
    grader = Grader(pool)
    wrong = []
    for name, (expected, program) in SELF_TEST.items():
        source = f"{program}\n# {name}"  # else the grader remembers the verdict on the first honest program
        (verdict,) = grader.grade(source, [_TEST]).result().verdicts
        if verdict != expected:
            wrong.append(f"{name}: {verdict}, not {expected}")
    return wrong
