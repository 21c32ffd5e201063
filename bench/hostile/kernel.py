"""Programs that knock at the kernel's doors; f(3) == 4 if one opens."""

REFUSED = {"error", "fail"}
_RAW = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"


def _call(number: int, *arguments: object) -> str:
    """A program that makes a system call, given by its number on x86_64."""
    return f"{_RAW}def f(x): return 4 if libc.syscall({', '.join(map(repr, (number, *arguments)))}) >= 0 else 0"


PROGRAMS = {
    "unshare users": _call(272, 0x10000000),
    "unshare mounts": _call(272, 0x20000),
    "unshare processes": _call(272, 0x20000000),
    "join a namespace": _call(308, 3, 0),
    "mount": _call(165, b"none", b"/", b"tmpfs", 0, 0),
    "unmount": _call(166, b"/", 2),
    "pivot_root": _call(155, b".", b"."),
    "chroot": _call(161, b"/"),
    "open_tree": _call(428, -100, b"/", 1),
    "fsopen": _call(430, b"tmpfs", 0),
    "mount_setattr": _call(442, -100, b"/", 0, bytes(32), 32),
    "bpf": _call(321, 0, bytes(128), 128),
    "perf_event_open": _call(298, bytes(128), 0, -1, -1, 0),
    "userfaultfd": _call(323, 0),
    "io_uring_setup": _call(425, 4, bytes(120)),
    "io_uring_register": _call(427, 0, 0, 0, 0),
    "keyctl": _call(250, 0, -3, 1),
    "add_key": _call(248, b"user", b"x", b"x", 1, -2),
    "memfd_create": _call(319, b"x", 0),
    "memfd_secret": _call(447, 0),
    "shared memory of System V": _call(29, 1234, 4096, 0o1666),
    "semaphores of System V": _call(64, 1234, 1, 0o1666),
    "messages of System V": _call(68, 1234, 0o1666),
    "message queues": _call(240, b"codea1", 0o102, 0o666, 0),
    "personality": _call(135, 0x0040000),
    "another seccomp filter": _call(317, 1, 0, bytes(16)),
    "seccomp's listener": _call(317, 1, 8, bytes(16)),
    "landlock ruleset": _call(444, bytes(8), 8, 0),
    "init_module": _call(175, bytes(8), 8, b""),
    "finit_module": _call(313, 3, b"", 0),
    "kexec_load": _call(246, 0, 0, 0, 0),
    "reboot": _call(169, 0xFEE1DEAD, 672274793, 0, 0),
    "swapon": _call(167, b"/x", 0),
    "sethostname": _call(170, b"x", 1),
    "settimeofday": _call(164, bytes(16), 0),
    "adjtimex": _call(159, bytes(208)),
    "syslog": _call(103, 3, bytes(64), 64),
    "iopl": _call(172, 3),
    "quotactl": _call(179, 0, 0, 0, 0),
    "acct": _call(163, 0),
    "vhangup": _call(153),
    "capset": _call(126, b"\x22\x05\x08\x20" + bytes(4), b"\xff" * 24),
    "fanotify_init": _call(300, 0, 0),
    "process_madvise": _call(440, 3, 0, 0, 0, 0),
    "pidfd_open": _call(434, 1, 0),
    "set_mempolicy": _call(238, 0, 0, 0),
    "lookup by handle": _call(304, 3, bytes(16), 0),
    "vmsplice": _call(278, 1, bytes(16), 1, 0),
    "kcmp": _call(312, 1, 1, 0, 0, 0),
    "unknown call": _call(1000),
    "prctl no_new_privs off": _RAW + "def f(x): return 4 if libc.prctl(38, 0, 0, 0, 0) == 0 else 0",
    "prctl dumpable": _RAW + "def f(x): return 4 if libc.prctl(4, 1, 0, 0, 0) == 0 else 0",
    "prctl subreaper": _RAW + "def f(x): return 4 if libc.prctl(36, 1, 0, 0, 0) == 0 else 0",
    "prctl death signal off": _RAW + "def f(x): return 4 if libc.prctl(1, 0, 0, 0, 0) == 0 else 0",
    "push into a terminal": "import fcntl\ndef f(x):\n  fcntl.ioctl(0, 0x5412, b'x')\n  return 4",
}  # fmt: skip
