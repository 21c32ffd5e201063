"""The short sentences of a question's story, the same in a terminal and on a page."""

from collections.abc import Iterable

import numpy as np

from codea1.runs.story import BookLine, Meeting, Row


def overview(meeting: Meeting) -> tuple[str, ...]:
    """A meeting in one row: step, solutions, mean code reward, pass rates, mean test reward, validity, book."""
    codes = [solution.row for solution in meeting.solutions]
    return (
        str(meeting.step),
        f"{sum(bool(row.get('program_valid')) for row in codes)} of {len(codes)} load",
        number(_mean(row["reward"] for row in codes)),
        number(_mean(row["reward_parts"].get("generated_pass_rate") for row in codes)),
        number(_mean(row["reward_parts"].get("history_pass_rate") for row in codes)),
        number(_mean(row["reward"] for row in meeting.suites)),
        number(_mean(row["reward_parts"].get("validity") for row in meeting.suites)),
        _book_sizes(meeting),
    )


def standing(row: Row) -> str:
    """What a sample earned and whether it trains."""
    if row["reward"] is None:
        return f"masked, {row['masked'] or 'not graded'}"
    shaped = row.get("shaped_reward")
    length = f" ({number(shaped)} after its length)" if shaped is not None and shaped != row["reward"] else ""
    trains = "trains" if row["selected"] else "not selected"
    return f"reward {number(row['reward'])}{length}, advantage {row['advantage']:+.3f}, {trains}"


def code_parts(row: Row) -> str:
    """The parts of a solution's reward."""
    parts = row["reward_parts"]
    rates = {"new tests": "generated_pass_rate", "history": "history_pass_rate", "golden tests": "golden_pass_rate"}
    said = [f"passes {100 * parts[key]:.0f} % of {name}" for name, key in rates.items() if parts.get(key) is not None]
    if parts.get("suites"):
        said.append(f"by suite {' '.join(number(share) for share in parts['suites'])}")
    return "; ".join([_validity(row), *said])


def suite_parts(row: Row) -> str:
    """The parts of a suite's reward."""
    return ", ".join(f"{name.replace('_', ' ')} {number(part)}" for name, part in row["reward_parts"].items())


def book_change(line: BookLine) -> str:
    """What became of a test in the book."""
    if line.before == line.after:
        return str(line.after)
    if not line.before:
        return f"enters with {line.after}"
    return f"{line.before} → {line.after}" if line.after else f"{line.before}, leaves"


def number(value: float | None) -> str:
    """A share or a reward, or a dash where there is none."""
    return "-" if value is None else f"{value:.3f}"


def _book_sizes(meeting: Meeting) -> str:
    if meeting.book is None:
        return ""
    before, after = sum(line.before > 0 for line in meeting.book), sum(line.after > 0 for line in meeting.book)
    return f"{before} → {after}"


def _validity(row: Row) -> str:
    valid = row.get("program_valid")
    return "not graded" if valid is None else "loads" if valid else "cannot be loaded"


def _mean(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if there else None
