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
import re
import struct
from collections.abc import Iterable
from typing import NamedTuple

from codea1.sandbox.isolation import syscalls
from codea1.sandbox.isolation.kernel import PR_SET_SECCOMP, check, libc
from codea1.sandbox.isolation.levels import Isolation

_MODE_FILTER = 2
_KILL_PROCESS, _ASK, _ALLOW, _ERRNO = 0x80000000, 0x7FC00000, 0x7FFF0000, 0x00050000
_FIRST_WITH_CONTINUE = (5, 5)  # the Linux whose listeners can let a call go on
_SET_MODE_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 3, 1 << 5
_LOAD, _JUMP_EQUAL, _JUMP_GREATER, _JUMP_GREATER_EQUAL, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x45, 0x06
_AND = 0x54
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16  # offsets in struct seccomp_data
_X32_CALLS = 0x40000000

# A process is forked with one of these flags, a thread started with one of those: the C libraries know no others. A
# thread with other flags could have descriptors of its own, beyond the process's limit on them.
_FORKS = (0x1200011, 0x11)
_THREADS = (0x3D0F00, 0x7D0F00)
_WRITING = 0o3 | 0o100 | 0o1000  # O_WRONLY or O_RDWR, O_CREAT, O_TRUNC
# Duplicates, flags, locks, pipe size. Not F_SETOWN, which aims signals, nor F_SETFL: /dev/null is open once for all.
_FCNTLS = (0, 1, 2, 3, 5, 6, 7, 1030, 1032)
_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS TIOCGWINSZ FIONREAD FIONBIO FIONCLEX FIOCLEX
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10  # harmless without connect, bind and addresses to send to
_STREAM, _DATAGRAM, _SEQPACKET = 1, 2, 5
_NOT_THE_TYPE = 0o4000 | 0o2000000  # SOCK_NONBLOCK, SOCK_CLOEXEC
_PROTOCOLS = (0, 6, 17)  # the type's own, TCP, UDP
_SENT = 0x4000 | 0x40  # MSG_NOSIGNAL MSG_DONTWAIT; no MSG_OOB
_RECEIVED = _SENT | 0x100 | 0x2  # MSG_WAITALL MSG_PEEK
_SOL_SOCKET = 1
# SO_REUSEADDR SO_TYPE SO_ERROR SO_BROADCAST SO_SNDBUF SO_RCVBUF SO_KEEPALIVE SO_LINGER SO_RCVTIMEO SO_SNDTIMEO
# SO_ACCEPTCONN SO_PROTOCOL SO_DOMAIN; none that tells who is at the other end
_SOCKET_OPTIONS = (2, 3, 4, 6, 7, 8, 9, 13, 20, 21, 30, 38, 39)
_LAST_CLOCK = 11  # CLOCK_TAI; larger numbers, as unsigned ones, are the CPU clocks of other processes
_PRCTLS = (15, 16)  # PR_SET_NAME, PR_GET_NAME
_CLOSE_ON_EXEC = 4  # of close_range, whose other flag gives a thread descriptors of its own
# SECCOMP_IOCTL_NOTIF_RECV and _SEND: of the listener that a zygote alone has.
NOTIFICATION, RESPONSE = 0xC0502100, 0xC0182101

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


class _Architecture(NamedTuple):
    audit: int  # AUDIT_ARCH_*, what the kernel reports for a native call
    column: int  # of the tables of codea1.sandbox.isolation.syscalls


_ARCHITECTURES = {"x86_64": _Architecture(0xC000003E, 0), "aarch64": _Architecture(0xC00000B7, 1)}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def supported() -> bool:
    """Returns whether the tables know this machine's processor."""
    return os.uname().machine in _ARCHITECTURES


def native(numbers: syscalls.Numbers) -> int | None:
    """Returns the number of a system call on this machine; None where it has none."""
    return numbers[_ARCHITECTURES[os.uname().machine].column] if supported() else None


