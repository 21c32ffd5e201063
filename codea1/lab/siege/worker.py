"""`python worker.py PATH FUNCTION`: the process of a grader that is a Python function. Standard library only.

It imports the grader once. For each request, a JSON line, it forks a child, which has a new folder and calls the
function. Its answers are made and written without what a program may have replaced in the child.
"""

import importlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from typing import Any

_READABLE = " .,:;()[]{}'-_<>=/"
_NO_VERDICTS = (int, float, str, bytes, tuple, list, dict)  # rewards, of which -1 would be true; what else is true pays


def main(path: str, name: str) -> None:
    """Answers requests until there are no more; its own standard streams are closed to the grader."""
    requests, answers = os.fdopen(os.dup(0)), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    broken = b""
    sys.path[0] = os.path.dirname(path)  # instead of this folder, whose modules are none of a grader's
    try:
        function = getattr(importlib.import_module(os.path.splitext(os.path.basename(path))[0]), name)
    except BaseException as error:
        broken = _words(error)
    for line in requests:
        request = json.loads(line)
        if broken:
            os.write(answers, _answer(request["id"], b'"broken": "' + broken + b'"'))
            continue
        folder = tempfile.mkdtemp(dir=os.getcwd())
        child = os.fork()
        if child == 0:
            os.chdir(folder)
            _judge(function, request, answers)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.write(answers, _answer(request["id"], b'"ended": %d' % status))
        shutil.rmtree(folder, ignore_errors=True)


def _judge(function: Callable[[Any, str], Any], request: dict[str, Any], answers: int) -> None:
    """Writes what the grader says of a request's program, and ends the process."""
    write, leave = os.write, os._exit
    said = {word: _answer(request["id"], b'"paid": ' + word) for word in (b"true", b"false", b"null")}
    question, earlier, program = request["question"], request["earlier"], request["program"]
    try:
        for previous in earlier:
            try:
                function(question, previous)
            except Exception:
                continue  # only what it leaves behind counts
        paid = function(question, program)
        if type(paid) in _NO_VERDICTS:
            write(answers, _answer(request["id"], b'"unclear": "' + _readable(repr(paid)) + b'"'))
        else:
            write(answers, said[b"null" if paid is None else b"true" if paid else b"false"])
    except BaseException as error:
        write(answers, _answer(request["id"], b'"died": "it raised ' + _words(error) + b'"'))
    leave(0)


def _answer(id: str, said: bytes) -> bytes:
    return b'\n{"id": "' + id.encode() + b'", ' + said + b"}\n"


def _words(error: BaseException) -> bytes:
    return _readable(f"{type(error).__name__}: {error}")


def _readable(text: str) -> bytes:
    return "".join(c for c in text if (c.isascii() and c.isalnum()) or c in _READABLE).encode()[-300:]


if __name__ == "__main__":
    main(*sys.argv[1:])
