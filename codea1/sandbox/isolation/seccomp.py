"""Two seccomp-BPF filters, written by hand so that the sandbox needs no library.

The zygote's filter is inherited by every child and lists what is allowed at all: no networks, no other process's memory
or scheduling, no IPC that outlives a process, no new program, and nothing that the kernel may learn to do tomorrow. The
child's filter takes away what the zygote itself still needed: new processes, signals, namespaces, priorities.

A denied call fails with an errno, so that honest programs get an ordinary Python exception.

Standard library only: this runs inside the sandbox.
"""

import ctypes
import errno
import os
import re
import struct
from collections.abc import Iterable, Mapping

from codea1.sandbox.isolation import Isolation
from codea1.sandbox.isolation.kernel import PR_SET_SECCOMP, check, libc

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
# Duplicates, flags, F_GETLK, pipe size. Not F_SETOWN, which aims signals, nor F_SETFL: /dev/null is open once for all.
_FCNTLS = (0, 1, 2, 3, 5, 1030, 1032)
# F_SETLK, F_SETLKW: record locks, which SQLite needs, seem to succeed and are not taken. No other process opens a
# program's own files; but each lock on a library's slows every closing of that, and the kernel has no limit on their
# number.
_LOCKS = (6, 7)
_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS TIOCGWINSZ FIONREAD FIONBIO FIONCLEX FIOCLEX
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10  # harmless without connect, bind and addresses to send to
_STREAM, _DATAGRAM, _SEQPACKET = 1, 2, 5
_NOT_THE_TYPE = 0o4000 | 0o2000000  # SOCK_NONBLOCK, SOCK_CLOEXEC
_PROTOCOLS = (0, 6, 17)  # the type's own, TCP, UDP
_SENT = 0x4000 | 0x40  # MSG_NOSIGNAL MSG_DONTWAIT; no MSG_OOB
_RECEIVED = _SENT | 0x100 | 0x2  # MSG_WAITALL MSG_PEEK
_SOL_SOCKET = 1
# SO_REUSEADDR SO_TYPE SO_ERROR SO_BROADCAST SO_SNDBUF SO_RCVBUF SO_KEEPALIVE SO_LINGER SO_RCVTIMEO SO_SNDTIMEO
# SO_ACCEPTCONN SO_PROTOCOL SO_DOMAIN; none that identifies the process at the other end
_SOCKET_OPTIONS = (2, 3, 4, 6, 7, 8, 9, 13, 20, 21, 30, 38, 39)
_LAST_CLOCK = 11  # CLOCK_TAI; larger numbers, as unsigned ones, are the CPU clocks of other processes
_PRCTLS = (15, 16)  # PR_SET_NAME, PR_GET_NAME
_NOFOLLOW = 0x100  # AT_SYMLINK_NOFOLLOW; not AT_EMPTY_PATH
_CLOSE_ON_EXEC = 4  # of close_range, whose other flag gives a thread descriptors of its own
# SECCOMP_IOCTL_NOTIF_RECV and _SEND: of the listener that a zygote alone has.
NOTIFICATION, RESPONSE = 0xC0502100, 0xC0182101

# AUDIT_ARCH_*, what the kernel reports for a native call.
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
Numbers = tuple[int | None, ...]  # of a system call on each of these; None where there is no such call


def _table(text: str) -> dict[str, Numbers]:
    rows = [call.split() for call in re.sub("#.*", "", text).split(",")]
    return {name: tuple(None if number == "-" else int(number) for number in numbers) for name, *numbers in rows}


