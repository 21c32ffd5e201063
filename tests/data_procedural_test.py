"""The procedural questions: their tests are true and strong, and the loader gives back what was written."""

import hashlib
import json
import shutil

import pytest

from codea1.data.loader import load_questions, rows_of
from codea1.data.sources import CLASSIC, source_of, world_folder
from codea1.lab.worlds import procedural
from codea1.lab.worlds.procedural import NUM_QUESTIONS, prepare, rows
from codea1.lab.worlds.worlds import WORLDS, World
from codea1.runtime.errors import BadInput, StorageFailed

ROWS = {split: list(rows(split)) for split in NUM_QUESTIONS}
SAMPLE = [*ROWS["train"][::8], *ROWS["validation"][::4], *ROWS["test"][::4]]


def passes(program: str, script: str) -> bool:
    namespace: dict = {}
    exec(program, namespace)
    judge: dict = {"f": namespace["f"]}
    try:
        exec(script, judge)
        if "check" in judge:
            judge["check"](namespace["f"])
    except Exception:
        return False
    return True


def test_truth_passes_hidden_and_golden_tests():
    for row in SAMPLE:
        assert passes(row["GT_code"], row["test"])
        assert len(set(row["GT_test"])) == 5
        assert all(passes(row["GT_code"], test) for test in row["GT_test"])
        assert not any("f([])" in test for test in row["GT_test"])


def test_hidden_tests_kill_every_mutant():
    for row in SAMPLE:
        assert 4 <= len(set(row["mutants"])) == len(row["mutants"]) <= 10
        assert not any(passes(mutant, row["test"]) for mutant in row["mutants"])


def test_golden_tests_leave_as_many_near_misses_alone_as_docs_demo_says():
    asked = ROWS["train"][:96]  # those that the demo trains on
    near_misses = [(row, mutant) for row in asked for mutant in row["mutants"]]
    paid = [mutant for row, mutant in near_misses if passes(mutant, "\n".join(row["GT_test"]))]
    on_nothing = [mutant for mutant in paid if not passes(mutant, "f([])")]
    assert (len(near_misses), len(paid), len(on_nothing)) == (576, 85, 31)


def test_rows_are_those_of_the_version():
    assert {split: len(found) for split, found in ROWS.items()} == NUM_QUESTIONS
    # If rows are meant to change, raise the version, or folders that hold the old rows go on being used.
    digest = hashlib.sha256(json.dumps(ROWS, sort_keys=True).encode()).hexdigest()[:16]
    assert (world_folder(CLASSIC, None).name, digest) == ("classic-1.0.0", "5ff80085c27c615e")


@pytest.mark.parametrize("world", [WORLDS[CLASSIC], WORLDS["blind"]], ids=lambda world: world.name)
def test_what_was_prepared_is_the_rows_in_the_order_of_earlier_versions(world: World, data_folder):
    prepare(world.name, str(data_folder))
    order = hashlib.sha256()
    for split in NUM_QUESTIONS:
        by_id = {row["extra_info"]["question_id"]: row for row in rows(split, world)}
        found = {row["extra_info"]["question_id"]: row for _, row in rows_of(source_of(world.name), split, data_folder)}
        assert found == by_id
        order.update(" ".join(found).encode())
    assert order.hexdigest()[:16] == {"classic": "b6036dc313e5aab6", "blind": "f6b0115d31a2b00d"}[world.name]


def test_loader_makes_questions_of_it(data_folder):
    questions = load_questions("procedural", "test", data_folder=str(data_folder))
    by_id = {row["extra_info"]["question_id"]: row for row in ROWS["test"]}
    assert len(questions) == 384
    for question in questions:
        row = by_id[question.id]
        assert question.prompt == ({"role": "user", "content": question.problem},)
        assert (question.problem, question.description) == (row["problem"], row["description"])
        assert (question.ground_truth, question.check_script) == (row["GT_code"], row["test"])
        assert (list(question.golden_tests), list(question.mutants)) == (row["GT_test"], row["mutants"])
        assert (question.entry_point, question.data_source) == ("f", "procedural")
    assert load_questions("procedural", "test", 7, str(data_folder)) == questions[:7]
    assert load_questions("procedural", "test", 0, str(data_folder)) == questions


def test_a_world_that_was_not_prepared_is_refused_with_what_to_do(tmp_path):
    makes = rf"`python -m codea1.lab worlds blind --folder={tmp_path}` makes them\.$"
    said = rf"world blind are not in {tmp_path}/.*: {makes}"
    with pytest.raises(BadInput, match=said):
        load_questions("procedural/blind", "train", data_folder=str(tmp_path))


@pytest.mark.parametrize("split", [None, "dev"])
def test_unknown_split_is_refused(split, data_folder):
    with pytest.raises(BadInput, match="train, validation, test"):
        load_questions("procedural", split, data_folder=str(data_folder))


def test_damaged_data_are_refused_and_rebuilt_once_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(procedural, "NUM_QUESTIONS", {"train": 3, "validation": 2, "test": 2})
    prepare(CLASSIC, str(tmp_path))
    assert len(load_questions("procedural", "train", data_folder=str(tmp_path))) == 3
    (file,) = tmp_path.glob("procedural/*/train*")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(BadInput, match=r"procedural.*damaged.* Once .*procedural/classic-1\.0\.0 is removed, "):
        load_questions("procedural", "train", data_folder=str(tmp_path))
    shutil.rmtree(file.parent)
    prepare(CLASSIC, str(tmp_path))
    assert len(load_questions("procedural", "train", data_folder=str(tmp_path))) == 3


def test_a_folder_that_cannot_be_made_or_is_of_nobody_is_told(monkeypatch):
    monkeypatch.setattr(procedural, "NUM_QUESTIONS", {"train": 3, "validation": 2, "test": 2})
    with pytest.raises(StorageFailed, match=r"^writing /proc/none/procedural/classic-1\.0\.0/.* failed: .*\.$"):
        prepare(CLASSIC, "/proc/none")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # a container's user of whom the system knows nothing
    with pytest.raises(BadInput, match=r"config.data.folder ~/\.cache/codea1 is in a home folder that is not there"):
        world_folder(CLASSIC, None)
