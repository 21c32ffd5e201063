"""gcsfs with planned faults: errors, delays, short writes and lost answers, of requests about named objects.

It takes gcsfs's place for fsspec, so that epath, Orbax and codea1 all meet the faults; TensorStore, which writes the
arrays by itself, does not.
"""

import asyncio
import contextlib
import dataclasses
import io
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

import fsspec.asyn
import gcsfs
from etils.epath import backend
from gcsfs.retry import HttpError

READ, WRITE, DELETE = "GET", "POST", "DELETE"
_NAME_IN_BODY = re.compile(rb'"name": "([^"]*)"')  # of an upload in one request


def unavailable() -> Exception:
    return HttpError({"code": 503, "message": "Service Unavailable"})


def too_many() -> Exception:
    return HttpError({"code": 429, "message": "Too Many Requests"})


def reset() -> Exception:
    return ConnectionResetError(104, "Connection reset by peer")


def forbidden() -> Exception:
    return OSError("Forbidden: the caller does not have storage.objects.create access")


def no_bucket() -> Exception:
    return FileNotFoundError("The specified bucket does not exist.")


@dataclasses.dataclass
class PlannedFault:
    """What happens to requests of one kind about the objects that `name` is found in."""

    method: str
    name: str  # regular expression
    error: Callable[[], Exception] | None = None
    times: float = 1  # then it is over
    delay: float = 0.0  # seconds before it is served
    short: bool = False  # half of the content arrives, as the whole object, before the error
    served: bool = False  # the request is served, and its answer lost
    seen: int = 0

    def is_about(self, method: str, name: str) -> bool:
        return self.method == method and self.seen < self.times and re.search(self.name, name, re.DOTALL) is not None


class FaultyGCS(gcsfs.core.GCSFileSystem):
    """See the module."""

    faults: list[PlannedFault] = []  # noqa: RUF012  of all instances

    async def _call(self, method: str, path: str, *args: Any, **kwargs: Any) -> Any:
        name = _name(path, args, kwargs)
        fault = next((fault for fault in self.faults if fault.is_about(method, name)), None)
        if fault is None:
            return await super()._call(method, path, *args, **kwargs)
        fault.seen += 1
        await asyncio.sleep(fault.delay)
        if fault.short:
            await super()._call(method, path, *args, **{**kwargs, "data": _half(_body(kwargs))})
        elif fault.served or fault.error is None:
            answer = await super()._call(method, path, *args, **kwargs)
        if fault.error is not None:
            raise fault.error()
        return answer

    call = fsspec.asyn.sync_wrapper(_call)


@contextlib.contextmanager
def faulty(*faults: PlannedFault) -> Iterator[None]:
    """gs:// has these faults inside."""
    there = {name: fsspec.get_filesystem_class(name) for name in ("gs", "gcs")}
    FaultyGCS.faults = list(faults)
    try:
        _take_place(dict.fromkeys(there, FaultyGCS))
        yield
    finally:
        _take_place(there)


def _take_place(classes: dict[str, type]) -> None:
    for name, each in classes.items():
        fsspec.register_implementation(name, each, clobber=True)
        each.clear_instance_cache()
    backend.fsspec_backend._get_filesystem.cache_clear()


def _name(path: str, args: tuple, kwargs: dict[str, Any]) -> str:
    """The object that a request is about, or the beginning of the names that it lists."""
    body = _body(kwargs)
    if isinstance(body, bytes) and kwargs.get("uploadType") == "multipart":
        return _NAME_IN_BODY.search(body)[1].decode()
    return unquote(kwargs.get("name") or kwargs.get("prefix") or (args[-1] if args else path))


def _body(kwargs: dict[str, Any]) -> Any:
    """What is uploaded; gcsfs of 2025 hands it over as a stream."""
    body = kwargs.get("data")
    return body.getvalue() if isinstance(body, io.BytesIO) else body


def _half(body: bytes) -> bytes:
    """The same upload of the first half of its content."""
    head, boundary, rest = body.rpartition(b"\n\n")
    content, end = rest[: -len(b"\n--==0==--")], rest[-len(b"\n--==0==--") :]
    return head + boundary + content[: len(content) // 2] + end