# The system calls that the sandbox knows. One that is in no table is denied to everyone.
ALLOWED = _table(
    """
    # memory
    mmap 9 222, munmap 11 215, mprotect 10 226, mremap 25 216, madvise 28 233, brk 12 214, msync 26 227,
    mincore 27 232, membarrier 324 283,
    # time
    clock_nanosleep 230 115, gettimeofday 96 169, time 201 -, nanosleep 35 101, times 100 153, getitimer 36 102,
    setitimer 38 103, alarm 37 -,
    # threads
    futex 202 98, futex_waitv 449 449, set_tid_address 218 96, set_robust_list 273 99, get_robust_list 274 100,
    rseq 334 293, sched_yield 24 124, sched_getaffinity 204 123, sched_getparam 143 121,
    sched_getscheduler 145 120, sched_get_priority_max 146 125, sched_get_priority_min 147 126, getcpu 309 168,
    gettid 186 178, arch_prctl 158 -, exit_group 231 94, restart_syscall 219 128,
    # own signals
    rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, rt_sigpending 127 136,
    rt_sigsuspend 130 133, rt_sigtimedwait 128 137, sigaltstack 131 132, pause 34 -,
    # itself
    getpid 39 172, getppid 110 173, getpgrp 111 -, getpgid 121 155, getsid 124 156, getuid 102 174,
    geteuid 107 175, getgid 104 176, getegid 108 177, getresuid 118 148, getresgid 120 150, getgroups 115 158,
    getpriority 140 141, getrlimit 97 163, getrusage 98 165, uname 63 160, sysinfo 99 179, umask 95 166,
    wait4 61 260, waitid 247 95, getrandom 318 278,
    # descriptors
    read 0 63, write 1 64, readv 19 65, writev 20 66, pread64 17 67, pwrite64 18 68, preadv 295 69,
    pwritev 296 70, preadv2 327 286, pwritev2 328 287, close 3 57, dup 32 23, dup2 33 -, dup3 292 24,
    lseek 8 62, pipe 22 -, pipe2 293 59, poll 7 -, ppoll 271 73, select 23 -, pselect6 270 72,
    epoll_create 213 -, epoll_create1 291 20, epoll_ctl 233 21, epoll_wait 232 -, epoll_pwait 281 22,
    epoll_pwait2 441 441, eventfd 284 -, eventfd2 290 19, fsync 74 82, fdatasync 75 83, sendfile 40 71,
    copy_file_range 326 285, splice 275 76, tee 276 77, fadvise64 221 223, readahead 187 213,
    # sockets
    shutdown 48 210, getsockname 51 204, getpeername 52 205,
    # looking at files
    stat 4 -, fstat 5 80, lstat 6 -, newfstatat 262 79, statx 332 291, access 21 -, faccessat 269 48,
    faccessat2 439 439, readlink 89 -, readlinkat 267 78, getdents 78 -, getdents64 217 61, getcwd 79 17,
    chdir 80 49, fchdir 81 50, statfs 137 43, fstatfs 138 44
    """
)
# For programs that have a scratch folder; never links or owners of files: Landlock does not cover those.
CHANGING_FILES = _table(
    """
    creat 85 -, ftruncate 77 46, fallocate 285 47, mkdir 83 -, mkdirat 258 34, rename 82 -, renameat 264 38,
    renameat2 316 276, unlink 87 -, unlinkat 263 35, rmdir 84 -
    """
)
# Modes and times of files, by their paths, for programs that have a scratch folder: what else they see is read-only. No
# descriptors: some are open from outside.
OWN_FILES = _table("chmod 90 -, fchmodat 268 53, utime 132 -, utimes 235 -")
# Attributes of files, which no file system here has.
UNSUPPORTED = _table(
    """
    setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, getxattr 191 8, lgetxattr 192 9, fgetxattr 193 10,
    listxattr 194 11, llistxattr 195 12, flistxattr 196 13
    """
)
# Allowed for some arguments only.
WITH_CONDITIONS = _table(
    """
    clock_gettime 228 113, clock_getres 229 114, open 2 -, openat 257 56, openat2 437 437, socket 41 198,
    socketpair 53 199, sendto 44 206, recvfrom 45 207, getsockopt 55 209, close_range 436 436, ioctl 16 29,
    fcntl 72 25, prlimit64 302 261, prctl 157 167, clone 56 220, clone3 435 435, exit 60 93, utimensat 280 88
    """
)
# What a zygote still does after it is confined, and its children may not.
OF_THE_ZYGOTE = _table(
    """
    fork 57 -, vfork 58 -, kill 62 129, tgkill 234 131, setns 308 268, unshare 272 97, capset 126 91,
    seccomp 317 277, sendmsg 46 211, recvmsg 47 212, landlock_restrict_self 446 446, setpgid 109 154,
    setpriority 141 140
    """
)

_NEWEST = 463  # numbers beyond are of calls younger than these tables


