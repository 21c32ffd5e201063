"""Two seccomp-BPF filters, written by hand so that the sandbox needs no library.

The zygote's filter is inherited by every child and lists what is allowed at all: no networks, no other process's memory
or scheduling, no IPC that outlives a process, no new program, and nothing that the kernel may learn to do tomorrow. The
child's filter takes away what the zygote itself still needed: new processes, signals, namespaces.

A denied call fails with an errno, so that honest programs get an ordinary Python exception.

Standard library only: this runs inside the sandbox.
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from codea1.sandbox import syscalls
from codea1.sandbox.isolation import Isolation

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_KILL_PROCESS, _ALLOW, _ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
_LOAD, _JUMP_EQUAL, _JUMP_GREATER, _JUMP_GREATER_EQUAL, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16  # offsets in struct seccomp_data
_X32_CALLS = 0x40000000

_CLONE_THREAD = 0x00010000
_WRITING = 0o3 | 0o100 | 0o1000  # O_WRONLY or O_RDWR, O_CREAT, O_TRUNC
_FCNTLS = (0, 1, 2, 3, 4, 5, 6, 7, 1030, 1032)  # duplicate, flags, locks, pipe size; never F_SETOWN: it aims signals
_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS TIOCGWINSZ FIONREAD FIONBIO FIONCLEX FIOCLEX
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10  # harmless without connect, bind and addresses to send to
_PRCTLS = (15, 16)  # PR_SET_NAME, PR_GET_NAME

_ALWAYS = (
    syscalls.MEMORY,
    syscalls.TIME,
    syscalls.THREADS,
    syscalls.OWN_SIGNALS,
    syscalls.ABOUT_ITSELF,
    syscalls.DESCRIPTORS,
    syscalls.SOCKETS,
    syscalls.LOOKING_AT_FILES,
)
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class _Architecture:
    audit: int  # AUDIT_ARCH_*, what the kernel reports for a native call
    column: int  # of the tables of codea1.sandbox.syscalls


_ARCHITECTURES = {"x86_64": _Architecture(0xC000003E, 0), "aarch64": _Architecture(0xC00000B7, 1)}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def supported() -> bool:
    """Whether the tables know this machine's processor."""
    return platform.machine() in _ARCHITECTURES


def zygote_filter(isolation: Isolation) -> bytes:
    """The filter a zygote installs and its children inherit: allows what it lists."""
    rules = [_for_call(numbers, _instruction(_RETURN, _ALLOW)) for table in _ALWAYS for numbers in table.values()]
    rules += [_for_call(numbers, _instruction(_RETURN, _ALLOW)) for numbers in syscalls.OF_THE_ZYGOTE.values()]
    rules += [_for_call(numbers, _changing(isolation)) for numbers in syscalls.CHANGING_FILES.values()]
    rules += [
        _rule("open", _opening(isolation, flags=1)),
        _rule("openat", _opening(isolation, flags=2)),
        _rule("openat2", _fail(errno.ENOSYS)),  # its flags lie in memory, where a filter cannot look
        _rule("sendto", _allow_null(4)),
        _rule("socket", _allow_values(0, (_AF_UNIX, _AF_INET, _AF_INET6))),  # what probes for a network finds none
        _rule("socketpair", _allow_values(0, (_AF_UNIX,))),
        _rule("ioctl", _allow_values(1, _IOCTLS)),
        _rule("fcntl", _allow_values(1, _FCNTLS)),
        _rule("clone3", _fail(errno.ENOSYS)),  # its flags lie in memory; the C library falls back to clone
    ]
    rules += [_rule(name, _instruction(_RETURN, _ALLOW)) for name in ("prlimit64", "prctl", "clone")]
    unknown = _instruction(_JUMP_GREATER, syscalls.NEWEST, 0, 1) + _fail(errno.ENOSYS)  # the C library does without
    return _assemble([*rules, unknown, _fail(errno.EPERM)])


def child_filter() -> bytes:
    """The filter each child adds before it runs anything untrusted: denies what it lists."""
    rules = [
        *(_for_call(numbers, _fail(errno.EPERM)) for numbers in syscalls.OF_THE_ZYGOTE.values()),
        _rule("clone", _allow_with_bits(0, _CLONE_THREAD)),
        _rule("prlimit64", _allow_values(0, (0,))),
        _rule("prctl", _allow_values(0, _PRCTLS)),
    ]
    return _assemble([*rules, _instruction(_RETURN, _ALLOW)])


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


def _assemble(rules: Iterable[bytes]) -> bytes:
    """Checks the architecture and tries the rules in order; the last must decide."""
    start = [
        _instruction(_LOAD, _ARCHITECTURE_AT),
        _instruction(_JUMP_EQUAL, _ARCHITECTURES[platform.machine()].audit, 1, 0),
        _instruction(_RETURN, _KILL_PROCESS),
        _instruction(_LOAD, _NUMBER_AT),
        _instruction(_JUMP_GREATER_EQUAL, _X32_CALLS, 0, 1),
        _instruction(_RETURN, _KILL_PROCESS),
    ]
    return b"".join([*start, *rules])


def _changing(isolation: Isolation) -> bytes:
    return _instruction(_RETURN, _ALLOW) if isolation.has_scratch else _fail(errno.EACCES)


def _opening(isolation: Isolation, flags: int) -> bytes:
    """What of open calls is allowed, the flags being argument number `flags`."""
    if isolation.has_scratch:
        return _instruction(_RETURN, _ALLOW)
    if isolation.hides_files:
        return _allow_without_bits(flags, _WRITING, errno.EACCES)
    return _fail(errno.EACCES)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _rule(name: str, body: bytes) -> bytes:
    return _for_call(syscalls.WITH_CONDITIONS[name], body)


def _for_call(numbers: syscalls.Numbers, body: bytes) -> bytes:
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
