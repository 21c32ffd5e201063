import itertools
import math
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from etils import epath
from flax import nnx

from bench.micro_run import content
from codea1.game.mistake_book import NUM_SHARDS, MistakeBook, shards_of_host
from codea1.runs import checkpoints as checkpoints_module
from codea1.runs.book_files import BookSave
from codea1.runs.checkpoints import Checkpoints
from codea1.runtime.errors import BadInput, StorageFailed
from codea1.storage.objects import remove
from tests.mistake_books import TRUTH, big, failed, make

SMALL = {"x": jnp.arange(4.0)}
STATE = {"batches": {"é": [["a", 3]]}, "step": 7, "best": 0.25}


def abstract(arrays: Any) -> Any:
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding), arrays)


def save_all(checkpoints: Checkpoints, scores: list[float | None]) -> None:
    for step, score in enumerate(scores, start=1):
        checkpoints.save(step, {"x": jnp.full(4, step)}, {"step": step}, score)
    checkpoints.wait()


def restore_latest(checkpoints: Checkpoints, target: Any) -> tuple[int, Any, dict[str, Any]]:
    step, damages = checkpoints.latest()
    assert damages == []
    return step, *checkpoints.restore(step, target)


def bits(array: jax.Array) -> bytes:
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return np.asarray(array).tobytes()


def test_both_players_come_back_bit_for_bit(tmp_path: Path):
    def player(seed: int) -> dict[str, Any]:
        model = nnx.Linear(5, 3, param_dtype=jnp.bfloat16, rngs=nnx.Rngs(seed))
        params = jax.tree.map(lambda p: p + jnp.bfloat16(0.1), nnx.state(model, nnx.Param))
        optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
        special = jnp.array([jnp.nan, -0.0, jnp.inf, 1e-45, 0.1], jnp.float32)
        keys = jax.random.split(jax.random.key(seed), 2)
        return {"params": params, "opt": optimizer.init(params), "step": jnp.int32(seed), "z": special, "key": keys}

    arrays = {"code": player(1), "test": player(2)}
    checkpoints = Checkpoints(tmp_path, keep_last=1, keep_best=0)
    checkpoints.save(7, arrays, STATE, None)
    checkpoints.close()

    checkpoints = Checkpoints(tmp_path, keep_last=1, keep_best=0)
    step, restored, state = restore_latest(checkpoints, abstract(arrays))
    checkpoints.close()
    assert (step, state) == (7, STATE)
    assert jax.tree.structure(restored) == jax.tree.structure(arrays)
    for saved, back in zip(jax.tree.leaves(arrays), jax.tree.leaves(restored), strict=True):
        assert (back.dtype, back.shape, bits(back)) == (saved.dtype, saved.shape, bits(saved))


def test_what_changes_after_save_is_not_what_was_saved(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, 1, 0)
    arrays, state = {"x": jnp.arange(1_000_000, dtype=jnp.float32)}, {"book": [1]}
    target = abstract(arrays)
    checkpoints.save(1, arrays, state, None)
    state["book"].append(2)
    jax.block_until_ready(jax.jit(lambda tree: jax.tree.map(jnp.negative, tree), donate_argnums=0)(arrays))
    _, restored, saved_state = restore_latest(checkpoints, target)
    checkpoints.close()
    assert saved_state == {"book": [1]}
    np.testing.assert_array_equal(restored["x"], np.arange(1_000_000, dtype=np.float32))


def test_a_book_is_saved_as_it_was_when_the_saving_began(tmp_path: Path):
    book = MistakeBook()
    book.load(big(100, 5))
    saved, failed_since = content(book.pages()), failed(make("later"))
    checkpoints = Checkpoints(tmp_path, 2, 0)
    checkpoints.save(1, SMALL, {}, None, BookSave(book.pages()))
    for question_id in book.pages():
        book.update(question_id, TRUTH, 9, failed_since)
    checkpoints.save(2, SMALL, {}, None, BookSave(book.pages()))
    checkpoints.close()
    reader = Checkpoints(tmp_path, 2, 0, read_only=True)
    assert content(reader.restore_book(1)) == saved
    assert content(reader.restore_book(2)) == content(book.pages()) != saved
    half = reader.restore_book(2, range(0, NUM_SHARDS, 2))
    assert 0 < len(half) < 100
    with pytest.raises(BadInput, match="no complete step 3"):
        reader.restore_book(3)
    reader.close()


