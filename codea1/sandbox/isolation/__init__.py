"""How far a sandbox keeps untrusted programs apart from the machine: the levels, strongest first.

Every level has rlimits, a seccomp filter, no privileges and, where the trainer is root, a user of its own. They differ
in the two things that not every kernel or container grants.

Standard library only: this runs inside the sandbox too.
"""

from enum import StrEnum


class Isolation(StrEnum):
    """A level; the value is what configs say."""

    FULL = "full"
    NO_LANDLOCK = "no_landlock"
    NO_NAMESPACES = "no_namespaces"
    SECCOMP_ONLY = "seccomp_only"

    @property
    def namespaces(self) -> bool:
        """Programs have their own process table, network, IPC and a read-only view of Python's libraries alone."""
        return self in (Isolation.FULL, Isolation.NO_LANDLOCK)

    @property
    def landlock(self) -> bool:
        """The kernel's Landlock lets programs read Python's libraries and no other file."""
        return self in (Isolation.FULL, Isolation.NO_NAMESPACES)

    @property
    def has_scratch(self) -> bool:
        """Programs have a small folder to write to: namespaces bound it, Landlock keeps neighbours out of it."""
        return self is Isolation.FULL

    @property
    def hides_files(self) -> bool:
        """Programs may open files, since they see none but libraries. Otherwise opening is denied altogether."""
        return self is not Isolation.SECCOMP_ONLY

    @property
    def strength(self) -> int:
        """3 for the strongest level to 0 for the weakest, as metrics show it."""
        return len(Isolation) - 1 - list(Isolation).index(self)


AUTO = "auto"  # in a config, for the strongest level that the machine has
ISOLATIONS = (AUTO, *(level.value for level in Isolation))