def zygote_filter(isolation: Isolation, *, asks: bool) -> bytes:
    """Builds the filter a zygote installs and its children inherit: allows what it lists.

    With `asks` it leaves the start and end of threads to whoever has its listener; without, no thread starts.
    """
    rules = [_for_call(numbers, _ALLOW_IT) for table in _ALWAYS for numbers in table.values()]
    rules += [_for_call(numbers, _ALLOW_IT) for numbers in syscalls.OF_THE_ZYGOTE.values()]
    rules += [_for_call(numbers, _changing(isolation)) for numbers in syscalls.CHANGING_FILES.values()]
    rules += [
        *(_rule(name, _allow_up_to(0, _LAST_CLOCK)) for name in ("clock_gettime", "clock_getres")),
        _rule("open", _opening(isolation, flags=1)),
        _rule("openat", _opening(isolation, flags=2)),
        _rule("openat2", _fail(errno.ENOSYS)),  # its flags lie in memory, where a filter cannot look
        _rule("sendto", _only_bits(3, _SENT) + _allow_null(4)),
        _rule("recvfrom", _only_bits(3, _RECEIVED) + _ALLOW_IT),
        _rule("getsockopt", _only_values(1, (_SOL_SOCKET,)) + _allow_values(2, _SOCKET_OPTIONS)),
        # What probes for a network finds none.
        _rule("socket", _only_values(0, (_AF_UNIX, _AF_INET, _AF_INET6)) + _kind_of_socket()),
        _rule("socketpair", _only_values(0, (_AF_UNIX,)) + _kind_of_socket()),
        _rule("ioctl", _allow_values(1, (*_IOCTLS, NOTIFICATION, RESPONSE))),
        _rule("fcntl", _allow_values(1, _FCNTLS)),
        _rule("close_range", _allow_values(2, (0, _CLOSE_ON_EXEC))),
        _rule("clone", _cloning(asks)),
        _rule("clone3", _fail(errno.ENOSYS)),  # its flags lie in memory; the C library falls back to clone
        _rule("exit", _instruction(_RETURN, _ASK if asks else _ALLOW)),
    ]
    rules += [_rule(name, _ALLOW_IT) for name in ("prlimit64", "prctl")]
    unknown = _instruction(_JUMP_GREATER, syscalls.NEWEST, 0, 1) + _fail(errno.ENOSYS)  # the C library does without
    return _assemble([*rules, unknown, _fail(errno.EPERM)])


def child_filter() -> bytes:
    """Builds the filter each child adds before it runs anything untrusted: denies what it lists."""
    rules = [
        *(_for_call(numbers, _fail(errno.EPERM)) for numbers in syscalls.OF_THE_ZYGOTE.values()),
        _rule("clone", _allow_values(0, _THREADS)),
        _rule("prlimit64", _allow_values(0, (0,))),
        _rule("prctl", _allow_values(0, _PRCTLS)),
    ]
    return _assemble([*rules, _ALLOW_IT])


class Filter:
    """A filter in the form the kernel takes it."""

    def __init__(self, instructions: bytes) -> None:
        self._buffer = ctypes.create_string_buffer(instructions, len(instructions))
        self._program = _Program(len(instructions) // 8, ctypes.addressof(self._buffer))

    def install(self) -> None:
        """Applies it to this thread and all it will start. Needs no_new_privs. Raises OSError."""
        result = libc.prctl(PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(self._program), 0, 0)
        check(result, "the kernel refused a seccomp filter")

    def install_with_listener(self) -> int | None:
        """Applies it, and returns the descriptor that is asked about calls: see codea1.sandbox.isolation.threads.

        None, and the filter is not applied, where the kernel has no such listeners or a container's is in the way.
        """
        if tuple(map(int, re.match(r"(\d+)\.(\d+)", os.uname().release).groups())) < _FIRST_WITH_CONTINUE:
            return None
        # Where the kernel can (Linux 5.19), who waits for an answer cannot be interrupted and ask again.
        for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):
            number = native(syscalls.OF_THE_ZYGOTE["seccomp"])
            listener = libc.syscall(number, _SET_MODE_FILTER, flags, ctypes.byref(self._program))
            if listener >= 0:
                return listener
        return None


