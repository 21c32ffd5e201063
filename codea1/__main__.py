"""All commands under one name: `codea1 train ...` is `python -m codea1.train ...`.

codea1 sft --config=tiny:seed=1 --workdir=runs/sft1
codea1 train --config=tiny:seed=1,sft=runs/sft1 --workdir=runs/a1_1
codea1 report runs/a1_1
"""

import runpy
import sys

from codea1.runtime.errors import BAD_INPUT_EXIT_CODE

COMMANDS = {
    "sft": "make policies from nothing, or warm-start given ones",
    "train": "train a Code LLM and a Test LLM against each other",
    "watch": "how a run goes, from its files",
    "report": "curves, tables and warnings of a run",
    "explain": "everything that happened to a question",
    "fsck": "is anything of a run damaged?",
    "evaluate": "judge a policy, or given programs and suites",
    "export": "a player's weights, for transformers",
    "compile_tpu": "compile a config for a TPU slice without one",
    "tools.audit": "is a reward hacked?",
    "tools.book": "the Mistake Book",
    "tools.convert": "other datasets in the official form",
    "tools.dump_tests": "suites of a Test LLM as fixed tests",
    "tools.exploit": "what one player can still gain",
    "tools.league": "players of several runs against each other",
    "tools.replay": "a step's update again",
    "tools.reproduce": "the paper's tables",
    "tools.sandbox": "what isolates programs here, and grading by hand",
    "tools.study": "a declared study",
    "tools.sweep": "config values against each other",
}


def main() -> None:
    """Dispatches to the subcommand named by the first argument; without one prints the list of subcommands."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    modules = {each.removeprefix("tools."): f"codea1.{each}" for each in COMMANDS}
    if name in ("-h", "--help"):
        print(__doc__)
        for each, what in COMMANDS.items():
            print(f"  {each.removeprefix('tools.'):12} {what}")
        print("\ncodea1 COMMAND --help says more.")
    elif name not in modules:
        print(f"error: codea1 has no command {name!r}; codea1 --help lists them.", file=sys.stderr)
        sys.exit(BAD_INPUT_EXIT_CODE)
    else:
        sys.argv[:2] = [f"codea1 {name}"]
        runpy.run_module(modules[name], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
