"""Forks processes that find everything imported: importing takes longer than most of what tests have them do.

`fork_server.py SOCKET` reads requests from the socket whose descriptor it is given, until that is closed. Each is JSON
with `arguments` of `python` (a file, or "-m" and a module, and what follows) and `environment`, and comes with three
descriptors: stdout, stderr, and one that its process id and then its exit code are written to. A fork ends as
`python ARGUMENTS` would.
"""

import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys

import fsspec
from transformers import AutoTokenizer  # noqa: F401

# Together they import nearly all; they define no flags and start none of JAX's devices.
for module in (
    "lab.benchmarks.programs",
    "lab.opened_run",
    "lab.report.run_report",
    "lab.dry_run",
    "training.guards",
    "training.trainer",
):
    importlib.import_module(f"codea1.{module}")
gc.freeze()  # a fork would look for garbage in all of it, again and again, and copy its pages


def become_next() -> dict | None:
    """Returns in each fork what it is to run, and in the server None once no more is asked for."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # of the forks that wait for those that run
    while True:
        request, pipes, *_ = socket.recv_fds(requests, 1 << 20, 3)
        if not request:
            return None
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _fork_and_report(*pipes)
            return json.loads(request)
        for pipe in pipes:
            os.close(pipe)


def _fork_and_report(out: int, err: int, report: int) -> None:
    """Returns in a child with these outputs; this process waits for its end."""
    pid = os.fork()
    if pid == 0:
        os.dup2(out, 1)
        os.dup2(err, 2)
        for pipe in (out, err, report):
            os.close(pipe)
        return
    os.close(out)
    os.close(err)
    os.write(report, f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    os.write(report, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


if __name__ == "__main__" and (asked := become_next()):
    os.environ.clear()
    os.environ.update(asked["environment"])
    fsspec.config.set_conf_env(fsspec.config.conf)  # it has read another environment
    is_module = asked["arguments"][0] == "-m"
    sys.argv = asked["arguments"][is_module:]
    if is_module:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")
