"""Two small seccomp-BPF filters, written by hand so that the sandbox needs no library.

The zygote's filter is inherited by every child: it takes away networks, other processes' memory and scheduling, IPC
that outlives a process, and every way to change the file system. The child's filter takes away what the zygote itself
still needed: new processes and signals. Both deny what is listed and allow the rest.

A denied call fails with an errno, so that honest programs get an ordinary Python exception.

Standard library only: this runs inside the sandbox.
"""

import ctypes
import errno
import os
import platform
import struct
from dataclasses import dataclass

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_KILL_PROCESS, _ALLOW, _ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16  # offsets in struct seccomp_data
_X32_CALLS = 0x40000000

_CLONE_THREAD = 0x00010000
_WRITING = 0o3 | 0o100 | 0o1000  # O_WRONLY or O_RDWR, O_CREAT, O_TRUNC
_FCNTLS = (0, 1, 2, 3, 4, 5, 6, 7, 1030, 1032)  # duplicate, flags, locks, pipe size; never F_SETOWN: it aims signals
_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS TIOCGWINSZ FIONREAD FIONBIO FIONCLEX FIOCLEX
_SOCKET_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6: harmless without connect, bind and addresses to send to
_PRCTLS = (15, 16)  # PR_SET_NAME, PR_GET_NAME

# x86_64 and aarch64 number of each call; None where the architecture does not have it.
_NETWORK = {
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    "sendmsg": (46, 211),
    "sendmmsg": (307, 269),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
_OTHER_PROCESSES = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "kcmp": (312, 272),
    "setpriority": (141, 140),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "setsid": (112, 157),
    "setpgid": (109, 154),
    "unshare": (272, 97),
    "setns": (308, 268),
}
_KERNEL = {
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "personality": (135, 92),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "execve": (59, 221),
    "execveat": (322, 281),
}
_LASTING_IPC = {
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
}
_FILES = {
    "creat": (85, None),
    "truncate": (76, 45),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "rmdir": (84, None),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "link": (86, None),
    "linkat": (265, 37),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
}
_CONDITIONAL = {
    "open": (2, None),
    "openat": (257, 56),
    "openat2": (437, 437),
    "socket": (41, 198),
    "sendto": (44, 206),
    "socketpair": (53, 199),
    "ioctl": (16, 29),
    "fcntl": (72, 25),
    "prlimit64": (302, 261),
    "prctl": (157, 167),
    "seccomp": (317, 277),
    "clone": (56, 220),
    "clone3": (435, 435),
    "fork": (57, None),
    "vfork": (58, None),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
}


_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class _Architecture:
    audit: int  # AUDIT_ARCH_*, what the kernel reports for a native call
    column: int  # of the tables above


_ARCHITECTURES = {"x86_64": _Architecture(0xC000003E, 0), "aarch64": _Architecture(0xC00000B7, 1)}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def supported() -> bool:
    """Whether the tables know this machine's processor."""
    return platform.machine() in _ARCHITECTURES


def zygote_filter() -> bytes:
    """The filter a zygote installs and its children inherit."""
    denied = {**_NETWORK, **_OTHER_PROCESSES, **_KERNEL, **_LASTING_IPC}
    rules = [_deny(calls, errno.EPERM) for calls in denied.values()]
    rules += [_deny(calls, errno.EACCES) for calls in _FILES.values()]
    rules += [
        _rule("open", _allow_without_bits(1, _WRITING, errno.EACCES)),
        _rule("openat", _allow_without_bits(2, _WRITING, errno.EACCES)),
        _rule("openat2", _fail(errno.ENOSYS)),  # its flags lie in memory, where a filter cannot look
        _rule("sendto", _allow_null(4)),
        _rule("socket", _allow_values(0, _SOCKET_FAMILIES)),
        _rule("socketpair", _allow_values(0, _SOCKET_FAMILIES)),
        _rule("ioctl", _allow_values(1, _IOCTLS)),
        _rule("fcntl", _allow_values(1, _FCNTLS)),
    ]
    return _assemble(rules)


