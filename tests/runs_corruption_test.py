"""A saved run with one file damaged, in every way there is: each is told in one sentence that names the file."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath

from codea1.evaluation.result_files import read_evaluation, write_evaluation
from codea1.lab.report.run_report import show_report
from codea1.lab.runs.fsck import fsck
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from codea1.runs.lock import locked
from codea1.runs.metrics import read_metrics
from codea1.runs.recorded import recorded
from codea1.runs.samples import Samples
from codea1.runtime.errors import BadInput
from codea1.storage.objects import move
from codea1.training.record import Record
from tests.conftest import config_of_steps

CONFIG = {"seed": 0, "steps": 4, "game": {"alpha": 0.5, "prompts": "tiny"}}
ARRAYS = {"code": {"w": jnp.arange(3000.0)}, "key": jax.random.key(0)}
METRIC = {"mean": 0.5, "low": 0.25, "high": 0.75, "per_question": [0.0, 1.0]}
EVALUATION = {"split": "test", "questions": 2, "question_ids": ["a", "b"], "metrics": {"x": METRIC}}
SAMPLE = {"player": "code", "question_id": "q", "solution": 0, "reward": 0.5, "advantage": 0.0, "reward_parts": {}}

Damage = Callable[[Path], object]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps, the second and the fourth of which are saved."""
    workdir = tmp_path_factory.mktemp("whole") / "run"
    folder = RunFolder.open(str(workdir), CONFIG)
    checkpoints = Checkpoints(folder.checkpoints, keep_last=2, keep_best=0)
    with Record(folder, config_of_steps(4), -1, -1, cursor={}) as record:
        record.write_evaluation("before", {"step": 0, **EVALUATION})
        for step in range(1, 5):
            record.write_metrics(step, {"code/reward": step / 7})
            sample = {"step": step, **SAMPLE, "masked": "", "selected": True}
            record.write_samples(step, [sample | {"text": "a"}, sample | {"text": "b"}])
            if step % 2 == 0:
                state = {"book": {"q": [step]}, "record": record.cursor()}
                checkpoints.save(step, arrays(step), state, step / 10)
    checkpoints.close()
    return workdir


def arrays(step: int) -> dict:
    return jax.tree.map(lambda x: x * step if x.dtype == jnp.float32 else x, ARRAYS)


def resume(workdir: Path, allow_previous_step: bool = False) -> int:
    """Takes the run up as training does, to the first row of the next step, and returns the step it goes on from."""
    folder = RunFolder.open(str(workdir), CONFIG)
    checkpoints = Checkpoints(folder.checkpoints, keep_last=2, keep_best=1)
    step, _ = checkpoints.latest(allow_previous_step)
    if step is None:
        return -1
    target = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), ARRAYS)
    restored, state = checkpoints.restore(step, target)
    np.testing.assert_array_equal(restored["code"]["w"], arrays(step)["code"]["w"])
    assert state["book"] == {"q": [step]}
    with Record(folder, config_of_steps(4), step, step, recorded(state)) as record:
        for note in checkpoints.continue_from(step, folder.set_aside):
            record.progress.print(note)
        record.write_metrics(step + 1, {})
        state = {"book": {"q": [step + 1]}, "record": record.cursor()}
    checkpoints.save(step + 1, arrays(step + 1), state, None)
    checkpoints.close()
    print(*checkpoints.notes)
    return step


