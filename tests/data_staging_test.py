"""Data from buckets: copied once, whole or not at all; cut and missing files are refused by name."""

import errno
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import fsspec
import pytest
import tensorflow_datasets as tfds

from codea1.data.loader import load_questions
from codea1.data.rows import dataset_rows, staged_file
from codea1.lab.worlds.procedural import rows
from codea1.runtime.errors import BadInput, StorageFailed, StorageOutage
from codea1.storage import faults
from tests.data_loader_test import training_row, write
from tests.faulty_gcs import READ, PlannedFault, faulty, unavailable

COUNTS = {"train": 30, "validation": 10, "test": 20}  # rows of a split


class Some(tfds.core.GeneratorBasedBuilder):
    """The first questions of the classic world."""

    VERSION = tfds.core.Version("1.0.0")
    code_path = None  # where it looks for checksums of downloads, through a package that it does not install

    def _info(self) -> tfds.core.DatasetInfo:
        text = tfds.features.Text
        names = ("function_declaration", "function_name", "imports", "question_id")
        features = {
            "prompt": tfds.features.Sequence({"role": text(), "content": text()}),
            **{name: text() for name in ("problem", "description", "GT_code", "test", "data_source")},
            **{name: tfds.features.Sequence(text()) for name in ("GT_test", "mutants")},
            "extra_info": {name: text() for name in names},
        }
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Iterator]:
        return {split: self._generate_examples(split) for split in COUNTS}

    def _generate_examples(self, split: str) -> Iterator[tuple[str, dict]]:
        for row in islice(rows(split), COUNTS[split]):
            yield row["extra_info"]["question_id"], row


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that tensorflow-datasets prepared."""
    builder = Some(data_dir=str(tmp_path_factory.mktemp("tfds")), file_format="array_record")
    builder.download_and_prepare()
    return Path(builder.data_path)


def test_a_prepared_dataset_gives_back_the_rows_without_tensorflow(dataset):
    for split, count in COUNTS.items():
        found = {row["extra_info"]["question_id"]: row for _, row in dataset_rows(str(dataset), split, None)}
        assert found == {row["extra_info"]["question_id"]: row for row in islice(rows(split), count)}
    assert "tensorflow" not in sys.modules


@pytest.fixture
def gs(gcs) -> fsspec.AbstractFileSystem:
    return fsspec.filesystem("gs")


def ids(*arguments: object) -> list[str]:
    return [question.id for question in load_questions(*arguments)]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_files_in_buckets_are_the_files_on_disk(gs, bucket, tmp_path, kind):
    local = write(tmp_path, kind, [training_row()])
    gs.put_file(local, f"{bucket}/data/rows.{kind}")
    source, folder = f"{bucket}/data/rows.{kind}", str(tmp_path / "cache")
    for _ in range(2):
        assert load_questions(source, data_folder=folder) == load_questions(local)
    (copy,) = (tmp_path / "cache" / "staged").glob("*/*")
    assert copy.read_bytes() == Path(local).read_bytes()


def test_a_copy_is_made_once_and_again_when_it_is_damaged_or_the_object_changes(gs, bucket, tmp_path):
    source = f"{bucket}/rows.jsonl"
    gs.pipe_file(source, b"one")
    first = Path(staged_file(source, str(tmp_path)))
    made = first.stat().st_mtime_ns
    assert Path(staged_file(source, str(tmp_path))).stat().st_mtime_ns == made
    for damage in (b"on", b"onf"):
        first.write_bytes(damage)
        assert Path(staged_file(source, str(tmp_path))).read_bytes() == b"one"
    gs.pipe_file(source, b"two")
    assert Path(staged_file(source, str(tmp_path))).read_bytes() == b"two"
    assert first.read_bytes() == b"one"
    assert not list(first.parent.glob("tmp*"))


def test_a_missing_file_is_refused_by_name(bucket, tmp_path):
    for name in ("no.parquet", "no.jsonl", "no"):
        with pytest.raises(BadInput, match=rf"{bucket}/{name} does not exist"):
            load_questions(f"{bucket}/{name}", data_folder=str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_bucket_that_fails_is_told_and_leaves_no_part(gs, bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(faults, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(faults, "RETRY_SECONDS", 0.2)
    gs.pipe_file(f"{bucket}/rows.jsonl", b"{}")
    with (
        faulty(PlannedFault(READ, "rows", unavailable, times=1e9)),
        pytest.raises(StorageOutage, match=rf"reading {bucket}/rows.jsonl failed"),
    ):
        staged_file(f"{bucket}/rows.jsonl", str(tmp_path))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_cache_that_cannot_be_written_is_told(gs, bucket, tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    gs.pipe_file(f"{bucket}/rows.jsonl", b"{}")
    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(StorageFailed, match=rf"^fetching {bucket}/rows.jsonl to .* failed: access is denied"):
        staged_file(f"{bucket}/rows.jsonl", str(tmp_path))


def test_datasets_in_buckets_are_those_on_disk(gs, bucket, dataset, tmp_path):
    gs.put(f"{dataset}/", f"{bucket}/data/set/", recursive=True)
    expected = ids(str(dataset), "test")
    assert len(expected) == COUNTS["test"]
    assert ids(f"{bucket}/data/set", "test", None, str(tmp_path)) == expected
    assert ids(str(dataset), "test", 5) == expected[:5]


@pytest.mark.parametrize("place", ["disk", "bucket"])
@pytest.mark.parametrize("damage", ["cut", "empty", "missing", "short", "no info", "bad info"])
def test_damaged_datasets_are_refused_by_name(gs, bucket, dataset, tmp_path, place, damage):
    local = tmp_path / "set"
    fsspec.filesystem("file").put(f"{dataset}/", f"{local}/", recursive=True)
    (shard,) = local.glob("*test*array_record*")
    info = local / "dataset_info.json"
    other = next(local.glob("*validation*array_record*"))
    {
        "cut": lambda: shard.write_bytes(shard.read_bytes()[: shard.stat().st_size // 2]),
        "empty": lambda: shard.write_bytes(b""),
        "missing": shard.unlink,
        "short": lambda: shard.write_bytes(other.read_bytes()),  # whole, with fewer rows
        "no info": info.unlink,
        "bad info": lambda: info.write_text(info.read_text()[:40]),
    }[damage]()
    source = str(local)
    if place == "bucket":
        source = f"{bucket}/set"
        gs.put(f"{local}/", f"{source}/", recursive=True)
    named = "dataset_info.json" if "info" in damage else shard.name
    with pytest.raises(BadInput, match=named) as refusal:
        load_questions(source, "test", data_folder=str(tmp_path / "cache"))
    assert str(refusal.value).startswith((source, f"data folder {source}"))
    assert len(str(refusal.value).splitlines()) == 1


def test_an_unknown_split_is_named(dataset):
    with pytest.raises(BadInput, match=r"no split .dev.; it has .*validation"):
        load_questions(str(dataset), "dev")
