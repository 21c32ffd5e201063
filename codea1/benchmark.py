"""Judges a policy, or the programs or suites of a file, by a benchmark; see docs/benchmarks.md.

  python -m codea1.benchmark --run=RUN --step=best --benchmark=humanevalplus --file=HumanEvalPlus.jsonl
  python -m codea1.benchmark --run=RUN --benchmark=mbppplus --file=MbppPlus.jsonl --best_of=own
  python -m codea1.benchmark --model=FOLDER --output=OUT --benchmark=ult --file=ULT.jsonl
  python -m codea1.benchmark --completions=FILE.jsonl --output=OUT --benchmark=mbppplus --file=MbppPlus.jsonl

ult and testeval ask a Test LLM for suites, the others a Code LLM for programs. With --best_of, a Test LLM's tests also
choose one program of each question. Answers and verdicts are kept in evaluations/NAME/ of the run or of --output as
they come, so that the same command continues an interrupted one; the result is evaluations/NAME.json.
"""

from datetime import date

from absl import flags

from codea1.lab.benchmarks.benchmarks import (
    CODE_BENCHMARKS,
    EVALPLUS,
    LIVECODEBENCH,
    OWN,
    SEMANTICS,
    SUITE_BENCHMARKS,
    AnswerSampling,
    EvaluationSpec,
    semantics_of,
)
from codea1.lab.commands import require_absent
from codea1.runtime import command
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts

WHERE_FROM = CODE_BENCHMARKS | {name: benchmark.where_from for name, benchmark in SUITE_BENCHMARKS.items()}

BENCHMARK = flags.DEFINE_enum("benchmark", None, [*WHERE_FROM], "what is asked, and judges")
FILE = flags.DEFINE_string("file", "", "the benchmark's data, local or gs://; of livecodebench several, with commas")
OUTPUT = flags.DEFINE_string("output", "", "folder for the results, local or gs://; a run has its own")
RUN = flags.DEFINE_string("run", "", "folder of a run whose player is asked")
STEP = flags.DEFINE_string("step", "last", 'checkpoint of the run: "last", "best" or a number')
MODEL = flags.DEFINE_string("model", "", "folder of the model that is asked, or of adapters for one, local or gs://")
COMPLETIONS = flags.DEFINE_string(
    "completions", "", "programs: a .jsonl file with task_id and solution or completion; ground_truth; or a mutant of "
    "each, mutated_ground_truth. Of ult and testeval, suites: task_id and tests"
)  # fmt: skip
PART = flags.DEFINE_bool("part", False, "completions may leave out tasks, which the result names")
SEMANTICS_FLAG = flags.DEFINE_enum(
    "semantics", None, SEMANTICS, "how HumanEval+ and MBPP+ judge; scripts of .parquet files"
)
WINDOW = (
    flags.DEFINE_string("from", "", "livecodebench: contests of this day, as 2025-01-31, or later"),
    flags.DEFINE_string("until", "", "livecodebench: contests of this day, at 00:00, or earlier"),
)
SAMPLES = flags.DEFINE_integer("samples", AnswerSampling.samples, "n: programs for each question", lower_bound=1)
BEST_OF = flags.DEFINE_string("best_of", "", f'folder of the Test LLM that chooses, as --model; "{OWN}": the run\'s')
NUM_TESTS = flags.DEFINE_integer(
    "num_tests", 0, "asserts that a Test LLM is asked for at once, as in training; 0: 8 with --best_of, and of ult and "
    "testeval a test a round, as the benchmark asks", lower_bound=0
)  # fmt: skip
TEMPERATURE = flags.DEFINE_float("temperature", None, "of what is drawn; 0.7 of programs, 0 of suites", lower_bound=0.0)
TOP_P = flags.DEFINE_float("top_p", AnswerSampling.top_p, "of what is drawn", lower_bound=0.0, upper_bound=1.0)
SEED = flags.DEFINE_integer("seed", AnswerSampling.seed, "of all draws", lower_bound=0, upper_bound=2**64 - 1)
THINKING = flags.DEFINE_enum(
    "thinking", "", ["", "on", "off"], "the chat template's enable_thinking; else the run's own, or the template's"
)
MAX_PROMPT_LENGTH = flags.DEFINE_integer("max_prompt_length", 0, "tokens; 0: the run's own, or 4096", lower_bound=0)
MAX_RESPONSE_LENGTH = flags.DEFINE_integer("max_response_length", 0, "tokens; 0: the run's own, or 2048", lower_bound=0)
SLOTS = flags.DEFINE_integer("slots", 0, "sequences that decode at once; 0: the run's own, or 64", lower_bound=0)
HOSTS = command.define_hosts()


