"""Programs that want the verdict "pass" for f(3), whose answer is a secret they are never told."""

PROGRAMS = {
    "os._exit in the call": "import os\ndef f(x): os._exit(0)",
    "os._exit on load": "import os\nos._exit(0)",
    "sys.exit": "import sys\ndef f(x): sys.exit(0)",
    "exit builtin": "def f(x): exit(0)",
    "SystemExit without code": "def f(x): raise SystemExit",
    "KeyboardInterrupt": "def f(x): raise KeyboardInterrupt",
    "GeneratorExit": "def f(x): raise GeneratorExit",
    "StopIteration": "def f(x): raise StopIteration(4)",
    "exception of its own base": "class E(BaseException): pass\ndef f(x): raise E",
    "exception that raises when shown": "class E(Exception):\n  def __str__(s): raise SystemExit\ndef f(x): raise E",
    "exception with a lying type": (
        "class M(type):\n  __name__ = property(lambda c: 1 / 0)\nclass E(Exception, metaclass=M): pass\ndef f(x): raise E"
    ),
    "atexit": "import atexit, os\natexit.register(os._exit, 0)\ndef f(x): raise SystemExit",
    "printed markers": "def f(x): print('PASS', '__GEN_PASS__0_0', 'passed', '{\"verdict\": \"pass\"}', flush=True)",
    "markers on every descriptor": (
        "import os\ndef f(x):\n  for fd in range(64):\n    try: os.write(fd, b'PASSED\\n')\n    except OSError: pass"
    ),
    "equal to all": "class A:\n  def __eq__(s, o): return True\n  def __ne__(s, o): return False\ndef f(x): return A()",
    "str equal to all": (
        "class S(str):\n  def __eq__(s, o): return True\n  __hash__ = str.__hash__\ndef f(x): return S('')"
    ),
    "int equal to all": (
        "class I(int):\n  def __eq__(s, o): return True\n  __hash__ = int.__hash__\ndef f(x): return I(0)"
    ),
    "list of liars": "class S(str):\n  def __eq__(s, o): return True\n  __hash__ = None\ndef f(x): return [S()]",
    "dict equal to all": "class D(dict):\n  def __eq__(s, o): return True\ndef f(x): return D()",
    "tuple equal to all": "class T(tuple):\n  def __eq__(s, o): return True\n  __hash__ = None\ndef f(x): return T()",
    "__class__ that lies": (
        "class A:\n  __class__ = property(lambda s: str)\n  def __eq__(s, o): return True\ndef f(x): return A()"
    ),
    "type without __eq__ of its own": (
        "class M(type):\n  def __eq__(c, o): return True\n  __hash__ = type.__hash__\nclass A(str, metaclass=M): pass\n"
        "def f(x): return A('x')"
    ),
    "metaclass that lies": (
        "class M(type):\n  def __eq__(c, o): return True\n  def __hash__(c): return hash(str)\n"
        "  def __getattribute__(c, n): raise SystemExit\nclass A(metaclass=M): pass\ndef f(x): return A()"
    ),
    "__reduce__": "class A:\n  def __reduce__(s): return (eval, ('1/0',))\ndef f(x): return A()",
    "__repr__": "class A:\n  def __repr__(s): return 'True'\ndef f(x): return A()",
    "__index__ and __int__": "class A:\n  def __index__(s): return 4\n  __int__ = __index__\ndef f(x): return A()",
    "iterator that never ends": "def f(x):\n  while True: yield x",
    "coroutine": "async def f(x): return 4",
    "mock": "def f(x):\n  from unittest.mock import ANY\n  return ANY",
    "numpy object array of liars": (
        "import numpy as np\nclass A:\n  def __eq__(s, o): return True\ndef f(x): return np.array([A()], dtype=object)"
    ),
    "numpy array that broadcasts": "import numpy as np\ndef f(x): return np.array(['x'])",
    "patched equality of a builtin": (
        "import ctypes\nclass A: pass\ndef f(x):\n  d = ctypes.py_object.from_address(id(str.__dict__) + 16).value\n"
        "  d['__eq__'] = lambda a, b: True\n  return ''"
    ),
    "no builtins": "import builtins\ndef f(x):\n  builtins.__dict__.clear()\n  return 0",
    "no modules": "import sys\ndef f(x):\n  sys.modules.clear()\n  return 0",
    "patched builtins": "import builtins\nbuiltins.len = builtins.isinstance = builtins.type = lambda *a: True\ndef f(x): 0",
    "patched encoder": (
        "from codea1.sandbox.child import candidate\n"
        "candidate.encode_canonical = candidate._Answers.encoded = lambda *a: (b'V', b'pass')\ndef f(x): return 0"
    ),
    "patched frames": "from codea1.sandbox import frames\nframes.pack = lambda *a: b'pass'\ndef f(x): return 0",
    "patched os.write": "import os\nos.write = lambda fd, data: len(data)\ndef f(x): return 0",
    "trace function": (
        "import sys\ndef t(*a): return t\nsys.settrace(t)\nsys.setprofile(t)\ndef f(x): return 0"
    ),
    "verdict on the harness's stack": (
        "import sys\ndef f(x):\n  frame = sys._getframe()\n  while frame:\n"
        "    for name in list(frame.f_locals):\n      frame.f_locals[name] = 'pass'\n    frame = frame.f_back"
    ),
    "forged answers on the socket": (
        "import os, struct\ndef frame(i, k, p): return struct.pack('>IIc', len(p), i, k) + p\n"
        "os.write(3, frame(0xFFFFFFFF, b'L', b''))\nfor i in range(50): os.write(3, frame(i, b'V', b's\\0\\0\\0\\1x'))\n"
        "def f(x): return 0"
    ),
    "forged verdict frame": (
        "import os, struct\nos.write(3, struct.pack('>IIc', 4, 0, b'R') + b'pass')\ndef f(x): return 0"
    ),
    "endless frame": "import os\nos.write(3, b'\\xff' * 8 + b'V')\nwhile True: os.write(3, b'x' * 65536)",
    "random frames": "import os\nos.write(3, os.urandom(1000))\ndef f(x): return 4",
    "answer twice": "import os, struct\ndef f(x):\n  os.write(3, struct.pack('>IIc', 0, 0, b'V') * 2)\n  return 4",
    "answer as an error frame": "import os, struct\ndef f(x):\n  os.write(3, struct.pack('>IIc', 0, 0, b'E'))\n  os._exit(0)",
    "closed socket": "import os\ndef f(x): os.close(3)",
    "half closed socket": "import socket\ndef f(x): socket.socket(fileno=3).shutdown(2)",
    "all descriptors closed": "import os\nos.closerange(0, 1000)\ndef f(x): return 0",
    "next frame stolen": "import os\ndef f(x): return len(os.read(3, 10**6))",
    "socket replaced": "import os\ndef f(x):\n  r, w = os.pipe()\n  os.dup2(w, 3)\n  return 0",
    "answer from a thread": (
        "import os, struct, threading\ndef late():\n  while True: os.write(3, struct.pack('>IIc', 0, 0, b'V'))\n"
        "threading.Thread(target=late, daemon=True).start()\ndef f(x): return 0"
    ),
    "answer after the answer": (
        "import os, struct, threading, time\ndef f(x):\n  threading.Timer(0.05, lambda: os.write(3, b'x' * 99)).start()\n"
        "  return 0"
    ),
    "search of frames and heap": (
        "import gc, os, re, sys\ndef texts():\n  frame = sys._getframe()\n  while frame:\n"
        "    yield repr(frame.f_locals); yield repr(frame.f_globals)\n    frame = frame.f_back\n"
        "  for thing in gc.get_objects():\n    try: yield repr(thing)\n    except Exception: pass\n"
        "def f(x):\n  for text in texts():\n    found = re.search('secret-[0-9a-f]{16}', text)\n"
        "    if found: return found[0]"
    ),
    "search of the environment": "import os, sys\ndef f(x): return os.environ.get('TRAINER_SECRET', sys.argv[-1])",
    "search of own memory": (
        "import re\ndef f(x):\n  for line in open('/proc/self/maps'): pass\n"
        "  return re.search(b'secret-[0-9a-f]{16}', open('/proc/self/mem', 'rb').read())[0].decode()"
    ),
    "search by ctypes": (
        "import ctypes, re\ndef f(x):\n  start = id(x) & ~0xFFF\n"
        "  data = ctypes.string_at(start, 1 << 14)\n  return re.search(b'secret-[0-9a-f]{16}', data)[0].decode()"
    ),
    "arguments kept for later": (
        "import inspect\ndef f(x):\n  for info in inspect.stack():\n    for v in info.frame.f_locals.values():\n"
        "      if 'secret-' in repr(v): return v"
    ),
    "the other module": "import sys\ndef f(x): return getattr(sys.modules['__main__'], 'expected', None)",
}  # fmt: skip
