"""The hosts of a run, one process each: what they exchange, and how work on questions is dealt over them.

All run the same command on the same input and call the same compiled functions in the same order. What only one of
them can know, such as verdicts or what lies in the run's folder, must reach the others before anything depends on it.

JAX is imported inside the collectives: commands import `Hosts` before their flags are parsed.
"""

import contextlib
import glob
import hashlib
import importlib.util
import os
import pickle
import re
import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import numpy as np

from codea1.runtime.errors import RESTART_EXIT_CODE, AgreedBadInput, BadInput, HostsLate, print_error
from codea1.runtime.phases import doing, progress
from codea1.runtime.roll_call import RollCall

T = TypeVar("T")
Key = tuple[str, *tuple[Hashable, ...]]  # of a piece of work: its question, and which of the question's pieces it is
_roll_call: RollCall | None = None  # where this host has joined others

WAIT_SECONDS = 300  # for all hosts to come
_SLICE_BYTES = 1 << 18  # of one collective: one shape is compiled once, and devices hold a slice of every host
_HEADER = np.dtype([("index", "<u8"), ("size", "<u8")])  # which host a message is from, and its bytes


@dataclass(frozen=True)
class Hosts:
    """This host among those of the run. Every method is a collective: all hosts call it, in the same order."""

    index: int = 0
    count: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this host writes and shows what the run writes and shows once."""
        return self.index == 0

    def exchange(self, value: T) -> list[T]:
        """Returns the values of all hosts, in the order of the hosts; they must pickle."""
        if self.count == 1:
            return [value]
        with doing("collective"):
            by_host = _gather(self.index, pickle.dumps(value))
        return [pickle.loads(by_host[index]) for index in range(self.count)]

    def any(self, value: bool) -> bool:
        """Returns whether `value` is true on some host."""
        if self.count == 1:
            return value
        from jax.experimental import multihost_utils

        with doing("collective"):
            return bool(multihost_utils.process_allgather(np.array([value])).any())

    def of_main(self, function: Callable[[], T]) -> T:
        """Returns what `function` returns on the main host, which alone calls it. Its BadInput ends all hosts."""
        result: Any = None
        with self.agreed():
            if self.is_main:
                result = function()
        return self.exchange(result)[0]

    @contextlib.contextmanager
    def agreed(self) -> Iterator[None]:
        """Raises BadInput on all hosts, at the end of the block, where one raised it inside; one host prints it."""
        caught = None
        try:
            yield
        except AgreedBadInput:
            raise
        except BadInput as error:
            caught = error
        sentences = self.exchange(str(caught) if caught else None)
        first = next((index for index, sentence in enumerate(sentences) if sentence is not None), None)
        if first is None:
            return
        if caught and self.count == 1:
            raise caught
        if not self.is_main:
            raise AgreedBadInput("") from None
        raise AgreedBadInput(sentences[0] if caught else f"host {first}: {sentences[first]}") from None

    def require_same(self, what: str, value: bytes) -> None:
        """Raises BadInput on all hosts unless `value` is the same everywhere; `what` names it in a sentence."""
        digests = self.exchange(hashlib.blake2b(value, digest_size=16).digest())
        others = [str(index) for index, digest in enumerate(digests) if digest != digests[0]]
        if others:
            sentence = f"{what} on host {' and '.join(others)} differ from those on host 0."
            raise AgreedBadInput(sentence if self.is_main else "")


class Shares:
    """Pieces of work that run in the background while all hosts do something else together.

    Every host adds the same pieces, and starts its own at once. What comes of them is known when `collect` returns and
    not before: hosts finish their pieces at different times, and nothing that they do together may depend on that.
    """

    def __init__(self, hosts: Hosts, question_ids: Sequence[str]) -> None:
        """Deals the questions over the hosts: `question_ids` are all that there will be work on."""
        self._hosts = hosts
        self._host_of = deal(question_ids, hosts.count)
        self._own: dict[Key, Future] = {}

    def add(self, key: Key, start: Callable[[], Future]) -> Future | None:
        """Adds a piece of work: `start` begins it, on one host; its result must pickle.

        Returns its future, for other pieces on the same question, which are of the same host; None on other hosts.
        """
        if self._host_of[key[0]] != self._hosts.index:
            return None
        self._own[key] = start()
        return self._own[key]

    def collect(self) -> dict[Key, Any]:
        """Waits for all pieces of all hosts and returns every result."""
        results: dict[Key, Any] = {}
        with doing("sandbox"):
            for key, future in self._own.items():
                results[key] = future.result()
                progress()
        return {key: result for part in self._hosts.exchange(results) for key, result in part.items()}


def deal(question_ids: Sequence[str], num_hosts: int) -> dict[str, int]:
    """Returns the host that works on each question.

    No host gets more than its even share, rounded up; within that, a question goes to the same host whenever it comes,
    which remembers what its ground truth answers (consistent hashing with bounded loads, Mirrokni et al. 2016).
    """
    room = [-(-len(question_ids) // num_hosts)] * num_hosts
    host_of = {}
    for question_id in question_ids:
        host = stable_hash(question_id) % num_hosts
        while not room[host]:
            host = (host + 1) % num_hosts
        room[host] -= 1
        host_of[question_id] = host
    return host_of


def stable_hash(text: str) -> int:
    """Returns 32 bits of BLAKE2b: the same in every process and on every machine, unlike Python's `hash`."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")