def test_a_step_whose_book_was_not_written_whole_is_not_complete(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, 1, 0)
    checkpoints.save(1, SMALL, {}, None, BookSave({}))
    checkpoints.wait()
    checkpoints.save(2, SMALL, {}, None, BookSave({}, shards_of_host(0, 2)))  # and the other never comes
    with pytest.raises(OSError, match=r"shard_01\.jsonl\.gz is missing"):
        checkpoints.wait()
    reader = Checkpoints(tmp_path, 1, 0, read_only=True)
    assert reader.steps() == [1]
    reader.close()


def test_the_newest_and_the_best_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    checkpoints = Checkpoints(tmp_path, keep_last=2, keep_best=2)
    save_all(checkpoints, [0.1, 0.9, None, 0.5, math.nan, 0.9, 0.2, None])
    assert checkpoints.steps() == [2, 6, 7, 8]
    assert checkpoints.best_step() == 2  # of equals the earlier
    checkpoints.close()

    reader = Checkpoints.reader(tmp_path)
    monkeypatch.setattr(reader._manager, "restore", None)  # it waits for all hosts, and one may ask alone
    assert reader.named("best") == 2
    reader.close()
    reopened = Checkpoints(tmp_path, keep_last=1, keep_best=1)  # scores are read back
    reopened.save(9, SMALL, {}, 0.3)
    reopened.wait()
    assert reopened.steps() == [2, 9]
    assert reopened.restore(2, {"x": abstract(jnp.full(4, 2))})[1] == {"step": 2}
    reopened.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "9"]


def test_a_score_that_comes_later_counts(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, keep_last=3, keep_best=1)
    save_all(checkpoints, [0.5, None])
    checkpoints.set_score(2, 0.75)
    checkpoints.close()
    reopened = Checkpoints(tmp_path, keep_last=1, keep_best=1)
    assert reopened.best_step() == 2
    reopened.save(3, {"x": jnp.full(4, 3)}, {}, None)
    reopened.wait()
    assert reopened.steps() == [2, 3]
    reopened.close()


def test_a_later_score_that_changed_is_seen(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, keep_last=3, keep_best=1)
    save_all(checkpoints, [0.5, None])
    checkpoints.set_score(2, 0.75)
    checkpoints.close()
    late = tmp_path / "2" / "late_score.json"
    late.write_text(late.read_text().replace("0.75", "0.25"))
    reader = Checkpoints(tmp_path, keep_last=1, keep_best=1, read_only=True)
    with pytest.raises(BadInput, match=r"2/late_score.json is damaged."):
        reader.best_step()
    late.write_text("[" * 100_000)
    with pytest.raises(BadInput, match=r"2/late_score.json is damaged. The score of step 2 is not known: codea1 fsck"):
        reader.best_step()


def test_state_that_json_cannot_hold_is_refused_before_anything_is_written(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, 1, 0)
    with pytest.raises(TypeError):
        checkpoints.save(1, SMALL, {"book": object()}, None)
    assert checkpoints.steps() == []
    checkpoints.close()


def test_nothing_saved_is_nothing_restored(tmp_path: Path):
    for read_only in (True, False):
        checkpoints = Checkpoints(tmp_path / "checkpoints", 1, 0, read_only=read_only)
        assert checkpoints.latest() == (None, [])
        assert checkpoints.best_step() is None
        with pytest.raises(BadInput, match="no complete step 3"):
            checkpoints.restore(3, abstract(SMALL))
        checkpoints.close()
        assert (tmp_path / "checkpoints").exists() != read_only


def test_partial_folders_are_not_read_and_cleaned_up_by_the_writer_only(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, 1, 0)
    save_all(checkpoints, [None])
    checkpoints.close()
    (tmp_path / "8" / "arrays").mkdir(parents=True)
    (tmp_path / "9.orbax-checkpoint-tmp" / "arrays").mkdir(parents=True)
    (tmp_path / "9.orbax-checkpoint-tmp" / "commit_success.txt").write_text("")
    (tmp_path / "notes").mkdir()
    (tmp_path / "8.bak").mkdir()  # somebody's copy of the step that is made next

    reader = Checkpoints(tmp_path, 1, 0, read_only=True)
    assert reader.steps() == [1]
    with pytest.raises(RuntimeError):
        reader.save(5, SMALL, {}, None)
    reader.close()
    assert len(list(tmp_path.iterdir())) == 5

    writer = Checkpoints(tmp_path, 1, 0)
    assert writer.steps() == [1]
    assert len(list(tmp_path.iterdir())) == 5
    assert writer.continue_from(1, moved_nothing) == []
    writer.save(8, SMALL, {}, None)
    writer.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["8", "8.bak", "notes"]


