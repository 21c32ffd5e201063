"""Machines that this one is not: a process that may not make some system calls, nor what it starts."""

import ctypes
import errno

from codea1.sandbox.isolation import seccomp

UNSHARE, PRCTL, LANDLOCK_CREATE_RULESET = (272, 97), (157, 167), (444, 444)
_NO_NEW_PRIVS = 38


def deny(*calls: tuple[int, int], code: int = errno.EPERM) -> None:
    """Denies to this process, for good, calls given by their x86_64 and aarch64 numbers."""
    ctypes.CDLL(None).prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    rules = [seccomp._for_call(numbers, seccomp._fail(code)) for numbers in calls]
    seccomp.Filter(seccomp._assemble([*rules, seccomp._instruction(seccomp._RETURN, seccomp._ALLOW)])).install()


def deny_seccomp() -> None:
    """Denies to this process, for good, to install another filter."""
    ctypes.CDLL(None).prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    is_filter = seccomp._instruction(seccomp._JUMP_EQUAL, 22, 0, 1) + seccomp._fail(errno.EINVAL)
    body = seccomp._load_argument(0) + is_filter + seccomp._instruction(seccomp._RETURN, seccomp._ALLOW)
    rules = [seccomp._for_call(PRCTL, body), seccomp._instruction(seccomp._RETURN, seccomp._ALLOW)]
    seccomp.Filter(seccomp._assemble(rules)).install()
