"""Which files children may read and write: by Landlock, where the kernel has it, Python's libraries and a scratch.

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

from codea1.sandbox.isolation import Isolation
from codea1.sandbox.isolation.kernel import check, libc

# The same numbers on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1
_WRITE_FILE, _READ_FILE, _READ_DIRECTORY = 1 << 1, 1 << 2, 1 << 3
_CHANGE = _WRITE_FILE | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8  # remove and make directories and files
_ALL_OF_FIRST_VERSION = (1 << 13) - 1
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_SINCE = {2: _REFER, 3: _TRUNCATE, 5: _IOCTL}  # file rights that later versions of Landlock know
_TCP_SINCE, _SCOPES_SINCE = 4, 6
_BIND_AND_CONNECT = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11
_UNAVAILABLE = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)  # not built in, not enabled, kept away by a container

SCRATCH_MODE = 0o700
LIBRARIES = ("site-packages", "dist-packages")  # how the paths of Python's libraries end
_SYSTEM_PATHS = (
    "/lib /lib64 /usr/lib /usr/lib64 /usr/share/zoneinfo /etc/localtime /etc/ld.so.cache "
    "/dev/null /dev/zero /dev/random /dev/urandom"
)


def library_paths() -> list[str]:
    """Returns what an honest program may need to read: modules and shared libraries, where they exist."""
    paths = [*sys.path, os.path.join(sys.base_prefix, "lib"), *_SYSTEM_PATHS.split()]
    return [path for path in paths if path and os.path.exists(path)]


def without(hidden: str, paths: Sequence[str]) -> list[str]:
    """Returns the same paths, but for one that holds the folder `hidden`: there, its other entries."""
    shown: list[str] = []
    for path in paths:
        real = os.path.realpath(path)
        if hidden == real or hidden.startswith(f"{real}/"):
            others = [os.path.join(real, name) for name in os.listdir(real)]
            shown += without(hidden, others) if hidden != real else []
        else:
            shown.append(path)
    return shown


def landlock_version() -> int:
    """Returns the kernel's Landlock version, 0 where it has none."""
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)
    return 0 if version < 0 and ctypes.get_errno() in _UNAVAILABLE else check(version, "landlock_create_ruleset")


class FileAccess:
    """What one child at a time may read and write: Landlock rules in the kernel and a scratch, where it has them."""

    def __init__(self, isolation: Isolation, readable: Sequence[str], scratch: str | None) -> None:
        """Makes the rules of a level with Landlock: to read at or beneath `readable`, to change beneath the scratch.

        Raises OSError.
        """
        self._scratch = scratch
        self._rules = None
        if isolation.landlock:
            self._rules = _make_rules(readable, [] if scratch is None else [scratch, os.devnull])

    def confine(self) -> None:
        """Confines this process, a new child, and all it will start, for good. Needs no_new_privs. Raises OSError."""
        if self._scratch is not None:
            os.chdir(self._scratch)
        if self._rules is not None:
            check(libc.syscall(_RESTRICT_SELF, self._rules, 0), "landlock_restrict_self")

    def clear(self) -> None:
        """Empties the scratch, whose child is dead, and gives it back the mode it had."""
        if self._scratch is None:
            return
        os.chmod(self._scratch, SCRATCH_MODE)  # which programs can change
        while names := os.listdir(self._scratch):
            for name in names:
                path = os.path.join(self._scratch, name)
                try:
                    os.unlink(path)
                except IsADirectoryError:  # its contents move up, however deep it is: paths stay short
                    for inside in os.listdir(path):
                        os.rename(os.path.join(path, inside), os.path.join(self._scratch, os.urandom(16).hex()))
                    os.rmdir(path)


def _make_rules(readable: Sequence[str], writable: Sequence[str]) -> int:
    """Returns the descriptor of rules that any number of processes can put on themselves. Raises OSError."""
    known = landlock_version()
    if not known:
        raise OSError(errno.ENOSYS, "this kernel, or this container, has no Landlock")
    handled = _ALL_OF_FIRST_VERSION | sum(right for since, right in _SINCE.items() if known >= since)
    fields = [handled]
    fields += [_BIND_AND_CONNECT] * (known >= _TCP_SINCE)
    fields += [_ABSTRACT_SOCKETS_AND_SIGNALS] * (known >= _SCOPES_SINCE)
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    fd = libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    rules = check(fd, "landlock_create_ruleset")
    read = _READ_FILE | _READ_DIRECTORY
    write = handled & (read | _CHANGE | _REFER | _TRUNCATE)
    for path, rights in [*((path, read) for path in readable), *((path, write) for path in writable)]:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISDIR(os.fstat(fd).st_mode):
                rights &= _READ_FILE | _WRITE_FILE | _TRUNCATE
            rule = struct.pack("=Qi", rights, fd)
            check(libc.syscall(_ADD_RULE, rules, _RULE_PATH_BENEATH, rule, 0), f"landlock_add_rule for {path}")
        finally:
            os.close(fd)
    return rules
