"""The frames that a sandbox child and the process that drives it exchange over one stream socket.

Every frame is a header (payload length, index, kind) and a payload. A child first gets one frame that says what it is
to do: PROGRAM (then CALL and FETCH frames follow, answered in order; the program itself with index LOAD), JOB, or
SERVER, code of ours that serves what follows. What a child writes is a claim by candidate code: a reader looks at
headers only and takes payloads as opaque bytes.

Standard library only: this runs inside the sandbox too.
"""

import marshal
import os
import struct
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

PROGRAM, CALL, FETCH = b"P", b"C", b"F"
LOADED, VALUE, ERROR, OPAQUE, TOO_LARGE, PIECES = b"L", b"V", b"E", b"O", b"X", b"S"
JOB, VERDICT, SERVER, DIGESTS = b"J", b"R", b"M", b"D"  # of a check script; of benchmarks' own code for children

LOAD = 0xFFFFFFFF  # the index of the answer to the PROGRAM frame
MAX_WORDS = 300  # bytes of a frame that says in words what happened
PIECE_ITEMS = 4096  # of a list or tuple that is fetched in pieces, see `child.script.Large`
_WORDS = frozenset((LOADED, ERROR, OPAQUE, TOO_LARGE))
_FROM_CHILDREN = _WORDS | {VALUE, PIECES, VERDICT, DIGESTS}
_HEADER = struct.Struct(">IIc")
_MARSHAL_VERSION = 2  # the last that does not write shared objects differently from equal ones


class Reply(Enum):
    """How a child is to send the values its calls return."""

    CANONICAL = b"c"
    EXACT = b"e"
    IN_PIECES = b"p"  # exactly; a list or tuple that is too large stays, for its pieces to be fetched


class ProtocolViolation(Exception):
    """The bytes are not what an honest child sends."""


class Frame(NamedTuple):
    index: int  # type: ignore[assignment]  # a tuple's method of this name has no use here
    kind: bytes
    payload: bytes


def pack(index: int, kind: bytes, payload: bytes = b"") -> bytes:
    """Packs one frame."""
    return _HEADER.pack(len(payload), index, kind) + payload


def pack_program(source: str, reply: Reply, *, seed: int, output_bytes: int, backward: bool = False) -> bytes:
    """Packs the PROGRAM frame: a source, the seed of `random`, the bytes of all answers, if sets iterate backwards."""
    return pack(LOAD, PROGRAM, marshal.dumps((source, reply.value, seed, backward, output_bytes)))


def pack_call(index: int, entry_point: str, arguments: bytes) -> bytes:
    """Packs the CALL frame of one call; `arguments` is the exact encoding of (args, kwargs)."""
    return pack(index, CALL, marshal.dumps((entry_point, arguments)))


def marshal_piece(piece: list | tuple) -> bytes:
    """Returns, fast, bytes that are equal only for equal pieces of equal types. Raises ValueError where it cannot."""
    return marshal.dumps(piece, _MARSHAL_VERSION)


def read(fd: int, max_payload: int | None = None) -> Frame | None:
    """Waits for the next frame; None when the other end is closed. Raises ProtocolViolation over `max_payload`."""
    header = _read_exactly(fd, _HEADER.size)
    if header is None:
        return None
    length, index, kind = _HEADER.unpack(header)
    if max_payload is not None:
        _check_header(length, kind, max_payload)
    payload = _read_exactly(fd, length)
    return None if payload is None else Frame(index, kind, payload)


def _read_exactly(fd: int, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        piece = os.read(fd, min(count - len(data), 1 << 16))
        if not piece:
            return None
        data += piece
    return bytes(data)


def write(fd: int, data: bytes) -> None:
    """Writes all of `data`, waiting as long as it takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _check_header(length: int, kind: bytes, max_payload: int) -> None:
    if kind not in _FROM_CHILDREN or length > (MAX_WORDS if kind in _WORDS else max_payload):
        raise ProtocolViolation(f"a frame of kind {kind!r} and {length} bytes")


class FrameBuffer:
    """Collects what a child wrote until frames are whole."""

    def __init__(self, max_bytes: int, max_payload: int) -> None:
        """Allows `max_bytes` over the buffer's whole life, `max_payload` in one frame; words have MAX_WORDS."""
        self.data = bytearray()
        self.room = max_bytes
        self.max_payload = max_payload

    def frames(self, piece: bytes) -> Iterator[Frame]:
        """Takes more bytes, and takes out the frames that are whole, one at a time.

        Raises ProtocolViolation beyond `max_bytes`, and for a frame longer than allowed.
        """
        self.room -= len(piece)
        if self.room < 0:
            raise ProtocolViolation("more output than allowed")
        self.data += piece
        position = 0
        try:
            while len(self.data) - position >= _HEADER.size:
                length, index, kind = _HEADER.unpack_from(self.data, position)
                _check_header(length, kind, self.max_payload)
                start, end = position + _HEADER.size, position + _HEADER.size + length
                if end > len(self.data):
                    break
                position = end
                yield Frame(index, kind, bytes(self.data[start:end]))
        finally:
            del self.data[:position]
