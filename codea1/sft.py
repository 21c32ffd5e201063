"""Supervised training: the warm start that both players of the demo start from, or a Test LLM trained on right suites.

  python -m codea1.sft --config=configs/tiny.py --workdir=runs/tiny/sft
  python -m codea1.sft --config=configs/tiny.py:method=sft --workdir=runs/tiny/sft_test

The first makes a tokenizer and a model, and trains it on generated question / program / tests documents in which common
misconceptions are planted (`codea1.lab.worlds.compositions` says which and how often). The second, with
config.sft.start, is the SFT baseline of test generation: it goes on from a model folder and trains on suites for the
training questions (`codea1.lab.sft.corpus` says which), of which only the suite is learned.

Each writes `<workdir>/model`: config.json, model.safetensors and the tokenizer, as `transformers` names and loads them.
A workdir whose model is complete is left as it is. Where the questions are of a world, they are prepared in
config.data.folder, for training to read. On several hosts the same command runs on each, with a workdir that all of
them see.
"""

import contextlib
import json

from absl import flags

from codea1.config_file import FIELDS, define_config
from codea1.data.sources import world_of
from codea1.game.methods import own_files
from codea1.models.files import ModelFolder
from codea1.runs.folder import RunFolder
from codea1.runs.lock import opened
from codea1.runtime import command, output
from codea1.runtime.errors import BadInput

WORKDIR = flags.DEFINE_string("workdir", "", "folder that gets the model")
CONFIG = define_config()
HOSTS = command.define_hosts()


def main() -> None:
    output.may_be_lost()
    hosts = HOSTS()
    with hosts.agreed():
        config = CONFIG()
        if not WORKDIR.value:
            raise BadInput("--workdir is missing: it names the folder that gets the model.")
        data = config.data.train.to_dict() if config.sft.start else {"source": config.data.train.source}
        settings = {"seed": config.seed, "num_tests": config.game.num_tests, "sft": config.sft.to_dict()}
        settings |= {"data": data, "prompts": config.game.prompts}
        if config.sft.start and config.test.thinking:
            settings["thinking"] = config.test.thinking
        files = own_files(reward="", prompts=config.game.prompts)
        hosts.of_main(lambda: RunFolder.check(WORKDIR.value, settings, files))
        sources = {questions.source for questions in (config.data.train, config.data.validation, config.data.test)}
        for world in filter(None, map(world_of, sources)):
            from codea1.lab.worlds.procedural import prepare

            prepare(world, config.data.folder)
        hosts.require_same("the configs", json.dumps(config.to_dict(), sort_keys=True).encode())
        model = ModelFolder(f"{WORKDIR.value}/model")
        if hosts.of_main(model.holds_model):
            if hosts.is_main:
                print(f"{model} is there already.")
            return
        from codea1.lab.sft import supervised  # imports JAX, once the flags are checked

        setup = supervised.prepare(config)
    with contextlib.ExitStack() as stack:
        folder = hosts.of_main(lambda: stack.enter_context(opened(WORKDIR.value, settings, files)))
        with hosts.agreed():
            folder.require_visible()
        state = supervised.train(config, setup, folder, hosts)
        supervised.publish(model, config, setup, state, hosts)


if __name__ == "__main__":
    command.run(main, config_fields=FIELDS)
