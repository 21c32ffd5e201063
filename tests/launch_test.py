"""launch/: what the scripts would run, what they refuse, and how a run is seen through preemptions."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
LAUNCH = ROOT / "launch"
WHERE = ("--name=a1", "--project=lab", "--zone=us-west4-a")
WHAT = ("--config=configs/tiny.py:seed=1", "--workdir=gs://bucket/runs/a1")
CLUSTER = ("--cluster=pods", "--location=us-west4", "--image=us-docker.pkg.dev/lab/r/codea1:1")
SUFFIX = ["--zone=us-west4-a", "--project=lab", "--quiet"]
SPOT_AS_ME = " --spot --service-account=me@lab"
NETWORK = "--network=n --subnetwork=s --internal-ips"
VM_COMMANDS = ("run", "create", "install", "start", "logs", "status", "stop", "delete")
GKE_COMMANDS = ("image", "create", "render", "start", "logs", "status", "stop", "delete")

# Writes down how it was called. As gcloud it also plays a cloud: of the turns in the script, one is shown each time
# that somebody asks for the state of the queued resource while there is one, the last one again and again. Files say
# that it exists, and what fails.
FAKE = """#!{python}
import json, os, pathlib, sys
folder, words = pathlib.Path({folder!r}), sys.argv[1:]
with open(folder / "calls", "a") as calls:
    calls.write(json.dumps([os.path.basename(sys.argv[0]), *words]) + "\\n")
if os.path.basename(sys.argv[0]) != "gcloud":
    (folder / "stdin").write_text(sys.stdin.read())
    sys.exit()
script, exists = folder / "turns.json", folder / "exists"
turns = json.loads(script.read_text())
kind, verb = words[2:4]
if (folder / "logged_out").exists():
    sys.exit("ERROR: (gcloud) You do not currently have an active account selected.")
if (folder / (verb + "_fails")).exists():
    sys.exit("ERROR: RESOURCE_EXHAUSTED: Quota limit has been exceeded")
if verb == "create":
    exists.touch()
elif verb == "delete":
    exists.unlink()
elif verb == "describe" and not exists.exists():
    sys.exit("ERROR: (gcloud.compute.tpus." + kind + ".describe) NOT_FOUND: Resource was not found")
elif verb == "describe" and kind == "queued-resources":
    turn = turns[0]
    script.write_text(json.dumps(turns[1:] or turns))
    (folder / "turn.json").write_text(json.dumps(turn))
    if turn["queue"] == "offline":
        sys.exit("ERROR: no network")
    print(turn["queue"])
elif verb == "describe":
    node = json.loads((folder / "turn.json").read_text())["node"]
    print(node if isinstance(node, str) else node[int(words[4].rpartition("-")[2])])
elif verb == "ssh" and "host.sh status" in " ".join(words):
    for number, state in enumerate(json.loads((folder / "turn.json").read_text())["hosts"]):
        print("codea1-host host-" + str(number), state)
elif verb == "ssh" and "host.sh install" in " ".join(words) and (folder / "install_fails").exists():
    sys.exit(1)
"""


def turn(*hosts: str, queue: str = "ACTIVE", node: str | list[str] = "READY") -> dict:
    """What the cloud and its four hosts say for one turn of the loop; of several slices, each as a node."""
    return {"queue": queue, "node": node, "hosts": list(hosts * 4 if len(hosts) == 1 else hosts)}


WAITING = turn(queue="WAITING_FOR_RESOURCES")
PROVISIONING = turn(queue="PROVISIONING")
FRESH, RUNNING, DONE = turn("missing"), turn("running"), turn("exited 0")
SUSPENDED, PREEMPTED = turn(queue="SUSPENDED"), turn(node="PREEMPTED")


class Machine:
    """A machine on which gcloud, kubectl and docker are played."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        for program in ("gcloud", "kubectl", "docker"):
            path = folder / "bin" / program
            path.write_text(FAKE.format(python=sys.executable, folder=str(folder)))
            path.chmod(0o755)

    def launch(self, script: str, *words: str) -> subprocess.CompletedProcess:
        environment = os.environ | {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "TMPDIR": str(self.folder)}
        command = [LAUNCH / script, *words]
        quiet = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        return subprocess.run(command, cwd=self.folder, env=environment, timeout=100, **quiet)

    def play(self, turns: list[dict], *flags: str) -> subprocess.CompletedProcess:
        """`tpu_vm.sh run` while the cloud plays these turns."""
        (self.folder / "turns.json").write_text(json.dumps(turns))
        return self.launch("tpu_vm.sh", "run", *WHERE, *WHAT, "--accelerator=v5e-16", "--poll_seconds=0", *flags)

    @property
    def calls(self) -> list[list[str]]:
        file = self.folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def acts(self) -> list[str]:
        """What was done, without the looking."""
        names = (_act(call) for call in self.calls)
        return [name for name in names if name not in ("describe", "status")]


