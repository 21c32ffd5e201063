"""Measures a Code LLM on a benchmark, by the programs that it writes; see docs/benchmarks.md.

  python -m codea1.benchmark code --run=RUN --step=best --benchmark=humanevalplus --file=HumanEvalPlus.jsonl
  python -m codea1.benchmark code --model=FOLDER --output=OUT --benchmark=bigcodebench_complete --file=FILE.parquet
  python -m codea1.benchmark code --model=FOLDER --output=OUT --benchmark=livecodebench --file=test6.jsonl
  python -m codea1.benchmark code --run=RUN --benchmark=mbppplus --file=MbppPlus.jsonl --best_of=own

With --best_of, a Test LLM's tests also choose one program of each question.
"""

import dataclasses

from absl import flags

from codea1.lab.benchmarks.benchmarks import CODE_BENCHMARKS, AnswerSampling, EvaluationSpec
from codea1.lab.commands import require_absent
from codea1.lab.commands.benchmark import define_semantics, define_window, required_semantics, window_of
from codea1.lab.commands.benchmark.asked import HOSTS, asked
from codea1.runtime import command
from codea1.runtime.errors import BadInput

OWN = "own"  # value of --best_of that is no folder

BENCHMARK = flags.DEFINE_enum("benchmark", None, [*CODE_BENCHMARKS], "what is asked")
SEMANTICS = define_semantics()
WINDOW = define_window()
SAMPLES = flags.DEFINE_integer("samples", AnswerSampling.samples, "n: programs for each question", lower_bound=1)
TEMPERATURE = flags.DEFINE_float("temperature", AnswerSampling.temperature, "of what is drawn", lower_bound=0.0)
BEST_OF = flags.DEFINE_string("best_of", "", f'folder of the Test LLM that chooses, as --model; "{OWN}": the run\'s')
NUM_TESTS = flags.DEFINE_integer("num_tests", EvaluationSpec.num_tests, "asserts that it is asked for", lower_bound=1)


def main() -> None:
    spec = asked(BENCHMARK.value, TEMPERATURE.value, SAMPLES.value)
    semantics = required_semantics(spec.benchmark, SEMANTICS)
    window = window_of(spec.benchmark, *WINDOW)
    if not BEST_OF.value:
        require_absent("with --best_of", NUM_TESTS)
    if BEST_OF.value == OWN and not spec.run:
        raise BadInput(f"--best_of={OWN} is the Test LLM of a run: give the folder of one.")
    from codea1.lab.benchmarks.programs import evaluate_code

    spec = dataclasses.replace(
        spec,
        semantics=semantics,
        window=window,
        best_of=bool(BEST_OF.value),
        test_model="" if BEST_OF.value == OWN else BEST_OF.value,
        num_tests=NUM_TESTS.value,
    )
    evaluate_code(spec, HOSTS())


if __name__ == "__main__":
    command.run(main)
