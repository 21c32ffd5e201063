"""Programs that want files that are not theirs; f(3) == 4 if they get what they want."""

REFUSED = {"error", "fail"}
_RAW = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"

PROGRAMS = {
    "read a file": "def f(x): return 4 if open('@FOLDER@/file').read() else 0",
    "read by os.open": "import os\ndef f(x): return 4 if os.read(os.open('@FOLDER@/file', 0), 9) else 0",
    "read by openat2": _RAW + "def f(x): return 4 if libc.syscall(437, -100, b'@FOLDER@/file', bytes(24), 24) >= 0 else 0",
    "read by mmap": "import mmap, os\ndef f(x): return 4 if mmap.mmap(os.open('@FOLDER@/file', 0), 0, prot=1)[:] else 0",
    "read by handle": _RAW + "def f(x): return 4 if libc.syscall(304, -100, bytes(32), 0) >= 0 else 0",
    "read the passwords": "def f(x): return 4 if open('/etc/passwd').read() else 0",
    "read the shadow": "def f(x): return 4 if open('/etc/shadow').read() else 0",
    "read the home": "import glob\ndef f(x): return 4 if [open(p).read() for p in ('/root/.profile', *glob.glob('/home/*/.profile'))] else 0",
    "read the package": "def f(x): return 4 if open('@PACKAGE@/sandbox/host/grading.py').read() else 0",
    "read the tests": "def f(x): return 4 if open('@PACKAGE@/../bench/hostile/files.py').read() else 0",
    "read the trainer's environment": "def f(x): return 4 if open('/proc/@TRAINER@/environ').read() else 0",
    "read the trainer's memory": "def f(x): return 4 if open('/proc/@TRAINER@/mem', 'rb') else 0",
    "read the zygote's environment": "import os\ndef f(x): return 4 if open(f'/proc/{os.getppid()}/environ').read() else 0",
    "read own environment": "def f(x): return 4 if 'TRAINER_SECRET' in open('/proc/self/environ').read() else 0",
    "list processes": "import os\ndef f(x): return 4 if any(n.isdigit() for n in os.listdir('/proc')) else 0",
    "trainer's open files": "import os\ndef f(x): return 4 if os.listdir('/proc/@TRAINER@/fd') else 0",
    "trainer's root": "import os\ndef f(x): return 4 if os.listdir('/proc/@TRAINER@/root') else 0",
    "kernel log": "def f(x): return 4 if open('/dev/kmsg').read(1) else 0",
    "kernel settings": "def f(x): return 4 if open('/proc/sys/kernel/hostname').read() else 0",
    "disks": "def f(x): return 4 if open('/dev/vda', 'rb').read(1) else 0",
    "physical memory": "def f(x): return 4 if open('/dev/mem', 'rb').read(1) else 0",
    "list the root": "import os\ndef f(x): return 4 if 'sys' in os.listdir('/') else 0",
    "list a folder": "import os\ndef f(x): return 4 if os.listdir('@FOLDER@') else 0",
    "search the disk": "import os\ndef f(x): return 4 if any('file' in names for _, _, names in os.walk('@FOLDER@')) else 0",
    "write a file": "def f(x): return 4 if open('@FOLDER@/new', 'w').write('x') else 0",
    "write over a file": "def f(x): return 4 if open('@FOLDER@/file', 'r+').write('x') else 0",
    "append to a file": "def f(x): return 4 if open('@FOLDER@/file', 'a').write('x') else 0",
    "write to /tmp": "def f(x): return 4 if open('/tmp/codea1-hostile', 'w').write('x') else 0",
    "write to /dev/shm": "def f(x): return 4 if open('/dev/shm/codea1-hostile', 'w').write('x') else 0",
    "write to /var/tmp": "def f(x): return 4 if open('/var/tmp/codea1-hostile', 'w').write('x') else 0",
    "write to the library": "import os\ndef f(x): return 4 if open(os.__file__, 'a').write('x') else 0",
    "plant a module": "import sys\ndef f(x): return 4 if [open(p + '/json2.py', 'w').write('x') for p in sys.path if p] else 0",
    "plant a conftest": "def f(x): return 4 if open('@PACKAGE@/../conftest.py', 'w').write('x') else 0",
    "a temporary file without a name": "import os\ndef f(x): return 4 if os.open('@FOLDER@', 0o20200002) else 0",
    "delete a file": "import os\ndef f(x):\n  os.remove('@FOLDER@/file')\n  return 4",
    "delete a tree": "import shutil\ndef f(x):\n  shutil.rmtree('@FOLDER@')\n  return 4",
    "truncate a file": "import os\ndef f(x):\n  os.truncate('@FOLDER@/file', 0)\n  return 4",
    "rename a file": "import os\ndef f(x):\n  os.rename('@FOLDER@/file', '@FOLDER@/file2')\n  return 4",
    "take a file": "import os\ndef f(x):\n  os.rename('@FOLDER@/file', 'mine')\n  return 4",
    "change a mode": (
        "import os\ndef f(x):\n  os.chmod('@FOLDER@/file', 0o700)\n"
        "  return 4 if os.stat('@FOLDER@/file').st_mode & 0o777 == 0o700 else 0"
    ),
    "change a mode without following": _RAW + "def f(x): return 4 if libc.syscall(452, -100, b'@FOLDER@/file', 0o777, 0x100) == 0 else 0",
    "change an owner": "import os\ndef f(x):\n  os.chown('@FOLDER@/file', 0, 0)\n  return 4",
    "change times": (
        "import os\ndef f(x):\n  os.utime('@FOLDER@/file', (7, 7))\n"
        "  return 4 if os.stat('@FOLDER@/file').st_mtime == 7 else 0"
    ),
    "set an attribute": "import os\ndef f(x):\n  os.setxattr('@FOLDER@/file', 'user.x', b'x')\n  return 4",
    "link from outside": "import os\ndef f(x):\n  os.symlink('@FOLDER@/file', 'link')\n  return 4 if open('link').read() else 0",
    "hard link": "import os\ndef f(x):\n  os.link('@FOLDER@/file', 'link')\n  return 4",
    "leave a link": "import os\ndef f(x):\n  os.symlink('/etc/passwd', '@FOLDER@/link')\n  return 4",
    "make a folder": "import os\ndef f(x):\n  os.mkdir('@FOLDER@/folder')\n  return 4",
    "make a device": "import os\ndef f(x):\n  os.mknod('null', 0o20666, os.makedev(1, 3))\n  return 4",
    "make a pipe": "import os\ndef f(x):\n  os.mkfifo('@FOLDER@/pipe')\n  return 4",
    "climb out of the scratch": "import os\ndef f(x): return 4 if open('../../@FOLDER@/file').read() else 0",
    "climb by a descriptor": (
        "import os\ndef f(x):\n  d = os.open('/', 0o10000000)\n  return 4 if os.read(os.open('@FOLDER@/file'[1:], 0, dir_fd=d), 9) else 0"
    ),
    "watch files": _RAW + "def f(x): return 4 if libc.syscall(254) >= 0 or libc.syscall(294, 0) >= 0 else 0",
    "lock the trainer's file": "import fcntl\ndef f(x):\n  fcntl.flock(open('@FOLDER@/file'), fcntl.LOCK_EX)\n  return 4",
}  # fmt: skip
