"""Measures a Test LLM on a benchmark, by the suites that it writes; see docs/benchmarks.md.

python -m codea1.benchmark tests --run=RUN --step=best --benchmark=ult --file=ULT.jsonl
python -m codea1.benchmark tests --model=FOLDER --output=OUT --benchmark=testeval --file=leetcode-py-all.jsonl
"""

import dataclasses

from absl import flags

from codea1.lab.benchmarks.benchmarks import SUITE_BENCHMARKS
from codea1.lab.commands.benchmark.asked import HOSTS, asked
from codea1.runtime import command

BENCHMARK = flags.DEFINE_enum("benchmark", None, [*SUITE_BENCHMARKS], "what is asked")
TEMPERATURE = flags.DEFINE_float("temperature", 0.0, "of what is drawn", lower_bound=0.0)
NUM_TESTS = flags.DEFINE_integer(
    "num_tests", 0, "asserts asked for at once, as in training; 0: a test a round, as the benchmark asks", lower_bound=0
)


def main() -> None:
    spec = asked(BENCHMARK.value, TEMPERATURE.value)
    from codea1.lab.benchmarks.suites import evaluate_suites

    evaluate_suites(dataclasses.replace(spec, num_tests=NUM_TESTS.value, in_rounds=not NUM_TESTS.value), HOSTS())


if __name__ == "__main__":
    command.run(main)
