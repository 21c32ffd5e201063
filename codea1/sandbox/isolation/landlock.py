"""Landlock, where the kernel has it: untrusted code reads Python's libraries and writes to its scratch, nothing else.

Without it a program could read what the sandbox's user can read: data sets with their answers, or under /proc another
process of the same user.

Standard library only: this runs inside the sandbox.
"""

import ctypes
import errno
import os
import stat
import struct
import sys
from collections.abc import Sequence

# The same numbers on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1
_WRITE_FILE, _READ_FILE, _READ_DIRECTORY = 1 << 1, 1 << 2, 1 << 3
_CHANGE = (
    _WRITE_FILE | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8
)  # write, remove directories and files, make directories and files
_ALL_OF_FIRST_VERSION = (1 << 13) - 1
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_SINCE = {2: _REFER, 3: _TRUNCATE, 5: _IOCTL}  # file rights that later versions of Landlock know
_TCP_SINCE, _SCOPES_SINCE = 4, 6
_BIND_AND_CONNECT = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11
_UNAVAILABLE = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)  # not built in, not enabled, kept away by a container

_SYSTEM_PATHS = (
    "/lib /lib64 /usr/lib /usr/lib64 /usr/share/zoneinfo /etc/localtime /etc/ld.so.cache "
    "/dev/null /dev/zero /dev/random /dev/urandom"
)
_libc = ctypes.CDLL(None, use_errno=True)


def library_paths() -> list[str]:
    """What an honest program may need to read: the modules on `sys.path` and shared libraries, where they exist."""
    paths = [*sys.path, os.path.join(sys.base_prefix, "lib"), *_SYSTEM_PATHS.split()]
    return [path for path in paths if path and os.path.exists(path)]


def without(hidden: str, paths: Sequence[str]) -> list[str]:
    """The same paths, but for one that holds the folder `hidden` what lies beside that."""
    shown: list[str] = []
    for path in paths:
        real = os.path.realpath(path)
        if hidden == real or hidden.startswith(f"{real}/"):
            beside = [os.path.join(real, name) for name in os.listdir(real)]
            shown += without(hidden, beside) if hidden != real else []
        else:
            shown.append(path)
    return shown


def version() -> int:
    """The kernel's Landlock version, 0 where it has none."""
    found = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)
    if found < 0 and ctypes.get_errno() not in _UNAVAILABLE:
        _fail("landlock_create_ruleset")
    return max(found, 0)


class Ruleset:
    """Rules in the kernel, made once, that any number of processes put on themselves."""

    def __init__(self, readable: Sequence[str], writable: Sequence[str]) -> None:
        """Allows to read at or beneath `readable`, and to change at or beneath `writable`. Raises OSError."""
        known = version()
        if not known:
            raise OSError(errno.ENOSYS, "this kernel, or this container, has no Landlock")
        self._files = _ALL_OF_FIRST_VERSION
        for since, right in _SINCE.items():
            self._files |= right if known >= since else 0
        fields = [self._files]
        fields += [_BIND_AND_CONNECT] * (known >= _TCP_SINCE) + [_ABSTRACT_SOCKETS_AND_SIGNALS] * (
            known >= _SCOPES_SINCE
        )
        handled = struct.pack(f"={len(fields)}Q", *fields)
        self.fd = _libc.syscall(_CREATE_RULESET, handled, ctypes.c_size_t(len(handled)), 0)
        if self.fd < 0:
            _fail("landlock_create_ruleset")
        for path in readable:
            self._allow(path, _READ_FILE | _READ_DIRECTORY)
        for path in writable:
            self._allow(path, self._files & (_READ_FILE | _READ_DIRECTORY | _CHANGE | _REFER | _TRUNCATE))

    def restrict_self(self) -> None:
        """Confines this thread and all it will start, for good. Needs no_new_privs. Raises OSError."""
        if _libc.syscall(_RESTRICT_SELF, self.fd, 0):
            _fail("landlock_restrict_self")

    def _allow(self, path: str, rights: int) -> None:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISDIR(os.fstat(fd).st_mode):
                rights &= _READ_FILE | _WRITE_FILE | _TRUNCATE
            rule = struct.pack("=Qi", rights, fd)
            if _libc.syscall(_ADD_RULE, self.fd, _RULE_PATH_BENEATH, rule, 0):
                _fail(f"landlock_add_rule for {path}")
        finally:
            os.close(fd)


def _fail(call: str) -> None:
    code = ctypes.get_errno()
    raise OSError(code, f"{call}: {os.strerror(code)}")
