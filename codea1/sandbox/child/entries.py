"""Entry points that are no plain function, as callables among a program's definitions.

A method is called on a new object each time. Where its parameters are linked lists or binary trees, a call has lists in
level order for them, as LeetCode writes them, and so has its answer. A program that reads standard input and prints is
a function of one text to another.

Standard library only: this runs inside the sandbox. The program can change all of it, and so no more than its answers.
"""

import _thread
import atexit
import builtins
import contextlib
import io
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

from codea1.sandbox.child.backward_sets import compiled
from codea1.values.entry_points import LINKED, MANY_LINKED, MANY_TREES, PROGRAMS, tidied

_FILE = "<solution>"
_DEVICES = {f"/dev/{name}": number for number, name in enumerate(("stdin", "stdout", "stderr"))}
_DEVICES |= {f"{folder}/fd/{number}": number for folder in ("/dev", "/proc/self") for number in range(3)}
PIPE_BYTES = 1 << 16  # that a pipe holds
_MOST_NODES = 1 << 20  # of an answer: more are a circle

Kinds = dict[str, str]  # by parameter


def define(namespace: dict[str, Any], preamble: str, program: str) -> None:
    """Runs a program's definitions after its preamble's."""
    exec(compiled(preamble, "<preamble>"), namespace)
    exec(compiled(program, _FILE), namespace)


def define_method(
    namespace: dict[str, Any], preamble: str, program: str, owner: str, name: str, parameters: Kinds, answer: str
) -> None:
    """Defines `owner().name` besides.

    Args:
      namespace: of the module.
      preamble: runs before the program.
      program: defines the class `owner`.
      name: of its method.
      parameters: those of the method that are nodes, in its order; others have an empty kind.
      answer: the kind of its answer; empty for plain data.
    """
    define(namespace, preamble, program)

    def call(*positional: Any, **named: Any) -> Any:
        made = [_made(value, kind, namespace) for value, kind in zip(positional, parameters.values(), strict=False)]
        named = {name: _made(value, parameters.get(name, ""), namespace) for name, value in named.items()}
        if owner not in namespace:
            raise NameError(f"name {owner!r} is not defined")
        method = getattr(namespace[owner](), name)
        return _written(method(*made, *positional[len(made) :], **named), answer)

    namespace[f"{owner}().{name}"] = call


def _made(value: Any, kind: str, namespace: dict[str, Any]) -> Any:
    """Returns an argument as the program takes it: its nodes instead of lists, None for an empty one."""
    if not kind or not isinstance(value, list):
        return value
    make = linked if kind in (LINKED, MANY_LINKED) else tree
    node = namespace["ListNode" if make is linked else "TreeNode"]
    return [make(item, node) for item in value] if kind in (MANY_LINKED, MANY_TREES) else make(value, node)


def _written(value: Any, kind: str) -> Any:
    """Returns an answer as tests state it: lists instead of nodes. Raises AttributeError for lists themselves."""
    if not kind:
        return value
    write = unlinked if kind in (LINKED, MANY_LINKED) else level_order
    return [write(item) for item in value] if kind in (MANY_LINKED, MANY_TREES) else write(value)


def linked(values: list, node: Callable[[Any], Any]) -> Any:
    """Returns the head of a linked list of these values; None of none."""
    head = None
    for value in reversed(values):
        new = node(value)
        new.next = head
        head = new
    return head


def unlinked(head: Any) -> list:
    """Returns the values of a linked list. Raises ValueError: it is a circle."""
    values = []
    while head is not None:
        values.append(head.val)
        head = head.next
        if len(values) > _MOST_NODES:
            raise ValueError("the linked list is a circle")
    return values


def tree(values: list, node: Callable[[Any], Any]) -> Any:
    """Returns the root of a binary tree, given in level order with None for a child that is missing."""
    if not values or values[0] is None:
        return None
    root = node(values[0])
    waiting, rest = deque([root]), iter(values[1:])
    while waiting:
        parent = waiting.popleft()
        for side in ("left", "right"):
            value = next(rest, None)
            if value is not None:
                setattr(parent, side, node(value))
                waiting.append(getattr(parent, side))
    return root


def level_order(root: Any) -> list:
    """Returns what `tree` makes the same tree of, without None at the end. Raises ValueError: it has a circle."""
    values, waiting = [], deque([root])
    while waiting:
        node = waiting.popleft()
        values.append(None if node is None else node.val)
        if node is not None:
            waiting += (node.left, node.right)
        if len(values) > _MOST_NODES:
            raise ValueError("the tree has a circle")
    while values and values[-1] is None:
        values.pop()
    return values