def _act(call: list[str]) -> str:
    verb, line = call[4], " ".join(call)
    if verb != "ssh":
        return verb
    return line[line.rindex("host.sh ") :].split()[1].rstrip(";").strip("'")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def dry(machine: Machine, script: str, command: str, *words: str) -> list[list[str]]:
    """The commands of a dry run, split as a shell would; none was run."""
    done = machine.launch(script, command, "--dry_run", *words)
    assert done.returncode == 0, done.stderr
    assert machine.calls == []
    return [shlex.split(line) for line in done.stdout.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(
    ("flags", "kind", "version", "more"),
    [
        ("--accelerator=v5e-16", "v5litepod-16", "v2-alpha-tpuv5-lite", ""),
        ("--accelerator=v6e-64 --pricing=spot --service_account=me@lab", "v6e-64", "v2-alpha-tpuv6e", SPOT_AS_ME),
        ("--accelerator=v5p-32 --pricing=reserved", "v5p-32", "v2-alpha-tpuv5", " --reserved"),
        ("--accelerator=v5e-8 --via=direct --pricing=spot", "v5litepod-8", "v2-alpha-tpuv5-lite", " --spot"),
        (f"--accelerator=v6e-4 {NETWORK} -- --a=1 -- --tags=a", "v6e-4", "v2-alpha-tpuv6e", f" {NETWORK} --tags=a"),
    ],
)
def test_a_vm_is_created_in_the_queue_or_without_it(machine, flags, kind, version, more):
    (command,) = dry(machine, "tpu_vm.sh", "create", *WHERE, *flags.split())
    resource = "queued-resources create a1 --node-id=a1 --runtime-version"
    if "direct" in flags:
        resource = "tpu-vm create a1 --version"
    scopes = "--scopes=https://www.googleapis.com/auth/cloud-platform"
    expected = f"gcloud compute tpus {resource}={version} --accelerator-type={kind} {scopes}{more}"
    assert command == [*expected.split(), *SUFFIX]


def test_several_slices_are_nodes_of_one_queued_resource_and_every_host_is_reached(machine):
    several = ("--accelerator=v5e-16", "--slices=2")
    created, *_ = dry(machine, "tpu_vm.sh", "create", *WHERE, *several)
    assert created[4:8] == ["create", "a1", "--node-count=2", "--node-prefix=a1"]
    everywhere = ["gcloud", "compute", "tpus", "queued-resources", "ssh", "a1", "--node=all", "--worker=all"]
    for command in ("install", "start", "stop"):
        assert dry(machine, "tpu_vm.sh", command, *WHERE, *WHAT, *several)[-1][:8] == everywhere
    copy = dry(machine, "tpu_vm.sh", "install", *WHERE, *several)[1]
    assert copy[3:9] == ["queued-resources", "scp", copy[5], "a1:codea1.tar.gz", "--node=all", "--worker=all"]
    (logs,) = dry(machine, "tpu_vm.sh", "logs", *WHERE, *several)
    assert logs[6:8] == ["--node=0", "--worker=0"]
    queue, *nodes, hosts = dry(machine, "tpu_vm.sh", "status", *WHERE, *several)
    assert (queue[3:6], hosts[:8]) == (["queued-resources", "describe", "a1"], everywhere)
    assert [node[3:6] for node in nodes] == [["tpu-vm", "describe", name] for name in ("a1-0", "a1-1")]


@pytest.mark.parametrize("flags", [("--accelerator=v5e-16",), ("--accelerator=v6e-64", "--pricing=spot", "--slices=2")])
def test_every_command_can_be_tried_dry(machine, flags):
    for command in VM_COMMANDS:
        for words in dry(machine, "tpu_vm.sh", command, *WHERE, *WHAT, *flags):
            assert words[0] == "git" or (words[:3], words[-3:]) == (["gcloud", "compute", "tpus"], SUFFIX)
    for command in GKE_COMMANDS:
        done = machine.launch("gke.sh", command, *WHERE, *CLUSTER, *WHAT, *flags[:2], "--dry_run")
        assert (done.returncode, bool(done.stdout)) == (0, True), done.stderr
    assert machine.calls == []


def test_flags_of_train_reach_it_unchanged(machine):
    odd = '--config.code.model=gs://b/it\'s a "$model"'
    words = ("--config=tiny:seed=1", WHAT[1])  # a shipped config has a short name
    (ssh,) = dry(machine, "tpu_vm.sh", "start", *WHERE, *words, "--", "--config.steps=3", odd, "--", "--labels=a=b")
    assert ssh[:7] == ["gcloud", "compute", "tpus", "tpu-vm", "ssh", "a1", "--worker=all"]
    remote = shlex.split(ssh[7].removeprefix("--command="))
    start = ["bash", "codea1/launch/host.sh", "start", *words, "--config.steps=3", odd]
    assert remote == start
    accelerator = "--accelerator=v5e-16"
    (ssh,) = dry(machine, "tpu_vm.sh", "start", *WHERE, *words, accelerator, "--", "--config.steps=3", odd)
    when_done = "CODEA1_DELETE=queued-resources a1 us-west4-a lab 4"
    assert shlex.split(ssh[7].removeprefix("--command=")) == ["env", when_done, *start]


def test_install_sends_the_commit_and_asks_for_the_python(machine):
    archive, copy, unpack = dry(machine, "tpu_vm.sh", "install", *WHERE, "--python=3.12")
    assert archive[:4] == ["git", "-C", str(ROOT), "archive"]
    assert archive[-1] == "HEAD"
    file = archive[-2].removeprefix("--output=")
    assert copy == ["gcloud", "compute", "tpus", "tpu-vm", "scp", file, "a1:codea1.tar.gz", "--worker=all", *SUFFIX]
    assert unpack[7].endswith("bash codea1/launch/host.sh install 3.12")


VM, GKE = f"tpu_vm.sh create {' '.join(WHERE)} ", f"gke.sh create {' '.join((*WHERE, *CLUSTER))} "
START, RUN = VM.replace("create", "start"), f"{VM.replace('create', 'run')} {WHAT[1]} --accelerator=v5e-16 "
RENDER = f"gke.sh render {' '.join((*WHERE, *WHAT))} "
REFUSED = {
    "tpu_vm.sh fly": "'fly' is not a command",
    "gke.sh": "'' is not a command",
    VM: "--accelerator is missing",
    VM + "--accelerator=v5e-24": "v5e comes as -1, -4, -8, -16",
    VM + "--accelerator=v3-8": "is not a TPU that this script knows",
    VM + "--accelerator=v5e-16 --pricing=cheap": "none of on-demand, spot and res",
    VM + "--accelerator=v5e-16 --zone=us-west4": "is not a zone",
    VM + "--accelerator=v5e-16 --name=A_1": "is not a name",
    VM + "--accelerator v5e-16": "--accelerator is not a flag",
    VM + "--accelerator=v5e-16 --slices=2 --via=direct": "--via=direct makes one slice; --slices=2",
    START + f"{WHAT[0]} --workdir=runs/a1": "is not a folder of a bucket",
    START + f"--config=configs/none.py {WHAT[1]}": "none.py is not a file of commit",
    VM.replace("create", "install") + "--python=3.10": "codea1 runs on Python 3.11, 3.12 and 3.13",
    VM.replace("create", "stop") + "--max_restarts=some": "is not a whole number",
    RUN + "--config=configs/code_a1.py:topology=2xv5e-16": "is for 2xv5e-16; --accelerator=v5e-16 --slices=1",
    RUN + "--config=code_a1:size=7b --slices=2": "is for v5e-16; --accelerator=v5e-16 --slices=2",
    RUN + "--config=tiny -- --a=1 --config.mesh.topology=v5e-64": "is for v5e-64; --accelerator=v5e-16",
    GKE + "--accelerator=v5e-64 --config=configs/code_a1.py": "is for v5e-16; --accelerator=v5e-64 --slices=1",
    GKE + "--accelerator=v5e-16 --slices=2": "this script makes one slice",
    GKE.replace("--cluster=pods", "") + "--accelerator=v5e-16": "--cluster is missing",
    RENDER + "--accelerator=v5e-16": "--image is missing",
    GKE + "--accelerator=v5e-16 --pricing=reserved": "--pricing=reserved takes --reservation=NAME",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_cannot_be_is_refused_before_anything_runs(machine, line):
    done = machine.launch(*line.split())
    assert done.returncode == 2
    assert REFUSED[line] in done.stderr
    assert machine.calls == []


BEGIN = "create stop scp install start"
OFFLINE = turn(queue="offline")
ONE_REBOOTED = turn("running", "missing", "exited 1", "running")
ONE_ENDED = turn("running", "running", "exited 0")
LOST = (WAITING, turn(queue="FAILED"))
ENDS = {  # after which the run starts again on the same VM
    "asked": turn("exited 75"),
    "asked, a peer aborted": turn("exited 134", "exited 75", "running", "running"),
    "killed, peers asked": turn("exited 137", "exited 75", "exited 75", "exited 75"),
    "killed, peers aborted": turn("exited 137", "exited 134", "exited 134", "exited 134"),
    "killed": turn("running", "running", "exited 137", "running"),
}
FAILED = {
    f"{code}, the others {others}": turn(f"exited {others}", f"exited {code}", f"exited {others}", "running")
    for code in (1, 2, 74)
    for others in (134, 75)
}
BEGUN, BEGUN_TWICE, AGAIN = [PROVISIONING, FRESH, RUNNING], f"{BEGIN} delete {BEGIN} delete", f"{BEGIN} stop start"
ALL = {what: [what] * 8 for what in ("missing", "running", "exited 0")}  # hosts of two slices
SLICES = [
    *(turn("missing", node=["READY", "CREATING"]), turn(*ALL["missing"]), turn(*["running"] * 4)),
    *(turn(*ALL["running"]), turn(*ALL["running"], node=["READY", "PREEMPTED"])),
    *(turn(*ALL["missing"]), turn(*ALL["exited 0"])),
]
STATES_OF_SLICES = "^absent waiting missing unknown running lost absent missing done"
KEEPS_FAILING = "create stop scp install stop scp install stop scp install logs delete"
NOT_MADE = "Quota.*could not be created.*there is no a1, and nothing to pay for.$"
SUSPENDING = [RUNNING, turn(queue="SUSPENDING"), FRESH, DONE]
REBOOTED = [FRESH, RUNNING, ONE_REBOOTED, RUNNING, DONE]
LOOPS = {  # what is there before, turns, flags, the exit code, what is done; and states, then what is said
    "nothing to done": ("", [WAITING, *BEGUN, DONE], "", 0, f"{BEGIN} delete", "a1: waiting.*done.*a1 is deleted"),
    "no login": ("logged_out", [WAITING], "", 2, "", "error: gcloud cannot say what there is of a1"),
    "a host was rebooted": ("", REBOOTED, "", 0, f"{BEGIN} stop scp install start delete", "lost its run: restart 1"),
    "a VM that is kept costs money": ("", [FRESH, DONE], "--keep", 0, BEGIN, "costs money"),
    "a VM that stays costs money": ("exists delete_fails", [DONE], "", 0, "delete", "a1 COULD NOT BE DELETED"),
    "without a quota there is nothing to delete": ("create_fails", [WAITING], "--keep", 1, "create", NOT_MADE),
    "bounded": ("", [FRESH, turn("exited 139")], "--max_restarts=2", 1, f"{AGAIN} stop start delete", "2 restarts are"),
    "a slow loss is one": ("exists", SUSPENDING, "--max_restarts=1", 0, f"delete {BEGIN} delete", "restart 1 of 1"),
    "a suspended one is made again": ("", [*BEGUN, SUSPENDED, *BEGUN, DONE], "--pricing=spot", 0, BEGUN_TWICE, ""),
    "a preempted one is made again": ("", [*BEGUN, PREEMPTED, *BEGUN, DONE], "--pricing=spot", 0, BEGUN_TWICE, ""),
    "slices are lost with one": ("", SLICES, "--slices=2", 0, BEGUN_TWICE, STATES_OF_SLICES),
    "a run that goes on is taken up": ("exists", [RUNNING, DONE], "", 0, "delete", ""),
    "silence is not a loss": ("exists", [RUNNING, OFFLINE, ONE_ENDED, OFFLINE, DONE], "", 0, "delete", "no network"),
    "a refused request ends the loop": ("", LOST, "", 1, "create delete", "FAILED\n.*was refused, as above.*deleted"),
    "an install that keeps failing ends the loop": ("install_fails", [FRESH], "", 1, KEEPS_FAILING, ""),
    **{
        f"ended: {how}": ("", [FRESH, RUNNING, end, RUNNING, DONE], "", 0, f"{AGAIN} delete", "restart 1 of")
        for how, end in ENDS.items()
    },
    **{
        f"a host failed by itself: {how}": ("", [FRESH, RUNNING, end], "", 1, f"{BEGIN} logs delete", "the run failed")
        for how, end in FAILED.items()
    },
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_run_is_seen_through(machine, name):
    before, turns, flags, code, acts, said = LOOPS[name]
    for file in before.split():
        (machine.folder / file).touch()
    done = machine.play(turns, *flags.split())
    assert done.returncode == code, done.stderr
    states = " ".join(re.findall(r"a1: (\w+)", done.stderr))
    assert re.search(said, f"{states}\n{done.stderr.rstrip()}", re.DOTALL)
    assert machine.acts == acts.split()
    for act in ("create", "start"):  # each time the same, with the same workdir
        assert len({tuple(call) for call in machine.calls if _act(call) == act}) <= 1


class Host:
    """host.sh with a home folder of its own, where Python is a shell script."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "codea1-venv" / "bin" / "python"
        self.python.parent.mkdir(parents=True)
        self.environment = os.environ | {"HOME": str(folder), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}

    def program(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)

    def call(self, *words: str) -> subprocess.CompletedProcess:
        command = [LAUNCH / "host.sh", *words]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60)

    @property
    def status(self) -> str:
        word, _, what = self.call("status").stdout.strip().split(" ", 2)
        assert word == "codea1-host"
        return what

    def read(self, name: str) -> str:
        return (self.folder / "codea1-run" / name).read_text()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    yield host
    if host.status == "running":
        os.kill(int(host.read("pid")), signal.SIGKILL)


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("waited ten seconds in vain")


@pytest.mark.parametrize("code", [0, 1, 75])
def test_host_tells_how_the_run_ended(host, code):
    host.program(host.python, f'echo "$PWD $JAX_PLATFORMS $*"; exit {code}')
    assert host.status == "missing"
    assert host.call("start", *WHAT, "--config.x=a b").returncode == 0
    wait_for(lambda: host.status == f"exited {code}")
    assert f"{ROOT} tpu,cpu -m codea1.train {WHAT[0]} {WHAT[1]} --config.x=a b" in host.read("log")
    assert host.call("logs", "1").stdout.endswith(f"ended with code {code}\n")


def test_host_runs_one_at_a_time_and_stops_it_with_time_to_end(host):
    host.program(host.python, "trap 'echo saved; exit 75' TERM; echo ready; while :; do sleep 0.05; done")
    assert host.call("start", *WHAT).returncode == 0
    assert host.status == "running"
    second = host.call("start", *WHAT)
    assert second.returncode == 1
    assert "a run goes on here" in second.stderr
    wait_for(lambda: "ready" in host.read("log"))
    assert host.call("stop").returncode == 0
    assert host.status == "exited 75"
    assert "saved" in host.read("log")
    assert host.call("stop").returncode == 0, "there is nothing to stop"
    assert host.call("start", *WHAT).returncode == 0
    assert host.status == "running"


def test_host_tells_a_killed_run_from_a_host_that_was_rebooted(host):
    host.program(host.python, "exec sleep 60")
    host.call("start", *WHAT)
    os.kill(int(host.read("pid")), signal.SIGKILL)
    wait_for(lambda: host.status == "exited 137")
    wait_for(lambda: host.call("start", *WHAT).returncode == 0)  # once what watched it is gone, too
    pid = int(host.read("pid"))
    os.killpg(os.getpgid(pid), signal.SIGKILL)  # with the processes that would have written the code down
    wait_for(lambda: host.status == "missing")


@pytest.mark.parametrize("missing", ["", "a log", "a result"])
def test_host_deletes_the_vm_when_nobody_watches_and_the_bucket_has_everything(host, missing):
    logs, results = (1 if missing == what else 2 for what in ("a log", "a result"))
    listed = f'case "$*" in *"*.log") seq {logs};; *after.json*) seq {results}; exit {2 - results};; esac'
    host.program(host.folder / "bin" / "gcloud", f'echo "$*" >>"$HOME/calls"; {listed}')
    host.program(host.python, "exit 0")
    host.environment |= {"CODEA1_DELETE": "queued-resources a1 Z P 2", "CODEA1_UNWATCHED_SECONDS": "1"}
    assert host.call("start", "--config=tiny", "--workdir=gs://bucket/a1").returncode == 0
    calls = host.folder / "calls"
    delete = "compute tpus queued-resources delete a1 --force --async --zone=Z --project=P --quiet"
    if missing:
        wait_for(lambda: "a1 is kept and costs money" in host.read("log"))
        assert delete not in calls.read_text()
    else:
        wait_for(lambda: calls.exists() and delete in calls.read_text())
    assert "gs://bucket/a1/launch/" in calls.read_text().splitlines()[0], "the log is copied first"


@pytest.mark.parametrize("doctor", [0, 1])
def test_host_installs_and_heeds_the_doctor(host, doctor):
    host.program(host.folder / "bin" / "python3", 'echo "python3 $*" >>"$HOME/calls"')
    host.program(host.folder / ".local" / "bin" / "uv", 'echo "uv $*" >>"$HOME/calls"')
    host.program(host.python, f'echo "python $*" >>"$HOME/calls"; exit {doctor}')
    assert host.call("install", "3.12").returncode == doctor
    pip, venv, packages, check = (host.folder / "calls").read_text().splitlines()
    assert pip == f"python3 -m pip install --quiet --user --constraint {ROOT}/requirements.lock uv"
    assert "--python 3.12" in venv
    assert packages.endswith(f"--constraint {ROOT}/requirements.lock --editable {ROOT}[all,tpu]")
    assert check == "python -m codea1.sandbox"


def manifest(machine: Machine, *flags: str) -> dict:
    done = machine.launch("gke.sh", "render", *WHERE, *CLUSTER, *WHAT, *flags)
    assert done.returncode == 0, done.stderr
    assert machine.calls == []
    return yaml.safe_load(done.stdout)


def job_of(jobset: dict) -> dict:
    (replicated,) = jobset["spec"]["replicatedJobs"]
    assert replicated["replicas"] == 1
    return replicated["template"]["spec"]


@pytest.mark.parametrize(
    ("accelerator", "kind", "topology", "hosts", "chips"),
    [
        ("v5e-8", "tpu-v5-lite-podslice", "2x4", 1, 8),
        ("v5e-64", "tpu-v5-lite-podslice", "8x8", 16, 4),
        ("v6e-64", "tpu-v6e-slice", "8x8", 16, 4),
        ("v5p-32", "tpu-v5p-slice", "2x2x4", 4, 4),
    ],
)
def test_manifest_has_the_slices_shape(machine, accelerator, kind, topology, hosts, chips):
    jobset = manifest(machine, f"--accelerator={accelerator}")
    assert (jobset["apiVersion"], jobset["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    job = job_of(jobset)
    assert (job["completions"], job["parallelism"], job["completionMode"]) == (hosts, hosts, "Indexed")
    pod = job["template"]["spec"]
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": kind,
        "cloud.google.com/gke-tpu-topology": topology,
    }
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"google.com/tpu": chips}
    sides = [int(side) for side in topology.split("x")]
    assert hosts * chips == sides[0] * sides[1] * (sides[2] if len(sides) == 3 else 1)


def test_manifest_restarts_all_but_failures(machine):
    jobset = manifest(machine, "--accelerator=v5e-16", "--max_restarts=7")
    policy, job = jobset["spec"]["failurePolicy"], job_of(jobset)
    assert policy["maxRestarts"] == 7
    (rule,) = policy["rules"]
    assert (rule["action"], rule["onJobFailureReasons"]) == ("FailJobSet", ["PodFailurePolicy"])
    disrupted, failed = job["podFailurePolicy"]["rules"]
    assert disrupted == {"action": "Count", "onPodConditions": [{"type": "DisruptionTarget"}]}
    (container,) = job["template"]["spec"]["containers"]
    assert failed["onExitCodes"] == {"containerName": container["name"], "operator": "In", "values": [1, 2, 74]}
    assert (failed["action"], job["backoffLimit"]) == ("FailJob", 0)
    assert job["template"]["spec"]["restartPolicy"] == "Never"  # as podFailurePolicy requires


def test_manifest_gives_the_container_what_the_sandbox_needs_and_no_more(machine):
    pod = job_of(manifest(machine, "--accelerator=v5e-16", "--pricing=spot"))["template"]["spec"]
    assert pod["nodeSelector"]["cloud.google.com/gke-spot"] == "true"
    assert pod["shareProcessNamespace"] is True  # else Python is process 1, which SIGTERM does not end
    (container,) = pod["containers"]
    security = container["securityContext"]
    assert security["privileged"] is False
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"], "add": ["KILL", "SETGID", "SETUID", "SYS_RESOURCE"]}


@pytest.mark.parametrize(
    ("flags", "machine_type", "nodes", "more"),
    [
        (["v5e-16"], "ct5lp-hightpu-4t", 4, ["--tpu-topology=4x4"]),
        (["v5e-16", "--pricing=spot"], "ct5lp-hightpu-4t", 4, ["--tpu-topology=4x4", "--spot"]),
        (["v6e-64"], "ct6e-standard-4t", 16, ["--tpu-topology=8x8"]),
        (["v5e-8", "--", "--", "--labels=a=b"], "ct5lp-hightpu-8t", 1, ["--labels=a=b"]),
    ],
)
def test_node_pool(machine, flags, machine_type, nodes, more):
    (command,) = dry(machine, "gke.sh", "create", *WHERE, *CLUSTER, f"--accelerator={flags[0]}", *flags[1:])
    where = ["--cluster=pods", "--location=us-west4", "--node-locations=us-west4-a", "--project=lab"]
    start = ["gcloud", "container", "node-pools", "create", "a1", *where, "--scopes=cloud-platform"]
    assert command == [*start, f"--machine-type={machine_type}", f"--num-nodes={nodes}", *more, "--quiet"]


def test_start_applies_the_manifest_to_the_named_cluster(machine):
    words = (*WHERE, *CLUSTER, *WHAT, "--accelerator=v5e-16")
    assert machine.launch("gke.sh", "start", *words).returncode == 0
    assert machine.calls == [["kubectl", "--context=gke_lab_us-west4_pods", "apply", "--filename=-"]]
    applied = yaml.safe_load((machine.folder / "stdin").read_text())
    assert applied == yaml.safe_load(machine.launch("gke.sh", "render", *words).stdout)


# As srun: the command for each of two tasks, one after the other, and the highest of their codes. As python and
# scontrol: a line of what it was given, and the code that is asked for of the task.
TASKS = """#!/bin/bash
case ${0##*/} in
  srun)
    printf '%s\n' "srun $1 cpus=$SRUN_CPUS_PER_TASK" >>"$CALLS"
    highest=0
    for SLURM_PROCID in 0 1; do
      code=0
      SLURM_PROCID=$SLURM_PROCID SLURM_NTASKS=2 "${@:2}" || code=$?
      ((code <= highest)) || highest=$code
    done
    exit "$highest"
    ;;
  *)
    printf '%s %s\n' "${0##*/}" "$(printf '<%s>' "$@")" >>"$CALLS"
    code=CODE_${SLURM_PROCID-0}
    [[ ${0##*/} != python ]] || exit "${!code-0}"
    ;;
esac
"""


def run_job(folder: Path, command: list, **environment: str) -> tuple[int, list[str]]:
    """Runs a command where srun, scontrol and python are played; returns its code and what they were given."""
    bin_folder, calls = folder / "bin", folder / "calls"
    bin_folder.mkdir(parents=True)
    for name in ("srun", "scontrol", "python"):
        (bin_folder / name).write_text(TASKS)
        (bin_folder / name).chmod(0o755)
    environment |= {"PATH": f"{bin_folder}:{os.environ['PATH']}", "CALLS": str(calls)}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, timeout=100, capture_output=True)
    return done.returncode, calls.read_text().splitlines()


@pytest.mark.parametrize(("code", "modules"), [(0, ["sandbox", "train"]), (1, ["sandbox"])])
def test_containers_command_examines_the_sandbox_then_trains(machine, tmp_path, code, modules):
    odd = '--config.x=it\'s "$HOME": {a}'
    (container,) = job_of(manifest(machine, "--accelerator=v5e-16", "--", odd))["template"]["spec"]["containers"]
    assert {"name": "JAX_PLATFORMS", "value": "tpu,cpu"} in container["env"]
    command = [*container["command"], *container["args"]]
    command[2] = command[2].replace("ulimit -l 68719476736", "true")  # takes root
    given = {"sandbox": "", "train": f"<{WHAT[0]}><{WHAT[1]}><{odd}>"}
    expected = [f"python <-m><codea1.{module}>{given[module]}" for module in modules]
    assert run_job(tmp_path / "job", command, CODE_0=str(code)) == (code, expected)


@pytest.mark.parametrize(
    ("codes", "restarts", "code", "is_queued_again"),
    [
        ((0, 0), "0", 0, False),
        ((1, 0), "0", 1, False),
        ((75, 75), "19", 75, True),
        ((75, 75), "20", 75, False),
        ((137, 75), "0", 75, True),
        ((75, 134), "0", 75, True),
        ((1, 75), "0", 1, False),
        ((75, 2), "0", 2, False),
        ((74, 137), "0", 74, False),
    ],
)
def test_slurm_job_trains_in_every_task_and_queues_itself_again(tmp_path, codes, restarts, code, is_queued_again):
    odd = '--config.x=it\'s "$HOME": {a}'
    slurm = {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": restarts, "SLURM_CPUS_PER_TASK": "3"}
    slurm |= {f"CODE_{task}": str(each) for task, each in enumerate(codes)}
    ended, calls = run_job(tmp_path, [LAUNCH / "slurm.sh", *WHAT, odd], **slurm)
    task = f"python <-m><codea1.train><--num_processes=2><{WHAT[0]}><{WHAT[1]}><{odd}>"
    again = ["scontrol <requeue><7>"] if is_queued_again else []
    assert calls == ["srun --kill-on-bad-exit=0 cpus=3", task, task, *again]
    assert ended == code


@pytest.mark.parametrize(("code", "of_the_job"), [(0, 0), (1, 1), (74, 74), (75, 75), (134, 75), (137, 75)])
def test_skypilot_installs_as_the_tpu_vm_does_and_trains(tmp_path, code, of_the_job):
    task = yaml.safe_load((LAUNCH / "skypilot.yaml").read_text())
    assert task["resources"]["job_recovery"] == {"recover_on_exit_codes": [75]}
    install = shlex.split(task["setup"])
    assert install == ["bash", "launch/host.sh", "install", "3.11"]
    assert (ROOT / install[1]).exists()
    (tmp_path / "codea1-venv").mkdir()
    (tmp_path / "codea1-venv" / "bin").symlink_to(tmp_path / "bin")
    environment = {"HOME": str(tmp_path), "CONFIG": WHAT[0][9:], "WORKDIR": WHAT[1][10:], "FLAGS": "--a=1 --b=2"}
    assert set(task["envs"]) | {"HOME"} == set(environment)
    ended, calls = run_job(tmp_path, ["bash", "-c", task["run"]], **environment, CODE_0=str(code))
    assert calls == [f"python <-m><codea1.train><{WHAT[0]}><{WHAT[1]}><--a=1><--b=2>"]
    assert ended == of_the_job


def test_containers_are_built_by_arguments_and_extras_that_exist(machine):
    dockerfile = (LAUNCH / "Dockerfile").read_text()
    arguments = set(re.findall(r"^ARG (\w+)=", dockerfile, re.MULTILINE))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    build, folder = container["build"], ROOT / ".devcontainer"
    assert (folder / build["dockerfile"]).samefile(LAUNCH / "Dockerfile")
    assert (folder / build["context"]).samefile(ROOT)
    assert set(build["args"]) <= arguments
    assert build["args"]["EXTRAS"] in extras
    assert set(re.search(r"^ARG EXTRAS=(\S+)$", dockerfile, re.MULTILINE)[1].split(",")) <= set(extras)
    # The image's editable install is of the folder that the checkout is mounted over.
    assert f"WORKDIR {container['workspaceFolder']}\n" in dockerfile
    built = machine.launch("gke.sh", "image", *WHERE, *CLUSTER, "--dry_run").stdout
    assert set(re.findall(r"--build-arg=(\w+)", built)) <= arguments
