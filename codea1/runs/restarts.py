"""How often a run was started again since its last new step, so that what fails at one step for ever ends.

restarts.json lies in the run's folder while a process works there, and stays where that one was killed, or ended with
RESTART_EXIT_CODE for another reason than a signal: {"step": the last with metrics, "restarts": since that step}.
"""

import json

from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.runtime.errors import BadInput
from codea1.storage.json_lines import loads
from codea1.storage.objects import read, remove, write_atomically

MOST_RESTARTS = 3


def count_restart(folder: RunFolder) -> str:
    """Counts this start, before metrics after the last checkpoint are dropped. Its holder has the run's lock.

    Returns a sentence, and forgets the count, where MOST_RESTARTS brought no new step; else "".

    Raises:
      BadInput: metrics.jsonl or restarts.json is damaged.
      StorageFailed: the folder cannot be read or written.
    """
    path = folder.path / "restarts.json"
    rows = read_metrics(folder.metrics)
    step, restarts = rows[-1]["step"] if rows else -1, 0
    try:
        before = loads(read(path))
        restarts = 1 if step > before["step"] else before["restarts"] + 1
        step = max(step, before["step"])
    except FileNotFoundError:
        pass
    except (ValueError, KeyError, TypeError):
        raise BadInput(f"{path} is damaged; remove it to go on.") from None
    if restarts > MOST_RESTARTS:
        remove(path)
        at = f"step {step}" if step >= 0 else "the start"
        return f"{folder.path}: {MOST_RESTARTS} restarts brought no step after {at}; see why, then start it again."
    write_atomically(path, json.dumps({"step": step, "restarts": restarts}) + "\n")
    return ""


def forget_restarts(folder: RunFolder) -> None:
    """Says that this process ends as it should, or for a person to look. Raises StorageFailed."""
    remove(folder.path / "restarts.json")