def native(numbers: Numbers) -> int | None:
    """Returns the number of a system call on this machine; None where it has none."""
    return dict(zip(ARCHITECTURES, numbers, strict=True)).get(os.uname().machine)


def zygote_filter(isolation: Isolation, *, asks: bool) -> bytes:
    """Builds the filter a zygote installs and its children inherit: allows what it lists.

    With `asks` the process that has its listener decides on the start and end of threads; without, no thread starts.
    """
    on_files = _ALLOW_IT if isolation.has_scratch else _fail(errno.EPERM)
    on_threads = _instruction(_RETURN, _ASK) if asks else _fail(errno.EAGAIN)
    bodies = {
        **dict.fromkeys([*ALLOWED, *OF_THE_ZYGOTE], _ALLOW_IT),
        **dict.fromkeys(CHANGING_FILES, _ALLOW_IT if isolation.has_scratch else _fail(errno.EACCES)),
        **dict.fromkeys(OWN_FILES, on_files),
        **dict.fromkeys(UNSUPPORTED, _fail(errno.ENOTSUP)),
        **dict.fromkeys(("clock_gettime", "clock_getres"), _allow_up_to(0, _LAST_CLOCK)),
        "open": _opening(isolation, flags=1),
        "openat": _opening(isolation, flags=2),
        "openat2": _fail(errno.ENOSYS),  # its flags lie in memory, where a filter cannot look
        "sendto": _only_bits(3, _SENT) + _only_null(4) + _ALLOW_IT,
        "recvfrom": _only_bits(3, _RECEIVED) + _ALLOW_IT,
        "getsockopt": _only_values(1, (_SOL_SOCKET,)) + _allow_values(2, _SOCKET_OPTIONS),
        # What probes for a network finds none.
        "socket": _only_values(0, (_AF_UNIX, _AF_INET, _AF_INET6)) + _kind_of_socket(),
        "socketpair": _only_values(0, (_AF_UNIX,)) + _kind_of_socket(),
        "ioctl": _allow_values(1, (*_IOCTLS, NOTIFICATION, RESPONSE)),
        "fcntl": _load_argument(1) + _if_any(_LOCKS, _fail(0)) + _allow_values(1, _FCNTLS),
        "close_range": _allow_values(2, (0, _CLOSE_ON_EXEC)),
        # Forks are for zygotes, and denied to children by their own filter.
        "clone": _load_argument(0) + _if_any(_FORKS, _ALLOW_IT) + _if_any(_THREADS, on_threads) + _fail(errno.EPERM),
        "clone3": _fail(errno.ENOSYS),  # its flags lie in memory; the C library falls back to clone
        "utimensat": _not_null(1) + _only_values(3, (0, _NOFOLLOW)) + on_files,
        "exit": on_threads if asks else _ALLOW_IT,
        **dict.fromkeys(("prlimit64", "prctl"), _ALLOW_IT),
    }
    unknown = _instruction(_JUMP_GREATER, _NEWEST, 0, 1) + _fail(errno.ENOSYS)  # the C library does without
    return _assemble([*_for_calls(bodies), unknown, _fail(errno.EPERM)])


def child_filter() -> bytes:
    """Builds the filter each child adds before it runs anything untrusted: denies what it lists."""
    bodies = {
        **dict.fromkeys(OF_THE_ZYGOTE, _fail(errno.EPERM)),
        "clone": _allow_values(0, _THREADS),
        "prlimit64": _allow_values(0, (0,)),
        "prctl": _allow_values(0, _PRCTLS),
    }
    return _assemble([*_for_calls(bodies), _ALLOW_IT])


class Filter:
    """A filter in the form the kernel takes it."""

    def __init__(self, instructions: bytes) -> None:
        self._buffer = ctypes.create_string_buffer(instructions, len(instructions))
        self._program = struct.pack("HP", len(instructions) // 8, ctypes.addressof(self._buffer))  # struct sock_fprog

    def install(self) -> None:
        """Applies it to this thread and all it will start. Needs no_new_privs. Raises OSError."""
        result = libc.prctl(PR_SET_SECCOMP, _MODE_FILTER, self._program, 0, 0)
        check(result, "the kernel refused a seccomp filter")

    def install_with_listener(self) -> int | None:
        """Applies it, and returns the descriptor that is asked about calls: see codea1.sandbox.isolation.limits.

        None, and the filter is not applied, where the kernel has no such listeners or a container's is in the way.
        """
        if tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) < _FIRST_WITH_CONTINUE:
            return None
        # Where the kernel can (Linux 5.19), a thread that waits for an answer cannot be interrupted and ask again.
        for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):
            number = native(OF_THE_ZYGOTE["seccomp"])
            listener = libc.syscall(number, _SET_MODE_FILTER, flags, self._program)
            if listener >= 0:
                return listener
        return None


