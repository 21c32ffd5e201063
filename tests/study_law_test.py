"""What a study's report says of compute, claims, the law and code, against numbers worked out by hand."""

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from codea1.lab.study import figures
from codea1.lab.study.declaration import Arm, Stage, Study, Trial
from codea1.lab.study.figures import kind
from codea1.lab.study.law import doses, levels
from codea1.lab.study.report import write
from codea1.lab.study.results import OWN_SPLIT, Result, Results
from codea1.lab.study.worlds import unlike_training
from codea1.lab.worlds.worlds import WORLDS
from codea1.runtime.errors import BadInput
from tests.conftest import ROOT

Key = tuple[str, int]  # arm, seed


def study_of(arms: Sequence[Arm], **given: object) -> Study:
    seeds = given.pop("seeds", (0, 1, 2))
    stage = Stage("main", "test", tuple(arm.name for arm in arms), seeds, **given)
    by_name = {arm.name: arm for arm in arms}
    return Study("Law", "configs/tiny.py", 60, by_name, (stage,), None)


def ran(passed: float, code: str = "", seconds: float = 10.0, **curves: float) -> Result:
    """A run of which each question passes with the same share; a curve deviates by 0.1 from its mean, up and down."""
    metrics = {"code_pass_at_1": {"per_question": [passed] * 2}}
    evaluations = {
        (OWN_SPLIT, when, ""): {"question_ids": ["mbpp/1", "mbpp/2"], "metrics": metrics}
        for when in ("before", "after")
    }
    if "exposed" in curves:
        curves |= {"wrong": 0.5 * (1 - curves.pop("exposed")), "right": 0.5}
    names = {"g": "code/contrast", "wrong": "code/paid_but_wrong", "right": "code/hidden_pass_rate"}
    rows = [
        {"step": step, **{names[name]: mean + shift for name, mean in curves.items()}}
        for step, shift in enumerate((-0.1, 0.1), start=1)
    ]
    return Result(Trial("test", "", "", 0), {}, evaluations, rows, {}, 60, 2000 * seconds, seconds, code)


def report_of(study: Study, runs: Mapping[Key, Result], folder: Path) -> str:
    (world,) = study.stages[0].worlds
    placed = [replace(run, run=Trial("test", world, arm, seed)) for (arm, seed), run in runs.items()]
    lines = "\n".join(json.dumps(each.row()) for each in placed)
    folder.mkdir(exist_ok=True)
    (folder / "results.gz").write_bytes(gzip.compress(lines.encode()))
    return write(study, Results(str(folder / "results.gz")), str(folder / "report"))


def cells(report: str, first: str) -> list[str]:
    (line,) = [line for line in report.splitlines() if line.startswith(f"| {first} | ")]
    return line.strip("| ").split(" | ")[1:]


def test_the_law_is_fitted_on_the_doses_and_predicts_the_other_arms(tmp_path: Path):
    given = {0.0: (0.0, 0.2), 0.1: (0.4, 0.5), 0.5: (0.8, 0.4), 1.0: (1.0, 0.9)}  # exposure: g, pass@1
    scripted = [Arm(f"p{p}", f"p{p}", "scripted", fields={"game.exposure": p}) for p in given]
    longer = Arm("longer", "longer", "scripted", steps=90, fields={"game.exposure": 0.1})
    others = [Arm("golden", "golden", "golden"), Arm("learner", "learner")]
    study = study_of([*scripted, longer, *others], seeds=(0, 1))
    runs = {(f"p{p}", 0): ran(passed, g=g, exposed=p) for p, (g, passed) in given.items()}
    runs["golden", 0] = ran(0.25, g=0.4)
    runs["learner", 0] = ran(0.425, g=0.2, exposed=0.1)
    runs["learner", 1] = ran(0.655, g=0.9, exposed=0.5)
    assert doses(study) == {f"p{p}": p for p in given}  # all of as many steps
    report = report_of(study, runs, tmp_path)
    # 0.5 before 0.4 is 0.45 twice in the monotone curve: 0.2, 0.45, 0.45, 0.9 at g of 0, 0.4, 0.8, 1. It says 0.325 at
    # 0.2 and 0.675 at 0.9, and of exposures of 0.1 and 0.5 that both have 0.45.
    of_law = report[report.index("## The law") : report.index("## main")]
    assert cells(of_law, "learner") == ["60", "2", "54.0", "55.0", "+4.0 ± 8.5", "30.0", "+9.0 ± 16.3"]
    assert cells(of_law, "golden") == ["60", "1", "25.0", "40.0", "-20.0", "-", "-"]
    # Without itself: 0.3 between 0.2 and 0.4, and 0.767 between 0.5 and 0.9. The first and the last are in no range.
    errors = [cells(of_law, f"p{p}") for p in given]
    assert [row[4] for row in errors] == ["-", "+20.0", "-36.7", "-"]
    assert [row[6] for row in errors] == ["-", "+26.0", "-27.8", "-"]
    assert [row[3::2] for row in errors] == [[f"{100 * g:.1f}", f"{100 * p:.1f}"] for p, (g, _) in given.items()]
    assert cells(of_law, "mean absolute error, doses")[-3:] == ["28.3 of 2, 28.3 of 2", "", "26.9 of 2, 26.9 of 2"]
    assert cells(of_law, "mean absolute error, others")[-3:] == ["12.0 of 2, 10.7 of 3", "", "9.0 of 1, 11.5 of 2"]
    for drawn in ("response.png", "law.png"):
        assert (tmp_path / "report" / drawn).stat().st_size > 10_000
    dosed = {f"p{p}": [runs[f"p{p}", 0]] for p in given}
    two = {"near": (dosed, {"golden": [runs["golden", 0]], "learner": [runs["learner", 0]]}), "far": (dosed, {})}
    assert len(figures.response(study, doses(study), two)) > 10_000
    assert len(figures.law(study, two)) > 10_000
    # What is of other code than the curve is not laid on it.
    runs["golden", 0] = replace(runs["golden", 0], code="beef")
    report = report_of(study, runs, tmp_path)
    of_law = report[report.index("## The law") : report.index("## main")]
    assert "| golden | " not in of_law
    assert cells(of_law, "learner")[4] == "+4.0 ± 8.5"
    assert "`beef` (golden)" in of_law


