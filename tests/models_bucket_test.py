"""Model folders in a bucket: what is saved is what is loaded, no byte read twice, and a wrong folder is refused."""

import json

import fsspec
import jax
import numpy as np
import pytest
from gcsfs.retry import HttpError

from codea1.data.tokenizer import load_tokenizer
from codea1.lab import model_writer
from codea1.models import huggingface, qwen2
from codea1.models.files import ModelFolder
from codea1.runtime.errors import BadInput, StorageOutage
from codea1.storage import faults
from tests.host_processes import finish, start_two
from tests.model_folders import load, params_of
from tests.models_huggingface_test import CONFIG, random_params


@pytest.fixture
def folder(bucket) -> str:
    """A model in several files, with a tokenizer that it does not need."""
    model_writer.save(f"{bucket}/model", CONFIG, random_params(CONFIG), max_shard_bytes=8000)
    return f"{bucket}/model"


def test_a_checkpoint_in_a_bucket_is_that_of_a_local_folder(folder, tmp_path):
    model_writer.save(tmp_path, CONFIG, random_params(CONFIG), max_shard_bytes=8000)
    there = ModelFolder(folder)
    assert len(there.names()) > 4
    assert {name: there.read(name) for name in there.names()} == {
        path.name: path.read_bytes() for path in tmp_path.iterdir()
    }
    config, params = load(folder)
    assert config == CONFIG
    jax.tree.map(np.testing.assert_array_equal, params, random_params(CONFIG))


def test_two_hosts_read_their_rows_and_write_one_model(folder, bucket):
    finish(*start_two(("tests/models_two_hosts.py",), f"--folder={folder}", f"--output={bucket}/again"))
    written, read = ModelFolder(f"{bucket}/again"), ModelFolder(folder)
    assert load(written.url)[0] == CONFIG
    assert "model.safetensors" in written.names()
    jax.tree.map(np.testing.assert_array_equal, load(written.url)[1], load(read.url)[1])


def test_a_tokenizer_in_a_bucket_is_that_of_a_local_folder(model_folder, bucket):
    ours = load_tokenizer(model_folder)
    ours.save(f"{bucket}/tokenizer")
    theirs = load_tokenizer(f"{bucket}/tokenizer")
    chat = [{"role": "user", "content": "int: if nonzero, doubled"}]
    assert theirs.encode_chat(chat) == ours.encode_chat(chat)
    assert (theirs.stop_ids, theirs.pad_id, theirs.vocab_size) == (ours.stop_ids, ours.pad_id, ours.vocab_size)
    with pytest.raises(BadInput, match=r"^gs://bucket-\d+/none holds no model"):
        load_tokenizer(f"{bucket}/none")


def test_a_model_that_is_cut_off_while_written_is_none(bucket, monkeypatch):
    def fail(*_: object) -> None:
        raise RuntimeError("the host is taken away")

    with monkeypatch.context() as patch:
        patch.setattr(ModelFolder, "write_json", fail)
        with pytest.raises(RuntimeError):
            model_writer.save(f"{bucket}/model", CONFIG, random_params(CONFIG))
    assert ModelFolder(f"{bucket}/model").names() == ["model.safetensors"]
    with pytest.raises(BadInput, match=r"gs://.*/config\.json: there is no such file"):
        huggingface.Checkpoint(f"{bucket}/model")


def rewrite(folder: str, name: str, edit) -> None:
    fs = fsspec.filesystem("gs")
    fs.pipe_file(f"{folder}/{name}", edit(fs.cat_file(f"{folder}/{name}")))


def test_wrong_files_in_a_bucket_are_refused_by_name(folder):
    name = next(name for name in ModelFolder(folder).names() if name.startswith("model-00001"))
    whole = ModelFolder(folder).read(name)
    rewrite(folder, name, lambda content: content[:-1])
    with pytest.raises(BadInput, match=rf"^{folder}/{name}: is not a whole safetensors file"):
        huggingface.Checkpoint(folder)
    rewrite(folder, name, lambda _: whole)
    checkpoint = huggingface.Checkpoint(folder)
    rewrite(folder, name, lambda content: content[:-1])  # between the headers and the tensors
    with pytest.raises(BadInput, match=rf"^{folder}/{name}: ends after"):
        params_of(checkpoint)
    rewrite(folder, name, lambda _: whole)
    rewrite(folder, "config.json", lambda content: json.dumps(json.loads(content) | {"num_hidden_layers": 3}).encode())
    with pytest.raises(BadInput, match=rf"^{folder}: tensor model\.layers\.2\.\S+ is missing"):
        huggingface.Checkpoint(folder)
    fsspec.filesystem("gs").rm(f"{folder}/{name}")
    with pytest.raises(BadInput, match=rf"^{folder}/{name}: there is no such file"):
        huggingface.Checkpoint(folder)


@pytest.mark.parametrize(
    "answer", [OSError("Forbidden: https://..."), HttpError({"code": 401, "message": "Anonymous"})]
)
def test_a_bucket_for_others_is_named_and_a_network_that_fails_is_no_mistake(folder, answer, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise answer

    there = ModelFolder(folder)
    monkeypatch.setattr(there._files, "cat_file", refuse)
    with pytest.raises(BadInput, match=rf"^{folder}/config\.json: cannot be read"):
        there.read("config.json")
    answer = ConnectionResetError("reset")
    monkeypatch.setattr(faults, "RETRY_SECONDS", 0.0)
    with pytest.raises(StorageOutage, match=rf"^reading {folder}/config\.json failed: the storage does not answer"):
        there.read("config.json")


@pytest.mark.usefixtures("gcs")
def test_a_bucket_that_is_not_there_is_named():
    with pytest.raises(BadInput, match=r"^gs://no-such-bucket/model/config\.json: there is no such file"):
        huggingface.Checkpoint("gs://no-such-bucket/model")
    with pytest.raises(BadInput, match=r"^gs://no-such-bucket/model: there is no such bucket"):
        model_writer.save("gs://no-such-bucket/model", CONFIG, qwen2.initialise(CONFIG, jax.random.key(0)))
    with pytest.raises(BadInput, match=r"^gs://no-such-bucket/model: there is no such bucket"):
        load_tokenizer("gs://no-such-bucket/model")
    with pytest.raises(BadInput, match=r"^nothing://model cannot be opened: .*nothing"):
        huggingface.Checkpoint("nothing://model")
