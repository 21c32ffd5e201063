"""Measures the players of a run, a model, or given programs and suites.

  python -m codea1.evaluate --run=runs/tiny/code_a1 --split=test
  python -m codea1.evaluate --run=RUN --step=best --benchmark=humanevalplus --file=HumanEvalPlus.jsonl
  python -m codea1.evaluate --model=FOLDER --output=OUT --benchmark=bigcodebench_complete --file=FILE.parquet
  python -m codea1.evaluate --completions=FILE.jsonl --output=OUT --benchmark=mbppplus --file=MbppPlus.jsonl
  python -m codea1.evaluate --completions=FILE.jsonl --suites=FILE.jsonl --output=OUT --benchmark=... --file=...
  python -m codea1.evaluate --run=RUN --benchmark=ult --file=ULT.jsonl

The first asks the questions of the run's own config. The next four ask a benchmark of the Code LLM, see
docs/benchmarks.md, the last one of the Test LLM, see docs/benchmarks_tests.md. What they do is kept in
evaluations/NAME/ of the run or of --output as it comes, so that the same command goes on where one was cut off, and the
result is evaluations/NAME.json. With --best_of, a Test LLM's tests choose one program of each question.

What needs JAX, which takes seconds to import, is imported once the flags are checked.
"""

from collections.abc import Sequence

from absl import flags

from codea1.lab.benchmarks.benchmarks import (
    CODE_BENCHMARKS,
    SEMANTICS,
    SUITE_BENCHMARKS,
    AnswerSampling,
    EvaluationSpec,
)
from codea1.runtime import command
from codea1.runtime.errors import BadInput

RUN = flags.DEFINE_string("run", None, "folder of a run whose players are measured")
STEP = flags.DEFINE_string("step", "last", 'checkpoint of the run: "last", "best" or a number')
SPLIT = flags.DEFINE_enum("split", "test", ["validation", "test"], "questions of the run's config that are asked")
MODEL = flags.DEFINE_string("model", None, "folder of the model that is asked, or of adapters for one, local or gs://")
COMPLETIONS = flags.DEFINE_string(
    "completions", None, "programs: a .jsonl file with task_id and solution or completion; ground_truth; or the same "
    "with an operator flipped, flipped_ground_truth. Of test generation, suites: task_id and tests"
)  # fmt: skip
SUITES = flags.DEFINE_string(
    "suites", None, "a .jsonl file with task_id and tests, a list of asserts, or suite, an answer's text: they and the "
    "programs of --completions judge each other"
)  # fmt: skip
BENCHMARK = flags.DEFINE_enum(
    "benchmark", None, [*CODE_BENCHMARKS, *SUITE_BENCHMARKS], "what is asked instead of the run's own questions"
)
PART = flags.DEFINE_bool("part", False, "completions may leave out tasks, which the result names")
FILE = flags.DEFINE_string("file", "", "the benchmark's data, local or gs://")
SEMANTICS_FLAG = flags.DEFINE_enum("semantics", "evalplus", SEMANTICS, "how HumanEval+ and MBPP+ judge")
OUTPUT = flags.DEFINE_string("output", None, "folder for the results, local or gs://; else the run's")
SAMPLES = flags.DEFINE_integer("samples", AnswerSampling.samples, "n: programs drawn for each question", lower_bound=1)
TEMPERATURE = flags.DEFINE_float(
    "temperature", None, f"else {AnswerSampling.temperature}, and 0 where tests are asked for", lower_bound=0.0
)
TOP_P = flags.DEFINE_float("top_p", AnswerSampling.top_p, "of what is drawn", lower_bound=0.0, upper_bound=1.0)
SEED = flags.DEFINE_integer("seed", AnswerSampling.seed, "of all draws", lower_bound=0)
THINKING = flags.DEFINE_enum(
    "thinking", "", ["", "on", "off"], "of --model and --test_model: the chat template's enable_thinking; else its own"
)
MAX_PROMPT_LENGTH = flags.DEFINE_integer("max_prompt_length", 0, "tokens; 0: the run's own, or 4096", lower_bound=0)
MAX_RESPONSE_LENGTH = flags.DEFINE_integer("max_response_length", 0, "tokens; 0: the run's own, or 2048", lower_bound=0)
SLOTS = flags.DEFINE_integer("slots", 0, "sequences that decode at once; 0: the run's own, or 64", lower_bound=0)
BEST_OF = flags.DEFINE_bool("best_of", False, "also choose one program of each question by a Test LLM's tests")
TEST_MODEL = flags.DEFINE_string("test_model", None, "folder of that Test LLM, as --model; else the run's own")
NUM_TESTS = flags.DEFINE_integer(
    "num_tests", EvaluationSpec.num_tests, "asserts asked for at once: with --best_of or --rounds=false", lower_bound=1
)
ROUNDS = flags.DEFINE_bool("rounds", True, "ask for one test a round; false: for --num_tests at once, as in training")
HOSTS = command.define_hosts()


