"""What was removed, by the name that a config, a run or a command line may still have for it."""

STUDY_COMMIT = "767ef1a"  # the last that has all of it

# What to use instead; "" where nothing takes its place. A section of the config stands for its fields.
FIELDS = {
    "noise": "",
    "opponents": "",
    "code.advantage_ddof": "",
    "test.advantage_ddof": "",
    "game.script": "a file of tests with method=static_tests",
    "game.exposure": "",
    "model.offload_moments": "adapters (lora.rank) or more devices",
    "rollout.guesses": "",
    "rollout.int8_weights": "model.dtype=bfloat16",
}
METHODS = {"scripted": "static_tests"}
REWARDS = {"utrl": "FILE.py:CLASS", "cure": "FILE.py:CLASS"}
WORLDS = dict.fromkeys(
    ("r8", "r16", "r32", "r100", "stated", "left", "met", "shifted", "neither"), "the world classic or blind"
)
COMMANDS = {
    **dict.fromkeys(("exploit", "league", "replay"), ""),
    "minimal": "python -m codea1.lab.minimal",
    "mutate": "convert with --mutants=N",
    "sweep": "study",
}


def removed_field(name: str) -> str:
    """Returns the sentence about a dotted field of the config that was removed; "" where it was not."""
    key = next((key for key in FIELDS if name == key or name.startswith(f"{key}.")), None)
    return "" if key is None else _sentence(f"config.{name}", FIELDS[key])


def removed_name(kind: str, name: str, table: dict[str, str]) -> str:
    """Returns the sentence about a name of a kind, "the method", in one of the tables above; "" where it is in none."""
    return _sentence(f"{kind} {name}", table[name]) if name in table else ""


def _sentence(what: str, instead: str) -> str:
    advice = f"; use {instead}" if instead else ""
    return f"{what} was removed: commit {STUDY_COMMIT} is the last that has it{advice}."
