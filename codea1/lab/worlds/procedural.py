"""The procedural dataset: small Python functions, their hidden tests, golden tests and mutants, as a TFDS builder.

Rows have the fields of the official Code-A1 data (prompt, problem, description, GT_code, GT_test, test, data_source,
extra_info), and mutants besides. No composition of one split is in another. Reading and writing need no TensorFlow.
"""

import io
import random
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from itertools import chain, count
from typing import Any

import tensorflow_datasets as tfds

from codea1.data.sources import CLASSIC, PROCEDURAL
from codea1.lab.worlds.compositions import (
    ENTRY_POINT,
    Task,
    assert_line,
    behaviour,
    compositions,
    outcome,
    random_input,
)
from codea1.lab.worlds.worlds import WORLDS, World, world_named
from codea1.storage.faults import translate_storage_errors

NUM_QUESTIONS = {"train": 1024, "validation": 192, "test": 384}
NUM_GOLDEN_TESTS = 5
USUAL_MUTANTS = 6  # single near misses are filled up to this number with double ones

_CHECK_SCRIPT = """\
def check(candidate):
    inputs = {inputs}
    results = {results!r}
    for arguments, expected in zip(inputs, results):
        assert candidate(*arguments) == expected
"""


class Procedural(tfds.core.GeneratorBasedBuilder):
    """Compositions of filter, map and reduce on lists and of conditional maps on integers."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First release."}  # noqa: RUF012  a TFDS class attribute
    # Where TFDS looks for checksums of downloads, through a package it does not install. Nothing is downloaded here.
    code_path = None

    def _info(self) -> tfds.core.DatasetInfo:
        text = tfds.features.Text
        return tfds.core.DatasetInfo(
            builder=self,
            description=self.__doc__,
            features=tfds.features.FeaturesDict(
                {
                    "prompt": tfds.features.Sequence({"role": text(), "content": text()}),
                    "problem": text(),
                    "description": text(),
                    "GT_code": text(),
                    "test": text(),
                    "GT_test": tfds.features.Sequence(text()),
                    "mutants": tfds.features.Sequence(text()),
                    "data_source": text(),
                    "extra_info": {
                        "function_declaration": text(),
                        "function_name": text(),
                        "imports": text(),
                        "question_id": text(),
                    },
                }
            ),
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Iterator[tuple[str, Any]]]:
        return {split: self._generate_examples(split) for split in NUM_QUESTIONS}

    def _generate_examples(self, split: str) -> Iterator[tuple[str, dict[str, Any]]]:
        world = WORLDS[self.builder_config.name if self.builder_config else CLASSIC]
        for row in rows(split, world):
            yield row["extra_info"]["question_id"], row


class RareProcedural(Procedural):
    """The same in the worlds where mistakes are rare; the classic one stays where data of earlier versions are."""

    VERSION = tfds.core.Version("1.1.0")
    RELEASE_NOTES = {"1.1.0": "Left-over cases also in programs that are wrong besides."}  # noqa: RUF012
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=name) for name in WORLDS if name != CLASSIC]  # noqa: RUF012


def prepare(world: str, data_folder: str | None) -> None:
    """Prepares the questions of a world where `codea1.data.loader` reads them, in a few seconds; not twice.

    Raises:
      BadInput: there is no such world.
      StorageFailed: the folder cannot be written.
    """
    builder = _builder(world_named(world), data_folder)
    tfds.disable_progress_bar()
    try:
        with (
            translate_storage_errors(f"preparing {builder.data_path}"),
            redirect_stdout(io.StringIO()),  # TFDS announces a download
        ):
            builder.download_and_prepare()
    except OSError:
        # Another process was faster: each builds in a folder of its own, and renames it when it is complete.
        if not builder.data_path.exists():
            raise


def _builder(world: World, data_folder: str | None) -> Procedural:
    if world.name == CLASSIC:
        return Procedural(data_dir=data_folder, file_format="array_record")
    return RareProcedural(data_dir=data_folder, file_format="array_record", config=world.name)


def tasks_of(world: World, question_ids: Sequence[str]) -> list[Task]:
    """Returns the tasks of training questions, in their order. Raises KeyError: one is no training question."""
    by_id = {task.id: task for task, _ in tasks("train", world)}
    return [by_id[id] for id in question_ids]


def rows(split: str, world: World = WORLDS[CLASSIC]) -> Iterator[dict[str, Any]]:
    """Yields the rows of one split, a pure function. Once all compositions have come, they come with new constants."""
    return (row for _, row in tasks(split, world))


def tasks(split: str, world: World) -> Iterator[tuple[Task, dict[str, Any]]]:
    """Yields the tasks of one split with their rows."""
    seen: set[str] = set()
    for repetition in count():
        for composition in compositions(split, world):
            task = composition.draw(random.Random(f"{composition}/{repetition}"))
            row = None if task.id in seen else question_row(task)
            if row is None:
                continue
            seen.add(task.id)
            yield task, row
            if len(seen) == NUM_QUESTIONS[split]:
                return


def question_row(task: Task) -> dict[str, Any] | None:
    """Returns the dataset's row for a task; None for one that is no challenge: a constant, or with too few mutants."""
    world = task.composition.world
    inputs = task.hidden_inputs
    results = task.hidden_outcomes
    mutants = _mutants(task, inputs, results)
    if len(mutants) < world.min_mutants or all(result == results[0] for result in results):
        return None
    written = f"[(x,) for x in {world.hidden_integers}]" if world.searched else repr(inputs)  # a thousand are long
    return {
        "prompt": [{"role": "user", "content": task.problem}],
        "problem": task.problem,
        "description": task.description,
        "GT_code": task.program(),
        "test": _CHECK_SCRIPT.format(inputs=written, results=list(results)),
        "GT_test": _golden_tests(task),
        "mutants": mutants,
        "data_source": PROCEDURAL,
        "extra_info": {
            "function_declaration": task.signature,
            "function_name": ENTRY_POINT,
            "imports": "",
            "question_id": task.id,
        },
    }


def _mutants(task: Task, inputs: list[tuple], results: tuple[Any, ...]) -> list[str]:
    """Returns programs that differ from the truth and each other on the hidden inputs, first those of one mistake."""
    programs: list[str] = []
    behaviours = [results]
    for choices in chain(task.near_misses(1), task.near_misses(2)):
        if choices.count(0) == 1 and len(programs) >= USUAL_MUTANTS:
            break
        program = task.program(choices)
        shown = behaviour(program, inputs)
        if shown not in behaviours:
            programs.append(program)
            behaviours.append(shown)
    return programs


def _golden_tests(task: Task) -> list[str]:
    """Returns asserts on random inputs, never on the empty list: like most tests people write, they miss edges."""
    rng = random.Random(f"{task.id}/golden")
    tests: dict[str, None] = {}
    while len(tests) < NUM_GOLDEN_TESTS:
        arguments = random_input(task.composition, task.composition.world.golden_lengths, rng)
        tests[assert_line(arguments, outcome(task.program(), arguments))] = None
    return list(tests)
