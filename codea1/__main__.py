"""All commands under one name: `codea1 train ...` is `python -m codea1.train ...`.

codea1 sft --config=tiny:seed=1 --workdir=runs/sft1
codea1 train --config=tiny:seed=1,sft=runs/sft1 --workdir=runs/a1_1
codea1 report runs/a1_1
"""

from codea1.runtime.command import dispatch

COMMANDS = {
    "sft": "make policies from nothing, or warm-start given ones",
    "train": "train a Code LLM and a Test LLM against each other",
    "watch": "how a run goes, from its files",
    "report": "curves, tables and warnings of a run",
    "explain": "everything that happened to a question",
    "fsck": "is anything of a run damaged?",
    "evaluate": "a run's players on its own questions",
    "benchmark": "judge a policy, or given programs and suites",
    "export": "a player's weights, for transformers",
    "sandbox": "what isolates programs here, and grading by hand",
    "compile_tpu": "compile a config for a TPU slice without one",
    "lab": "what researchers do around training: studies, conversions",
}


def main() -> None:
    """Runs the command that the first argument names."""
    dispatch("codea1", "codea1", __doc__, COMMANDS)


if __name__ == "__main__":
    main()
