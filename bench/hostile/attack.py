"""`python -m bench.hostile.attack LEVEL FORM [PROGRAM ...]`: runs programs at one level and prints reports as JSON.

FORM is what is called: the function of a program, a method that calls it, or the whole program, which reads its argument
and prints the answer. Without names of programs all run.

Standard library only, so that any user's Python can run it.
"""

import importlib.util
import json
import os
import selectors
import socket
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import codea1
from bench.hostile import benign, files, forging, kernel, network, poisoning, processes, resources
from bench.sandbox import descendants
from codea1.game.calls import Call, CallTest
from codea1.game.question import Question
from codea1.sandbox.frames import Reply
from codea1.sandbox.host import Limits
from codea1.sandbox.host.grading import Grader
from codea1.sandbox.host.pool import SandboxPool
from codea1.values import encode_exact
from codea1.values.entry_points import STDOUT

LIMITS = Limits(cpu_seconds_per_test=0.25, cpu_seconds_per_suite=0.5, memory_bytes=256 << 20, output_bytes=1 << 20)
AT_ONCE = 12  # programs
CALL = Call("f", encode_exact(((3,), {})))
FORMS = {  # entry point, argument, what makes such a program of one that defines f, and an answer as it gives it
    "function": ("f", 3, "{}", lambda answer: answer),
    "method": ("Solution().f", 3, "{}\nclass Solution:\n    def f(self, x): return f(x)\n", lambda answer: answer),
    "stdout": (STDOUT, "3\n", "{}\nprint(f(int(input())))\n", str),
}
OUTSIDE = ["/tmp/codea1-hostile", "/dev/shm/codea1-hostile", "/var/tmp/codea1-hostile"]

# Judged after the programs: what it sees must be as if nothing had run before it.
CLEAN = """
import decimal, json, math, os, random, signal, sys
def f(x):
    signs = {
        'random': random.random() == 0.8444218515250481,
        'modules': math.floor(2.5) == 2 and json.dumps([1]) == '[1]' and sorted([2, 1]) == [1, 2],
        'decimal': decimal.getcontext().prec == 28,
        'environment': 'PYTHONPATH' not in os.environ and os.environ['HOME'] != '/x',
        'recursion': sys.getrecursionlimit() == 1000,
        'signals': signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
        'blocking': os.get_blocking(3),
        'four': 2 + 2 == x + 1,
    }
    if 'TMPDIR' in os.environ: signs['folder'] = os.listdir('.') == []
    broken = [name for name, right in signs.items() if not right]
    if broken: raise ValueError(broken)
    return 4
"""


# Graded beside them: what they do must not change it.
BYSTANDER = """
import threading, time
def f(x):
    out = []
    for _ in range(3):
        threads = [threading.Thread(target=out.append, args=(i,)) for i in range(4)]
        for thread in threads: thread.start()
        time.sleep(0.01)
        for thread in threads: thread.join()
    return x + 1 if len(out) == 12 else out
"""


def all_programs() -> Iterator[tuple[str, str, set[str]]]:
    """(name, source, right verdicts) of each, hostile and honest."""
    for module in (forging, network, files, processes, kernel, poisoning):
        right = getattr(module, "REFUSED", {"fail", "error", "timeout"})
        for name, source in module.PROGRAMS.items():
            yield f"{module.__name__.rpartition('.')[2]}: {name}", source, right
    for name, (right, source) in resources.PROGRAMS.items():
        yield f"resources: {name}", source, right
    for name, source in benign.PROGRAMS.items():
        yield f"benign: {name}", source, {"pass"}
    for name, source in benign.WITH_SCRATCH.items():
        yield f"scratch: {name}", source, {"pass"}


