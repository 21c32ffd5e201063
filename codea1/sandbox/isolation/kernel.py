"""What the sandbox asks of the kernel past Python's library: system calls whose failures raise, and capabilities.

Standard library only: this runs inside the sandbox.
"""

import ctypes
import os
import struct

DAC_OVERRIDE, SETGID, SETUID, SYS_ADMIN = 1, 6, 7, 21  # of linux/capability.h
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_KEEPCAPS, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 8, 22, 38
_CAPABILITIES_3 = struct.pack("=Ii", 0x20080522, 0)
libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> int:
    """Returns the result of a call, or raises OSError where it is negative."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def prctl(option: int, value: int) -> None:
    """Changes what the kernel knows of this process. Raises OSError."""
    check(libc.prctl(option, value, 0, 0, 0), f"prctl({option})")


def keep_only(*capabilities: int) -> None:
    """Gives up, for good, all but these, of which some may be missing already. Raises OSError."""
    kept = _permitted() & sum(1 << capability for capability in capabilities) if capabilities else 0
    check(libc.capset(_CAPABILITIES_3, struct.pack("=6I", kept, kept, 0, 0, 0, 0)), "cannot give up capabilities")


def holds(*capabilities: int) -> bool:
    """Returns whether this process has all of these. Raises OSError."""
    return all(_permitted() >> capability & 1 for capability in capabilities)


def become(uid: int) -> None:
    """Changes from root to an otherwise unused user, keeping the right to make namespaces. Raises OSError."""
    libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    keep_only(SYS_ADMIN)
    libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # or its own files in /proc, which name its namespaces, are root's


def _permitted() -> int:
    held = ctypes.create_string_buffer(24)
    check(libc.capget(_CAPABILITIES_3, held), "cannot read capabilities")
    return struct.unpack("=6I", held.raw)[1]
