"""What players start from between the lives of a run: it may move, and may not change in silence."""

import functools
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from codea1.config import DEFAULT
from codea1.config_file import validate
from codea1.evaluation.result_files import read_evaluation
from codea1.lab.export import export
from codea1.lab.opened_run import evaluate_run
from codea1.players.base import Start, require_base
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.runtime.versions import machine
from codea1.training.stored_config import config_of, paths_of, with_paths
from tests.train_test import scripted_answers, train

__all__ = ["scripted_answers"]


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def set_key(path: Path, key: str, value: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("chat_template.jinja", lambda path: path.write_text(path.read_text() + " ")),
        ("tokenizer.json", lambda path: path.write_text(path.read_text().replace('"11"', '"12"', 1))),
        ("tokenizer_config.json", lambda path: set_key(path, "pad_token", "<|im_end|>")),
        ("config.json", lambda path: set_key(path, "rms_norm_eps", 0.5)),
        ("generation_config.json", lambda path: path.write_text('{"eos_token_id": [0, 1]}')),
        ("model.safetensors", lambda path: flip(path, 0)),  # of the header's length: no safetensors file any more
        ("model.safetensors", lambda path: flip(path, 8 + path.read_bytes().index(b"norm"))),
        ("model.safetensors", lambda path: path.write_bytes(bytes(8 + len(path.read_bytes())))),
        ("model.safetensors", lambda path: flip(path, 5 * (-(-path.stat().st_size // 16)))),  # of a sample
    ],
)
def test_each_file_that_decides_is_told_from_another_wherever_it_lies(model_folder, tmp_path, name, change):
    moved = shutil.copytree(model_folder, tmp_path / "moved")
    (moved / "README.md").write_text("decides nothing")
    there = Start(str(model_folder)).digests()
    assert Start(str(moved)).digests() == there
    saved = {"code": json.loads(json.dumps(there))}
    config = DEFAULT.with_changes({"code.model": str(moved)})
    run = SimpleNamespace(state=lambda step: {"starts": saved} if step == 4 else {})
    check = functools.partial(require_base, config, "code", run)
    assert check(4) == check(3) == check(0, starts=saved) == []  # 3 is of an older version
    change(moved / name)
    for step, starts in ((4, None), (0, saved)):
        with pytest.raises(BadInput, match=rf"moved/{name}"):
            check(step, starts=starts)


def test_adapters_may_name_their_base_elsewhere(tmp_path, model_folder):
    for name, key, value in (("here", "r", 4), ("there", "r", 4), ("other", "lora_alpha", 9.0)):
        base = shutil.copytree(model_folder, tmp_path / f"base_{name}")
        (tmp_path / name).mkdir()
        adapters = {"peft_type": "LORA", "r": 4, "lora_alpha": 8.0, "target_modules": ["q_proj"]}
        adapters |= {key: value, "base_model_name_or_path": str(base)}
        (tmp_path / name / "adapter_config.json").write_text(json.dumps(adapters))
    here, there, other = (Start(str(tmp_path / name)).digests() for name in ("here", "there", "other"))
    assert here == there
    assert {name for name in here if here[name] != other[name]} == {"adapters/adapter_config.json"}


def test_a_run_goes_on_with_what_it_started_from_alone(
    micro_config, model_folder, scripted_answers, tmp_path, monkeypatch, capsys
):
    """Begun with relative paths, stopped, moved, changed, and changed on purpose."""
    config, workdir = micro_config, tmp_path / "run"
    shutil.copytree(model_folder, tmp_path / "here" / "model")
    shutil.copytree(config.data.folder, tmp_path / "here" / "data")
    config.steps = config.checkpoint.every = config.validation.every = 1
    config.code.decay = config.test.decay = "constant"
    config.code.model = config.test.model = "model"
    config.data.folder = "data"
    monkeypatch.chdir(tmp_path / "here")
    train(config, workdir)
    run = RunFolder.existing(str(workdir))
    assert run.paths == {f"{name}.model": str(tmp_path / "here" / "model") for name in ("code", "test")} | {
        "data.folder": str(tmp_path / "here" / "data")
    }

    content = json.loads((workdir / "config.json").read_text())
    assert content["made_with"] | machine() == content["made_with"]
    content["made_with"] |= {"cores": "3", "devices": "2 x cpu", "settings": "none"}
    (workdir / "config.json").write_text(json.dumps(content))
    monkeypatch.setenv("JAX_DEFAULT_MATMUL_PRECISION", "bfloat16")
    here = machine()
    train(config, workdir)
    said = " ".join(capsys.readouterr().out.split())
    assert here["settings"].endswith("JAX_DEFAULT_MATMUL_PRECISION=bfloat16")
    settings = f"settings none, here {here['settings']}: sums are"
    assert (
        f"it was made with cores 3, here {here['cores']}; devices 2 x cpu, here {here['devices']}; {settings}" in said
    )

    monkeypatch.chdir(tmp_path)
    assert config_of(run).code.model == run.paths["code.model"]
    evaluate_run(str(workdir), "last", "test", Hosts())  # from elsewhere
    export(run, "code", "last", tmp_path / "exported", "float32", Hosts())
    again = with_paths(validate(config), RunFolder.check(str(workdir), config.to_dict()).paths, is_resumed=True)
    assert again.code.model == run.paths["code.model"]
    assert train(again, workdir)._position.step == 1

    (tmp_path / "here" / "model").rename(tmp_path / "moved")
    (tmp_path / "here" / "data").rename(tmp_path / "moved_data")
    model, data = str(tmp_path / "moved"), str(tmp_path / "moved_data")
    again = again.with_changes({"code.model": model, "test.model": model, "data.folder": data})
    assert train(again, workdir)._position.step == 1
    moved = config_of(RunFolder.existing(str(workdir)))
    assert (moved.test.model, moved.data.folder) == (str(tmp_path / "moved"), str(tmp_path / "moved_data"))
    assert paths_of(again) == {}
    run = RunFolder.existing(str(workdir))

    template = tmp_path / "moved" / "chat_template.jinja"
    template.write_text(f"{template.read_text()} ")
    names = rf"{template}, of the code policy, differs from when step 1 was saved: put back"
    with pytest.raises(BadInput, match=names):
        train(again, workdir)
    with pytest.raises(BadInput, match=names):
        evaluate_run(str(workdir), "last", "test", Hosts())
    with pytest.raises(BadInput, match=names):
        export(run, "code", "last", tmp_path / "out", "float32", Hosts())
    with pytest.raises(BadInput, match="differs from when the run began"):
        evaluate_run(str(workdir), "0", "test", Hosts())
    evaluate_run(str(workdir), "last", "test", Hosts(), allow_changed_model=True)
    assert f"{template}, of the code policy, differs" in read_evaluation(run, "test_step_000001")["changes"][0]

    again = again.with_changes({"steps": 2})
    changed = train(again, workdir, allow_changed_model=True)
    assert any(str(template) in note for note in changed._notes)
    changes = Checkpoints.reader(run.checkpoints).state(2)["changes"]
    assert [str(template) in change for change in changes] == [True, True]  # of both players
    train(again, workdir)  # it is what there is now
