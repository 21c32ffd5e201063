"""The report of a study, or of any runs of the paper's experiments: its tables and figures, as files."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import numpy as np
from etils import epath
from rich.console import Console

from codea1.evaluation.result_files import per_question
from codea1.lab.report.run_report import BeforeAfter, compare
from codea1.lab.report.tables import TextTable, bold, label, percents, with_bounds
from codea1.lab.study import rendering
from codea1.lab.study.declaration import Study
from codea1.lab.study.experiments import PAPER, collected, read_run
from codea1.lab.study.layouts import OWN_SPLIT
from codea1.lab.study.results import Result, Results, differences, require_seeds_of_one_arm
from codea1.lab.study.tables import Table, tables
from codea1.runs.folder import RunFolder
from codea1.runtime.errors import BadInput, visible
from codea1.storage.objects import location, write_atomically

REPORT = "report.md"


def report_runs(paths: Sequence[str], output: str | None) -> None:
    """Fills the paper's tables from several run folders; prints them, or writes them to the folder `output`.

    Raises:
      BadInput: a folder is no run, runs do not belong together, a file is damaged, or `output` cannot be a folder.
      StorageFailed: a file cannot be read or written.
    """
    runs = [read_run(path) for path in paths]
    if output:
        write(PAPER, collected(runs), output, of_each_run(runs))
    else:
        print(visible(markdown(PAPER, tables(PAPER, collected(runs)), [], of_each_run(runs))), end="")


def place_run(path: str, seeds: str) -> None:
    """Prints what a run reached, next to the lowest and the highest that other seeds of its experiment reached.

    Args:
      path: of the run.
      seeds: results of a study; its runs that were measured on the test split are read, but for the run's own seed.

    Raises BadInput: the run has not ended, a file is damaged, or there are no other seeds of one experiment.
    """
    folder = RunFolder.existing(path)
    others = [r for r in Results(seeds) if r.run.split == OWN_SPLIT and r.run.seed != folder.config["seed"]]
    if not others:
        raise BadInput(f"--seeds: {seeds} has no run of another seed on the {OWN_SPLIT} split.")
    require_seeds_of_one_arm(others)
    if fields := ", ".join(differences(others[0].config, folder.config)):
        print(f"The run is not compared with the seeds of {seeds}: its config differs in {fields}.")
        return
    rows, outside = [], []
    for row in compare(folder):
        if not row.before or not row.after:
            raise BadInput(f"{folder.path} has no evaluation after training to be compared.")
        values = [per_question(result.evaluations[OWN_SPLIT, "after", ""]["metrics"][row.metric]) for result in others]
        means = [np.nanmean(value.reshape(len(value), -1), axis=0).prod() for value in values]
        rows.append([label(row.metric), *(f"{100 * x:.0f} %" for x in (row.before.mean, row.after.mean))])
        rows[-1].append(f"{100 * min(means):.0f} to {100 * max(means):.0f} %")
        if not min(means) <= row.after.mean <= max(means):
            outside.append(label(row.metric))
    header = ("metric", "before", "after", f"{len(others)} other seeds, after")
    caption = f"The seeds are those of {seeds}."
    if outside:
        caption += f" This run ended outside of their range in {', '.join(outside)}."
    Console().print(TextTable(header, rows).terminal(caption=caption))


def markdown(study: Study, filled: Sequence[Table], drawn: Sequence[str] = (), end: str = "") -> str:
    """Returns the report: the tables, `drawn` figures by name, and what stands at the `end`."""
    parts = [f"# {study.title}", *map(rendering.markdown, filled)]
    parts += ["## Figures"] if drawn else []
    parts += [f"![{name.replace('_', ' ')}]({name}.png)" for name in drawn]
    return "\n\n".join(part.strip() for part in (*parts, end) if part) + "\n"


def write(study: Study, results: Collection[Result], output: str, end: str = "") -> None:
    """Writes the report, its tables as CSV and its figures as PNG and PDF to a folder.

    Raises:
      BadInput: as `tables` does, or `output` cannot be a folder; nothing is written then.
      StorageFailed: a file cannot be read or written.
    """
    from codea1.lab.report.figures import picture
    from codea1.lab.study.figures import figures

    folder = location(output, "output")
    filled = tables(study, results)
    drawn = dict(figures(study, results, filled))
    files: dict[str, str | bytes] = {f"{table.name}.csv": rendering.comma_separated(table) for table in filled}
    files |= {f"{name}.{kind}": picture(figure, kind) for name, figure in drawn.items() for kind in ("png", "pdf")}
    files[REPORT] = markdown(study, filled, list(drawn), end)
    try:
        for name, content in files.items():
            write_atomically(folder / name, content)
    except (FileExistsError, NotADirectoryError) as error:
        raise BadInput(f"the report cannot be written to {folder}: {error.strerror}.") from None
    print(f"wrote {output}/{REPORT}, its tables as .csv and its figures as .png and .pdf")


def of_each_run(runs: Sequence[Result]) -> str:
    """Returns what a report says of single runs: each before and after training, and which are in no table."""
    trained = [run.folder for run in runs if run.folder and run.trains]
    parts = [f"## Each run, before and after\n\n{runs_table(trained)}"] if trained else []
    if others := [run for run in runs if not run.run.arm]:
        listed = ", ".join(f"`{Path(run.name).name}`" for run in others)
        parts.append(f"In no table of the paper, by their config: {listed}.")
    return "\n\n".join(parts)


def runs_table(folders: Iterable[RunFolder]) -> str:
    """Returns the final tables of several runs side by side in Markdown: before, after and the difference.

    Each is called by the end of its path that no other shares.

    Raises:
      BadInput: as `compare` does.
    """
    by_path = {folder.path: {row.metric: row for row in compare(folder)} for folder in folders}
    metrics = dict.fromkeys(metric for rows in by_path.values() for metric in rows)
    heads = ["metric", *(_short_name(path, by_path) for path in by_path)]
    rows = [[label(name), *(_change(row.get(name)) for row in by_path.values())] for name in metrics]
    return TextTable(heads, rows).markdown()


def _short_name(path: epath.Path, paths: Collection[epath.Path]) -> str:
    """Returns the shortest end of a path that ends no other of `paths`."""
    ends = (path.parts[-length:] for length in range(1, len(path.parts)))
    alone = ("/".join(end) for end in ends if sum(other.parts[-len(end) :] == end for other in paths) == 1)
    return next(alone, str(path))


def _change(row: BeforeAfter | None) -> str:
    if row is None or row.before is None or row.after is None or row.difference is None:
        return "-"
    before, after = percents([row.before.mean, row.after.mean])
    return f"{before} → {after}, {bold(with_bounds(row.difference, '+'), row.is_clear)}"
