"""A sandbox child's life with a program and many inputs: it answers each value with a digest, a few at a time.

Sending values, and reading them, would take longer than most of the calls. Where a digest is not the one that the
trainer expects, the trainer asks for the value's description and decides by that; else it lets the child go on.

Standard library only: this runs inside the sandbox.
"""

import marshal
import time
from _blake2 import blake2b  # hashlib would bring OpenSSL into every child
from collections.abc import Callable, Sequence

from codea1.sandbox import frames
from codea1.sandbox.child.candidate import MODULE_NAME, describe, new_module, seed_randomness
from codea1.values import decode_exact, encode_canonical, encode_exact

NO_DIGEST = bytes(16)  # of a value that marshal cannot write
MAX_VALUES = 256  # in a DIGESTS frame
_FIRST_VALUES, _SECONDS = 8, 0.02  # the first frame comes soon, since most wrong programs fail early
MAX_DESCRIBED_BYTES = 1 << 20  # of a value's exact encoding


def serve(fd: int, job: frames.Frame) -> None:
    """Answers one BATCH frame: DIGESTS frames, and VALUE frames where it is asked for some, until an ERROR."""
    program, entry_point, as_set, inputs = decode_exact(job.payload)
    seed_randomness(0)
    namespace = new_module(MODULE_NAME)
    try:
        exec(compile(program, f"<{MODULE_NAME}>", "exec", dont_inherit=True), namespace)
        function = namespace[entry_point]
    except BaseException as error:
        frames.write(fd, frames.pack(frames.LOAD, frames.ERROR, describe(error)))
        return
    rows = marshal.loads(inputs)
    first, size = 0, _FIRST_VALUES
    while True:
        values, payload, error = _answers(function, rows[first : first + size])
        frames.write(fd, frames.pack(first, frames.DIGESTS, payload))
        if not _described(fd, first, values, as_set):
            return
        first, size = first + len(values), min(2 * size, MAX_VALUES)
        if error is not None:
            frames.write(fd, frames.pack(first, frames.ERROR, describe(error)))
            return


def digest(value: object) -> bytes:
    """16 bytes that are the same for equal values of equal types; NO_DIGEST for what is not of builtin types."""
    try:
        return blake2b(frames.marshal_piece(value), digest_size=16).digest()
    except ValueError:
        return NO_DIGEST


def _answers(function: object, rows: Sequence[Sequence]) -> tuple[list, bytes, BaseException | None]:
    """The values of the first of these inputs, their digests, and what the next one raised."""
    values, payload = [], []
    began = mark = time.process_time()
    for arguments in rows:
        try:
            values.append(function(*arguments))
        except BaseException as error:
            return values, b"".join(payload), error
        told = digest(values[-1])  # which takes longer than the call where the value is large
        now = time.process_time()
        payload.append(frames.pack_digest(told, now - mark))
        mark = now
        if now - began > _SECONDS:
            break
    return values, b"".join(payload), None


def _described(fd: int, first: int, values: Sequence, as_set: bool) -> bool:
    """Describes what is asked for; whether the child is to go on."""
    while (request := frames.read(fd)) is not None:
        if request.kind == frames.GO_ON:
            return True
        for index in frames.unpack_describe(request.payload):
            description = encode_exact(_description(values[index - first], as_set))
            frames.write(fd, frames.pack(index, frames.VALUE, description))
    return False


def _description(value: object, as_set: bool) -> tuple[str, bytes, bytes]:
    """(type, canonical digest, exact encoding); the digest is that of the set of the value's members with `as_set`.

    Each is empty where the value, which may raise when it is looked at, has none.
    """
    kind = type(value)
    exact = _or_nothing(lambda: encode_exact(value))
    return (
        _or_nothing(lambda: f"{kind.__module__}.{kind.__qualname__}"[:200].encode("utf-8", "replace")).decode(),
        _or_nothing(lambda: blake2b(encode_canonical(set(value) if as_set else value), digest_size=16).digest()),
        exact if len(exact) <= MAX_DESCRIBED_BYTES else b"",
    )


def _or_nothing(function: Callable[[], bytes]) -> bytes:
    try:
        return function()
    except BaseException:
        return b""