def child_filter() -> bytes:
    """The filter each child adds before it runs anything untrusted."""
    rules = [
        _rule("clone", _allow_with_bits(0, _CLONE_THREAD)),
        _rule("clone3", _fail(errno.ENOSYS)),  # its flags lie in memory; the C library falls back to clone
        _rule("fork", _fail(errno.EPERM)),
        _rule("vfork", _fail(errno.EPERM)),
        _rule("kill", _fail(errno.EPERM)),  # also to itself: a filter that knew the process would differ for each
        _rule("tkill", _fail(errno.EPERM)),
        _rule("tgkill", _fail(errno.EPERM)),
        _rule("prlimit64", _allow_values(0, (0,))),
        _rule("prctl", _allow_values(0, _PRCTLS)),
        _rule("seccomp", _fail(errno.EPERM)),
    ]
    return _assemble(rules)


class Filter:
    """A filter in the form the kernel takes it."""

    def __init__(self, instructions: bytes) -> None:
        self._buffer = ctypes.create_string_buffer(instructions, len(instructions))
        self._program = _Program(len(instructions) // 8, ctypes.addressof(self._buffer))

    def install(self) -> None:
        """Applies it to this thread and all it will start. Needs no_new_privs. Raises OSError."""
        if _libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(self._program), 0, 0):
            code = ctypes.get_errno()
            raise OSError(code, f"the kernel refused a seccomp filter: {os.strerror(code)}")


def _assemble(rules: list[bytes]) -> bytes:
    """Checks the architecture, tries the rules in order and allows what none of them decides."""
    start = [
        _instruction(_LOAD, _ARCHITECTURE_AT),
        _instruction(_JUMP_EQUAL, _ARCHITECTURES[platform.machine()].audit, 1, 0),
        _instruction(_RETURN, _KILL_PROCESS),
        _instruction(_LOAD, _NUMBER_AT),
        _instruction(_JUMP_GREATER_EQUAL, _X32_CALLS, 0, 1),
        _instruction(_RETURN, _KILL_PROCESS),
    ]
    return b"".join([*start, *rules, _instruction(_RETURN, _ALLOW)])


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _rule(name: str, body: bytes) -> bytes:
    return _for_call(_CONDITIONAL[name], body)


def _deny(numbers: tuple[int | None, int | None], code: int) -> bytes:
    return _for_call(numbers, _fail(code))


def _for_call(numbers: tuple[int | None, int | None], body: bytes) -> bytes:
    """Runs `body`, which must end in a return, for one system call."""
    number = numbers[_ARCHITECTURES[platform.machine()].column]
    return b"" if number is None else _instruction(_JUMP_EQUAL, number, 0, len(body) // 8) + body


def _fail(code: int) -> bytes:
    return _instruction(_RETURN, _ERRNO | code)


def _load_argument(position: int, *, high: bool = False) -> bytes:
    return _instruction(_LOAD, _ARGUMENTS_AT + 8 * position + 4 * high)


def _allow_values(argument: int, values: tuple[int, ...]) -> bytes:
    """Allows the call when the low 32 bits, all the kernel looks at, of an argument are one of `values`."""
    allowed = [_instruction(_JUMP_EQUAL, value, 0, 1) + _instruction(_RETURN, _ALLOW) for value in values]
    return _load_argument(argument) + b"".join(allowed) + _fail(errno.EPERM)


def _allow_without_bits(argument: int, mask: int, code: int) -> bytes:
    test = _instruction(_JUMP_BITS, mask, 0, 1)
    return _load_argument(argument) + test + _fail(code) + _instruction(_RETURN, _ALLOW)


def _allow_with_bits(argument: int, mask: int) -> bytes:
    test = _instruction(_JUMP_BITS, mask, 0, 1)
    return _load_argument(argument) + test + _instruction(_RETURN, _ALLOW) + _fail(errno.EPERM)


def _allow_null(argument: int) -> bytes:
    not_null = _instruction(_JUMP_EQUAL, 0, 1, 0) + _fail(errno.EPERM)
    halves = [_load_argument(argument, high=high) + not_null for high in (False, True)]
    return b"".join(halves) + _instruction(_RETURN, _ALLOW)
