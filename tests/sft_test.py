"""The warm start as a command: what it writes, and what it refuses before writing."""

import os
import shutil

import numpy as np
from etils import epath
from transformers import AutoTokenizer

from codea1.data.tokenizer import load_tokenizer
from codea1.models.files import ModelFolder
from codea1.runs.folder import RunFolder
from codea1.runs.lock import locked
from codea1.runs.metrics import read_metrics
from codea1.training.setup import MADE_FOR
from tests.host_processes import run
from tests.model_folders import load

SMALL = ["--config.sft.steps=2", "--config.sft.batch_size=2"]


def sft(*arguments: str) -> tuple[int, str, str]:
    return run("-m", "codea1.sft", "--config=configs/tiny.py", *arguments)


def test_a_model_folder_comes_out_in_a_bucket_and_is_kept(bucket, tmp_path):
    code, _, errors = sft(f"--workdir={bucket}/sft", *SMALL)
    assert code == 0, errors
    config, params = load(f"{bucket}/sft/model")
    assert load_tokenizer(f"{bucket}/sft/model").vocab_size == config.vocab_size
    assert params["embedding"].shape == (config.vocab_size, config.hidden_size)
    assert [row["step"] for row in read_metrics(RunFolder.existing(f"{bucket}/sft").metrics)] == [1, 2]
    there = ModelFolder(f"{bucket}/sft/model")
    for name in there.names():
        (tmp_path / name).write_bytes(there.read(name))
    assert len(AutoTokenizer.from_pretrained(str(tmp_path))) == config.vocab_size
    code, printed, _ = sft(f"--workdir={bucket}/sft", *SMALL)
    assert (code, "is there already" in printed) == (0, True)
    assert there.read_json(MADE_FOR) == {"world": "classic", "prompts": "tiny"}
    code, _, errors = run("-m", "codea1.sft", "--config=tiny:world=blind", f"--workdir={bucket}/sft", *SMALL)
    assert (code, 'data.source is "procedural" there and "procedural/blind" here' in errors) == (2, True)


def test_a_test_llm_goes_on_from_a_folder(model_folder, data_folder, tmp_path):
    data = (f"--config.data.folder={data_folder}", "--config.data.train.limit=5")
    flags = (*data, f"--config.sft.start={model_folder}", "--config.sft.expert_suites=1.0", "--config.sft.length=160")
    code, _, errors = sft(f"--workdir={tmp_path / 'sft'}", *SMALL, *flags)
    assert code == 0, errors
    config, params = load(tmp_path / "sft" / "model")
    started, before = load(model_folder)
    assert config.hidden_size == started.hidden_size
    assert not np.array_equal(params["embedding"], before["embedding"])
    files = ("tokenizer.json", "tokenizer_config.json")
    for name in files:
        assert (tmp_path / "sft" / "model" / name).read_bytes() == (model_folder / name).read_bytes()


def test_a_template_that_begins_thoughts_is_not_taught_suites(model_folder, data_folder, tmp_path):
    folder = shutil.copytree(model_folder, tmp_path / "model")
    (folder / "chat_template.jinja").write_text("{{ messages[0].content + '<|im_start|>assistant\n<think>\n' }}")
    data = (f"--config.data.folder={data_folder}", "--config.data.train.limit=5")
    code, _, errors = sft(f"--workdir={tmp_path / 'sft'}", *SMALL, *data, f"--config.sft.start={folder}")
    assert (code, f"the chat template of {folder} begins thoughts" in errors) == (2, True)


def test_a_config_for_sft_is_not_trained(tmp_path):
    code, _, errors = run("-m", "codea1.train", "--config=configs/tiny.py:method=sft", f"--workdir={tmp_path}/run")
    assert (code, "for codea1.sft, not for codea1.train" in errors) == (2, True)


def test_a_workdir_in_which_another_begins_gets_no_config(tmp_path):
    with locked(RunFolder(epath.Path(tmp_path), {})):
        code, _, errors = sft(f"--workdir={tmp_path}", *SMALL)
    assert (code, "another process works there" in errors) == (2, True)
    assert os.listdir(tmp_path) == [".lock"]
