"""Whether a set of programs was judged at all: where none was, the run must stop and somebody look at the sandbox.

A sandbox that fails now and then costs samples, which are masked. One that always fails would otherwise look like
programs that are all wrong, or like steps from which nothing is learned.
"""

from collections import Counter
from collections.abc import Sequence

from codea1.runtime.errors import BadInput
from codea1.sandbox.host.results import ScriptRun
from codea1.values.verdict import Verdict

LOST = "the sandbox failed"
# A script that raises something else may do so over what a program returned.
_CANNOT_RUN = ("script exited", "script was killed", "script raised ImportError", "script raised ModuleNotFoundError")
MIN_PROGRAMS = 4  # fewer may all be lost by chance


def why_lost(verdicts: Sequence[Verdict], details: Sequence[str]) -> str:
    """Returns why the sandbox failed on a program, by the verdicts and details of its tests; empty where it did not."""
    lost = [detail for verdict, detail in zip(verdicts, details, strict=True) if verdict is Verdict.INFRA]
    return next(filter(None, lost), LOST) if lost else ""


def why_unjudged(run: ScriptRun) -> str:
    """Returns why a check script said nothing about a program: it could not run, or the sandbox failed; else ""."""
    if run.verdict is Verdict.ERROR and run.detail.startswith(_CANNOT_RUN):
        return run.detail
    return why_lost([run.verdict], [run.detail])


def require_judged(reasons: Sequence[str], what: str) -> None:
    """Raises BadInput where none of a few programs or more was judged, for a reason that is not theirs.

    Several hosts decide by the reasons of all of them, inside of `Hosts.agreed`.

    Args:
      reasons: why each program that was run was not judged; empty where it was.
      what: the programs, in the plural.
    """
    if len(reasons) < MIN_PROGRAMS or "" in reasons:
        return
    ((reason, _),) = Counter(reasons).most_common(1)
    raise BadInput(
        f"all {len(reasons)} {what} failed for a reason that is not theirs: {reason}; `python -m codea1.sandbox` tells "
        "what works on this machine."
    )