def test_a_link_to_a_disk_that_is_not_mounted_is_not_a_run_without_checkpoints(tmp_path: Path):
    (tmp_path / "checkpoints").symlink_to(tmp_path / "mount" / "checkpoints")
    for read_only in (False, True):
        with pytest.raises(StorageFailed, match=r"/checkpoints is a link to .*/mount/checkpoints, which is not there"):
            Checkpoints(epath.Path(tmp_path / "checkpoints"), 1, 0, read_only=read_only)


def moved_nothing(path: epath.Path) -> epath.Path:
    raise AssertionError(path)


def test_what_supersedes_a_step_is_on_the_disk_before_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A save's files before its manifest, and its marker before the step that it supersedes loses its own."""
    synced, fsync = [], os.fsync

    def record_sync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}").replace(".orbax-checkpoint-tmp", ""))
        fsync(descriptor)

    checkpoints = Checkpoints(tmp_path, 1, 0)
    save_all(checkpoints, [None])
    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(checkpoints_module, "remove", lambda path: (synced.append(f"remove {path}"), remove(path)))
    checkpoints.save(2, SMALL, {"a": 1}, None)
    checkpoints.close()
    place = [synced.index(f"{tmp_path}/{name}") for name in ("2/state/metadata", "2/commit_success.txt")]
    manifest = next(place for place, path in enumerate(synced) if "/2/.manifest.json." in path)
    saved = {str(path) for part in ("arrays", "state", "score") for path in (tmp_path / "2" / part).rglob("*")}
    assert len(saved) > 3
    assert saved <= set(synced[:manifest])
    assert place[0] < manifest < place[1] < synced.index(f"remove {tmp_path}/1/commit_success.txt")
    assert synced.index(str(tmp_path), manifest) < synced.index(f"remove {tmp_path}/1/commit_success.txt")


SAVES_FOREVER = """
import os, sys, jax.numpy as jnp
from codea1.runs.checkpoints import Checkpoints
checkpoints = Checkpoints(sys.argv[1], 2, 1)
checkpoints.continue_from(checkpoints.latest()[0], lambda path: path.rename(f"{sys.argv[1]}.{path.name}.{os.getpid()}"))
for step in range((checkpoints.steps() or [0])[-1] + 1, 10_000):
    checkpoints.save(step, {"x": jnp.full((64, 64), step), "y": {"z": jnp.full(1000, step)}}, {"step": step}, step % 5)
    checkpoints.wait()
    print(step, flush=True)
"""


def test_a_kill_at_any_moment_leaves_the_last_complete_step(tmp_path: Path):
    directory = tmp_path / "checkpoints"
    target = {"x": abstract(jnp.full((64, 64), 0)), "y": {"z": abstract(jnp.full(1000, 0))}}
    dice = random.Random(0)
    for _ in range(3):
        command = [sys.executable, "-c", SAVES_FOREVER, str(directory)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "JAX_PLATFORMS": "cpu"}) as child:
            for _ in range(4):
                done = int(child.stdout.readline())
            signal.sigtimedwait([], dice.uniform(0, 0.1))  # into the middle of a save or a deletion
            child.kill()
        reader = Checkpoints(directory, 2, 1, read_only=True)
        step, arrays, state = restore_latest(reader, target)
        assert step >= done
        assert state == {"step": step}
        assert all((leaf == step).all() for leaf in jax.tree.leaves(arrays))
        for kept in reader.steps():
            assert reader.restore(kept, target)[1] == {"step": kept}
        reader.close()


def test_a_step_under_another_number_is_refused(tmp_path: Path):
    checkpoints = Checkpoints(epath.Path(tmp_path), keep_last=3, keep_best=0)
    save_all(checkpoints, [None, None])
    checkpoints.close()
    (tmp_path / "2").rename(tmp_path / "5")
    with pytest.raises(BadInput, match=r"/5 is step 2 under another number; .* Step 1 is undamaged"):
        Checkpoints.reader(epath.Path(tmp_path)).latest()
    with pytest.raises(BadInput, match="/5 is step 2 under another number"):
        Checkpoints.reader(epath.Path(tmp_path)).named("last", files="arrays/")
    (tmp_path / "5").rename(tmp_path / "2")
    assert Checkpoints.reader(epath.Path(tmp_path)).latest() == (2, [])


def test_a_clock_that_jumps_while_a_step_is_saved_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock = SimpleNamespace(time=itertools.count(0.0, 1e6).__next__)  # eleven days at each look
    monkeypatch.setattr("orbax.checkpoint._src.futures.future.time", clock)
    checkpoints = Checkpoints(epath.Path(tmp_path), keep_last=2, keep_best=0)
    save_all(checkpoints, [None, None])
    assert checkpoints.steps() == [1, 2]
    checkpoints.close()
    assert clock.time() > 1e6
