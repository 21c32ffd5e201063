"""Landlock, where the kernel has it: untrusted code can read Python's libraries and no other file.

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

# The same numbers on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
_EXECUTE, _READ_FILE, _READ_DIRECTORY = 1 << 0, 1 << 2, 1 << 3
_UNAVAILABLE = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)  # not built in, not enabled, kept away by a container

_SYSTEM_PATHS = (
    "/lib /lib64 /usr/lib /usr/lib64 /usr/share/zoneinfo /etc/localtime /etc/ld.so.cache "
    "/dev/null /dev/zero /dev/random /dev/urandom"
)
_libc = ctypes.CDLL(None, use_errno=True)


def library_paths() -> list[str]:
    """What an honest program may need to read: the modules on `sys.path` and shared libraries."""
    return [*sys.path, os.path.join(sys.base_prefix, "lib"), *_SYSTEM_PATHS.split()]


def allow_reading_only(paths: list[str]) -> bool:
    """Confines this thread and all it will start to reading files at or beneath `paths`; missing ones are ignored.

    Needs no_new_privs. Returns False where the kernel has no Landlock. Raises OSError when it has and refuses.
    """
    handled = struct.pack("=Q", _EXECUTE | _READ_FILE | _READ_DIRECTORY)
    ruleset = _libc.syscall(_CREATE_RULESET, handled, ctypes.c_size_t(len(handled)), 0)
    if ruleset < 0:
        if ctypes.get_errno() in _UNAVAILABLE:
            return False
        _fail("landlock_create_ruleset")
    try:
        for path in filter(None, paths):
            _allow(ruleset, path)
        if _libc.syscall(_RESTRICT_SELF, ruleset, 0):
            _fail("landlock_restrict_self")
    finally:
        os.close(ruleset)
    return True


def _allow(ruleset: int, path: str) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        is_directory = stat.S_ISDIR(os.fstat(fd).st_mode)
        allowed = _READ_FILE | _READ_DIRECTORY if is_directory else _READ_FILE
        rule = struct.pack("=Qi", allowed, fd)
        if _libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0):
            _fail("landlock_add_rule")
    finally:
        os.close(fd)


def _fail(call: str) -> None:
    code = ctypes.get_errno()
    raise OSError(code, f"{call}: {os.strerror(code)}")
