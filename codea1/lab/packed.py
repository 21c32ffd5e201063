"""Tests as LiveCodeBench keeps them: a text, pickled, compressed by zlib, in base64."""

import base64
import pickletools
import zlib

from codea1.runtime.errors import BadInput

# Of a question's tests, unpacked. The longest line that is read has 100 MiB, and as much of random digits in this
# encoding unpacks to some 170.
MAX_UNPACKED_BYTES = 512 << 20

_TEXT_OPCODES = ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8")
_AROUND_TEXT = ("PROTO", "FRAME", "MEMOIZE", "BINPUT", "STOP")  # what else `pickle.dumps` of a text writes


def unpacked_text(text: str, where: str) -> str:
    """Returns the text in base64 of zlib of a pickle. Raises BadInput where it is not so, or larger than allowed."""
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.b64decode(text, validate=True), MAX_UNPACKED_BYTES)
        if len(data) == MAX_UNPACKED_BYTES:
            raise BadInput(f"{where} unpacks to more than {MAX_UNPACKED_BYTES >> 20} MiB.")
        if not unpacker.eof:
            raise ValueError("it is cut off")
        return _pickled_text(data)
    except (ValueError, zlib.error) as error:
        raise BadInput(f"{where} is neither JSON nor base64 of zlib of a pickled text: {error}.") from None


def _pickled_text(data: bytes) -> str:
    """Returns the text that was pickled. A pickle is a program, and may be anybody's: it is read and never run.

    Raises ValueError where it has instructions for anything else.
    """
    texts = []
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name in _TEXT_OPCODES:
            texts.append(str(argument))
        elif opcode.name not in _AROUND_TEXT:
            raise ValueError(f"its pickle has the instruction {opcode.name}")
    if len(texts) != 1:
        raise ValueError(f"its pickle has {len(texts)} texts")
    return texts[0]