def define_stdout(namespace: dict[str, Any], preamble: str, program: str) -> None:
    """Defines `stdout(text)`: what a program prints that gets `text` as its standard input, as `tidied` leaves it.

    So are the other entry points of whole programs, whose answers are compared in other ways. Each call runs the whole
    program as a module `__main__` of its own; the process and what it imports are shared. It ends as a process does:
    threads are awaited, those that are daemons are not, then come functions for `atexit` and what open files have not
    written. Exit code 0 ends a run like its last line; any other is raised. After `os._exit` nothing more of the
    program runs.
    """
    before, code = compiled(preamble, "<preamble>"), compiled(program, _FILE)

    def stdout(text: str) -> str:
        module = ModuleType("__main__")
        main = module.__dict__
        main.update(__file__="solution.py", exit=sys.exit, quit=sys.exit)
        with _standard(text.encode(), module) as standard:
            exit_code, is_abrupt = None, False
            try:
                exec(before, main)
                exec(code, main)
            except SystemExit as ended:
                exit_code = ended.code
            except _AbruptExit as ended:
                (exit_code,), is_abrupt = ended.args, True
            if exit_code not in (None, 0):
                raise RuntimeError(f"exited with {exit_code!r}")
            if not is_abrupt:
                _await_threads()
                atexit._run_exitfuncs()
                for output in (sys.stdout, standard.stdout):
                    with contextlib.suppress(ValueError):  # it is closed
                        output.flush()
            main.clear()  # with it files that are still open, which write what they have not
        return tidied(standard.printed.decode())

    vars(builtins)["open"] = vars(io)["open"] = _open_device
    namespace.update(dict.fromkeys(PROGRAMS, stdout))


def _open_device(file: Any, *args: Any, _open: Callable = open, **options: Any) -> Any:
    """Opens as `open` does; the files of standard input and output, which are not there, by their descriptors."""
    number = _DEVICES.get(str(file))
    return _open(file if number is None else os.dup(number), *args, **options)


def _feed(writes: int, given: bytes) -> None:
    """Writes an input, as long as somebody reads it, and then closes the descriptor."""
    with contextlib.suppress(BrokenPipeError), open(writes, "wb") as pipe:
        pipe.write(given)


class _AbruptExit(BaseException):
    """The program called os._exit; the code is the argument."""


def _exit_abruptly(status: int) -> None:
    raise _AbruptExit(status)


def _await_threads() -> None:
    if pools := sys.modules.get("concurrent.futures.thread"):  # imported by few programs
        pools._python_exit()  # lets the workers of executors that were not shut down finish
        vars(pools)["_shutdown"] = False  # for the next call
    if threading := sys.modules.get("threading"):
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()


class _Printed(io.BytesIO):
    """What is written to `sys.stdout`, with the number of the descriptor behind it, which some programs write to."""

    name = "<stdout>"

    def fileno(self) -> int:
        return 1

    def close(self) -> None:
        """Keeps what was written."""


class _Text(io.TextIOWrapper):
    mode = "w"  # which fast readers and writers of standard input and output look at


@contextlib.contextmanager
def _standard(given: bytes, module: ModuleType) -> Iterator[SimpleNamespace]:
    """Standard input and output, Python's objects and the descriptors 0 and 1, of one run of a program.

    Input, and what is written to descriptor 1 itself, are in pipes. They hold as much as the arguments of a test may
    have, and its answer; the rest of a larger input waits in a thread. Meanwhile `module` is `__main__`. Yields
    `stdout` and, at the end, all that was `printed`.
    """
    objects = {name: vars(sys)[name] for name in ("stdin", "stdout", "__stdin__", "__stdout__")}
    main, exit_process = sys.modules["__main__"], os._exit
    kept = os.dup(0), os.dup(1)
    reads, writes = os.pipe()
    if len(given) <= PIPE_BYTES:
        _feed(writes, given)
    else:
        _thread.start_new_thread(_feed, (writes, given))
    os.dup2(reads, 0)
    os.close(reads)
    reads, writes = os.pipe()
    os.dup2(writes, 1)
    os.close(writes)
    buffer = _Printed()
    stdout = _Text(buffer, encoding="utf-8")
    stdin = os.fdopen(0, encoding="utf-8", newline="\n", closefd=False)  # as Python has it: lines keep their \r
    vars(sys).update(stdin=stdin, __stdin__=stdin, stdout=stdout, __stdout__=stdout)
    sys.modules["__main__"], vars(os)["_exit"] = module, _exit_abruptly
    atexit._clear()  # of what was imported before: nothing of this process runs at its own end
    standard = SimpleNamespace(stdout=stdout, printed=b"")
    try:
        yield standard
    finally:
        vars(sys).update(objects)
        sys.modules["__main__"], vars(os)["_exit"] = main, exit_process
        for descriptor, copy in enumerate(kept):
            os.dup2(copy, descriptor)
            os.close(copy)
        os.set_blocking(reads, False)  # the program may have left copies of descriptor 1 open
        with open(reads, "rb") as rest:
            standard.printed = buffer.getvalue() + (rest.read() or b"")