def _assemble(rules: Iterable[bytes]) -> bytes:
    """Checks the architecture and tries the rules in order; the last must decide."""
    start = [
        _instruction(_LOAD, _ARCHITECTURE_AT),
        _instruction(_JUMP_EQUAL, _ARCHITECTURES[os.uname().machine].audit, 1, 0),
        _instruction(_RETURN, _KILL_PROCESS),
        _instruction(_LOAD, _NUMBER_AT),
        _instruction(_JUMP_GREATER_EQUAL, _X32_CALLS, 0, 1),
        _instruction(_RETURN, _KILL_PROCESS),
    ]
    return b"".join([*start, *rules])


def _cloning(asks: bool) -> bytes:
    """Forks are for zygotes, and denied to children by their own filter."""
    decided = {**dict.fromkeys(_FORKS, _ALLOW), **dict.fromkeys(_THREADS, _ASK if asks else _ERRNO | errno.EAGAIN)}
    tests = [_instruction(_JUMP_EQUAL, value, 0, 1) + _instruction(_RETURN, what) for value, what in decided.items()]
    return _load_argument(0) + b"".join(tests) + _fail(errno.EPERM)


def _kind_of_socket() -> bytes:
    """Checks what remains of socket and socketpair: the type and the protocol."""
    kind = _load_argument(1) + _instruction(_AND, ~_NOT_THE_TYPE & 0xFFFFFFFF)
    return kind + _only((_STREAM, _DATAGRAM, _SEQPACKET)) + _allow_values(2, _PROTOCOLS)


def _changing(isolation: Isolation) -> bytes:
    return _ALLOW_IT if isolation.has_scratch else _fail(errno.EACCES)


def _opening(isolation: Isolation, flags: int) -> bytes:
    """Allows what a level lets open calls do, the flags being argument number `flags`."""
    if isolation.has_scratch:
        return _ALLOW_IT
    if isolation.hides_files:
        return _allow_without_bits(flags, _WRITING, errno.EACCES)
    return _fail(errno.EACCES)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _rule(name: str, body: bytes) -> bytes:
    return _for_call(syscalls.WITH_CONDITIONS[name], body)


def _for_call(numbers: syscalls.Numbers, body: bytes) -> bytes:
    """Runs `body`, which must end in a return, for one system call."""
    number = native(numbers)
    return b"" if number is None else _instruction(_JUMP_EQUAL, number, 0, len(body) // 8) + body


def _fail(code: int) -> bytes:
    return _instruction(_RETURN, _ERRNO | code)


def _load_argument(position: int, *, high: bool = False) -> bytes:
    return _instruction(_LOAD, _ARGUMENTS_AT + 8 * position + 4 * high)


def _only(values: tuple[int, ...]) -> bytes:
    """Denies the call when what is loaded is none of `values`; else what follows decides."""
    left = len(values)
    jumps = [_instruction(_JUMP_EQUAL, value, left - place, 0) for place, value in enumerate(values)]
    return b"".join(jumps) + _fail(errno.EPERM)


def _only_values(argument: int, values: tuple[int, ...]) -> bytes:
    """Does the same for the low 32 bits, all the kernel looks at, of an argument."""
    return _load_argument(argument) + _only(values)


def _only_bits(argument: int, mask: int) -> bytes:
    """Denies the call when an argument has other bits than those of `mask`; else what follows decides."""
    return _load_argument(argument) + _instruction(_JUMP_BITS, ~mask & 0xFFFFFFFF, 0, 1) + _fail(errno.EPERM)


def _allow_values(argument: int, values: tuple[int, ...]) -> bytes:
    """Allows the call when an argument is one of `values`."""
    return _only_values(argument, values) + _ALLOW_IT


def _allow_up_to(argument: int, value: int) -> bytes:
    return _load_argument(argument) + _instruction(_JUMP_GREATER, value, 0, 1) + _fail(errno.EINVAL) + _ALLOW_IT


def _allow_without_bits(argument: int, mask: int, code: int) -> bytes:
    test = _instruction(_JUMP_BITS, mask, 0, 1)
    return _load_argument(argument) + test + _fail(code) + _ALLOW_IT


def _allow_null(argument: int) -> bytes:
    not_null = _instruction(_JUMP_EQUAL, 0, 1, 0) + _fail(errno.EPERM)
    halves = [_load_argument(argument, high=high) + not_null for high in (False, True)]
    return b"".join(halves) + _ALLOW_IT


_ALLOW_IT = _instruction(_RETURN, _ALLOW)
