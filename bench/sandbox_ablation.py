"""Which layer stops what: the hostile suite with one layer taken out at a time.

  python -m bench.sandbox_ablation

A hostile program counts as stopped when it did not get what it wants and left the next grading, the files around it and
the network alone; an honest one is served when it gets its verdict. The fork bomb stays out where nothing stops it.
"""

import argparse
import collections
from collections.abc import Iterator

from bench.hostile import attack, processes
from codea1.sandbox.host import zygote
from codea1.sandbox.isolation import Isolation

HARM = ("next grading", "processes left", "files touched", "sandbox harmed")
VARIANTS = {
    "full": (Isolation.FULL, zygote.MODULE),
    "no Landlock": (Isolation.NO_LANDLOCK, zygote.MODULE),
    "no namespaces": (Isolation.NO_NAMESPACES, zygote.MODULE),
    "seccomp only": (Isolation.SECCOMP_ONLY, zygote.MODULE),
    "no seccomp": (Isolation.FULL, "bench.sandbox_without_seccomp"),
}


def unstopped(level: Isolation, module: str) -> Iterator[str]:
    """The names of the programs that went through, or were refused though honest."""
    zygote.MODULE = module
    right = {name: verdicts for name, _, verdicts in attack.all_programs()}
    report = attack.attack_all(level)
    for name, what in report["programs"].items():
        honest = right[name] == {"pass"}
        if (what["verdict"] == "pass") is not honest or any(harm in what for harm in HARM):
            yield name
    yield from (f"network: {reached} was reached" for reached in report["reached"])


def main() -> None:
    argparse.ArgumentParser(prog="python -m bench.sandbox_ablation", description="Which layer stops what.").parse_args()
    all_names = [name for name, _, _ in attack.all_programs()]
    totals = collections.Counter(name.partition(":")[0] for name in all_names)
    found: dict[str, list[str]] = {}
    for variant, (level, module) in VARIANTS.items():
        if variant == "no seccomp":
            del processes.PROGRAMS["fork bomb"]
        found[variant] = list(unstopped(level, module))
    print(f"{'stopped, or served':14}{'of':>6}" + "".join(f"{variant:>16}" for variant in VARIANTS))
    for category, total in totals.items():
        counts = [sum(name.startswith(f"{category}:") for name in names) for names in found.values()]
        print(f"{category:18}{total:>6}" + "".join(f"{total - count:>16}" for count in counts))
    for variant, names in found.items():
        for name in names:
            print(f"{variant}: {name}")


if __name__ == "__main__":
    main()
