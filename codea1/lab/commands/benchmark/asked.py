"""Who is asked, and how its answers are drawn: the flags of the commands that ask a model."""

from absl import flags

from codea1.lab.benchmarks.benchmarks import AnswerSampling, EvaluationSpec
from codea1.lab.commands import require_absent
from codea1.lab.commands.benchmark import FILE, OUTPUT, require_whole
from codea1.runtime import command
from codea1.runtime.errors import BadInput

RUN = flags.DEFINE_string("run", "", "folder of a run whose player is asked")
STEP = flags.DEFINE_string("step", "last", 'checkpoint of the run: "last", "best" or a number')
MODEL = flags.DEFINE_string("model", "", "folder of the model that is asked, or of adapters for one, local or gs://")
THINKING = flags.DEFINE_enum(
    "thinking", "", ["", "on", "off"], "the chat template's enable_thinking; else the run's own, or the template's"
)
TOP_P = flags.DEFINE_float("top_p", AnswerSampling.top_p, "of what is drawn", lower_bound=0.0, upper_bound=1.0)
SEED = flags.DEFINE_integer("seed", AnswerSampling.seed, "of all draws", lower_bound=0)
MAX_PROMPT_LENGTH = flags.DEFINE_integer("max_prompt_length", 0, "tokens; 0: the run's own, or 4096", lower_bound=0)
MAX_RESPONSE_LENGTH = flags.DEFINE_integer("max_response_length", 0, "tokens; 0: the run's own, or 2048", lower_bound=0)
SLOTS = flags.DEFINE_integer("slots", 0, "sequences that decode at once; 0: the run's own, or 64", lower_bound=0)
HOSTS = command.define_hosts()


def asked(benchmark: str | None, temperature: float, samples: int = AnswerSampling.samples) -> EvaluationSpec:
    """Returns the evaluation that the flags specify, but for those of one command."""
    if bool(RUN.value) == bool(MODEL.value):
        raise BadInput("give one of --run and --model.")
    if not RUN.value:
        require_absent("with a --run", STEP)
    return EvaluationSpec(
        benchmark=require_whole(benchmark, RUN.value),
        file=FILE.value,
        run=RUN.value,
        step=STEP.value,
        model=MODEL.value,
        output=OUTPUT.value,
        thinking=THINKING.value,
        sampling=AnswerSampling(samples, temperature, TOP_P.value, SEED.value),
        lengths=(MAX_PROMPT_LENGTH.value, MAX_RESPONSE_LENGTH.value, SLOTS.value),
    )
