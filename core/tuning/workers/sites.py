"""Where candidates are compiled and measured: in this process's children, through an executor, or on a dask cluster.

Whatever the site, a task comes back as a future with `add_done_callback` and `result`. Candidates are compiled wherever
the executor likes. They are measured here, one at a time; only an executor that can be told what a task needs (dask's
client, `resources=`) measures too, on workers that say they hold the chip.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from core.compiler.cache import default
from core.errors import DeviceUnavailable, TuningError
from core.tuning.environment import Environment, environment_here
from core.tuning.measure.interleaved import device_here
from core.tuning.workers import tasks
from core.tuning.workers.children import Children
from core.tuning.workers.jobs import CompileJob, CrossCheckJob, FinalJob, MeasureJob, Reply

if TYPE_CHECKING:
    from core.hardware import Chip
    from core.target import Target


class Future(Protocol):
    """What an executor's `submit` returns."""

    def add_done_callback(self, call: Callable[[Any], Any], /) -> Any: ...
    def result(self) -> Any: ...
    def cancel(self) -> Any: ...


class Site(Protocol):
    """Where a tuner's work is done.

    Attributes:
        device: torch device that candidates run on, there.
        environment: what results are stored under.
        ships: compiled kernels must travel: not everybody sees one cache.
        compile_first: compiling would disturb what is being timed.
        slots: candidates measured at once.
        words: for people.
    """

    device: str
    environment: Environment
    ships: bool
    compile_first: bool
    slots: int
    words: str

    def compile(self, job: CompileJob) -> Future:
        """Starts compiling a candidate."""

    def measure(self, job: MeasureJob | CrossCheckJob | FinalJob, compiled: Reply | None) -> Future:
        """Starts running candidates."""

    def abort(self) -> None:
        """Ends what is at work as fast as that goes."""

    def close(self) -> None:
        """Gives back threads and processes."""


class LocalSite:
    """The machine we are on: children of this process compile, one of them at a time measures."""

    def __init__(self, target: Target, *, device: str | None = None, jobs: int | None = None) -> None:
        self.device = _device(target, device)
        self.environment = environment_here(target.chip)
        #: Without a cache on disk what one child compiles another does not see.
        self.ships = not default().enabled
        self.compile_first = self.device.startswith("cpu")
        self.slots = 1
        count = jobs or max(1, min(16, len(os.sched_getaffinity(0))))
        self.words = f"{self.device}, {count} compiling"
        self._children = Children()
        # On the CPU the children that compiled measure afterwards; elsewhere one more does at the same time.
        self._children.start(min(count, 2) if self.compile_first else 2)
        self._compilers = ThreadPoolExecutor(count, thread_name_prefix="tilehal-compile")
        self._meter = ThreadPoolExecutor(1, thread_name_prefix="tilehal-measure")

    def compile(self, job: CompileJob) -> Future:
        return self._compilers.submit(tasks.compile_task, job, self.compile_first, self._children)

    def measure(self, job: MeasureJob | CrossCheckJob | FinalJob, compiled: Reply | None) -> Future:
        return self._meter.submit(tasks.measure_task, job, compiled, self._children)

    def abort(self) -> None:
        for pool in (self._compilers, self._meter):
            pool.shutdown(wait=False, cancel_futures=True)
        self._children.abort()

    def close(self) -> None:
        for pool in (self._compilers, self._meter):
            pool.shutdown(wait=True, cancel_futures=True)
        self._children.close()


class ExecutorSite:
    """An executor of the user's compiles, this machine measures."""

    def __init__(self, executor: Any, target: Target, *, device: str | None = None) -> None:
        self._here = LocalSite(target, device=device, jobs=1)
        self._executor = executor
        self.device = self._here.device
        self.environment = self._here.environment
        self.ships = True
        self.compile_first = self._here.compile_first
        self.slots = 1
        self.words = f"{self.device}, compiled by {type(executor).__name__}"

    def compile(self, job: CompileJob) -> Future:
        future: Future = self._executor.submit(tasks.compile_task, job, self.compile_first)
        return future

    def measure(self, job: MeasureJob | CrossCheckJob | FinalJob, compiled: Reply | None) -> Future:
        return self._here.measure(job, compiled)

    def abort(self) -> None:
        self._here.abort()

    def close(self) -> None:
        self._here.close()


