"""The report of several runs: the paper's tables and figures, from the run folders alone."""

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from etils import epath

from codea1.lab.paper import rendering
from codea1.lab.paper.experiments import PAPER, SFT_TEST, TINY, Workplace, collected, read_run, size_of_published
from codea1.lab.paper.tables import Table, tables
from codea1.lab.report.run_report import BeforeAfter, compare
from codea1.lab.report.tables import TextTable, bold, label, percents, with_bounds
from codea1.lab.study.declaration import Study
from codea1.lab.study.results import Result, Results
from codea1.runs.folder import RunFolder
from codea1.runtime.errors import BadInput, visible
from codea1.storage.objects import is_remote, location, write_atomically

REPORT = "report.md"


def report_runs(paths: Sequence[str], output: str | None) -> None:
    """Fills the paper's tables from several run folders; prints them, or writes them to the folder `output`.

    Raises:
      BadInput: a folder is no run, runs do not belong together, a file is damaged, or `output` cannot be a folder.
      StorageFailed: a file cannot be read or written.
    """
    runs = [read_run(path) for path in paths]
    if output:
        write(runs, output)
        print(f"wrote {output}/{REPORT}, its tables as .tex and .csv and its figures as .png and .pdf")
    else:
        print(visible(markdown(runs, filled(runs)[1])), end="")


def report_study(study: Study, workdir: str, output: str) -> None:
    """Fills the tables from those of the study's runs that have begun. Raises what `report_runs` does."""
    if begun := [folder for folder in study.folders(workdir) if (Path(folder) / "config.json").exists()]:
        report_runs(begun, output)


def markdown(runs: Sequence[Result], tables: Sequence[Table], drawn: Sequence[str] = ()) -> str:
    """Returns the report: the paper's tables, `drawn` figures by name, and each run before and after training."""
    trained = [run.folder for run in runs if run.folder and run.trains]
    parts = ["# The paper's tables, and ours"]
    for size, place in _places(runs).items():
        parts.append(
            f"All runs that are missing at size {size} are made, in order, by\n\n```sh\n{place.all_command}\n```"
        )
    parts += map(rendering.markdown, tables)
    parts += ["## Figures"] if drawn else []
    parts += [f"![{name.replace('_', ' ')}]({name}.png)" for name in drawn]
    parts += [f"## Each run, before and after\n\n{runs_table(trained)}"] if trained else []
    others = [run for run in runs if not run.run.arm]
    if others:
        listed = ", ".join(f"`{Path(run.name).name}`" for run in others)
        parts.append(f"In no table of the paper, by their config: {listed}.")
    return "\n\n".join(part.strip() for part in parts) + "\n"


def filled(runs: Sequence[Result]) -> tuple[Results, list[Table]]:
    """Returns what the runs measured, and the tables filled with it.

    Raises:
      BadInput: runs that do not belong together, or a damaged file, is named.
    """
    results = collected(runs)
    return results, tables(results, _places(runs))


def write(runs: Sequence[Result], output: str) -> None:
    """Writes the report, its tables as LaTeX and CSV and its figures as PNG and PDF to a folder.

    Raises:
      BadInput: as `filled` does, or `output` cannot be a folder; nothing is written then.
      StorageFailed: a file cannot be read or written.
    """
    from codea1.lab.paper.figures import figures
    from codea1.lab.report.figures import picture

    folder = location(output, "output")
    results, each = filled(runs)
    drawn = dict(figures(results, each))
    files: dict[str, str | bytes] = {f"{table.name}.tex": rendering.latex(table) for table in each}
    files |= {f"{table.name}.csv": rendering.comma_separated(table) for table in each}
    files |= {f"{name}.{kind}": picture(figure, kind) for name, figure in drawn.items() for kind in ("png", "pdf")}
    files[REPORT] = markdown(runs, each, list(drawn))
    try:
        for name, content in files.items():
            write_atomically(folder / name, content)
    except (FileExistsError, NotADirectoryError) as error:
        raise BadInput(f"the report cannot be written to {folder}: {error.strerror}.") from None


def _places(runs: Sequence[Result]) -> dict[str, Workplace]:
    """Returns where runs of each size are made."""
    by_size: dict[str, list[Result]] = {}
    for run in runs:
        if run.run.arm:
            by_size.setdefault(run.run.world, []).append(run)
    return {size: _place(size, own) for size, own in by_size.items()}


def _place(size: str, runs: Sequence[Result]) -> Workplace:
    """Returns where runs like these are made: beside the first of them that plays a whole game, by its config."""
    # The SFT Test LLM plays one step, and begins with a model of its own.
    first = next((run for run in runs if run.trains and run.run.arm != SFT_TEST), None)
    parent = epath.Path((first or runs[0]).name).parent
    workdir = str(parent) if is_remote(parent) else os.path.relpath(parent)
    fields = first.fields if first else {}
    if size == TINY:
        return Workplace(replace(PAPER, config=f"configs/tiny.py:steps={fields.get('steps', 'STEPS')}"), workdir)
    arguments = {"size": size, "topology": fields.get("mesh.topology") or "TOPOLOGY"}
    models, _, model = fields.get("code.model", "").rpartition("/")
    if size_of_published(model) == size:
        arguments["models"] = models
    data, _, file = fields.get("data.train.source", "").rpartition("/")
    if file == "train.parquet":
        arguments["data"] = data
    given = f"configs/code_a1.py:{','.join(f'{name}={each}' for name, each in arguments.items())}"
    return Workplace(replace(PAPER, config=given, start=None, model=fields.get("test.model", "MODEL")), workdir)


def runs_table(folders: Iterable[RunFolder]) -> str:
    """Returns the final tables of several runs side by side in Markdown: before, after and the difference.

    Each is called by the end of its path that no other shares.

    Raises:
      BadInput: as `compare` does.
    """
    by_path = {folder.path: {row.metric: row for row in compare(folder)} for folder in folders}
    metrics = dict.fromkeys(metric for rows in by_path.values() for metric in rows)
    heads = ["metric", *(short_name(path, by_path) for path in by_path)]
    rows = [[label(name), *(_change(row.get(name)) for row in by_path.values())] for name in metrics]
    return TextTable(heads, rows).markdown()


def short_name(path: epath.Path, paths: Collection[epath.Path]) -> str:
    """Returns the shortest end of a path that ends no other of `paths`."""
    ends = (path.parts[-length:] for length in range(1, len(path.parts)))
    alone = ("/".join(end) for end in ends if sum(each.parts[-len(end) :] == end for each in paths) == 1)
    return next(alone, str(path))


def _change(row: BeforeAfter | None) -> str:
    if row is None or row.before is None or row.after is None or row.difference is None:
        return "-"
    before, after = percents([row.before.mean, row.after.mean])
    return f"{before} → {after}, {bold(with_bounds(row.difference, '+'), row.is_clear)}"
