"""The sandbox's zygote with its confinement taken out, to measure what isolation costs. For our own programs only."""

import sys

from codea1.sandbox import limits, worker
from codea1.sandbox.isolation import Isolation

limits.confine_zygote = lambda isolation, max_fds: limits.die_with_parent()
limits.ChildLimits.confine = lambda self, place, cpu_seconds, memory_bytes: limits.die_with_parent()

if __name__ == "__main__":
    worker.main(
        int(sys.argv[1]),
        with_numpy=sys.argv[2] == "numpy",
        isolation=Isolation.NO_NAMESPACES,
        max_children=int(sys.argv[4]),
        uid=None,
    )
