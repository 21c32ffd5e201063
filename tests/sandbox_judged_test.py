"""When a whole set of programs tells nothing about them: the rule that stops a run."""

import contextlib

import pytest

from codea1.runtime.errors import BadInput
from codea1.sandbox.host import ScriptRun
from codea1.sandbox.host.grading import LOST, require_judged, why_lost, why_unjudged
from codea1.values.verdict import Verdict


@pytest.mark.parametrize(
    ("verdict", "detail", "lost", "unjudged"),
    [
        (Verdict.PASS, "", "", ""),
        (Verdict.FAIL, "script: no", "", ""),
        (Verdict.TIMEOUT, "more than 60 CPU seconds, or asleep", "", ""),
        (Verdict.ERROR, "candidate exited with status 1", "", ""),
        (Verdict.ERROR, "candidate raised on load: SyntaxError", "", ""),
        (Verdict.ERROR, "script exited with status 1", "", "script exited with status 1"),
        (Verdict.ERROR, "script raised ImportError: numpy", "", "script raised ImportError: numpy"),
        (Verdict.ERROR, "script raised TypeError: object of type 'NoneType' has no len()", "", ""),
        (Verdict.INFRA, "", LOST, LOST),
        (Verdict.INFRA, "a child cannot be confined", *["a child cannot be confined"] * 2),
    ],
)
def test_why_a_program_was_not_judged(verdict, detail, lost, unjudged):
    assert why_lost([Verdict.PASS, verdict], ["", detail]) == lost
    assert why_unjudged(ScriptRun(verdict, detail, 0.0)) == unjudged


NONE_JUDGED = [  # why programs were not judged, and what is said of that; nothing, where it says something about them
    ([], ""),
    ([LOST] * 3, ""),  # by chance
    ([LOST] * 99 + [""], ""),
    ([LOST] * 4, "all 4 programs .* not theirs: the sandbox failed; `python -m codea1.sandbox`"),
    (["script exited with status 1"] * 48, "all 48 programs for the validation .*: script exited with status 1;"),
    (["script raised ImportError: numpy"] * 7, "all 7 programs .*: script raised ImportError: numpy;"),
    (["no memory"] * 2 + [LOST] * 5, "all 7 programs .*: the sandbox failed;"),
]


@pytest.mark.parametrize(("reasons", "told"), NONE_JUDGED)
def test_where_nothing_was_judged_one_sentence_says_why(reasons, told):
    with pytest.raises(BadInput, match=told) if told else contextlib.nullcontext():
        require_judged(reasons, "programs for the validation questions")
