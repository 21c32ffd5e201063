"""Jitted functions with the shapes they are called with: compiled ahead, each once, however many players list it."""

import functools
import hashlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
from etils import epath
from jax._src import compilation_cache, lru_cache

from codea1.runtime.errors import say

_DIGEST_BYTES = 16
compiled_functions: dict[Any, jax.stages.Compiled] = {}  # of this process, by what decides them


class CheckedCache(lru_cache.LRUCache):
    """JAX's cache of compiled functions, with a digest behind each entry.

    A flipped bit would crash every process that loads the entry, or change its numbers. It is compiled again instead,
    as are entries without a digest, of JAX alone.
    """

    def get(self, key: str) -> bytes | None:
        """Returns an entry; None where there is none, or it was damaged and is removed."""
        entry = super().get(key)
        if entry is None or entry[-_DIGEST_BYTES:] == _digest(content := entry[:-_DIGEST_BYTES]):
            return entry and content
        (self.path / f"{key}{lru_cache._CACHE_SUFFIX}").unlink(missing_ok=True)
        _say_once(f"{self.path} has entries that are damaged or have no checksum yet: they are compiled again")
        return None

    def put(self, key: str, value: bytes) -> None:
        """Adds an entry."""
        super().put(key, value + _digest(value))


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


_say_once = functools.cache(say)
vars(compilation_cache)["LRUCache"] = CheckedCache  # what JAX makes where it first looks for an entry


class CompileTime(NamedTuple):
    """How long one function took to compile."""

    name: str  # with its static sizes
    seconds: float


@dataclass(frozen=True, eq=False)
class Function:
    """A jitted function for arguments of one shape and layout. It is compiled by `compiled`, or else its first call.

    A call with arguments of other shapes, types or layouts raises TypeError or ValueError.
    """

    kind: str  # what it does
    name: str  # with its static sizes
    jitted: Any  # what jax.jit returns
    arguments: tuple[Any, ...]  # shapes with dtypes, and shardings where they matter
    static: tuple[Any, ...] = ()  # values of the static arguments, which come first

    def lower(self) -> jax.stages.Lowered:
        """Returns the function as it is handed to the compiler."""
        return self.jitted.lower(*self.static, *self.arguments)

    @cached_property
    def compiled(self) -> jax.stages.Compiled:
        """The function compiled; the same object for equal functions of equal arguments."""
        leaves, structure = jax.tree.flatten(self.arguments)
        key = self.jitted, self.static, structure, *leaves
        if key not in compiled_functions:
            compiled_functions[key] = self.lower().compile()
        return compiled_functions[key]

    def __call__(self, *arguments: Any) -> Any:
        """Calls the compiled function with all arguments that are not static."""
        return self.compiled(*arguments)


def compile_all(functions: Iterable[Function]) -> list[CompileTime]:
    """Compiles functions; returns the times of those that this process had not compiled before."""
    times = []
    for function in functions:
        known, started = len(compiled_functions), time.monotonic()
        if function.compiled and len(compiled_functions) > known:
            times.append(CompileTime(function.name, time.monotonic() - started))
    return times


def keep_compiled_in(folder: epath.Path) -> None:
    """Has JAX look for compiled functions in a folder, local or in a bucket, and keep there what it compiles.

    Host 0 writes, all read. A bucket that fails costs the time to compile, no more.
    """
    jax.config.update("jax_compilation_cache_dir", os.fspath(folder))
    compilation_cache.reset_cache()  # it has decided already where it is