class Neighbourhood:
    """What the programs may not touch: listening sockets, a folder with a file, and the rest of the machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "file"
        self.file.write_text("alive")
        self.file.chmod(0o666)
        folder.chmod(0o777)
        self.reached: list[str] = []
        self.abstract = f"codea1-{os.urandom(8).hex()}"
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(type=socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        local = [socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)]
        local[0].bind(f"\0{self.abstract}")
        local[1].bind(f"\0{self.abstract}-datagram")
        local.append(socket.socket(socket.AF_UNIX))
        local[2].bind(str(folder / "socket"))
        (folder / "socket").chmod(0o777)
        self.selector = selectors.DefaultSelector()
        for end in (self.tcp, self.udp, *local):
            if end.type == socket.SOCK_STREAM:
                end.listen()
            self.selector.register(end, selectors.EVENT_READ)
        self.before = self.seen()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        while True:
            for key, _ in self.selector.select():
                end = key.fileobj
                self.reached.append(str(end.getsockname()))
                end.recv(999) if end.type == socket.SOCK_DGRAM else end.accept()

    def seen(self) -> list[object]:
        return [
            self.file.read_text(),
            stat.S_IMODE(self.file.stat().st_mode),
            self.file.stat().st_mtime_ns,
            sorted(os.listdir(self.folder)),
            [path for path in OUTSIDE if os.path.exists(path)],
        ]

    def filled_in(self, source: str) -> str:
        for name, value in {
            "TCP": self.tcp.getsockname()[1],
            "UDP": self.udp.getsockname()[1],
            "ABSTRACT": self.abstract,
            "FOLDER": self.folder,
            "PACKAGE": Path(codea1.__file__).parent,
            "TRAINER": os.getpid(),
        }.items():
            source = source.replace(f"@{name}@", str(value))
        return source


class Attacker:
    """A pool in which programs run a few at a time, beside an honest one."""

    def __init__(self, level: str, form: str, neighbourhood: Neighbourhood) -> None:
        self.entry_point, argument, self.form, self.answer = FORMS[form]
        self.call = Call(self.entry_point, encode_exact(((argument,), {})))
        self.pool = SandboxPool(AT_ONCE + 1, LIMITS, level)
        self.neighbourhood = neighbourhood
        for source, seed in (("import numpy", 0), ("x = 1", 0), ("x = 1", 1)):  # so that all its zygotes are there
            self.pool.run_calls(source, [], reply=Reply.CANONICAL, hash_seed=seed).result()

    def attack(self, programs: Sequence[tuple[str, str]]) -> dict[str, dict[str, object]]:
        """Runs programs at once; returns a report on each. Where they did harm, each is run again to see whose it is."""
        before = self.state()
        grader = Grader(self.pool)  # of its own, for it remembers what it has judged
        secret = f"secret-{os.urandom(8).hex()}"
        attacks = {}
        for name, source in programs:
            answer = secret if name.startswith("forging") else 4
            question = Question("q", None, "", "", "", self.entry_point)
            program = question.module(self.form.replace("{}", self.neighbourhood.filled_in(source), 1))
            attacks[name] = grader.grade(program, [CallTest(self.call, encode_exact(self.answer(answer)))])
        beside = grader.grade(BYSTANDER, [CallTest(CALL, encode_exact(4))]).result(120)
        gradings = {name: attack.result(120) for name, attack in attacks.items()}
        clean = grader.grade(CLEAN, [CallTest(CALL, encode_exact(4))]).result(120)
        harm: dict[str, object] = {}
        if beside.verdicts != ["pass"]:
            harm["bystander"] = beside.verdicts + beside.details
        if clean.verdicts != ["pass"]:
            harm["next grading"] = clean.details
        harm |= {name: now for name, now in self.state().items() if now != before[name]}
        if harm and len(programs) > 1:
            return {name: report for program in programs for name, report in self.attack([program]).items()}
        return {
            name: {"verdict": grading.verdicts[0], "detail": grading.details[0], **harm}
            for name, grading in gradings.items()
        }

    def state(self) -> dict[str, object]:
        """What no program may change."""
        counters = self.pool.counters()
        return {
            "processes left": sorted(
                descendants({zygote._process.pid for zygote in self.pool._dispatcher._zygotes.values()})
            ),
            "files touched": self.neighbourhood.seen(),
            "sandbox harmed": {harm: counters[harm] for harm in ("zygotes_lost", "infra", "restarts")},
        }


def attack_all(level: str, form: str, *names: str) -> dict[str, object]:
    """{"programs": {name: report}, "reached": the sockets that heard from someone}"""
    os.environ["TRAINER_SECRET"] = f"secret-{os.urandom(8).hex()}"
    has_numpy = importlib.util.find_spec("numpy") is not None
    programs = [(name, source) for name, source, _ in all_programs() if has_numpy or "numpy" not in name]
    programs = [(name, source) for name, source in programs if name in names or not names]
    reports: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        neighbourhood = Neighbourhood(Path(folder))
        attacker = Attacker(level, form, neighbourhood)
        for start in range(0, len(programs), AT_ONCE):
            reports |= attacker.attack(programs[start : start + AT_ONCE])
        attacker.pool.close()
        return {"programs": reports, "reached": neighbourhood.reached}


if __name__ == "__main__":
    json.dump(attack_all(*sys.argv[1:]), sys.stdout)
