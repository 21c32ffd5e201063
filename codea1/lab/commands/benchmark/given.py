"""Judges programs or suites of files by a benchmark; see docs/benchmarks.md.

python -m codea1.benchmark given --completions=FILE.jsonl --output=OUT --benchmark=mbppplus --file=MbppPlus.jsonl
python -m codea1.benchmark given --completions=SUITES.jsonl --output=OUT --benchmark=ult --file=ULT.jsonl
"""

from absl import flags

from codea1.lab.benchmarks.benchmarks import CODE_BENCHMARKS, SUITE_BENCHMARKS, EvaluationSpec
from codea1.lab.commands.benchmark import (
    FILE,
    OUTPUT,
    define_semantics,
    define_window,
    require_whole,
    required_semantics,
    window_of,
)
from codea1.runtime import command
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts

BENCHMARK = flags.DEFINE_enum("benchmark", None, [*CODE_BENCHMARKS, *SUITE_BENCHMARKS], "what judges")
COMPLETIONS = flags.DEFINE_string(
    "completions", "", "programs: a .jsonl file with task_id and solution or completion; ground_truth; or a "
    "mutant of each, mutated_ground_truth. Of test generation, suites: task_id and tests"
)  # fmt: skip
PART = flags.DEFINE_bool("part", False, "completions may leave out tasks, which the result names")
SEMANTICS = define_semantics()
WINDOW = define_window()


def main() -> None:
    if not COMPLETIONS.value:
        raise BadInput("--completions is missing: it names what is judged.")
    benchmark = require_whole(BENCHMARK.value)
    semantics = required_semantics(benchmark, SEMANTICS)
    spec = EvaluationSpec(
        benchmark=benchmark,
        file=FILE.value,
        window=window_of(benchmark, *WINDOW),
        completions=COMPLETIONS.value,
        part=PART.value,
        semantics=semantics,
        output=OUTPUT.value,
    )
    if benchmark in SUITE_BENCHMARKS:
        from codea1.lab.benchmarks.suites import evaluate_suites

        evaluate_suites(spec, Hosts())
    else:
        from codea1.lab.benchmarks.programs import evaluate_code

        evaluate_code(spec, Hosts())


if __name__ == "__main__":
    command.run(main)
