"""Programs that want other processes; f(3) == 4 if they get what they want."""

REFUSED = {"error", "fail"}
_RAW = "import ctypes, os, signal\nlibc = ctypes.CDLL(None, use_errno=True)\n"

PROGRAMS = {
    "kill the parent": "import os\ndef f(x):\n  os.kill(os.getppid(), 9)\n  return 4",
    "kill the trainer": "import os\ndef f(x):\n  os.kill(@TRAINER@, 9)\n  return 4",
    "stop the trainer": "import os, signal\ndef f(x):\n  os.kill(@TRAINER@, signal.SIGSTOP)\n  return 4",
    "kill all": "import os\ndef f(x):\n  os.kill(-1, 9)\n  return 4",
    "kill the group": "import os\ndef f(x):\n  os.killpg(0, 9)\n  return 4",
    "kill by system call": _RAW + "def f(x): return 4 if libc.syscall(62, @TRAINER@, 9) == 0 else 0",
    "kill a thread of the trainer": _RAW + "def f(x): return 4 if libc.syscall(234, @TRAINER@, @TRAINER@, 9) == 0 else 0",
    "kill by descriptor": "import os, signal\ndef f(x):\n  signal.pidfd_send_signal(os.pidfd_open(@TRAINER@), 9)\n  return 4",
    "queue a signal": _RAW + "def f(x): return 4 if libc.syscall(129, @TRAINER@, 9, bytes(128)) == 0 else 0",
    "signals of the socket": (
        "import fcntl, os\ndef f(x):\n  fcntl.fcntl(3, fcntl.F_SETOWN, os.getppid() or @TRAINER@)\n"
        "  fcntl.fcntl(3, fcntl.F_SETFL, os.O_ASYNC)\n  return 4"
    ),
    "signal on a lease": "import fcntl, os\ndef f(x):\n  fcntl.fcntl(3, 10, 9)\n  return 4",
    "terminal's signals": "import fcntl, struct\ndef f(x):\n  fcntl.ioctl(0, 0x5412, b'x')\n  return 4",
    "fork": "import os\ndef f(x): return 4 if os.fork() >= 0 else 0",
    "fork bomb": "import os\ndef f(x):\n  while True: os.fork()",
    "fork by ctypes": _RAW + "def f(x): return 4 if libc.fork() >= 0 else 0",
    "vfork by ctypes": _RAW + "def f(x): return 4 if libc.vfork() >= 0 else 0",
    "clone": _RAW + "def f(x): return 4 if libc.syscall(56, 17, 0, 0, 0, 0) >= 0 else 0",
    "clone3": _RAW + "def f(x): return 4 if libc.syscall(435, bytes(88), 88) >= 0 else 0",
    "daemon": "import os\ndef f(x):\n  os.setsid()\n  os.fork()\n  return 4",
    "double fork": "import os\ndef f(x):\n  if os.fork() == 0:\n    os.setsid()\n    os.fork()\n  return 4",
    "own group": "import os\ndef f(x):\n  os.setpgid(0, 0)\n  return 4",
    "subprocess": "import subprocess\ndef f(x): return 4 if subprocess.run(['true']).returncode == 0 else 0",
    "os.system": "import os\ndef f(x): return 4 if os.system('true') == 0 else 0",
    "popen": "import os\ndef f(x): return 4 if os.popen('echo 4').read() else 0",
    "spawn": "import os\ndef f(x): return 4 if os.posix_spawn('/bin/true', ['true'], {}) else 0",
    "exec": "import os\ndef f(x): os.execv('/bin/true', ['true'])",
    "exec of Python": "import os, sys\ndef f(x): os.execv(sys.executable, [sys.executable, '-c', 'print(4)'])",
    "exec by descriptor": _RAW + "def f(x): return 4 if libc.syscall(322, 3, b'', 0, 0, 0x1000) == 0 else 0",
    "multiprocessing": "import multiprocessing\ndef f(x):\n  with multiprocessing.Pool(2) as p: return p.map(abs, [4])[0]",
    "process pool": (
        "from concurrent.futures import ProcessPoolExecutor\n"
        "def f(x):\n  with ProcessPoolExecutor(1) as p: return p.submit(abs, 4).result(1)"
    ),
    "ptrace the parent": _RAW + "def f(x): return 4 if libc.ptrace(16, os.getppid() or @TRAINER@, 0, 0) == 0 else 0",
    "be traced": _RAW + "def f(x): return 4 if libc.ptrace(0, 0, 0, 0) == 0 else 0",
    "read another's memory": (
        _RAW + "def f(x):\n  b = ctypes.create_string_buffer(16)\n  v = (ctypes.c_void_p * 2)(ctypes.addressof(b), 16)\n"
        "  return 4 if libc.process_vm_readv(@TRAINER@, v, 1, v, 1, 0) > 0 else 0"
    ),
    "take another's descriptor": _RAW + "def f(x): return 4 if libc.syscall(438, libc.syscall(434, @TRAINER@, 0), 0, 0) >= 0 else 0",
    "limit the trainer": "import resource as r\ndef f(x):\n  r.prlimit(@TRAINER@, r.RLIMIT_CPU, (1, 1))\n  return 4",
    "slow the trainer": "import os\ndef f(x):\n  os.setpriority(os.PRIO_PROCESS, @TRAINER@, 19)\n  return 4",
    "hurry itself": "import os\ndef f(x):\n  os.nice(-10)\n  return 4",
    "pin the trainer": "import os\ndef f(x):\n  os.sched_setaffinity(@TRAINER@, {0})\n  return 4",
    "real time": "import os\ndef f(x):\n  os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))\n  return 4",
    "another's timer": "import time\ndef f(x): return 4 if time.clock_gettime((~@TRAINER@ << 3) | 2) >= 0 else 0",
    "outlive as a thread": "import threading, time\ndef f(x):\n  threading.Thread(target=time.sleep, args=(99,)).start()\n  return 0",
    "become root": "import os\ndef f(x):\n  os.setuid(0) if os.getuid() else os.setgroups([1])\n  return 4",
    "become another": "import os\ndef f(x):\n  os.setresuid(1, 1, 1)\n  return 4",
}  # fmt: skip
