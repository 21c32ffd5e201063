"""Programs that prepare the next grading; a clean one follows each, whose verdict must be right."""

PROGRAMS = {
    "a module left in the cache": "import sys, types\nsys.modules['math'] = types.ModuleType('math')\ndef f(x): return 0",
    "a patched module": "import math\nmath.floor = lambda x: 99\ndef f(x): return 0",
    "a patched json": "import json\njson.dumps = lambda *a, **k: 'pass'\ndef f(x): return 0",
    "a patched builtin": "import builtins\nbuiltins.sorted = lambda *a: [4]\ndef f(x): return 0",
    "a patched encoder": "from codea1 import values\nvalues.encode_canonical = lambda v: b'x'\ndef f(x): return 0",
    "a seeded random": "import random\nrandom.seed(1)\nrandom.random = lambda: 4\ndef f(x): return 0",
    "files named as modules": (
        "def f(x):\n  for name in ('math', 'json', 'random', 'solution'):\n"
        "    open(f'{name}.py', 'w').write('raise SystemExit')"
    ),
    "a full scratch": "def f(x):\n  for i in range(300): open(str(i), 'wb').write(bytes(1 << 16))",
    "a closed scratch": "import os\ndef f(x):\n  os.mkdir('a', 0)\n  os.umask(0o777)\n  os.mkdir('b')",
    "a deep scratch": "import os\ndef f(x):\n  while True:\n    os.mkdir('d' * 200)\n    os.chdir('d' * 200)",
    "strange names": "def f(x):\n  for n in (b'\\xff', b'\\n', b'-rf', b'*'): open(n, 'w').close()",
    "a changed environment": "import os\ndef f(x):\n  os.environ['PYTHONPATH'] = '/x'\n  os.putenv('HOME', '/x')\n  return 0",
    "a changed folder": "import os\ndef f(x):\n  os.chdir('/')\n  return 0",
    "a changed umask": "import os\ndef f(x):\n  os.umask(0o777)\n  return 0",
    "a changed search path": "import sys\nsys.path[:] = ['/x']\nsys.meta_path.clear()\ndef f(x): return 0",
    "an ignored SIGCHLD": "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\ndef f(x): return 0",
    "lower limits": "import resource as r\ndef f(x):\n  r.setrlimit(r.RLIMIT_NOFILE, (4, 4))\n  return 0",
    "a lower limit of time": "import resource as r\ndef f(x):\n  r.setrlimit(r.RLIMIT_CPU, (0, 0))\n  return 0",
    "a lower limit of memory": "import resource as r\ndef f(x):\n  r.setrlimit(r.RLIMIT_AS, (1, 1))\n  return 0",
    "a lock that is held": "import fcntl\ndef f(x):\n  fcntl.flock(3, fcntl.LOCK_EX)\n  return 0",
    "a blocking socket": "import os\ndef f(x):\n  os.set_blocking(3, False)\n  return 0",
    "a full socket": "import os\ndef f(x):\n  os.set_blocking(3, False)\n  while True: os.write(3, b'x' * 4096)",
    "an answer for the next": (
        "import os, struct\ndef f(x):\n  for i in range(9): os.write(3, struct.pack('>IIc', 2, i, b'V') + b'xx')\n  return 0"
    ),
    "frozen garbage": "import gc\ngc.set_threshold(1)\ngc.unfreeze()\ndef f(x): return 0",
    "another decimal context": "import decimal\ndecimal.getcontext().prec = 1\ndef f(x): return 0",
    "another locale": "import locale\ndef f(x):\n  locale.setlocale(locale.LC_ALL, 'C')\n  return 0",
    "another recursion limit": "import sys\nsys.setrecursionlimit(60)\ndef f(x): return 0",
    "an int that changed": (
        "import ctypes\ndef f(x):\n  ctypes.memmove(id(4) + 24, id(5) + 24, 4)\n  return 5"
    ),
    "threads that go on": (
        "import threading, time\ndef go():\n  while True: time.sleep(0.01)\n"
        "for _ in range(9): threading.Thread(target=go, daemon=True).start()\ndef f(x): return 0"
    ),
}  # fmt: skip