def main() -> None:
    if sum(map(bool, (RUN.value, MODEL.value, COMPLETIONS.value))) != 1:
        raise BadInput("give one of --run, --model and --completions.")
    if BENCHMARK.value is None and not RUN.value:
        raise BadInput("--benchmark is missing: it names what is asked.")
    _refuse_idle_flags()
    if BENCHMARK.value is None:
        from codea1.lab.opened_run import evaluate_run

        evaluate_run(RUN.value or "", STEP.value, SPLIT.value, HOSTS())
        return
    if not RUN.value and not OUTPUT.value:
        raise BadInput("--output is missing: it names the folder for the results.")
    if COMPLETIONS.value and flags.FLAGS.num_processes not in (None, 1):
        raise BadInput("--completions are judged by one host: start it on one, without --num_processes.")
    if BEST_OF.value and not (TEST_MODEL.value or RUN.value):
        raise BadInput("--best_of needs a Test LLM: give --test_model.")
    if not FILE.value:
        where_from = CODE_BENCHMARKS | {name: each.where_from for name, each in SUITE_BENCHMARKS.items()}
        raise BadInput(f"--file is missing: it names the data of {BENCHMARK.value}. {where_from[BENCHMARK.value]}")
    if BENCHMARK.value in SUITE_BENCHMARKS:
        from codea1.lab.benchmarks.suites import evaluate_suites

        evaluate_suites(_spec(default_temperature=0.0), HOSTS())
    else:
        from codea1.lab.benchmarks.programs import evaluate_code

        evaluate_code(_spec(default_temperature=AnswerSampling.temperature), HOSTS())


def _refuse_idle_flags() -> None:
    """Raises BadInput for flags that were given and would decide nothing."""
    of_programs = (SEMANTICS_FLAG, SAMPLES, BEST_OF, TEST_MODEL, SUITES)
    of_benchmarks = (FILE, OUTPUT, TEMPERATURE, TOP_P, SEED, MAX_PROMPT_LENGTH, MAX_RESPONSE_LENGTH, SLOTS, NUM_TESTS)
    if BENCHMARK.value is None:
        _require_absent((*of_benchmarks, *of_programs, ROUNDS, PART, THINKING), "with a --benchmark")
        return
    _require_absent((SPLIT,), "without a --benchmark")
    if not RUN.value:
        _require_absent((STEP,), "with a --run")
    if BENCHMARK.value in SUITE_BENCHMARKS:
        _require_absent(of_programs, "with a benchmark of the Code LLM")
        if ROUNDS.value:
            _require_absent((NUM_TESTS,), "with --rounds=false")
    else:
        _require_absent((ROUNDS,), "with a benchmark of the Test LLM")
        if not BEST_OF.value:
            _require_absent((TEST_MODEL,), "with --best_of")
            if not SUITES.value:
                _require_absent((NUM_TESTS,), "with --best_of or --suites")
    if not (MODEL.value or TEST_MODEL.value):
        _require_absent((THINKING,), "with a --model or --test_model")
    if not COMPLETIONS.value:
        _require_absent((PART, SUITES), "with --completions")
    else:
        _require_absent((SAMPLES, TEMPERATURE, TOP_P), "without --completions")
        if not BEST_OF.value:
            _require_absent((SEED, MAX_PROMPT_LENGTH, MAX_RESPONSE_LENGTH, SLOTS, ROUNDS), "where a model is asked")


def _require_absent(idle: Sequence[flags.FlagHolder], where: str) -> None:
    if given := [f"--{flag.name}" for flag in idle if flag.present]:
        raise BadInput(f"{', '.join(given)}: only {where}.")


def _spec(default_temperature: float) -> EvaluationSpec:
    temperature = default_temperature if TEMPERATURE.value is None else TEMPERATURE.value
    return EvaluationSpec(
        run=RUN.value or "",
        step=STEP.value,
        model=MODEL.value or "",
        completions=COMPLETIONS.value or "",
        suites=SUITES.value or "",
        part=PART.value,
        output=OUTPUT.value or "",
        thinking=THINKING.value,
        benchmark=BENCHMARK.value or "",
        file=FILE.value,
        semantics=SEMANTICS_FLAG.value,
        sampling=AnswerSampling(SAMPLES.value, temperature, TOP_P.value, SEED.value),
        lengths=(MAX_PROMPT_LENGTH.value, MAX_RESPONSE_LENGTH.value, SLOTS.value),
        best_of=BEST_OF.value,
        test_model=TEST_MODEL.value or "",
        num_tests=NUM_TESTS.value,
        in_rounds=ROUNDS.value,
    )


if __name__ == "__main__":
    command.run(main)