def read_all(workdir: Path) -> None:
    """Reads the run as its readers do."""
    folder = RunFolder.existing(str(workdir))
    Checkpoints(folder.checkpoints, 1, 0, read_only=True).named("last")
    read_metrics(folder.metrics)
    read_evaluation(folder, "before")
    show_report(folder, print)
    samples = Samples(folder)
    for step in samples.steps():
        list(samples.read(step))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    """One bit in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def swap(old: str, new: str) -> Damage:
    def swap(path: Path) -> None:
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new, 1))

    return swap


def without_line(number: int) -> Damage:
    def without_line(path: Path) -> None:
        lines = path.read_text().splitlines(True)
        path.write_text("".join(lines[:number] + lines[number + 1 :]))

    return without_line


def twice(path: Path) -> None:
    path.write_text(path.read_text() * 2)


def binary(path: Path) -> None:
    path.write_bytes(b"\xff\xfe" + path.read_bytes())


LAST = "checkpoints/4"
IN_A_STEP = ("state/metadata", "score/metadata", "arrays/_METADATA", "arrays/manifest.ocdbt", "manifest.json")
RESUMED = [  # which file, how it is damaged, and a word of the sentence besides the file's name
    *[(f"{LAST}/{name}", damage, "") for name in IN_A_STEP for damage in (cut, empty, flip, Path.unlink)],
    *[(f"{LAST}/arrays/[data]", damage, "damaged") for damage in (cut, empty, flip, grow)],
    (f"{LAST}/arrays/[data]", Path.unlink, "missing"),
    (f"{LAST}/arrays", shutil.rmtree, "missing"),
    ("config.json", cut, "JSON"),
    ("config.json", empty, "JSON"),
    ("config.json", binary, "JSON"),
    ("config.json", Path.unlink, "no config.json"),
    ("config.json", swap('"seed": 0', '"seed": 1'), "seed is 1 there and 0 here"),
    ("config.json", swap('"steps"', '"stepz"'), "stepz"),
    ("metrics.jsonl", without_line(1), "not what step 4 was saved with"),
    ("metrics.jsonl", without_line(3), "not what step 4 was saved with"),
    ("metrics.jsonl", cut, "not what step 4 was saved with"),
    ("metrics.jsonl", swap("0.1428", "0.1429"), "not what step 4 was saved with"),
    ("metrics.jsonl", swap('"step":2', '"step":3'), "line 3: step 3 comes after step 3"),
    ("metrics.jsonl", swap('"step":2', '"stop":2'), "line 2: no step"),
    ("metrics.jsonl", swap("{", ""), "line 1: not a JSON object"),
    ("metrics.jsonl", twice, "line 5: step 1 comes after step 4"),
    *[("samples/step_000001.jsonl.zst", damage, "step 4 was saved with") for damage in (cut, empty, flip, grow)],
    *[("evaluations/before.json", damage, "step 4 was saved with") for damage in (cut, flip, swap("0.25", "0.35"))],
]
READ = [
    ("config.json", cut, "JSON"),
    ("config.json", Path.unlink, "no config.json"),
    (f"{LAST}/arrays/[data]", flip, "damaged"),
    (f"{LAST}/manifest.json", flip, "damaged"),
    ("metrics.jsonl", swap("}", "]"), "line 1: not a JSON object"),
    ("metrics.jsonl", binary, "line 1: not a JSON object"),
    ("evaluations/before.json", cut, "not an evaluation"),
    ("evaluations/before.json", empty, "not an evaluation"),
    ("evaluations/before.json", swap('"mean"', '"moan"'), "mean"),
    ("evaluations/before.json", swap("0.25", '"x"'), "not an evaluation"),
    *[("samples/step_000002.jsonl.zst", damage, "damaged") for damage in (cut, empty, flip, grow, binary)],
]


def damaged(whole: Path, tmp_path: Path, name: str, damage: Damage) -> tuple[Path, str]:
    """A copy of the run with one damaged file, and that file's name."""
    workdir = tmp_path / "run"
    shutil.copytree(whole, workdir)
    folder, data, _ = name.partition("[data]")
    path = max((workdir / folder).rglob("d/*"), key=lambda path: path.stat().st_size) if data else workdir / name
    damage(path)
    return workdir, path.name


def sentence(refusal: pytest.ExceptionInfo[BadInput]) -> str:
    text = str(refusal.value)
    assert text.endswith((".", ")"))
    assert "Traceback" not in text
    assert len(text.splitlines()) == 1
    return text


def test_what_is_not_damaged_is_read_and_goes_on(whole: Path, tmp_path: Path):
    workdir, _ = damaged(whole, tmp_path, "config.json", lambda path: None)
    read_all(workdir)
    assert resume(workdir) == 4
    assert [row["step"] for row in read_metrics(RunFolder.existing(str(workdir)).metrics)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("name", "damage", "words"), RESUMED)
def test_a_damaged_run_is_not_taken_up(whole: Path, tmp_path: Path, name: str, damage: Damage, words: str):
    workdir, damaged_file = damaged(whole, tmp_path, name, damage)
    before = contents(workdir)
    with pytest.raises(BadInput) as refusal:
        resume(workdir)
    assert words in sentence(refusal)
    assert damaged_file in str(refusal.value) or "another config" in str(refusal.value)
    assert contents(workdir) == before
    if LAST in name:
        assert "Step 2 is undamaged: --allow_previous_step" in str(refusal.value)
        assert resume(workdir, allow_previous_step=True) == 2
        assert not set(before.values()) - set(contents(workdir).values())  # what was given up lies elsewhere
        assert resume(workdir) == 3