def test_arms_with_unlike_seeds_are_compared_on_the_seeds_of_both():
    passed = {"most": (0.2, 0.4, 0.9), "two": (None, 0.3, 0.6), "other": (None, None, None, 0.8)}
    arms = {
        arm: [replace(ran(p), run=Trial("test", "", arm, seed)) for seed, p in enumerate(own) if p is not None]
        for arm, own in passed.items()
    }
    assert levels(arms) == pytest.approx({"most": 0.5, "two": 0.3})  # 0.1 and 0.3 below; the third shares no seed
    assert levels({}) == {}


CLAIMS = (("high above low", "high", "low"), ("near above low", "near", "low"), ("low above high", "low", "high"))
ARMS = [Arm(name, name.title()) for name in ("high", "low", "near")]


def claimed(code: str = "") -> dict[Key, Result]:
    """Runs of three arms, of which the last two differ by 0.2, 0 and 0.1 over seeds."""
    runs = {("high", seed): ran(0.8, code, seconds=30) for seed in range(3)}
    runs |= {("low", seed): ran(0.3, seconds=10) for seed in range(3)}
    return runs | {("near", seed): ran(0.3 + more, seconds=20) for seed, more in enumerate((0.2, 0.0, 0.1))}


def test_a_claim_is_judged_by_its_interval(tmp_path: Path):
    runs = claimed()
    arms = [replace(ARMS[0], opponent="low"), *ARMS[1:]]
    report = report_of(study_of(arms, claims=CLAIMS), runs, tmp_path)
    assert "Not in it is what the finished Test LLM cost of: High.\n" in report
    shown, held, contradicted = (cells(report, text) for text, *_ in CLAIMS)
    assert shown == ["", "3 of 3", "+50.0 [+50.0, +50.0]", "-", "30 / 10", "60 / 20", "shown"]
    # Student's t with two degrees of freedom, 4.303, times the deviation over seeds, 10, by the root of three.
    assert held == ["", "3 of 3", "+10.0 [-14.8, +34.8]", "-", "20 / 10", "40 / 20", "not shown"]
    assert (contradicted[2], contradicted[-1]) == ("-50.0 [-50.0, -50.0]", "contradicted")
    assert report.index("(compute_main.png)") < report.index("## Claims") < report.index("## main")
    assert (tmp_path / "report" / "compute_main.png").stat().st_size > 10_000
    del runs["high", 1]
    unfinished = cells(report_of(study_of(ARMS, claims=CLAIMS), runs, tmp_path), "high above low")
    assert unfinished[1:3] + unfinished[-1:] == ["2 of 3", "+50.0 [+50.0, +50.0]", "-"]


