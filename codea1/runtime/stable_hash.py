"""A hash of text that is the same in every process, on every machine and in every version."""

import hashlib


def stable_hash(text: str) -> int:
    """32 bits of BLAKE2b: the same in every process, unlike Python's `hash`."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")
