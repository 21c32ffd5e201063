"""Programs that attack the grader: none passes, none hurts anything outside its process, none outlives its grading."""

import json
import os
import sys

import pytest

from bench.hostile.attack import FORMS, all_programs
from codea1.runtime.errors import BadInput
from codea1.sandbox.host.pool import SandboxPool
from codea1.sandbox.isolation import Isolation
from tests.sandbox_calls import python_for, run_python

NOBODY = 65534
UNIMPORTABLE = ("benign: an unimported module", "benign: the null device")  # they open files
PROGRAMS = {name: right for name, _, right in all_programs()}
AS_A_WHOLE_PROGRAM = {  # what ends otherwise where the answer is printed, and threads are waited for
    "processes: outlive as a thread": {"timeout"},
    "resources: many large strings": {"error", "timeout"},  # of the 0.25 s, building them takes 0.22
    "resources: deep value": {"error"},
    "benign: prints": {"fail"},
    "benign: a float that is whole": {"fail"},
    "benign: a decimal": {"fail"},
    "benign: a main guard": {"error"},
}

TWELVE = (  # that run in `make test`: two of each kind that is hostile
    *("forging: equal to all", "forging: forged verdict frame", "network: connect", "network: abstract socket"),
    *("files: read the trainer's environment", "files: write over a file", "processes: kill the trainer"),
    *("processes: fork bomb", "kernel: unshare users", "poisoning: a patched encoder", "resources: loop"),
    "resources: memory in steps",
)


LEVELS = [("full", None, "function"), ("no_namespaces", NOBODY, "function")]
if os.environ.get("CODEA1_HOSTILE") == "all":  # `make test-long`: every level, as both users, and every form
    LEVELS = [(level.value, user, form) for level in Isolation for user in (None, NOBODY) for form in FORMS]


@pytest.fixture(
    scope="module",
    params=LEVELS,
    ids=[f"{level}, {form}" + (" as another user" if user else "") for level, user, form in LEVELS],
)
def attacks(request) -> dict[str, object]:
    """All programs run at one level by one user, in a process of their own."""
    level, user, form = request.param
    if user is not None and os.getuid() != 0:
        pytest.skip("this is not root, who may become another user")
    try:
        SandboxPool(1, isolation=level).close()
    except BadInput as error:
        pytest.skip(str(error))
    done = run_python(python_for(user), "-m", "bench.hostile.attack", level, form, user=user)
    assert done.returncode == 0, done.stderr
    return {"level": Isolation(level), "form": form, **json.loads(done.stdout)}


def test_twelve_programs_of_all_kinds_are_judged_as_they_should_be():
    done = run_python(sys.executable, "-m", "bench.hostile.attack", "auto", "function", *TWELVE)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["programs"].keys() == set(TWELVE)
    for name, judged in report["programs"].items():
        assert judged["verdict"] in PROGRAMS[name], name
        assert judged.keys() == {"verdict", "detail"}, name  # and did no harm
    assert report["reached"] == []


def test_every_program_is_judged_as_it_should_be(attacks):
    assert sum(not name.startswith(("benign", "scratch")) for name in PROGRAMS) >= 150
    refusable = () if attacks["level"].has_scratch else tuple(n for n in PROGRAMS if n.startswith("scratch"))
    if not attacks["level"].hides_files:
        refusable += UNIMPORTABLE
    right = PROGRAMS | (AS_A_WHOLE_PROGRAM if attacks["form"] == "stdout" else {})
    wrong = {
        name: report
        for name, report in attacks["programs"].items()
        if report["verdict"] not in right[name] and not (name in refusable and report["verdict"] == "error")
    }
    assert wrong == {}
    assert all("numpy" in name for name in PROGRAMS.keys() - attacks["programs"].keys())  # not every Python has it


@pytest.mark.parametrize("harm", ["next grading", "bystander", "processes left", "files touched", "sandbox harmed"])
def test_no_program_leaves_anything(attacks, harm):
    assert {name: report[harm] for name, report in attacks["programs"].items() if harm in report} == {}


def test_nobody_reached_the_network(attacks):
    assert attacks["reached"] == []
