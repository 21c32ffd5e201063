"""Programs that use up CPU time, memory, output or the interpreter; f(3) == 4 if nothing stops them."""

SPIN, EAT = {"timeout"}, {"error", "timeout"}
_FRAMES = """
import os, struct
def frame(index, kind, payload=b''): return struct.pack('>IIc', len(payload), index, kind) + payload
def say(data):
  view = memoryview(data)
  while view: view = view[os.write(3, view):]
LOADED = frame(0xFFFFFFFF, b'L')
"""
# Threads by the system call itself, which take no memory of the process: each pauses for ever on the one stack.
CLONE = """
import ctypes, mmap, os
code = mmap.mmap(-1, 4096, prot=7)
code.write(bytes.fromhex('b838000000' '4989ca' '0f05' '85c0' '7401' 'c3' 'b822000000' '0f05' 'ebf7'))
start = ctypes.CFUNCTYPE(*[ctypes.c_long] * 6)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
stack = mmap.mmap(-1, 65536)
top = ctypes.addressof(ctypes.c_char.from_buffer(stack)) + 65000
def started(flags, most=2000):
  for count in range(most):
    if start(flags, top, top, top, top) <= 0: return count
  return most
"""

PROGRAMS = {
    "loop": (SPIN, "def f(x):\n  while True: pass"),
    "loop on load": (SPIN, "while True: pass"),
    "loop that catches all": (
        SPIN,
        "def f(x):\n  while True:\n    try:\n      while True: pass\n    except BaseException: pass",
    ),
    "answer in finally": (SPIN, "def f(x):\n  try:\n    while True: pass\n  finally:\n    return 4"),
    "signals ignored": (
        SPIN,
        "import signal\nfor s in set(signal.Signals) - {9, 19}: signal.signal(s, signal.SIG_IGN)\n"
        "def f(x):\n  while True: pass",
    ),
    "signals blocked": (
        SPIN,
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\ndef f(x):\n  while True: pass",
    ),
    "sleep": (SPIN, "import time\ndef f(x): time.sleep(3600)"),
    "wait for a lock": (SPIN, "import threading\ndef f(x):\n  lock = threading.Lock()\n  with lock: lock.acquire()"),
    "wait on a pipe": (SPIN, "import os\ndef f(x): return os.read(os.pipe()[0], 1)"),
    "wait for a signal": (SPIN, "import signal\ndef f(x): signal.pause()"),
    "one long power": (SPIN, "def f(x): return pow(x, 10**9)"),
    "one long conversion": ({"timeout", "error"}, "import sys\nsys.set_int_max_str_digits(0)\ndef f(x): str(7 ** 10**7)"),
    "regex": (SPIN, "import re\ndef f(x): return re.match('(a+)+$', 'a' * 50 + 'b')"),
    "long sum": (SPIN, "def f(x): return sum(range(10**12))"),
    "membership": (SPIN, "import itertools\ndef f(x): return -1 in itertools.count()"),
    "loop in __eq__": (SPIN, "class A:\n  def __eq__(s, o):\n    while True: pass\ndef f(x): return A() == A()"),
    "loop in a property": (
        {"timeout", "fail"},
        "class D(dict):\n  def items(s):\n    while True: pass\n  values = keys = __iter__ = items\ndef f(x): return D(a=1)",
    ),
    "loop in __hash__": (SPIN, "class A:\n  def __hash__(s):\n    while True: pass\ndef f(x): return {A()}"),
    "compile bomb": (EAT | {"fail"}, "def f(x): return eval('(' * 90 + '1' + ')' * 90 + '+1' * 200000)"),
    "memory at once": (EAT, "def f(x): return len(bytearray(10**10)) and 4"),
    "memory in steps": (EAT, "def f(x):\n  y = []\n  while True: y.append(bytes(10**7))"),
    "memory mapped": (EAT, "import mmap\ndef f(x): return [mmap.mmap(-1, 10**8) for _ in range(100)] and 4"),
    "memory by doubling": (EAT, "def f(x):\n  y = 'x'\n  while True: y += y"),
    "memory in a dict": (EAT, "def f(x): return {i: [i] for i in range(10**9)}"),
    "memory on load": (EAT, "x = [0] * 10**9\ndef f(x): return 4"),
    "memory by malloc": (EAT, "import ctypes\ndef f(x):\n  while True: ctypes.memset(ctypes.CDLL(None).malloc(1<<26), 1, 1<<26)"),
    "memory of numpy": (EAT, "import numpy as np\ndef f(x): return np.ones(10**10).sum() and 4"),
    "memory caught": (
        {"fail", *EAT},
        "def f(x):\n  y = []\n  try:\n    while True: y.append(bytearray(1 << 24))\n  except MemoryError: return 0",
    ),
    "large int": ({"fail", *EAT}, "def f(x): return 1 << (1 << 30)"),
    "large string": ({"fail"}, "def f(x): return 'x' * 10**7"),
    "many large strings": ({"fail"}, "def f(x): return ['x' * 10**5] * 1000"),
    "many small values": ({"fail", *EAT}, "def f(x): return [[]] * 10**7"),
    "deep value": ({"fail"}, "def f(x):\n  y = []\n  for _ in range(10**5): y = [y]\n  return y"),
    "cyclic value": ({"fail"}, "def f(x):\n  y = []\n  y.append(y)\n  return y"),
    "doubly nested value": ({"fail", "timeout"}, "def f(x):\n  y = []\n  for _ in range(60): y = [y, y]\n  return y"),
    "huge error message": ({"error"}, "def f(x): raise ValueError('x' * 10**7)"),
    "huge stdout": ({"fail", "timeout"}, "def f(x):\n  for _ in range(100): print('y' * 10**5)"),
    "huge stderr": ({"fail", "timeout"}, "import sys\ndef f(x):\n  for _ in range(100): sys.stderr.write('y' * 10**5)"),
    "recursion": (EAT, "import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return f(x)"),
    "recursion in C": (
        EAT,
        "import sys\nsys.setrecursionlimit(10**9)\nclass A:\n  def __repr__(s): return repr(s)\ndef f(x): return repr(A())",
    ),
    "recursion limit of five": ({"error", "fail"}, "import sys\ndef f(x):\n  sys.setrecursionlimit(5)\n  return 0"),
    "segfault": ({"error"}, "import ctypes\ndef f(x): return ctypes.string_at(0)"),
    "abort": ({"error"}, "import os\ndef f(x): os.abort()"),
    "illegal instruction": (
        {"error"},
        "import ctypes, mmap\ndef f(x):\n  m = mmap.mmap(-1, 4096, prot=7)\n  m.write(b'\\x0f\\x0b\\0\\0')\n"
        "  ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()",
    ),
    "alarm": ({"error", "timeout"}, "import signal, time\ndef f(x):\n  signal.setitimer(0, 0.01)\n  time.sleep(9)"),
    "garbage collector off": (EAT, "import gc\ngc.disable()\ndef f(x):\n  while True:\n    a = [0] * 1000\n    a.append(a)"),
    "threads": (
        EAT,
        "import threading, time\ndef f(x):\n  for _ in range(20000): threading.Thread(target=time.sleep, args=(99,), daemon=True).start()\n"
        "  return 4",
    ),
    "threads that spin": (
        {"timeout", "fail"},
        "import threading\ndef spin():\n  while True: pass\n"
        "def f(x):\n  for _ in range(8): threading.Thread(target=spin).start()\n  spin()",
    ),
    "descriptors": ({"error"}, "import os\ndef f(x):\n  while True: os.dup(0)"),
    "sockets": ({"error"}, "import socket\ndef f(x):\n  y = []\n  while True: y.append(socket.socketpair())"),
    "lifted limits": ({"error"}, "import resource as r\ndef f(x): r.setrlimit(r.RLIMIT_AS, (r.RLIM_INFINITY,) * 2)"),
    "lifted CPU limit": ({"error"}, "import resource as r\ndef f(x): r.setrlimit(r.RLIMIT_CPU, (r.RLIM_INFINITY,) * 2)"),
    "threads without memory": (EAT | {"fail"}, CLONE + "def f(x): return 4 if started(0x3D0F00) > 64 else 0"),
    "threads in four calls": (
        EAT | {"fail"},
        CLONE + "total = 0\nfor _ in range(4): total += started(0x3D0F00)\n"
        "def f(x): return 4 if total > 64 else 0",
    ),
    "threads with descriptors of their own": (EAT | {"fail"}, CLONE + "def f(x): return 4 if started(0x3D0B00) else 0"),
    "threads that unshare descriptors": (
        {"fail"},
        "import ctypes, threading\nlibc, done = ctypes.CDLL(None, use_errno=True), []\n"
        "def f(x):\n  t = threading.Thread(target=lambda: done.append(libc.syscall(436, 60, 61, 2)))\n  t.start(); t.join()\n"
        "  return 4 if done == [0] else 0",
    ),
    "threads that interrupt their own end": (
        EAT | {"fail"},
        "import signal, threading, time\nsignal.signal(signal.SIGALRM, lambda *a: None)\n"
        "signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)\n"
        "def f(x):\n  for _ in range(200):\n    t = threading.Thread(target=int); t.start(); t.join()\n"
        "  alive = []\n  try:\n    for _ in range(64):\n      t = threading.Thread(target=time.sleep, args=(99,), daemon=True); t.start(); alive.append(t)\n"
        "  except RuntimeError: pass\n  return 4 if len(alive) > 40 else 0",
    ),
    "a flood of words": ({"error"}, _FRAMES + "say(struct.pack('>IIc', 4 << 20, 0xFFFFFFFF, b'E') + b'\\xff' * (4 << 20))"),
    "a flood of words as an answer": (
        {"error"},
        _FRAMES + "def f(x):\n  n = 4 << 20\n  say(struct.pack('>IIc', n, 0, b'O') + b'x' * n)\n  return 4",
    ),
    "a flood of frames": ({"error"}, _FRAMES + "say(LOADED + frame(7, b'V') * 400000)"),
    "a flood of empty frames": ({"error"}, _FRAMES + "while True: say(frame(0, b'D') * 1000)"),
    "a slow drip": (SPIN | {"error", "not_run"}, _FRAMES + "import time\nfor byte in LOADED * 9:\n  say(bytes([byte])); time.sleep(0.3)"),
    "half a frame": (SPIN | {"error"}, _FRAMES + "import time\nsay(LOADED[:5])\ntime.sleep(99)"),
    "a socket closed to reading": ({"error", "timeout"}, "import os, socket\nsocket.socket(fileno=3).shutdown(0)\nos._exit(0)"),
    "urgent data": (
        {"error", "timeout"},
        "import socket\ns = socket.socket(fileno=3)\ndef f(x):\n  s.send(b'Z', socket.MSG_OOB)\n  return 4",
    ),
    "wait for input": ({"error"}, "def f(x): return input()"),
    "read of stdin": ({"fail"}, "import sys\ndef f(x): return sys.stdin.read()"),
}  # fmt: skip
