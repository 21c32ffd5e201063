"""Besieges the graders of other projects, and writes what they paid into results/siege_peers.md.

  git clone https://github.com/volcengine/verl peers/verl      # and those of the others that GRADERS names
  PATH=peers/venv/bin:$PATH PEERS=peers python -m bench.siege [ADAPTER ...]

$PEERS has checkouts by the names of their repositories. What is not there, or cannot be loaded, is left out, and told.
The first `python` on the PATH runs the graders. It needs evalplus, pytest, structlog, fastapi, aiohttp, tenacity and
aiofiles. The reports with all programs are written to $PEERS/siege/ADAPTER.md, .json and .html.
"""

import shutil
import sys
from collections import Counter
from pathlib import Path

from bench.siege.peers import PEERS
from codea1.lab.report.tables import TextTable
from codea1.lab.siege.attempts import OWN, RIGHT, WRONG, attempts, families, sources
from codea1.lab.siege.processes import DIED, PAID, GraderCommand
from codea1.lab.siege.siege import Siege, besiege
from codea1.runtime.errors import BadInput

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "results" / "siege_peers.md"
OURS = "codea1"
GRADERS = {  # by adapter: what it is called, its repository, and the commit or version that was tried
    "verl_prime_code": ("verl, prime_code", "volcengine/verl", "b178a3c"),
    "rllm_humanevalplus": ("rLLM, HumanEval+", "rllm-org/rllm", "9beb6e0"),
    "rllm_kodcode": ("rLLM, KodCode", "rllm-org/rllm", "9beb6e0"),
    "rllm_livecodebench": ("rLLM, LiveCodeBench", "rllm-org/rllm", "9beb6e0"),
    "roll_local_code": ("ROLL, inputs and outputs", "alibaba/ROLL", "8eb27cc"),
    "roll_asserts": ("ROLL, asserts", "alibaba/ROLL", "8eb27cc"),
    "open_instruct_fast": ("open-instruct", "allenai/open-instruct", "e6c3044"),
    "easydel_verifier": ("EasyDeL, CodeVerifier", "erfanzar/EasyDeL", "090a03b"),
    "tinker_cookbook_modal": ("tinker-cookbook, Modal", "thinking-machines-lab/tinker-cookbook", "9dfcc3a"),
    "sandboxfusion_server": ("SandboxFusion", "bytedance/SandboxFusion", "469de08"),
    "trl_opencode": ("TRL, opencode example", "huggingface/trl", "f2cd577"),
    "open_r1_code_reward": ("open-r1, code_reward", "huggingface/open-r1", "1416fa0"),
    "code_a1_reference": ("Code-A1, reference", "ZJU-REAL/Code-A1", "be86d93"),
    "evalplus_check": ("EvalPlus", "", "0.3.1"),
    OURS: (OURS, "", "this one"),
}


def run(adapter: str) -> Siege:
    if adapter == OURS:
        command = GraderCommand.read(f"{sys.executable} -m codea1.lab.siege.sandbox")
    else:
        command = GraderCommand.read(f"{FOLDER / adapter}.py:paid", python=shutil.which("python") or sys.executable)
    siege = besiege(GRADERS[adapter][0], command, attempts(), seconds=120.0, jobs=2)
    reports = PEERS / "siege"
    reports.mkdir(exist_ok=True)
    for suffix, text in {"md": siege.markdown(), "json": siege.json()}.items():
        (reports / f"{adapter}.{suffix}").write_text(text)
    return siege


def scores(sieges: dict[str, Siege]) -> str:
    """Returns the table of graders."""
    rows = []
    for number, (adapter, siege) in enumerate(sieges.items(), start=1):
        name, repository, version = GRADERS[adapter]
        title = f"[{name}](https://github.com/{repository})" if repository else name
        forgeries = [str(len(siege.forged)), str(len(siege.of(said=DIED))), str(siege.asked())]
        controls = [f"{len(siege.of(kind, said=PAID))} of {siege.asked(kind)}" for kind in (RIGHT, WRONG)]
        rows.append([str(number), title, f"`{version}`", *forgeries, *controls])
    heads = ["", "grader", "version", "paid", "died", "of forgeries", "right programs paid", "plain wrong ones paid"]
    return TextTable(heads, rows, left=3).markdown()


def by_family(sieges: dict[str, Siege]) -> str:
    """Returns how many forgeries of each family each grader paid, and how many there are."""
    rows = []
    for name, family in families().items():
        paid = [str(len(siege.of(name, said=PAID))) for siege in sieges.values()]
        rows.append([family.title, *paid, str(sum(each.family == name for each in attempts()))])
    return TextTable(["family", *map(str, range(1, len(sieges) + 1)), "of"], rows).markdown()


def unpaid(sieges: dict[str, Siege]) -> str:
    """Returns the forgeries that no grader paid."""
    paid = {each.attempt for siege in sieges.values() for each in siege.forged}
    forgeries, lines = [each for each in attempts() if each.is_forgery], []
    for name, family in families().items():
        left = [f"*{each.name}*" for each in forgeries if each.family == name and each not in paid]
        lines += [f"- {family.title}: {', '.join(left)}"] if left else []
    return f"No grader here paid {len(set(forgeries) - paid)} of the {len(forgeries)}:\n\n" + "\n".join(lines)


def ways() -> str:
    """Returns how each family works, and its defence."""
    rows = [[family.title, family.works, family.defence] for family in families().values()]
    return TextTable(["family", "how it works", "the known defence"], rows, left=3).markdown()


def reports() -> str:
    """Returns the reports that forgeries come from, and of how many no report is known."""
    counts = Counter(each.source for each in attempts() if each.is_forgery)
    rows = [[f"[{report['text']}]({report['url']})", str(counts[name])] for name, report in sources().items()]
    return TextTable(["report", "forgeries"], [*rows, ["none known", str(counts[OWN])]]).markdown()


def main(*chosen: str) -> None:
    sieges = {}
    for adapter, (name, repository, _) in GRADERS.items():
        if chosen and adapter not in chosen:
            continue
        if repository and not (PEERS / repository.split("/")[1]).is_dir():
            print(f"{name}: left out, as there is no checkout of {repository} in {PEERS}")
            continue
        try:
            sieges[adapter] = run(adapter)
        except BadInput as error:  # it cannot be loaded: a package is missing
            print(f"{name}: left out, as {error}")
            continue
        print(f"{name}: {sieges[adapter].summary()}", flush=True)
    if not chosen:
        begin, end = "<!-- written by bench/siege -->\n", "<!-- to here -->\n"
        head, _, rest = PAGE.read_text().partition(begin)
        tables = ["## Graders", scores(sieges), by_family(sieges), unpaid(sieges)]
        tables += ["## How each family works", ways(), "## Where the forgeries come from", reports()]
        text = "\n\n".join(tables)
        PAGE.write_text(f"{head}{begin}\n{text}\n\n{end}{rest.partition(end)[2]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
