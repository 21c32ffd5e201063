"""Honest programs that look like hostile ones; f(3) == 4, and it must be so judged."""

PROGRAMS = {
    "the word exit": "def f(x):\n  exit_code = 'os._exit(0) sys.exit'\n  return x + 1",
    "prints": "def f(x):\n  print('PASS', 'FAIL', flush=True)\n  return x + 1",
    "prints to stderr": "import sys\ndef f(x):\n  print('error', file=sys.stderr)\n  return x + 1",
    "imports os": "import os, sys, subprocess, socket, ctypes, signal\ndef f(x): return x + 1",
    "an __eq__ of its own": (
        "class P:\n  def __init__(s, v): s.v = v\n  def __eq__(s, o): return s.v == o.v\ndef f(x): return x + (P(1) == P(1))"
    ),
    "an int enum": "import enum\nclass E(enum.IntEnum): FOUR = 4\ndef f(x): return E.FOUR",
    "a bool where it counts": "def f(x): return 3 + True",
    "a float that is whole": "def f(x): return 4.0",
    "a fraction": "from fractions import Fraction\ndef f(x): return Fraction(8, 2)",
    "a decimal": "from decimal import Decimal\ndef f(x): return Decimal('4.000')",
    "a numpy scalar": "import numpy as np\ndef f(x): return np.int64(x) + 1",
    "a numpy sum": "import numpy as np\ndef f(x): return int(np.ones(4).sum())",
    "an int subclass": "class I(int): pass\ndef f(x): return I(4)",
    "a caught exception": "def f(x):\n  try: return 1 // 0\n  except ZeroDivisionError: return x + 1",
    "a caught recursion": (
        "def down(n): return down(n + 1)\ndef f(x):\n  try: down(0)\n  except RecursionError: return x + 1"
    ),
    "deep recursion": "import sys\nsys.setrecursionlimit(20000)\ndef g(n): return 0 if n == 0 else 1 + g(n - 1)\ndef f(x): return g(4000) // 1000",
    "a caught MemoryError": (
        "def f(x):\n  try: return len(bytearray(1 << 40))\n  except MemoryError: return x + 1"
    ),
    "a large list": "def f(x): return len(list(range(10**6))) // 10**6 + x",
    "threads": (
        "import threading\ndef f(x):\n  out = []\n  threads = [threading.Thread(target=out.append, args=(1,)) for _ in range(4)]\n"
        "  [t.start() for t in threads]; [t.join() for t in threads]\n  return len(out)"
    ),
    "a thread pool": (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def f(x):\n  with ThreadPoolExecutor(2) as pool: return sum(pool.map(lambda i: 1, range(4)))"
    ),
    "threads one after the other": (
        "import threading\ndef f(x):\n  out = []\n"
        "  for _ in range(150):\n    t = threading.Thread(target=out.append, args=(1,)); t.start(); t.join()\n"
        "  return x + len(out) // 150"
    ),
    "as many threads as a pool has": (
        "import threading\nfrom concurrent.futures import ThreadPoolExecutor\ngate = threading.Barrier(31)\n"
        "def f(x):\n  with ThreadPoolExecutor(31) as pool: return x + len(set(pool.map(lambda i: bool(gate.wait(9) + 1), range(31))))"
    ),
    "a short sleep": "import time\ndef f(x):\n  time.sleep(0.01)\n  return x + 1",
    "asyncio": "import asyncio\nasync def g(x):\n  await asyncio.sleep(0)\n  return x + 1\ndef f(x): return asyncio.run(g(x))",
    "a signal handler": (
        "import signal\ngot = []\nsignal.signal(signal.SIGALRM, lambda *a: got.append(1))\n"
        "def f(x):\n  signal.setitimer(signal.ITIMER_REAL, 0.01)\n  signal.pause()\n  return x + len(got)"
    ),
    "a pipe": "import os\ndef f(x):\n  r, w = os.pipe()\n  os.write(w, b'four')\n  return len(os.read(r, 9))",
    "a socket pair": "import socket\ndef f(x):\n  a, b = socket.socketpair()\n  a.send(b'four')\n  return len(b.recv(9))",
    "its own limits": "import resource\ndef f(x): return x + (resource.getrlimit(resource.RLIMIT_AS)[0] > 0)",
    "an unimported module": "import colorsys, calendar, difflib\ndef f(x): return x + 1",
    "random numbers": "import random\ndef f(x): return x + 1 + 0 * random.randint(0, 9)",
    "a hash": "import hashlib\ndef f(x): return len(hashlib.sha256(b'x').digest()) // 8",
    "a data class": "from dataclasses import dataclass\n@dataclass\nclass A: x: int\ndef f(x): return A(x + 1).x",
    "eval of its own text": "def f(x): return eval('x + 1')",
    "a main guard": "def f(x): return x + 1\nif __name__ == '__main__':\n  import sys\n  sys.exit(1)",
    "a global counter": "count = 0\ndef f(x):\n  global count\n  count += 1\n  return x + count",
    "a long literal": "data = " + repr(list(range(3000))) + "\ndef f(x): return data[4]",
    "its folder": "import os\ndef f(x): return x + bool(os.getcwd())",
    "its process id": "import os\ndef f(x): return x + (os.getpid() > 0)",
    "does a file exist": "import os\ndef f(x): return x + (not os.path.exists('/no/such/file'))",
    "the null device": "def f(x): return x + 1 + len(open('/dev/null').read())",
    "time zones": "import zoneinfo\ndef f(x): return x + 1",
    "unicode": "def f(x): return len('ñ☃😀é')",
}  # fmt: skip

WITH_SCRATCH = {
    "a file": "def f(x):\n  with open('x.txt', 'w') as h: h.write('four')\n  return len(open('x.txt').read())",
    "a temporary file": (
        "import tempfile\ndef f(x):\n  with tempfile.TemporaryFile() as h:\n    h.write(b'four')\n    return h.tell()"
    ),
    "a temporary folder": (
        "import os, tempfile\ndef f(x):\n  with tempfile.TemporaryDirectory() as d:\n"
        "    for i in range(4): open(os.path.join(d, str(i)), 'w').close()\n    return len(os.listdir(d))"
    ),
    "a removed tree": "import os, shutil\ndef f(x):\n  os.makedirs('a/b/c')\n  shutil.rmtree('a')\n  return x + 1 + len(os.listdir('.'))",
    "a database": (
        "import sqlite3\ndef f(x):\n  c = sqlite3.connect('x.db')\n  c.execute('create table t (v)')\n"
        "  c.execute('insert into t values (4)')\n  c.commit()\n  return c.execute('select v from t').fetchone()[0]"
    ),
    "a written null device": "def f(x):\n  open('/dev/null', 'w').write('x')\n  return x + 1",
}  # fmt: skip