def contents(workdir: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in workdir.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("name", "damage", "words"), READ)
def test_readers_of_a_damaged_run_say_so(whole: Path, tmp_path: Path, name: str, damage: Damage, words: str):
    workdir, damaged_file = damaged(whole, tmp_path, name, damage)
    with pytest.raises(BadInput, match=damaged_file) as refusal:
        read_all(workdir)
    assert words in sentence(refusal)


def test_when_every_step_is_damaged_none_is_taken(whole: Path, tmp_path: Path):
    workdir, _ = damaged(whole, tmp_path, f"{LAST}/state/metadata", flip)
    cut(workdir / "checkpoints/2/score/metadata")
    for allowed in (False, True):
        with pytest.raises(BadInput, match="4/state/metadata is damaged") as refusal:
            resume(workdir, allowed)
        assert "ndamaged" in sentence(refusal)
    assert (workdir / LAST).exists()


@pytest.mark.parametrize("damage", [cut, flip, Path.unlink])
def test_a_damaged_score_of_an_older_step_is_told_and_stops_nothing(
    whole: Path, tmp_path: Path, damage: Damage, capsys: pytest.CaptureFixture[str]
):
    workdir, _ = damaged(whole, tmp_path, "checkpoints/2/score/metadata", damage)
    folder = RunFolder.existing(str(workdir))
    reader = Checkpoints(folder.checkpoints, 1, 0, read_only=True)
    assert reader.named("last") == 4
    with pytest.raises(
        BadInput, match=r"2/score/metadata is .* The score of step 2 is not known: codea1 fsck"
    ) as refusal:
        reader.named("best")
    sentence(refusal)
    assert [resume(workdir), resume(workdir)] == [4, 5]
    assert capsys.readouterr().out.count("2/score/metadata is ") == 2
    assert Checkpoints.reader(folder.checkpoints).steps() == [2, 4, 5, 6]  # the second may be the best; the fourth is


