"""The commands of `python -m codea1.lab`."""

from absl import flags

from codea1.runtime.errors import BadInput


def require_absent(where: str, *idle: flags.FlagHolder) -> None:
    """Raises BadInput for flags that were given and decide something only `where` it says."""
    if given := [f"--{flag.name}" for flag in idle if flag.present]:
        raise BadInput(f"{', '.join(given)}: only {where}.")