def join(coordinator_address: str | None, num_processes: int | None, process_id: int | None) -> Hosts:
    """Joins the other hosts by `jax.distributed.initialize`; must come before any device is used.

    What is None is left to JAX, which finds it on Cloud TPUs, and under Slurm and Open MPI. With nothing given, outside
    of a TPU machine, or with one process, this host is alone and nothing is started.

    Where the other hosts do not come within WAIT_SECONDS, the process ends with RESTART_EXIT_CODE.

    Raises:
      BadInput: JAX is not given, and cannot find, the addresses of the hosts.
      HostsLate: JAX knows them, and cannot reach them.
    """
    address = coordinator_address or os.environ.get("JAX_COORDINATOR_ADDRESS")
    is_asked_for = any(value is not None for value in (address, num_processes, process_id))
    if num_processes == 1 or not (is_asked_for or _may_have_other_hosts()):
        return Hosts()
    import jax

    # JAX would keep SIGTERM for itself, as a notice of preemption that nothing here reads.
    jax.config.update("jax_enable_preemption_service", False)
    late = threading.Timer(WAIT_SECONDS, _end_for_late_hosts)
    late.daemon = True
    late.start()
    try:
        if address is not None and not re.fullmatch(r".+:\d+", address):
            raise ValueError(f"{address} is not an address and a port, host:port")
        timeout = WAIT_SECONDS + 60  # then JAX would abort the process
        jax.distributed.initialize(coordinator_address, num_processes, process_id, initialization_timeout=timeout)
    except jax.errors.JaxRuntimeError as error:  # of its service and client, which have all they need
        raise HostsLate(f"the other hosts cannot be reached ({error}); start all of them again.") from None
    except (ValueError, RuntimeError) as error:
        raise BadInput(
            f"the other hosts cannot be joined ({error}): give --coordinator_address, --num_processes and "
            "--process_id, or --num_processes=1 for this host alone."
        ) from None
    finally:
        late.cancel()
    global _roll_call
    from jax._src.distributed import global_state

    assert global_state.coordinator_address is not None
    hosts = Hosts(jax.process_index(), jax.process_count())
    _roll_call = RollCall(global_state.client, global_state.coordinator_address, hosts.index, hosts.count)
    return hosts


def end_for_lost(during: str) -> None:
    """Ends this process as one of several hosts, of which one is lost; does nothing on a host alone."""
    if _roll_call:
        _roll_call.end(during)


def leave(code: int) -> None:
    """Tells the other hosts, where there are some, the code with which this one ends by itself."""
    if _roll_call:
        _roll_call.leave(code)


def part() -> None:
    """Waits for the other hosts to end as this one does, and disconnects from them."""
    import jax

    with contextlib.suppress(Exception):  # its work is done, whatever becomes of the others
        jax.distributed.shutdown()


def _end_for_late_hosts() -> NoReturn:
    print_error(HostsLate(f"the other hosts did not come within {WAIT_SECONDS} s; start all of them again."))
    sys.stderr.flush()
    os._exit(RESTART_EXIT_CODE)  # the main thread is deep in JAX


def has_tpu_chips() -> bool:
    """Returns whether this machine has the device files of TPU drivers."""
    return bool(glob.glob("/dev/accel[0-9]*") or glob.glob("/dev/vfio/[0-9]*"))


def _may_have_other_hosts() -> bool:
    """Returns whether this machine has TPU chips, and its environment does not name it as the only host."""
    if not has_tpu_chips() or importlib.util.find_spec("libtpu") is None:
        return False
    workers = os.environ.get("TPU_PROCESS_ADDRESSES") or os.environ.get("TPU_WORKER_HOSTNAMES")
    is_alone = workers is not None and "," not in workers and "MEGASCALE_COORDINATOR_ADDRESS" not in os.environ
    return not is_alone


def _gather(index: int, message: bytes) -> dict[int, bytes]:
    """Returns the messages of all hosts by index, in as many collectives as the longest has slices."""
    header = np.array([(index, len(message))], _HEADER).tobytes()
    whole = np.frombuffer(header + message, np.uint8)
    slices = [_gather_slice(whole[:_SLICE_BYTES])]
    # The rows of a gathering need not be in the order of the hosts where devices are not numbered host by host.
    heads = [np.frombuffer(row[: _HEADER.itemsize].tobytes(), _HEADER)[0] for row in slices[0]]
    longest = max(int(head["size"]) for head in heads) + _HEADER.itemsize
    slices += [_gather_slice(whole[at : at + _SLICE_BYTES]) for at in range(_SLICE_BYTES, longest, _SLICE_BYTES)]
    rows = np.concatenate(slices, axis=1)[:, _HEADER.itemsize :]
    return {int(head["index"]): row[: int(head["size"])].tobytes() for head, row in zip(heads, rows, strict=True)}


def _gather_slice(part: np.ndarray) -> np.ndarray:
    """Gathers one slice of every host, uint8 [hosts, _SLICE_BYTES]."""
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(np.pad(part, (0, _SLICE_BYTES - len(part))))
