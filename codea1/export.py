"""Writes one player of a run as a folder that `transformers` and vLLM load.

  python -m codea1.export --run=runs/tiny/code_a1 --player=code --step=best --output=exported/code
  python -m codea1.export --run=runs/tiny/code_a1 --player=test --output=gs://BUCKET/exported/test
  python -m codea1.export --run=runs/lora --player=code --output=exported/merged --merge

Of a run of adapters (config.code.lora) the folder is PEFT's: adapter_model.safetensors and adapter_config.json, which
names the base by its absolute path, or as --base says. With --merge it is a whole model, as it is of other runs.

The folder holds the weights (model.safetensors, or numbered files of at most 5 GiB with an index), the tokenizer's
files, generation_config.json and, written last, config.json: without it, nothing takes the folder for a model; see
docs/models.md. On several hosts the same command runs on each, and host 0 writes.
"""

from absl import flags

from codea1.runs.folder import RunFolder
from codea1.runtime import command
from codea1.runtime.errors import BadInput

RUN = flags.DEFINE_string("run", None, "folder of a run")
PLAYER = flags.DEFINE_enum("player", "code", ["code", "test"], "which of its policies")
STEP = flags.DEFINE_string("step", "last", 'checkpoint of the run: "last", "best" or a number')
OUTPUT = flags.DEFINE_string("output", None, "folder to write, local or gs://BUCKET/FOLDER; it must not exist")
DTYPE = flags.DEFINE_enum("dtype", "bfloat16", ["bfloat16", "float32"], "of the weights in the folder")
MERGE = flags.DEFINE_bool("merge", False, "write a run's adapters added to their base, as a whole model")
BASE = flags.DEFINE_string("base", "", "of adapters: what they call their base, such as OWNER/NAME on the hub")
ALLOW_CHANGED_MODEL = command.define_changed_model()
HOSTS = command.define_hosts()


def main() -> None:
    if not RUN.value or not OUTPUT.value:
        raise BadInput("give --run, the run's folder, and --output, the folder to write.")
    hosts = HOSTS()
    with hosts.agreed():
        run = RunFolder.existing(RUN.value)
    from codea1.lab.export import export  # imports JAX, once the flags are checked

    options = MERGE.value, BASE.value, ALLOW_CHANGED_MODEL.value
    export(run, PLAYER.value, STEP.value, OUTPUT.value, DTYPE.value, hosts, *options)


if __name__ == "__main__":
    command.run(main)
