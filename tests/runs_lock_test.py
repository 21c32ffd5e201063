"""A lock, in a bucket a lease, keeps others out while its holder lives, and a dead holder keeps nobody out for long."""

import errno
import fcntl
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from etils import epath

from codea1.runs import lock
from codea1.runs.folder import RunFolder
from codea1.runs.lock import is_held, leased, locked, opened, require_lock
from codea1.runtime.errors import BadInput, StorageFailed, StorageOutage
from codea1.storage.objects import ABSENT, ReplacedError, read_generation, remove_generation, write_generation
from tests.conftest import ROOT
from tests.faulty_gcs import READ, WRITE, PlannedFault, faulty, reset

HOLD_LEASE = """
import sys, time
from etils import epath
from codea1.runs import lock
lock.RENEW_SECONDS, lock.EXPIRY_SECONDS = 0.1, 1.0
with lock.leased(epath.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


HOLD_LOCK = """
import sys, time
from codea1.runs.folder import RunFolder
from codea1.runs.lock import locked
with locked(RunFolder.existing(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def path(bucket: str, monkeypatch: pytest.MonkeyPatch) -> epath.Path:
    monkeypatch.setattr(lock, "RENEW_SECONDS", 0.1)
    monkeypatch.setattr(lock, "EXPIRY_SECONDS", 1.0)
    return epath.Path(bucket) / "run" / ".lock"


@pytest.fixture
def holder(path: epath.Path):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", HOLD_LEASE, str(path)], cwd=ROOT, **pipes)
    assert process.stdout.readline() == "held\n", process.stderr.read()
    yield process
    process.kill()
    process.communicate()


def test_a_live_holder_keeps_others_out(path: epath.Path, holder: subprocess.Popen):
    for _ in range(2):
        with (
            pytest.raises(BadInput, match=rf"{path.parent}: process {holder.pid} of host .* works there"),
            leased(path),
        ):
            pass
    assert holder.poll() is None


def test_a_killed_holder_is_followed_within_its_expiry(path: epath.Path, holder: subprocess.Popen):
    holder.kill()
    started = time.monotonic()
    with leased(path):
        assert 1.0 <= time.monotonic() - started < 5
    assert read_generation(path) is None


def test_a_holder_that_was_replaced_ends_at_once(path: epath.Path, holder: subprocess.Popen):
    path.write_text('{"host": "other", "pid": 7}')
    assert holder.wait(10) == lock.STORAGE_EXIT_CODE
    assert "process 7 of host other has taken it over" in holder.stderr.read()
    assert path.exists()


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ReplacedError(), "process 7 of host other has taken it over"),
        (KeyError("generation"), "its lease cannot be renewed (KeyError('generation'))"),
    ],
)
def test_whatever_else_stops_the_renewal_ends_the_process(
    error: Exception, why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    answers = iter([(2, b'{"host": "other", "pid": 7}')])
    waits = iter([False, True])

    def write(*_: object) -> int:
        raise error

    def read_once(*_: object) -> tuple[int, bytes]:
        for answer in answers:
            return answer
        raise StorageFailed

    monkeypatch.setattr(lock, "write_generation", write)
    monkeypatch.setattr(lock, "read_generation", read_once)
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as ended:
        lock._Lease(epath.Path("/run/.lock")).renew_until(SimpleNamespace(wait=lambda _: next(waits)))
    assert ended.value.code == lock.STORAGE_EXIT_CODE
    assert capsys.readouterr().err == f"error: folder /run: {why}; this process ends.\n"


def test_of_many_that_want_a_dead_holders_lease_one_gets_it(path: epath.Path):
    path.write_text("what a dead holder left")

    def take(_: int) -> str:
        try:
            with leased(path):
                time.sleep(1.5)  # till all others have looked
                return "held"
        except BadInput as error:
            return str(error)

    with ThreadPoolExecutor(6) as threads:
        outcomes = list(threads.map(take, range(6)))
    assert outcomes.count("held") == 1
    assert sum("works there" in outcome for outcome in outcomes) == 5


def test_a_renewal_whose_answer_is_lost_was_made(path: epath.Path):
    with faulty(PlannedFault(WRITE, r"\.lock", reset, times=4, served=True)), leased(path):
        time.sleep(1.0)
        assert read_generation(path) is not None
    assert read_generation(path) is None


def test_a_bucket_that_does_not_answer_for_a_moment_costs_no_lease(path: epath.Path):
    with leased(path), faulty(PlannedFault(WRITE, r"\.lock", reset, times=3), PlannedFault(READ, r"\.lock", reset)):
        time.sleep(1.0)
    assert read_generation(path) is None


def test_generations_are_respected(path: epath.Path):
    first = write_generation(path, b"a", ABSENT)
    with pytest.raises(ReplacedError):
        write_generation(path, b"b", ABSENT)
    second = write_generation(path, b"c", first)
    for stale in (lambda: write_generation(path, b"d", first), lambda: remove_generation(path, first)):
        with pytest.raises(ReplacedError):
            stale()
    assert read_generation(path) == (second, b"c")
    remove_generation(path, second)
    assert read_generation(path) is None
    with pytest.raises(ReplacedError):
        remove_generation(path, second)


def test_a_run_in_a_bucket_is_locked_by_a_lease(bucket: str, tmp_path: Path):
    for workdir, kept in ((f"{bucket}/run", False), (str(tmp_path), True)):
        folder = RunFolder.open(workdir, {})
        with locked(folder):
            assert (folder.path / ".lock").exists()
        assert (folder.path / ".lock").exists() == kept


def test_a_second_training_is_refused_until_the_first_has_gone(tmp_path: Path):
    folder = RunFolder.open(str(tmp_path), {})
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(BadInput, match="another process works there"), locked(folder):
            pass
    finally:
        holder.kill()
        holder.wait()
    for _ in range(2):
        with locked(folder):
            pass


def test_of_two_configs_that_begin_at_once_one_is_written(tmp_path: Path):
    workdir = tmp_path / "run"
    with locked(RunFolder(epath.Path(workdir), {"seed": 0})):  # and about to write it
        with pytest.raises(BadInput, match="another process works there"), opened(str(workdir), {"seed": 1}):
            pass
        assert os.listdir(workdir) == [".lock"]
    with opened(str(workdir), {"seed": 0}) as folder:
        assert RunFolder.existing(str(workdir)) == folder


def test_a_lock_whose_file_was_removed_is_noticed(tmp_path: Path):
    folder = RunFolder.open(str(tmp_path), {})
    require_lock(folder)  # a process that holds none
    assert not is_held(folder)
    with locked(folder):
        require_lock(folder)
        assert is_held(folder)
        (tmp_path / ".lock").unlink()
        with pytest.raises(StorageOutage, match=r"\.lock was removed while this process worked there"):
            require_lock(folder)
        (tmp_path / ".lock").touch()  # by another one
        with pytest.raises(StorageOutage, match="another one may have begun"):
            require_lock(folder)
    require_lock(folder)
    assert not is_held(folder)


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_a_filesystem_without_locks_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int
):
    def flock(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    with locked(RunFolder.open(str(tmp_path), {})):
        pass
    why = f"{tmp_path} is on a filesystem without locks ({os.strerror(code)})"
    assert capsys.readouterr().err == f"{why}: no other run may write there\n"
