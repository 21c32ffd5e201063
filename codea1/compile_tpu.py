"""Compiles every function of a config for a TPU slice, on a machine that has none, and reports whether it fits.

  python -m codea1.compile_tpu --config=configs/code_a1.py:size=1.5b,topology=v5e-16
  python -m codea1.compile_tpu --config=configs/code_a1.py:size=7b,topology=v6e-16 --topology=v5e-64
  python -m codea1.compile_tpu --all    # every config that is shipped for a slice

The report has the least time of a step too, a roofline: a lower bound, not an estimate.

Needs libtpu (in a checkout, pip install -e '.[tpu]'), no weights and no TPU. Nothing is compiled twice: an interrupted
sweep goes on where it stopped. Writes NAME.json for each config and pods_compiled.md of all that are in the folder.
Exits with 1 when something does not fit.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags
from rich.console import Console

from codea1.config import Config
from codea1.config_file import FIELDS, config_name, define_config
from codea1.lab.aot.topology import shipped_configs, topology
from codea1.runtime import command
from codea1.runtime.errors import BadInput

if TYPE_CHECKING:  # they import JAX, which takes seconds; wrong flags are reported before
    from codea1.lab.aot.jobs import Compilation
    from codea1.lab.aot.report import Report

TOPOLOGY = flags.DEFINE_string(
    "topology", None, "TPU slice: v5e-16, v5p-64 or a shape, v5e:4x4; or several, 2xv5e-16; by default the config's"
)
ALL = flags.DEFINE_bool("all", False, "every shipped config instead of --config")
FUNCTIONS = flags.DEFINE_enum("functions", "all", ["all", "largest"], "all, or the largest of each kind")
OUT = flags.DEFINE_string("out", "compiled", "folder for the tables")
CACHE = flags.DEFINE_string("cache", "~/.cache/codea1/compile_tpu", "folder that remembers what was compiled")
CONFIG = define_config()


def main() -> None:
    if ALL.value:
        configs = list(shipped_configs())
    else:
        config = CONFIG()
        configs = [(config_name(flags.FLAGS.config), config)]
    import jax

    from codea1.lab.aot.report import Report, markdown

    # The devices that are compiled for come from the topology; libtpu must not look for a TPU of this machine.
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_compilation_cache", False)  # it cannot read what is for chips that are not there
    console = Console(width=180 if not sys.stdout.isatty() else None)
    reports = [_compile(name, config, console) for name, config in configs]
    written = []
    for path in sorted(Path(OUT.value).glob("*.json")):
        try:
            written.append(Report.from_json(json.loads(path.read_text())))
        except (TypeError, KeyError, ValueError):
            raise BadInput(f"{path} is no report of this version: delete it, or give another --out.") from None
    (Path(OUT.value) / "pods_compiled.md").write_text(markdown(written) + "\n")
    if not all(report.fits for report in reports):
        sys.exit(1)


def _compile(name: str, config: Config, console: Console) -> "Report":
    from codea1.lab.aot.report import report, show

    wanted = TOPOLOGY.value or config.mesh.topology
    if not wanted:
        raise BadInput("--topology is missing, and the config is for no slice of its own; --topology=v5e-16 is one.")
    cache = Path(CACHE.value).expanduser()
    with console.status("") as status:

        def watch(job: "Compilation", number: int, total: int) -> None:
            now = f"{name}: {number} of {total}, {job.player}: {job.function.name}"
            status.update(now) if console.is_terminal else console.print(now, highlight=False)

        compiled = report(name, config, topology(wanted), cache, FUNCTIONS.value, watch)
    show(compiled, console)
    folder = Path(OUT.value)
    folder.mkdir(parents=True, exist_ok=True)
    file = f"{name}-{compiled.topology}".replace("/", "_").replace(":", "_")
    (folder / f"{file}.json").write_text(json.dumps(asdict(compiled), indent=2) + "\n")
    return compiled


if __name__ == "__main__":
    command.run(main, config_fields=FIELDS)
