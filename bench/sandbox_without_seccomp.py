"""The sandbox's zygote without its system-call filters: what they stop is measured against it."""

import sys

from codea1.sandbox import seccomp, worker
from codea1.sandbox.isolation import Isolation

seccomp.Filter.install = lambda self: None

if __name__ == "__main__":
    worker.main(
        int(sys.argv[1]),
        with_numpy=sys.argv[2] == "numpy",
        isolation=Isolation(sys.argv[3]),
        max_children=int(sys.argv[4]),
        uid=int(sys.argv[5]) if sys.argv[5] != "-" else None,
    )