def main() -> None:
    spec = _spec()
    # They import JAX, once the flags are checked.
    from codea1.lab.benchmarks.programs import evaluate_code
    from codea1.lab.benchmarks.suites import evaluate_suites

    evaluate = evaluate_suites if spec.benchmark in SUITE_BENCHMARKS else evaluate_code
    evaluate(spec, Hosts() if spec.completions else HOSTS())


def _spec() -> EvaluationSpec:
    """Returns what the flags specify. Raises BadInput for one that is missing, or given and decides nothing."""
    benchmark, given = BENCHMARK.value, bool(COMPLETIONS.value)
    if bool(RUN.value) + bool(MODEL.value) + given != 1:
        raise BadInput("give one of --run, --model and --completions.")
    if benchmark is None:
        raise BadInput("--benchmark is missing: it names what is asked.")
    if not RUN.value and not OUTPUT.value:
        raise BadInput("--output is missing: it names the folder for the results.")
    if not FILE.value:
        raise BadInput(f"--file is missing: it names the data of {benchmark}. {WHERE_FROM[benchmark]}")
    of_suites = benchmark in SUITE_BENCHMARKS
    lengths = (MAX_PROMPT_LENGTH, MAX_RESPONSE_LENGTH, SLOTS)
    of_sampling = (SAMPLES, BEST_OF, NUM_TESTS, TEMPERATURE, TOP_P, SEED, THINKING, *lengths)
    for decides, where, idle in (
        (RUN.value, "with --run", [STEP]),
        (given, "with --completions", [PART]),
        (not given, "with --run or --model", of_sampling),
        (not of_suites, "with benchmarks of programs", [SAMPLES, BEST_OF]),
        (of_suites or BEST_OF.value, "with --best_of, ult and testeval", [NUM_TESTS]),
        (benchmark in EVALPLUS, f"with {' and '.join(EVALPLUS)}", [SEMANTICS_FLAG]),
        (benchmark == LIVECODEBENCH, f"with {LIVECODEBENCH}", WINDOW),
    ):
        if not decides:
            require_absent(where, *idle)
    if BEST_OF.value == OWN and not RUN.value:
        raise BadInput(f"--best_of={OWN} is the Test LLM of a run: give the folder of one.")
    temperature = TEMPERATURE.value
    if temperature is None:
        temperature = 0.0 if of_suites else AnswerSampling.temperature
    return EvaluationSpec(
        benchmark=benchmark,
        file=FILE.value,
        window=_window(),
        run=RUN.value,
        step=STEP.value,
        model=MODEL.value,
        completions=COMPLETIONS.value,
        part=PART.value,
        output=OUTPUT.value,
        thinking=THINKING.value,
        semantics=semantics_of(FILE.value, SEMANTICS_FLAG.value),
        sampling=AnswerSampling(SAMPLES.value, temperature, TOP_P.value, SEED.value),
        lengths=(MAX_PROMPT_LENGTH.value, MAX_RESPONSE_LENGTH.value, SLOTS.value),
        best_of=BEST_OF.value,
        num_tests=NUM_TESTS.value or (8 if BEST_OF.value else 0),
    )


def _window() -> tuple[str, str]:
    """Returns the first and the last day. Raises BadInput: they are no such days."""
    days = []
    for flag in WINDOW:
        try:
            days.append(flag.value and date.fromisoformat(flag.value).isoformat())
        except ValueError:
            raise BadInput(f"--{flag.name}={flag.value} is no day such as 2025-01-31.") from None
    first, last = days
    if "" != last < first:
        raise BadInput(f"--until={last} is before --from={first}.")
    return first, last


if __name__ == "__main__":
    command.run(main)
