import contextlib
import json
import os
from pathlib import Path

import jax
import pytest

from codea1.config_file import default_config
from codea1.evaluation.result_files import require_writable, write_evaluation
from codea1.runs.folder import RunFolder
from codea1.runs.lock import locked
from codea1.runtime.errors import BadInput
from codea1.runtime.versions import versions
from codea1.storage.objects import write_atomically
from codea1.training.stored_config import config_of

CONFIG = {"seed": 0, "game": {"alpha": 0.5, "prompts": "tiny"}, "shape": (2, 3)}


def files(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*"))


def test_a_new_folder_holds_its_config_and_nothing_else(tmp_path: Path):
    folder = RunFolder.open(str(tmp_path / "a" / "run"), CONFIG)
    assert files(tmp_path) == ["a", "a/run", "a/run/config.json"]
    made_with = versions()
    assert json.loads(folder.config_file.read_text()) == {
        **CONFIG,
        "shape": [2, 3],
        "format": 1,
        "made_with": made_with,
    }
    assert (folder.made_with, made_with["jax"]) == (made_with, jax.__version__)
    assert made_with["codea1"].startswith("0.1.0")


def test_the_same_config_continues_and_may_be_in_another_order(tmp_path: Path):
    RunFolder.open(str(tmp_path), CONFIG)
    RunFolder.open(str(tmp_path), dict(reversed(CONFIG.items())))
    assert RunFolder.existing(str(tmp_path)).config == {**CONFIG, "shape": [2, 3]}
    assert files(tmp_path) == ["config.json"]


def test_a_run_of_other_versions_is_continued(tmp_path: Path):
    folder = RunFolder.open(str(tmp_path), CONFIG)
    content = json.loads(folder.config_file.read_text()) | {"made_with": {"jax": "0.1"}}
    folder.config_file.write_text(json.dumps(content))
    RunFolder.open(str(tmp_path), CONFIG)
    again = RunFolder.existing(str(tmp_path))
    assert (again.config, again.made_with) == ({**CONFIG, "shape": [2, 3]}, {"jax": "0.1"})


def test_a_run_of_another_format_is_refused_and_one_that_says_none_is_read(tmp_path: Path):
    folder = RunFolder.open(str(tmp_path / "run"), CONFIG)
    written = json.loads(folder.config_file.read_text())
    assert written["format"] == 1
    for form, refusal in ((2, r"config\.json: the run has format 2, this version reads 1; .*codea1"), (None, "")):
        content = {name: value for name, value in (written | {"format": form}).items() if value is not None}
        folder.config_file.write_text(json.dumps(content))
        for read in (RunFolder.existing, lambda path: RunFolder.open(path, CONFIG)):
            with pytest.raises(BadInput, match=refusal) if refusal else contextlib.nullcontext():
                assert read(str(tmp_path / "run")).config == {**CONFIG, "shape": [2, 3]}


def test_another_config_is_refused_and_every_difference_shown(tmp_path: Path):
    RunFolder.open(str(tmp_path), CONFIG)
    before = (tmp_path / "config.json").read_bytes()
    other = {"seed": 1, "game": {"alpha": 0.25, "prompts": "tiny"}, "steps": 9}
    with pytest.raises(BadInput) as refusal:
        RunFolder.open(str(tmp_path), other)
    for difference in (
        "game.alpha is 0.5 there and 0.25 here",
        "seed is 0 there and 1 here",
        "shape is [2, 3] there and absent here",
        "steps is absent there and 9 here",
        "made by another version, which can continue it",
    ):
        assert difference in str(refusal.value)
    assert "prompts" not in str(refusal.value)
    assert (tmp_path / "config.json").read_bytes() == before
    assert files(tmp_path) == ["config.json"]


def test_more_steps_follow_where_they_change_no_learning_rate_and_fewer_never(tmp_path: Path):
    config = default_config()
    config.code.decay, config.test.decay = "constant", "linear"
    for frozen in ("", "test"):
        config.frozen, config.steps = frozen, 111
        RunFolder.open(str(tmp_path / f"run{frozen}"), config.to_dict())
    config.steps = 112
    RunFolder.check(str(tmp_path / "runtest"), config.to_dict())
    config.frozen = ""
    sentence = "steps is 111 there and 112 here, and test.decay is linear: the steps until now would have had other"
    with pytest.raises(BadInput, match=sentence):
        RunFolder.check(str(tmp_path / "run"), config.to_dict())
    config.frozen, config.steps = "test", 110
    with pytest.raises(BadInput, match=r"steps is 111 there and 110 here\."):
        RunFolder.check(str(tmp_path / "runtest"), config.to_dict())


def test_a_run_of_another_version_is_refused_with_the_fields_that_differ(tmp_path: Path):
    config = default_config().to_dict()
    config["game"]["spice"] = config["game"].pop("alpha")
    with pytest.raises(BadInput, match=r"of this version: its config\.json differs in game\.alpha, game\.spice"):
        config_of(RunFolder.open(str(tmp_path), config))


def test_a_profile_may_be_asked_for_when_a_run_goes_on(tmp_path: Path):
    RunFolder.open(str(tmp_path), {**CONFIG, "profile": {"first_step": 0, "steps": 2}})
    RunFolder.open(str(tmp_path), {**CONFIG, "profile": {"first_step": 7, "steps": 2}})
    with pytest.raises(BadInput, match="seed is 0 there and 1 here\\."):
        RunFolder.open(str(tmp_path), {**CONFIG, "seed": 1, "profile": {"first_step": 7, "steps": 2}})


def test_a_folder_of_another_kind_and_many_differences_are_one_short_sentence(tmp_path: Path):
    RunFolder.open(str(tmp_path / "sft"), {"seed": 0, "sft": {"steps": 3}})
    with pytest.raises(BadInput, match=r"holds a model of codea1\.sft, and this is a training run: it needs a folder"):
        RunFolder.check(str(tmp_path / "sft"), default_config().to_dict())
    RunFolder.open(str(tmp_path / "many"), {str(number): 0 for number in range(9)})
    with pytest.raises(BadInput, match=r"; 4 is 0 there and 1 here; and 4 more\.$"):
        RunFolder.check(str(tmp_path / "many"), {str(number): 1 for number in range(9)})


def test_a_workdir_that_cannot_be_is_refused_and_leaves_nothing(tmp_path: Path):
    (tmp_path / "file").write_text("")
    for workdir in (tmp_path / "file", tmp_path / "file" / "run", "/proc/run/a", "", "gs://bucket", "s3://a/b"):
        with pytest.raises(BadInput, match="workdir"):
            RunFolder.open(str(workdir), CONFIG)
    assert files(tmp_path) == ["file"]


def test_checking_refuses_what_opening_does_and_leaves_everything_as_it_was(tmp_path: Path):
    RunFolder.check(str(tmp_path / "a" / "run"), CONFIG)
    assert files(tmp_path) == []
    RunFolder.open(str(tmp_path), CONFIG)
    RunFolder.check(str(tmp_path), CONFIG)
    with pytest.raises(BadInput, match="seed is 0 there and 5 here"):
        RunFolder.check(str(tmp_path), {**CONFIG, "seed": 5})
    assert files(tmp_path) == ["config.json"]


def test_a_write_that_fails_midway_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for workdir, left in ((tmp_path / "a" / "run", []), (tmp_path, ["config.json"])):
        with monkeypatch.context() as patch:
            patch.setattr("os.replace", full)
            with pytest.raises(BadInput, match="No space left"):
                RunFolder.open(str(workdir), CONFIG)
        assert files(tmp_path) == left
        RunFolder.open(str(tmp_path), CONFIG)


def test_remains_of_a_run_without_its_config_are_refused(tmp_path: Path):
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(BadInput, match=r"holds metrics\.jsonl but no config\.json"):
        RunFolder.open(str(tmp_path), CONFIG)
    assert files(tmp_path) == ["metrics.jsonl"]


@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_a_damaged_config_is_named(tmp_path: Path, content: str):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(BadInput, match=r"config\.json"):
        RunFolder.open(str(tmp_path), CONFIG)
    with pytest.raises(BadInput, match=r"config\.json"):
        RunFolder.existing(str(tmp_path))


def test_a_folder_that_is_no_run_is_named(tmp_path: Path):
    for workdir in (tmp_path, tmp_path / "none"):
        with pytest.raises(BadInput, match="is not a run folder"):
            RunFolder.existing(str(workdir))


def test_a_failed_write_keeps_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = RunFolder.open(str(tmp_path), CONFIG).report
    write_atomically(path, "old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="no space left"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert files(tmp_path) == ["config.json", "report.md"]


def test_links_that_lie_in_the_folder_lead_no_write_to_another_file(tmp_path: Path):
    folder = RunFolder.open(str(tmp_path / "run"), CONFIG)
    mine = tmp_path / "mine"
    mine.write_text("precious")
    for name in ("report.md", ".report.md.tmp", ".lock"):
        os.symlink(mine, folder.path / name)
    write_atomically(folder.report, "ours")
    assert (folder.report.read_text(), os.path.islink(folder.report)) == ("ours", False)
    with pytest.raises(BadInput, match=r"\.lock cannot be opened: Too many levels of symbolic links"), locked(folder):
        pass
    mine.rename(tmp_path / "gone")
    with pytest.raises(BadInput, match="cannot be opened"), locked(folder):
        pass
    assert (tmp_path / "gone").read_text() == "precious"
    assert not mine.exists()


def test_a_name_that_is_taken_is_not_written_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("secrets.token_hex", lambda _: "01234567")
    folder = RunFolder.open(str(tmp_path / "run"), CONFIG)
    os.symlink(tmp_path / "mine", folder.path / ".report.md.01234567.tmp")
    with pytest.raises(FileExistsError):
        write_atomically(folder.report, "ours")
    assert not (tmp_path / "mine").exists()


def test_what_a_killed_writer_left_goes_when_the_next_begins(tmp_path: Path):
    folder = RunFolder.open(str(tmp_path / "run"), CONFIG)
    mine = tmp_path / "mine"
    mine.write_text("precious")
    kept = {".hidden.tmp", ".lock", "config.json", "samples"}
    folder.samples.mkdir()
    (folder.path / ".hidden.tmp").write_text("")
    (folder.path / ".report.md.01234567.tmp").write_text("a pa")
    os.symlink(mine, folder.path / ".report.html.01234567.tmp")
    (folder.samples / ".step_000001.jsonl.89abcdef.tmp").write_text("a pa")
    with locked(folder):
        assert {each.name for each in folder.path.iterdir()} == kept
        assert not list(folder.samples.iterdir())
    assert mine.read_text() == "precious"


def test_files_have_the_permissions_that_the_umask_gives(tmp_path: Path):
    before = os.umask(0o027)
    try:
        folder = RunFolder.open(str(tmp_path / "run"), CONFIG)
        with locked(folder):
            assert {os.stat(each).st_mode & 0o777 for each in folder.path.iterdir()} == {0o640}
    finally:
        os.umask(before)


def test_an_evaluation_is_not_written_through_a_link_out_of_the_run(tmp_path: Path):
    folder = RunFolder.open(str(tmp_path / "run"), CONFIG)
    (tmp_path / "mine").mkdir()
    os.symlink(tmp_path / "mine", folder.evaluations)
    for write in (require_writable, lambda folder: write_evaluation(folder, "after", {})):
        with pytest.raises(BadInput, match="evaluations is a link that leads out of the run"):
            write(folder)
    assert files(tmp_path / "mine") == []
