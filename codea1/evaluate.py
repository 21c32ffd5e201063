"""Measures the players of a run on the questions of its own config.

  python -m codea1.evaluate runs/tiny/code_a1 --step=best --split=test

The result is evaluations/SPLIT_step_NNNNNN.json of the run. What benchmarks ask is `python -m codea1.benchmark`.
"""

from absl import flags

from codea1.runtime import command

STEP = flags.DEFINE_string("step", "last", 'checkpoint of the run: "last", "best" or a number')
SPLIT = flags.DEFINE_enum("split", "test", ["validation", "test"], "questions of the run's config that are asked")
ALLOW_CHANGED_MODEL = command.define_changed_model()
HOSTS = command.define_hosts()


def main(run: str) -> None:
    from codea1.lab.opened_run import evaluate_run  # imports JAX, once the flags are checked

    evaluate_run(run, STEP.value, SPLIT.value, HOSTS(), ALLOW_CHANGED_MODEL.value)


if __name__ == "__main__":
    command.run(main, argument="RUN")