class ClusterSite:
    """A dask cluster: any worker compiles, those with the chip's label measure.

    The label is the target, as a worker resource: `dask worker ... --resources "cuda:h200=1"`. One unit is one device;
    a worker with more measures as many candidates at once, so give each worker the devices it sees.
    """

    def __init__(self, client: Any, chip: Chip) -> None:
        self._client = client
        self._label = chip.target
        self._futures: set[Any] = set()
        holders = self._holders()
        if not holders:
            labels = {name for worker in self._workers().values() for name in worker.get("resources", {})}
            raise DeviceUnavailable(
                f"no worker of {client!r} says that it holds {self._label}; their labels: "
                + (", ".join(sorted(labels)) or "none"),
                hint=f'start one where the chip is with: dask worker ... --resources "{self._label}=1"',
            )
        self.slots = int(sum(holders.values()))
        self.device = self._client.submit(tasks.torch_device, chip, pure=False, resources=self._need).result()
        self.environment = self._client.submit(environment_here, chip, pure=False, resources=self._need).result()
        self.ships = True
        self.compile_first = self.device.startswith("cpu")
        others = len(self._workers())
        self.words = f"{self.device} on {len(holders)} of {others} workers"

    @property
    def _need(self) -> dict[str, int]:
        return {self._label: 1}

    def _workers(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        except TypeError:  # a dask that tells of all workers unasked
            found = self._client.scheduler_info()["workers"]
        return found

    def _holders(self) -> dict[str, float]:
        found = {name: worker.get("resources", {}).get(self._label, 0) for name, worker in self._workers().items()}
        return {name: amount for name, amount in found.items() if amount}

    def compile(self, job: CompileJob) -> Future:
        return self._watched(self._client.submit(tasks.compile_task, job, self.compile_first, pure=False))

    def measure(self, job: MeasureJob | CrossCheckJob | FinalJob, compiled: Reply | None) -> Future:
        return self._watched(
            self._client.submit(tasks.measure_task, job, compiled, pure=False, resources=self._need, priority=10)
        )

    def _watched(self, future: Any) -> Future:
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        watched: Future = future
        return watched

    def abort(self) -> None:
        self._client.cancel(list(self._futures), force=True)

    def close(self) -> None:
        self.abort()


def site_for(target: Target, executor: Any, *, device: str | None, jobs: int | None) -> Site:
    """The site that an executor of the user's, or none, makes.

    Raises:
        DeviceUnavailable: the chip is not on this machine, or on none of the cluster's.
        TuningError: it is no executor.
    """
    if executor is None:
        return LocalSite(target, device=device, jobs=jobs)
    if not callable(getattr(executor, "submit", None)):
        raise TuningError(
            f"{executor!r} is no executor: it has no submit()",
            hint="give a concurrent.futures executor, or a dask.distributed.Client",
        )
    if callable(getattr(executor, "scheduler_info", None)):
        return ClusterSite(executor, target.chip)
    return ExecutorSite(executor, target, device=device)


def reply_of(done: Future) -> Reply:
    """A future's answer. A worker that died with it, again and again, is the candidate's fault.

    Raises:
        TuningError: the executor answers something else; or whatever it raises itself.
    """
    try:
        reply = done.result()
    except TuningError:
        raise
    except Exception as error:
        if type(error).__name__ in ("KilledWorker", "BrokenProcessPool"):
            return Reply("crash", f"its worker ended: {error}", restart=True)
        raise
    if not isinstance(reply, Reply):
        raise TuningError(f"the executor answered {reply!r}", hint="give an executor that runs what it is given")
    return reply


def _device(target: Target, asked: str | None) -> str:
    """The torch device to time on: the target's, or the one asked for where it is of that kind."""
    try:
        target.require_device()
    except DeviceUnavailable as error:
        raise DeviceUnavailable(
            error.message,
            hint="candidates are timed on the chip itself, a simulator's times say nothing of it: tune on a machine"
            " that has one, or on a dask cluster whose workers do (executor=, `tilehal tune`: --dask)",
            details=error.details,
        ) from error
    found = target.require_torch_device()
    if asked is None:
        return found
    where, kind = device_here(asked), found.split(":")[0]
    if where.type != kind:
        raise TuningError(
            f"{target.chip.target} is not timed on {asked}: its tensors are on {kind}",
            hint=f"name a {kind} device, or leave the device out for {found}",
        )
    return asked
