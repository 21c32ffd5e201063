"""Dumps the tests that a Test LLM writes for the training questions of a run, to be fixed tests of another.

  python -m codea1.lab dump_tests --run=runs/tiny/code_a1 --output=runs/tiny/suites.jsonl
  python -m codea1.lab dump_tests --run=runs/tiny/code_a1 --test_model=runs/tiny/sft/model --output=base.jsonl
  python -m codea1.train --config=configs/tiny.py:method=static_tests,static_tests=runs/tiny/suites.jsonl --workdir=...

The Code LLM of the checkpoint writes M solutions of each question and the Test LLM one suite for each, with the run's
prompts and temperatures; --test_model puts the model of a folder, such as the base or an SFT Test LLM, instead of
the run's, against the same solutions. Of every question the file has the right tests, each once: those among the first
K asserts of a suite whose stated answer is the ground truth's. The paper's own recipe for such a set is unknown. On
several hosts the same command runs on each, and host 0 writes.
"""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from absl import flags
from rich.console import Console
from rich.progress import Progress

from codea1.config import Config
from codea1.game.calls import CallTest
from codea1.game.methods import METHODS
from codea1.game.question import Question
from codea1.game.rewards import StrictReward
from codea1.game.round import QuestionRecord
from codea1.lab.data.static_tests import writable, write_static_tests
from codea1.runs.folder import RunFolder
from codea1.runtime import command
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.storage.objects import location
from codea1.training.stored_config import config_of

if TYPE_CHECKING:
    from codea1.lab.opened_run import OpenedRun

RUN = flags.DEFINE_string("run", None, "folder of a run with a Test LLM")
STEP = flags.DEFINE_string("step", "last", 'checkpoint of the run: "last", "best" or a number')
TEST_MODEL = flags.DEFINE_string("test_model", None, "model folder whose policy is the Test LLM; by default the run's")
OUTPUT = flags.DEFINE_string("output", None, "file to write, local or gs://BUCKET/FILE; what is there is replaced")
HOSTS = command.define_hosts()


def main() -> None:
    if not RUN.value or not OUTPUT.value:
        raise BadInput("give --run, the run's folder, and --output, the file to write.")
    hosts = HOSTS()
    output = location(OUTPUT.value, "--output")
    from codea1.lab.opened_run import opened_run  # imports JAX, once the flags are checked

    with opened_run(RUN.value, STEP.value, hosts, lambda folder: _config(folder, TEST_MODEL.value)) as opened:
        tests = list(_tests(opened, hosts))
    if hosts.is_main:
        write_static_tests(output, tests)
        counts = [len(kept) for _, kept in tests]
        asked = sum(count > 0 for count in counts)
        none = len(counts) - asked
        print(f"wrote {output}: {sum(counts):,} tests of {asked:,} questions; {none:,} questions have none")


def _config(folder: RunFolder, test_model: str | None) -> Config:
    """Returns the run's config; a model that is to be the Test LLM plays in it and needs no checkpoint."""
    config = config_of(folder)
    method = METHODS[config.method]
    if not test_model:
        if "test" not in method.roles:
            raise BadInput(f"{folder.path} has no Test LLM: its method is {config.method}; --test_model can name one.")
        return config
    if config.frozen == "code":
        raise BadInput(f"{folder.path} has no Code LLM in its checkpoints, which --test_model needs: it is frozen.")
    changes = {"test.model": test_model, "test.shape": "", "frozen": "test"}
    if len(method.policies) == 1:
        is_black_box = "test" in method.roles and not method.sees_solution
        changes |= {"method": "black_box" if is_black_box else "code_a1", "data.static_tests": ""}
    return config.with_changes(changes)


def _tests(opened: "OpenedRun", hosts: Hosts) -> Iterator[tuple[Question, list[CallTest]]]:
    """Yields the right tests of each training question."""
    from codea1.training.setup import mistake_book
    from codea1.training.step import Step

    config, parts = opened.config, opened.parts
    reward = StrictReward(parts.rules.reward.alpha, parts.rules.num_tests)
    rules = dataclasses.replace(parts.rules, reward=reward, num_suites=1, history_size=0)
    book, size = mistake_book(config.game, config.seed, hosts), config.questions_per_step
    with Progress(console=Console(stderr=True), disable=not hosts.is_main) as progress:
        task = progress.add_task("questions", total=len(parts.train))
        for start in range(0, len(parts.train), size):
            questions = parts.train[start : start + size]
            step = Step(0, parts.players, rules, parts.feed, opened.grader, book, hosts)
            solutions = step.solve(questions)
            graded = step.grade(questions, step.retrieve(questions), solutions, step.attack(solutions))
            step.pay(graded)  # raises BadInput where the sandbox judges nothing
            yield from ((record.question, _right_tests(record)) for record in graded.questions)
            progress.advance(task, len(questions))


def _right_tests(record: QuestionRecord) -> list[CallTest]:
    """Returns what the file has of a question, in the order of solutions and as they are written in their suites."""
    tests = (test for solution in record.solutions for suite in solution.suites for test in suite.tests)
    return writable({record.signature.key(test.call, test.expected): test for test in tests}.values())


if __name__ == "__main__":
    command.run(main)
