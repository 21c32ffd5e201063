"""A plain installation, without any extra: what works, and what is refused in a sentence that says what to install."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from bench.micro_run import write_config
from codea1.runs.metrics import MetricsWriter
from codea1.runtime.extras import EXTRA_OF
from tests.conftest import ROOT
from tests.made_up_runs import config, make_run

# All in one process, each command in a fork of it: to import JAX takes longer than what they do.
PLAIN = r"""
import json, os, runpy, sys
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder

class WithoutExtras(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in refused else super().find_spec(name, path, target)

refused, commands = json.loads(sys.argv[1])
sys.meta_path[:] = [BuiltinImporter, FrozenImporter, WithoutExtras]
import codea1.lab.sft.supervised, codea1.lab.dry_run, codea1.training.trainer
for program, *arguments in commands:
    print("\f", flush=True)
    if os.fork():
        os.wait()
        continue
    os.dup2(1, 2)
    sys.argv = [program, *arguments]
    try:
        runpy.run_module(f"codea1.{program}", run_name="__main__")
    except SystemExit as end:
        print("exit code", end.code, flush=True)
    os._exit(0)
"""


def test_extras_have_what_is_said_to_be_theirs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {
        name: {Requirement(line).name.replace("-", "_") for line in lines}
        for name, lines in project["optional-dependencies"].items()
    }
    extras["tpu"].add("libtpu")  # of jax[tpu]
    assert {package: extra for package, extra in EXTRA_OF.items() if package not in extras[extra]} == {}
    assert not set(EXTRA_OF) & {Requirement(line).name.replace("-", "_") for line in project["dependencies"]}


def test_training_and_reports_need_no_extra_and_what_does_says_which(micro_config, tmp_path: Path):
    file = str(write_config(micro_config, tmp_path / "config.py"))
    (tmp_path / "set").mkdir()
    run = make_run(tmp_path / "run", config(), {"test_mul": [0.5, 0.0]}, {"test_mul": [0.5, 1.0]})
    with MetricsWriter(run) as writer:
        writer.write(1, {"code/reward": 0.5, "time/total": 2.0})
    run.figure.write_bytes(b"drawn when Matplotlib was there")
    train = ["train", f"--config={file}", f"--workdir={tmp_path}/none"]
    source = "--config.data.train.source"
    name = {
        package: rf"needs {package}: in a checkout, pip install -e '\.\[{extra}\]'"
        for package, extra in EXTRA_OF.items()
    }
    expected = [
        (["train", f"--config={file}", "--dry_run"], r"(?s).*\ndry run done"),
        (["report", str(run.path)], rf"(?s).*\nnote: report.png {name['matplotlib']}\n.*wrote"),
        (["report", str(run.path), f"--output={tmp_path}/t"], rf"error: --output, .* {name['matplotlib']}\.\n.* 2"),
        ([*train, "--workdir=gs://b/run"], rf"error: .*gs://b/run {name['gcsfs']}\.\nexit code 2"),
        ([*train, "--config.code.model=gs://b/m"], rf"error: gs://b/m {name['gcsfs']}\.\nexit code 2"),
        ([*train, f"{source}=gs://b/a.jsonl"], rf"error: gs://b/a\.jsonl {name['gcsfs']}\.\nexit code 2"),
        ([*train, f"{source}=a.parquet"], rf"error: data file a\.parquet {name['pyarrow']}\.\nexit code 2"),
        ([*train, f"{source}={tmp_path}/set"], rf"error: .*/set {name['tensorflow_datasets']}\.\nexit code 2"),
        ([*train, "--config.log.wandb.project=p"], rf"error: .*project is 'p'; .* {name['wandb']}\.\nexit code 2"),
        (["lab.commands.convert", "mbpp", file, "--output=a.parquet"], rf"error: .* {name['pyarrow']}\.\nexit code 2"),
        (["lab.commands.study", "studies/real.toml"], rf"error: .* {name['matplotlib']}\.\nexit code 2"),
    ]
    asked = json.dumps([[*EXTRA_OF, "PIL"], [words for words, _ in expected]])
    done = subprocess.run([sys.executable, "-c", PLAIN, asked], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for (words, said), printed in zip(expected, done.stdout.split("\f\n")[1:], strict=True):
        assert re.match(said, printed), (words, printed)
    assert "(report.html): report.png needs matplotlib" in run.report.read_text()
    assert not run.figure.exists()
    assert not (tmp_path / "none").exists()