def test_a_step_that_lost_its_marker_is_moved_aside(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    workdir, _ = damaged(whole, tmp_path, f"{LAST}/commit_success.txt", Path.unlink)
    before = contents(workdir / LAST)
    assert resume(workdir) == 2
    assert "step 4 has lost its commit_success.txt, and is now" in " ".join(capsys.readouterr().out.split())
    (aside,) = workdir.glob("checkpoints/set_aside/*/4")
    assert {path.name for path in contents(aside)} == {path.name for path in before}


def is_finished(workdir: Path) -> None:
    write_evaluation(RunFolder.existing(str(workdir)), "after", {"step": 4, **EVALUATION})
    shutil.rmtree(workdir / "checkpoints")


GONE = [  # how later checkpoints went, the step that is left, how often steps are saved, whether it is seen
    (is_finished, -1, 2, True),
    (lambda workdir: shutil.rmtree(workdir / "checkpoints"), -1, 1, True),
    (lambda workdir: shutil.rmtree(workdir / "checkpoints"), -1, 2, False),
    (lambda workdir: shutil.move(workdir / LAST, workdir / "set_aside" / "1" / LAST), 2, 2, True),  # as it was once
    (lambda workdir: shutil.move(workdir / LAST, workdir / "checkpoints" / "set_aside" / "1" / "4"), 2, 2, True),
    (lambda workdir: shutil.move(workdir / LAST, workdir / "set_aside" / "1" / "checkpoints" / "9"), 2, 2, False),
    (lambda workdir: (workdir / LAST / "commit_success.txt").unlink(), 2, 2, True),
    (lambda workdir: shutil.rmtree(workdir / LAST), 2, 2, False),
]


@pytest.mark.parametrize(("go", "left", "saved_every", "is_seen"), GONE)
def test_what_was_made_after_lost_checkpoints_is_moved_aside(
    whole: Path, tmp_path: Path, go: Damage, left: int, saved_every: int, is_seen: bool
):
    workdir, _ = damaged(whole, tmp_path, "", go)
    before = contents(workdir)
    config = config_of_steps(5)
    config.checkpoint.every = saved_every
    with Record(RunFolder.existing(str(workdir)), config, left, left, cursor={}):
        pass
    lost = {path for path, content in before.items() if content not in contents(workdir).values()}
    assert bool(lost) != is_seen
    if not is_seen:
        assert {path.name for path in lost} >= {"metrics.jsonl", "step_000004.jsonl.zst"}


def test_a_deletion_that_was_cut_off_is_finished(whole: Path, tmp_path: Path):
    workdir, _ = damaged(whole, tmp_path, f"{LAST}/commit_success.txt", Path.unlink)
    (workdir / LAST / "manifest.json").unlink()
    assert resume(workdir) == 2
    assert not (workdir / LAST).exists()
    assert not (workdir / "set_aside").exists()


def test_lost_metrics_begin_again_and_that_is_said(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    workdir, _ = damaged(whole, tmp_path, "metrics.jsonl", Path.unlink)
    assert resume(workdir) == 4
    assert "metrics.jsonl is missing: it begins again after step 4" in " ".join(capsys.readouterr().out.split())
    assert [json.loads(line)["step"] for line in (workdir / "metrics.jsonl").read_text().splitlines()] == [5]


EXAMINED = [  # which file, how it is damaged, what is moved aside, and the step that the run then continues from
    *[(f"{LAST}/arrays/[data]", damage, LAST, 2) for damage in (cut, flip, Path.unlink)],
    *[(f"{LAST}/{name}", flip, LAST, 2) for name in ("state/metadata", "manifest.json")],
    (f"{LAST}/commit_success.txt", Path.unlink, LAST, 2),
    ("checkpoints/2/arrays/[data]", flip, "checkpoints/2", 4),
    ("checkpoints/2/late_score.json", lambda path: path.write_text('{"score": 1.0}'), "checkpoints/2", 4),
    *[("samples/step_000003.jsonl.zst", damage, "samples/step_000003.jsonl.zst", 4) for damage in (cut, empty, flip)],
    *[("evaluations/before.json", damage, "evaluations/before.json", 4) for damage in (cut, swap("0.25", "0.35"))],
    *[("metrics.jsonl", damage, "metrics.jsonl", 4) for damage in (cut, swap("0.1428", "0.1429"), twice)],
]


@pytest.mark.parametrize(("name", "damage", "moved", "step"), EXAMINED)
def test_fsck_names_what_is_damaged_and_moves_it_aside(
    whole: Path, tmp_path: Path, name: str, damage: Damage, moved: str, step: int, capsys: pytest.CaptureFixture[str]
):
    workdir, damaged_file = damaged(whole, tmp_path, name, damage)
    before = contents(workdir)
    assert not fsck(str(workdir), quarantine=False)
    said, after = capsys.readouterr().out.splitlines()
    assert str(workdir / moved) in said
    assert damaged_file in said
    assert after == f"The run continues from step {step} once codea1 fsck --quarantine has moved that aside."
    assert contents(workdir) == before
    assert fsck(str(workdir), quarantine=True)
    folder, _, rest = moved.partition("/")
    is_step = folder == "checkpoints"
    aside = workdir / folder / "set_aside" / "1" / rest if is_step else workdir / "set_aside" / "1" / moved
    assert f"  moved to {aside}\nThe run continues from step {step}." in capsys.readouterr().out
    kept = {path.relative_to(workdir): content for path, content in before.items()}
    found = {path.relative_to(workdir): content for path, content in contents(workdir).items() if path.name != ".lock"}
    there = aside.relative_to(workdir)
    put_back = {path: moved / path.relative_to(there) for path in found if path.is_relative_to(there)}
    assert {put_back.get(path, path): one for path, one in found.items()} == kept
    assert fsck(str(workdir), quarantine=False)
    assert resume(workdir) == step


@pytest.mark.parametrize("quarantine", [True, False])
def test_steps_are_set_aside_where_checkpoints_lie(whole: Path, tmp_path: Path, quarantine: bool, monkeypatch):
    """checkpoints/ is a link to another disk, where nothing of the run can be moved to; and so is samples/."""
    workdir, _ = damaged(whole, tmp_path, f"{LAST}/arrays/[data]", flip)
    for name in ("checkpoints", "samples"):
        shutil.move(workdir / name, tmp_path / "disk" / name)
    (workdir / "checkpoints").symlink_to(tmp_path / "disk" / "checkpoints")
    rename = os.rename

    def rename_on_a_disk(source, target) -> None:
        if ("disk" in os.path.realpath(source)) != ("disk" in os.path.realpath(os.path.dirname(target))):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        rename(source, target)

    monkeypatch.setattr(os, "rename", rename_on_a_disk)
    if quarantine:
        assert fsck(str(workdir), quarantine=True)
    assert resume(workdir, allow_previous_step=True) == 2
    assert (workdir / "checkpoints" / "set_aside" / "1" / "4" / "manifest.json").exists()
    to = epath.Path(workdir / "set_aside" / "1" / "samples")
    move(epath.Path(tmp_path / "disk" / "samples" / "step_000003.jsonl.zst"), to)  # a file is copied
    assert to.exists()


def test_fsck_reads_what_no_checkpoint_has_recorded(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    workdir, _ = damaged(whole, tmp_path, LAST, shutil.rmtree)
    late = workdir / "evaluations" / "humanevalplus_step_000004" / "results.jsonl"
    late.parent.mkdir()
    late.write_text("{}\n[]\n{}\n")
    cut(workdir / "samples" / "step_000004.jsonl.zst")
    (workdir / "evaluations" / "after.json").write_text("[]")
    (workdir / "samples" / "step_000001.jsonl.zst").unlink()
    assert not fsck(str(workdir), quarantine=False)
    told = capsys.readouterr().out
    assert "step_000004.jsonl.zst is damaged: it is not as long as it was written. Step 4 is neither" in told
    assert "after.json is not a JSON object." in told
    assert "results.jsonl, line 2: not a JSON object." in told
    assert "1 of the files that step 2 was saved with are not there, such as samples/step_000001.jsonl.zst." in told


def test_fsck_of_a_live_run_has_no_false_alarm(whole: Path, tmp_path: Path):
    """The newest step has no marker yet, and an older one, that is deleted, none any more."""
    workdir, _ = damaged(whole, tmp_path, f"{LAST}/commit_success.txt", Path.unlink)
    (workdir / "checkpoints" / "1").mkdir()
    with locked(RunFolder.existing(str(workdir))):
        assert fsck(str(workdir), quarantine=False)
    assert not fsck(str(workdir), quarantine=False)


def test_fsck_moves_nothing_through_a_link(whole: Path, tmp_path: Path):
    workdir, _ = damaged(whole, tmp_path, "evaluations/before.json", cut)
    (tmp_path / "mine").mkdir()
    (workdir / "set_aside").symlink_to(tmp_path / "mine")
    with pytest.raises(BadInput, match="set_aside is a link that leads out of the run"):
        fsck(str(workdir), quarantine=True)
    assert not [*(tmp_path / "mine").iterdir()]


def test_a_state_that_lists_files_elsewhere_has_none_of_them_moved():
    state = {"record": {"../mine": [1, "AAAAAA=="], "samples/../../mine": [1, ""], "metrics.jsonl": [0, "AAAAAA=="]}}
    assert list(recorded(state)) == ["metrics.jsonl"]
    assert recorded({}) == {}


def metrics_replaced(path: Path) -> None:
    path.rename(path.with_suffix(".old"))
    path.write_text('{"step":1}\n')


@pytest.mark.parametrize("loss", [Path.unlink, empty, metrics_replaced, cut])
def test_metrics_that_a_live_run_loses_are_written_again(
    tmp_path: Path, loss: Damage, capfd: pytest.CaptureFixture[str]
):
    folder = RunFolder.open(str(tmp_path), CONFIG)
    with Record(folder, config_of_steps(4), -1, -1, cursor={}) as record:
        record.write_metrics(1, {"x": 1.0})
        record.cursor()
        loss(tmp_path / "metrics.jsonl")
        record.write_metrics(2, {"x": 2.0})
        assert record.cursor()["metrics.jsonl"].size == (tmp_path / "metrics.jsonl").stat().st_size
        assert [row["step"] for row in read_metrics(folder.metrics)] == [1, 2]
        record.write_metrics(3, {"x": 3.0})
        loss(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in read_metrics(folder.metrics)] == [1, 2, 3]
    assert capfd.readouterr().err.count("metrics.jsonl is not what this run wrote to it; it is written again") == 2
