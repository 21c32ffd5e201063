"""Trains a Code LLM and a Test LLM against each other: Algorithm 1 of Code-A1 (arXiv 2603.15611).

  python -m codea1.train --config=configs/tiny.py --workdir=runs/tiny/code_a1
  python -m codea1.train --config=configs/tiny.py --dry_run    # one step of it, of which nothing is kept

A workdir that holds a run of the same config is continued from its last checkpoint. It is a local folder, or one in a
bucket, gs://BUCKET/FOLDER. On several hosts the same command runs on each, with a workdir that all of them see.
docs/resuming.md has storage, hosts and signals.
"""

from typing import TYPE_CHECKING

from absl import flags

from codea1.config import Config
from codea1.config_file import FIELDS, define_config
from codea1.game.round import Round
from codea1.runtime import command, output
from codea1.runtime.errors import BadInput
from codea1.training.guards import guarded, run_inputs

if TYPE_CHECKING:  # it imports JAX, which takes seconds; wrong flags are reported before
    from codea1.training.trainer import Trainer

WORKDIR = flags.DEFINE_string("workdir", None, "folder of the run, local or gs://; made where it is missing")
ALLOW_PREVIOUS_STEP = flags.DEFINE_bool(
    "allow_previous_step", False, "where the newest checkpoint is damaged: move it aside, continue from an older one"
)
ALLOW_CHANGED_MODEL = command.define_changed_model()
DRY_RUN = flags.DEFINE_bool("dry_run", False, "compile everything, run one step, examine the sandbox, write nothing")
CONFIG = define_config()
HOSTS = command.define_hosts()


def main() -> None:
    output.may_be_lost()
    workdir, dry = WORKDIR.value or "", DRY_RUN.value

    def read_config() -> Config:
        config = CONFIG()
        if not workdir and not dry:
            raise BadInput("--workdir is missing: it names the folder of the run.")
        return config

    hosts = HOSTS()
    with run_inputs(read_config, workdir, hosts) as inputs:
        if dry:
            from codea1.lab.dry_run import DryRun

            train(DryRun(inputs.config, inputs.parts, inputs.sandbox, hosts))
            return
        with guarded(inputs, hosts, ALLOW_PREVIOUS_STEP.value, ALLOW_CHANGED_MODEL.value) as run:
            from codea1.lab.report.run_report import show_report

            train(run)
            run.report(show_report)


def train(run: "Trainer") -> None:
    """Runs Algorithm 1: each numbered line is a method of `codea1.training.step.Step`."""
    run.prepare()
    for number in run.steps():
        with run.step(number) as step:
            round_ = Round(number)
            with step.rollout():
                while questions := step.next_questions(round_):  # one batch; with max_rounds, several
                    history = step.retrieve(questions)  # 1. old failures to replay, from the Mistake Book
                    solutions = step.solve(questions)  # 2. M per question; line 4 grades them as they arrive
                    suites = step.attack(solutions)  # 3. N per solution, with its source in the prompt
                    graded = step.grade(questions, history, solutions, suites)  # 4. verdicts on replayed and new tests
                    paid = step.pay(graded)  # 5. R_C to each solution, R_T to each suite
                    round_ += step.update_book(paid)  # 6. counts passed tests down, adds failed ones
            compared = step.compare(round_)  # 7. advantages in groups; suites whose rewards vary most
            for player in run.learners:
                step.learn(player, compared)  # 8. the Code LLM from its solutions, the Test LLM from its suites
    run.conclude()


if __name__ == "__main__":
    command.run(main, config_fields=FIELDS)
