"""The sandbox's zygote with its confinement taken out, to measure what isolation costs. For our own programs only."""

from codea1.sandbox.child.zygote import start
from codea1.sandbox.isolation import limits

limits.confine_zygote = lambda isolation, max_fds: limits.die_with_parent()
limits.ChildLimits.confine = lambda self, place, cpu_seconds, memory_bytes: limits.die_with_parent()

__all__ = ["start"]
