"""What is judged by a benchmark, a command each: the programs of a Code LLM, the suites of a Test LLM, given files.

What they do is kept in evaluations/NAME/ of the run or of --output as it comes, so that the same command goes on where
one was cut off, and the result is evaluations/NAME.json. What needs JAX, which takes seconds to import, is imported
once the flags are checked.
"""

from datetime import date

from absl import flags

from codea1.lab.benchmarks.benchmarks import CODE_BENCHMARKS, LIVECODEBENCH, SEMANTICS, SUITE_BENCHMARKS, semantics_of
from codea1.lab.commands import require_absent
from codea1.runtime.errors import BadInput

FILE = flags.DEFINE_string("file", "", "the benchmark's data, local or gs://; of livecodebench several, with commas")
OUTPUT = flags.DEFINE_string("output", "", "folder for the results, local or gs://; a run has its own")


def define_semantics() -> flags.FlagHolder[str | None]:
    """Defines --semantics."""
    return flags.DEFINE_enum("semantics", None, SEMANTICS, "how HumanEval+ and MBPP+ judge; scripts of .parquet files")


def require_whole(benchmark: str | None, run: str = "") -> str:
    """Returns the benchmark. Raises BadInput where it, its file or a folder for the results is missing."""
    if benchmark is None:
        raise BadInput("--benchmark is missing: it names what is asked.")
    if not run and not OUTPUT.value:
        raise BadInput("--output is missing: it names the folder for the results.")
    if not FILE.value:
        where_from = CODE_BENCHMARKS | {name: each.where_from for name, each in SUITE_BENCHMARKS.items()}
        raise BadInput(f"--file is missing: it names the data of {benchmark}. {where_from[benchmark]}")
    return benchmark


def required_semantics(benchmark: str, semantics: flags.FlagHolder[str | None]) -> str:
    """Returns how a benchmark judges. Raises BadInput: it judges in one way, or not so by this file."""
    if benchmark not in ("humanevalplus", "mbppplus"):
        require_absent("with humanevalplus and mbppplus", semantics)
    return semantics_of(FILE.value, semantics.value)


def define_window() -> tuple[flags.FlagHolder[str], flags.FlagHolder[str]]:
    """Defines --from and --until."""
    return (
        flags.DEFINE_string("from", "", "livecodebench: contests of this day, as 2025-01-31, or later"),
        flags.DEFINE_string("until", "", "livecodebench: contests of this day, at 00:00, or earlier"),
    )


def window_of(benchmark: str, *window: flags.FlagHolder[str]) -> tuple[str, str]:
    """Returns first and last day. Raises BadInput: they are no such days, or the benchmark has none."""
    if benchmark != LIVECODEBENCH:
        require_absent("with livecodebench", *window)
    days = []
    for flag in window:
        try:
            days.append(flag.value and date.fromisoformat(flag.value).isoformat())
        except ValueError:
            raise BadInput(f"--{flag.name}={flag.value} is no day such as 2025-01-31.") from None
    first, last = days
    if "" != last < first:
        raise BadInput(f"--until={last} is before --from={first}.")
    return first, last
