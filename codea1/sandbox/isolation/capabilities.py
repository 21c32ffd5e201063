"""Linux capabilities of this process, and becoming a user without any.

Standard library only: this runs inside the sandbox.
"""

import ctypes
import os
import struct

DAC_OVERRIDE, SETGID, SETUID, SYS_ADMIN = 1, 6, 7, 21  # of linux/capability.h
_VERSION_3 = 0x20080522
_PR_SET_DUMPABLE, _PR_SET_KEEPCAPS = 4, 8
_HEADER = struct.pack("=Ii", _VERSION_3, 0)
_libc = ctypes.CDLL(None, use_errno=True)


def keep_only(*capabilities: int) -> None:
    """Gives up, for good, all but these, of which some may be missing already. Raises OSError."""
    kept = _permitted() & sum(1 << capability for capability in capabilities) if capabilities else 0
    _check(_libc.capset(_HEADER, struct.pack("=6I", kept, kept, 0, 0, 0, 0)), "cannot give up capabilities")


def holds(*capabilities: int) -> bool:
    """Whether this process has all of these. Raises OSError."""
    return all(_permitted() >> capability & 1 for capability in capabilities)


def _permitted() -> int:
    held = ctypes.create_string_buffer(24)
    _check(_libc.capget(_HEADER, held), "cannot read capabilities")
    return struct.unpack("=6I", held.raw)[1]


def become(uid: int) -> None:
    """Changes from root to an otherwise unused user, keeping the right to make namespaces. Raises OSError."""
    _libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    keep_only(SYS_ADMIN)
    _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # or its own files in /proc, which name its namespaces, are root's


def _check(result: int, what: str) -> None:
    if result:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