def test_compositions_unlike_training_are_told_apart(tmp_path: Path):
    (unlike, *_) = sorted(unlike_training(WORLDS["blind"]))
    runs = {(arm, seed): ran(passed) for arm, passed in (("high", 0.8), ("low", 0.3)) for seed in range(3)}
    for (arm, _), run in runs.items():
        for evaluation in run.evaluations.values():
            evaluation["question_ids"] = [unlike, "int/lt25/three/one"]  # of the second kind training has the negation
            own = [0.5, 0.9] if arm == "high" else [0.4, 0.2]
            evaluation["metrics"] = {"code_pass_at_1": {"per_question": own}}
    study = study_of(ARMS[:2], claims=CLAIMS[:1], primary=(("high", "low"),), worlds=("blind",))
    report = report_of(study, runs, tmp_path)
    # With as many seeds the interval is over questions alone: t with one degree of freedom, 12.706, of 10 and 70.
    both = ["+40.0 [-341.2, +421.2]", "+10.0 [+10.0, +10.0]"]
    assert cells(report, "high above low") == ["blind", "3 of 3", *both, "10 / 10", "20 / 20", "not shown"]
    assert cells(report, "High less Low")[:2] == both


def test_rows_of_different_code_are_not_compared(tmp_path: Path):
    study = study_of(ARMS, claims=CLAIMS, primary=(("high", "low"), ("near", "low")))
    report = report_of(study, claimed("beef"), tmp_path / "mixed")
    assert "High less Low" not in report
    assert cells(report, "Near less Low")[1:] == ["-", "-"]  # of two declared comparisons one cannot be made
    assert cells(report, "high above low") == ["", "0 of 3", "-", "-", "-", "-", "-"]
    assert not list((tmp_path / "mixed" / "report").glob("*.png"))
    said = "rows of different code are not compared, and their digests are `beef` (high); unknown (low, near)."
    assert f"No figure of main: {said}" in report
    assert f"In this part {said}" in report
    assert "different code" not in report_of(study, claimed(), tmp_path / "one")
    of_two = claimed() | {("near", 2): ran(0.4, "beef")}
    report = report_of(study, of_two, tmp_path / "seeds")
    assert "\n| Near | " not in report[report.index("## main") :]  # one arm's seeds are no mean
    assert cells(report, "High less Low")[0] == "+50.0 [+50.0, +50.0]"


def test_arms_that_answered_other_questions_are_not_paired(tmp_path: Path):
    runs = claimed()
    for near in (run for (arm, _), run in runs.items() if arm == "near"):
        for evaluation in near.evaluations.values():
            evaluation["question_ids"] = ["mbpp/1", "mbpp/3"]
    study = study_of(ARMS, primary=(("high", "low"),))
    assert cells(report_of(study, runs, tmp_path), "High less Low")[0] == "+50.0 [+50.0, +50.0]"
    study = study_of(ARMS, primary=(("high", "near"),))
    with pytest.raises(BadInput, match="high and near were not measured on the same questions"):
        report_of(study, runs, tmp_path)
    of_other_code = {key: replace(run, code=key[0]) for key, run in runs.items()}
    assert "not compared" in report_of(study, of_other_code, tmp_path)


def test_fields_in_which_arms_differ_undeclared_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    arms = [replace(ARMS[0], fields={"frozen": "test"}), *ARMS[1:]]
    alphas = {"high": 0.3, "low": 0.5, "near": 0.5}  # the config's file was edited after the first arm
    runs = {
        (arm, seed): replace(run, config={"frozen": "test" * (arm == "high"), "game": {"alpha": alphas[arm]}})
        for (arm, seed), run in claimed().items()
    }
    report = report_of(study_of(arms, primary=(("high", "low"), ("near", "low"))), runs, tmp_path)
    assert [line for line in report.splitlines() if "configs" in line] == [
        "The configs of High and Low also differ in game.alpha, which their recipes do not declare."
    ]


def test_growth_is_told_in_points(tmp_path: Path):
    run = ran(0.5)
    for (_, moment, _), evaluation in run.evaluations.items():
        own = {"per_question": [[0.8, 0.25 if moment == "after" else 0.0]] * 2}
        evaluation["metrics"] = {**evaluation["metrics"], "test_mul": own}
    report = report_of(study_of(ARMS[:1]), {("high", seed): run for seed in range(3)}, tmp_path)
    grown = cells(report[report.index("After less before") :], "High")
    assert grown == ["+0.0 [+0.0, +0.0]", "-", "-", "+20.0 [+20.0, +20.0]"]


@pytest.mark.parametrize(
    ("arm", "said"),
    [
        (Arm("a", "a"), "a Test LLM learns"),
        (Arm("a", "a", fields={"frozen": "test"}), "frozen Test LLM"),
        (Arm("a", "a", opponent="b"), "frozen Test LLM"),
        (Arm("a", "a", "golden"), "trivial baseline: no Test LLM"),
        (Arm("a", "a", "scripted"), "trivial baseline: no Test LLM"),
    ],
)
def test_trivial_baselines_are_told_from_what_learns(arm: Arm, said: str):
    assert kind(arm) == said
