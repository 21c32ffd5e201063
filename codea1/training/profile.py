"""What a step costs: memory of the devices, and a profiler's trace of a few steps."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jax

from codea1.models.flops import GIB
from codea1.runs.folder import RunFolder
from codea1.runtime.hosts import Hosts
from codea1.storage.objects import write_atomically

STEP = "training step"  # what a step is called in the trace, where it has its number
_KINDS = ("xplane.pb", "trace.json.gz")  # TensorBoard's, Perfetto's


def memory_metrics(hosts: Hosts) -> dict[str, float]:
    """Returns "perf/hbm_peak_gib": the most that any device of any host has had in use since its process began.

    Nothing where devices do not report it, as CPUs do not. A collective.
    """
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    peak_here = max((row["peak_bytes_in_use"] for row in stats if "peak_bytes_in_use" in row), default=None)
    peaks = [peak for peak in hosts.exchange(peak_here) if peak is not None]
    return {"perf/hbm_peak_gib": max(peaks) / GIB} if peaks else {}


class ProfilerWindow:
    """Traces this host in the steps of a window, into the run's folder; TensorBoard with xprof and Perfetto show it.

    Each host of a run has its own.
    """

    def __init__(self, folder: RunFolder, first: int, last: int, host: int, count: int = 2) -> None:
        """Prepares a window of `count` steps from step `first` on; a `first` of 0 is no window.

        Two steps: the second shows what the first leaves to it, and traces of more are slow to open. `last` is the last
        step of the run; `host` is the number of this one. A run that is continued inside the window traces the rest.
        """
        self._folder = folder
        self._steps = range(first, min(first + count, last + 1)) if first else range(0)
        self._host = host
        self._has_begun = False
        self._trace = contextlib.ExitStack()

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Surrounds a step; at the end of the window's last one the trace is in the folder.

        A trace that an exception ends is thrown away.
        """
        if number in self._steps and not self._has_begun:
            self._has_begun = True
            self._trace.enter_context(self._traced(number))
        with contextlib.ExitStack() as failed:
            failed.push(self._trace)
            with jax.profiler.StepTraceAnnotation(STEP, step_num=number):
                yield
            failed.pop_all()
        if number in self._steps[-1:]:
            self._trace.close()

    @contextlib.contextmanager
    def _traced(self, first: int) -> Iterator[None]:
        """Traces the block, and keeps the trace of the steps from `first` on unless an exception ends it."""
        options = jax.profiler.ProfileOptions()
        # The scheduler and the reading of answers call so many Python functions that nothing else would be seen.
        options.python_tracer_level = 0
        with tempfile.TemporaryDirectory() as local:  # the profiler writes to local disks alone
            with jax.profiler.trace(local, profiler_options=options):
                yield
            # One folder for all hosts: TensorBoard then takes them for one trace.
            session = self._folder.profile / "plugins" / "profile" / f"steps_{first}_to_{self._steps[-1]}"
            for kind in _KINDS:
                for file in Path(local).rglob(f"*.{kind}"):
                    write_atomically(session / f"host_{self._host}.{kind}", file.read_bytes())