def _assemble(rules: Iterable[bytes]) -> bytes:
    """Checks the architecture and tries the rules in order; the last must decide."""
    start = [
        _instruction(_LOAD, _ARCHITECTURE_AT),
        _instruction(_JUMP_EQUAL, ARCHITECTURES[os.uname().machine], 1, 0),
        _instruction(_RETURN, _KILL_PROCESS),
        _instruction(_LOAD, _NUMBER_AT),
        _instruction(_JUMP_GREATER_EQUAL, _X32_CALLS, 0, 1),
        _instruction(_RETURN, _KILL_PROCESS),
    ]
    return b"".join([*start, *rules])


def _kind_of_socket() -> bytes:
    """Checks what remains of socket and socketpair: the type and the protocol."""
    kind = _load_argument(1) + _instruction(_AND, ~_NOT_THE_TYPE & 0xFFFFFFFF)
    return kind + _only((_STREAM, _DATAGRAM, _SEQPACKET)) + _allow_values(2, _PROTOCOLS)


def _opening(isolation: Isolation, flags: int) -> bytes:
    """Allows what a level lets open calls do, the flags being argument number `flags`."""
    if isolation.has_scratch:
        return _ALLOW_IT
    if isolation.hides_files:
        return _load_argument(flags) + _instruction(_JUMP_BITS, _WRITING, 0, 1) + _fail(errno.EACCES) + _ALLOW_IT
    return _fail(errno.EACCES)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _for_calls(bodies: Mapping[str, bytes]) -> list[bytes]:
    numbers = ALLOWED | CHANGING_FILES | OWN_FILES | UNSUPPORTED | WITH_CONDITIONS | OF_THE_ZYGOTE
    return [_for_call(numbers[name], body) for name, body in bodies.items()]


def _for_call(numbers: Numbers, body: bytes) -> bytes:
    """Runs `body`, which must end in a return, for one system call."""
    number = native(numbers)
    return b"" if number is None else _if_any((number,), body)


def _if_any(values: tuple[int, ...], body: bytes) -> bytes:
    """Runs `body`, which must end in a return, when what is loaded is one of `values`."""
    return b"".join(_instruction(_JUMP_EQUAL, value, 0, len(body) // 8) + body for value in values)


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
    """Denies the call when the low 32 bits of an argument, all the kernel looks at, are none of `values`."""
    return _load_argument(argument) + _only(values)


def _only_bits(argument: int, mask: int) -> bytes:
    """Denies the call when an argument has other bits than those of `mask`; else what follows decides."""
    return _load_argument(argument) + _instruction(_JUMP_BITS, ~mask & 0xFFFFFFFF, 0, 1) + _fail(errno.EPERM)


def _allow_values(argument: int, values: tuple[int, ...]) -> bytes:
    """Allows the call when an argument is one of `values`."""
    return _only_values(argument, values) + _ALLOW_IT


def _allow_up_to(argument: int, value: int) -> bytes:
    return _load_argument(argument) + _instruction(_JUMP_GREATER, value, 0, 1) + _fail(errno.EINVAL) + _ALLOW_IT


def _not_null(argument: int) -> bytes:
    """Denies the call when a pointer is null; else what follows decides."""
    low, high = (_load_argument(argument, high=high) for high in (False, True))
    is_set = _instruction(_JUMP_EQUAL, 0, 0, len(high) // 8 + 2)
    return low + is_set + high + _instruction(_JUMP_EQUAL, 0, 0, 1) + _fail(errno.EPERM)


def _only_null(argument: int) -> bytes:
    """Denies the call when a pointer is not null; else what follows decides."""
    return b"".join(_load_argument(argument, high=high) + _only((0,)) for high in (False, True))


_ALLOW_IT = _instruction(_RETURN, _ALLOW)
