"""A sandbox child's life with an untrusted program: load it, then answer calls until the socket closes.

From the moment the program runs, this process belongs to it: whatever is sent afterwards is only a claim. So nothing
here decides anything, and no expected answer is ever sent here.

Standard library only: this runs inside the sandbox.
"""

import marshal
import random
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from codea1.sandbox import frames
from codea1.sandbox.child.backward_sets import SETS, compiled, turn_backward
from codea1.values import NotPlainData, TooLarge, decode_exact, encode_exact
from codea1.values.encoding import encode_answer
from codea1.values.entry_points import apply_form, builtin_among, form_of, function_of

MODULE_NAME = "solution"  # never "__main__": a program's main guard must stay closed


def serve(fd: int, first: frames.Frame) -> None:
    """Answers one PROGRAM frame, already read, and every frame that follows on the socket `fd`."""
    source, reply, seed, backward, output_bytes = marshal.loads(first.payload)
    try:
        if backward:
            turn_backward()
        namespace = run_program(source, seed)
    except BaseException as error:
        frames.write(fd, frames.pack(frames.LOAD, frames.ERROR, describe(error)))
        return
    frames.write(fd, frames.pack(frames.LOAD, frames.LOADED))
    answers = _Answers(namespace, frames.Reply(reply), SETS if backward else {})
    while (frame := frames.read(fd)) is not None:
        kind, payload = answers.to(frame)
        if len(payload) > output_bytes:
            kind, payload = frames.TOO_LARGE, b""
        output_bytes -= len(payload)
        frames.write(fd, frames.pack(frame.index, kind, payload))


def run_program(source: str, seed: int) -> dict:
    """Runs a program's definitions as a new module, with randomness seeded; returns its namespace."""
    seed_randomness(seed)
    namespace = new_module(MODULE_NAME)
    exec(compiled(source, f"<{MODULE_NAME}>"), namespace)
    return namespace


def seed_randomness(seed: int) -> None:
    """Gives `random`, and numpy's global generator where it is loaded, a state that depends on `seed` alone."""
    random.seed(seed)
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed(seed)


def new_module(name: str) -> dict:
    """Makes a fresh module registered under `name`; returns its namespace."""
    module = ModuleType(name)
    sys.modules[name] = module
    return module.__dict__


def describe(error: BaseException, *, with_bases: bool = False) -> bytes:
    """Returns ``Type: message``, short, for an exception that may lie or raise when it is looked at.

    `with_bases` adds to a class that is none of Python's own those it is derived from, up to Python's first.
    """
    name = message = ""
    try:
        name, *bases = map(type.__dict__["__name__"].__get__, type.__dict__["__mro__"].__get__(type(error)))
        if with_bases and not builtin_among([name]):
            first = next(number for number, base in enumerate(bases) if builtin_among([base]))
            name = f"{name}({', '.join(bases[: first + 1])})"
        message = str(error)
    except BaseException:
        pass
    text = f"{name}: {message}" if message else name
    return text[: frames.MAX_WORDS].encode("utf-8", "replace")[: frames.MAX_WORDS]


class _Answers:
    """A loaded program that answers CALL and FETCH frames."""

    def __init__(self, namespace: dict, reply: frames.Reply, sets: Mapping[type, type]) -> None:
        self.namespace, self.sets = namespace, sets
        self.encode = encode_answer if reply is frames.Reply.CANONICAL else encode_exact
        self.in_pieces = reply is frames.Reply.IN_PIECES
        self.large: list[list | tuple] = []  # values too large to send at once

    def to(self, frame: frames.Frame) -> tuple[bytes, bytes]:
        """Returns the kind and payload that answer a frame."""
        if frame.kind == frames.FETCH:
            return self.piece(*decode_exact(frame.payload))
        asked, arguments = marshal.loads(frame.payload)
        entry_point, form = function_of(asked), form_of(asked)
        try:
            positional, keywords = decode_exact(arguments, sets=self.sets)
            if entry_point not in self.namespace:
                raise NameError(f"name {entry_point!r} is not defined")
            value = self.namespace[entry_point](*positional, **keywords)
            value = apply_form(form, value) if form else value
        except BaseException as error:
            return frames.ERROR, describe(error, with_bases=True)
        return self.encoded(value)

    def piece(self, number: int, start: int, marshalled: bool) -> tuple[bytes, bytes]:
        """Encodes PIECE_ITEMS items, from `start`, of a value too large to send at once.

        They go in the exact encoding or, to be compared as bytes and never read, as `marshal_piece` writes them.
        """
        piece = self.large[number][start : start + frames.PIECE_ITEMS]
        try:
            return frames.VALUE, frames.marshal_piece(piece) if marshalled else encode_exact(piece)
        except (NotPlainData, ValueError) as error:
            return frames.OPAQUE, describe(error)

    def encoded(self, value: Any) -> tuple[bytes, bytes]:
        try:
            return frames.VALUE, self.encode(value)
        except TooLarge as error:
            if self.in_pieces and type(value) in (list, tuple):
                self.large.append(value)
                return frames.PIECES, encode_exact((type(value) is tuple, len(value)))
            return frames.TOO_LARGE, describe(error)
        except NotPlainData as error:
            return frames.OPAQUE, str(error).encode("utf-8", "replace")[: frames.MAX_WORDS]
        except BaseException as error:  # an object that raises when it is walked
            return frames.OPAQUE, describe(error)
