"""`factory.tune(...)`: measures the best candidates of a kernel on the chip itself, and remembers what came out.

The ranking says which candidates are worth it, the store says which are known. What is left is compiled in parallel and
timed one at a time; see docs/tuning.md for what is promised when something hangs, crashes, or is interrupted.
"""

from __future__ import annotations

import difflib
import hashlib
import inspect
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.compiler.artifacts import CompileOptions
from core.errors import KernelError, TuningError, TuningStoreError
from core.tuning.locks import alone
from core.tuning.planning import Plan, plan_shape
from core.tuning.progress import Progress, progress_for
from core.tuning.report import ShapeReport, TuneReport
from core.tuning.results.keys import stored_arguments
from core.tuning.results.store import Store, default_store
from core.tuning.shape_run import ShapeRun
from core.tuning.workers.jobs import Conditions
from core.tuning.workers.shipping import Parcel, pack
from core.tuning.workers.sites import Site, site_for

if TYPE_CHECKING:
    from core.hardware import Chip
    from core.target import Target
    from core.tiling.factory import KernelFactory

#: Seconds past the budget after which what is being timed is given up.
_GRACE_S = 2.0
#: How often a shape that another tuner is at work on is asked for again.
_WAIT_S = 0.5


class TuningInterrupted(KeyboardInterrupt):
    """Ctrl-C during a tuning run. What was measured is in the store; `report` says what that is."""

    def __init__(self, report: TuneReport) -> None:
        super().__init__("tuning was interrupted; the same call goes on where it stopped")
        self.report = report


@dataclass(frozen=True, slots=True)
class _Shape:
    """One shape as it was asked for: arguments, and tile parameters that the user gave."""

    arguments: Mapping[str, Any]
    fixed: Mapping[str, Any]


def tune(
    factory: KernelFactory,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    target: str | Target | Chip = "auto",
    candidates: int = 20,
    budget_s: float | None = None,
    timeout_s: float = 60.0,
    executor: Any = None,
    jobs: int | None = None,
    device: str | None = None,
    reference: Callable[..., Any] | None = None,
    tolerance: float | None = None,
    values: Mapping[str, Any] | Callable[..., Mapping[str, Any]] | None = None,
    symbols: Mapping[str, int] | None = None,
    cold_l2: bool = True,
    warmup_ms: float = 25.0,
    repeat_ms: float = 100.0,
    resume: bool = True,
    store: Store | None = None,
    progress: bool | None = None,
    pass_configs: Mapping[Any, Any] | None = None,
    compile_flags: Sequence[str] | str | None = None,
    fast_math: bool = False,
    options: Mapping[str, Any] | None = None,
) -> TuneReport:
    """Measures the best candidates of one or more shapes; :meth:`core.tiling.KernelFactory.tune` is the public way.

    Args:
        args, kwargs: the factory's arguments; or one list of shapes, each a tuple of arguments or a mapping by name,
            and in `kwargs` what all of them share. Tile parameters given are kept as they are.
        target: the chip; it must be on this machine, or on a worker of the cluster that `executor` is.
        candidates: how many of the best ranked are measured for each shape.
        budget_s: seconds for everything from this call on; shapes share what is left evenly. Nothing is begun that
            would not be done in time; what is being timed 2 s after that is given up, and measured by the next run.
        timeout_s: seconds that one candidate may take to compile, and to be run and timed.
        executor: where candidates are compiled: any `concurrent.futures` executor. A dask `Client` also has them timed,
            on workers whose resources name the target. None: children of this process.
        jobs: how many compile at once without an executor; by default as many as there are CPUs, 16 at most.
        device: torch device to time on (`cuda:1`); by default the first that is the chip.
        reference: gives the right outputs: called with the inputs in order, and by name with those of the kernel's
            arguments that it takes. Without one, the best ranked candidate is held against the CPU backend, and the
            others against it.
        tolerance: share by which an element may differ; by the type of the output when None.
        values, symbols: inputs and extents of symbolic dimensions, as :func:`core.tuning.make_arguments` takes them;
            `values` may be a function of the kernel's arguments.
        cold_l2, warmup_ms, repeat_ms: as for :func:`core.tuning.measure`.
        resume: take what the store knows as it is, failures too; False measures everything again.
        store: where results go; the user's own when None.
        progress: show a live bar; by default where standard error is a terminal.
        pass_configs, compile_flags, fast_math, options: as for :func:`core.compile`; results belong to these options.

    Returns:
        What was found for each shape.

    Raises:
        DeviceUnavailable: the chip is not where candidates would be timed; a simulator is not timed.
        TuningError: nothing can be tuned, or something other than a candidate is in the way.
        TuningStoreError: the store cannot be written; what it holds is intact.
        TuningInterrupted: Ctrl-C (it is a KeyboardInterrupt); its report says what was measured.
    """
    from core._tilelang import import_tilelang
    from core.compiler.options import compile_options
    from core.target import resolve

    started = time.monotonic()
    shapes = _shapes(factory, args, kwargs)
    _check_numbers(candidates, jobs, budget_s, timeout_s, tolerance, warmup_ms, repeat_ms)
    if reference is not None and not callable(reference):
        raise TuningError(f"reference={reference!r} is no function", hint="it is called with the kernel's inputs")
    import_tilelang()
    resolved = resolve(target)
    conditions = Conditions(
        problem="",
        device="",
        symbols=dict(symbols or {}),
        values=None if values is None else pack(values, same_machine=executor is None),
        reference=None if reference is None else pack(reference, same_machine=executor is None),
        tolerance=tolerance,
        cold_l2=cold_l2,
        warmup_ms=warmup_ms,
        repeat_ms=repeat_ms,
    )
    run = _Run(
        factory=factory,
        parcel=pack(factory, same_machine=executor is None),
        chip=resolved.chip,
        options=compile_options(pass_configs, compile_flags, fast_math, options),
        conditions=conditions,
        candidates=candidates,
        timeout_s=timeout_s,
        resume=resume,
        store=store or default_store(),
        progress=progress_for(progress),
        deadline=inf if budget_s is None else started + budget_s,
    )
    with ExitStack() as ends:
        site = site_for(resolved, executor, device=device, jobs=jobs)
        ends.callback(site.close)
        run.progress.start(factory.name, resolved.chip.target, len(shapes), site.words)
        ends.callback(run.progress.stop)
        return run.through(shapes, site)


def _check_numbers(
    candidates: int,
    jobs: int | None,
    budget_s: float | None,
    timeout_s: float,
    tolerance: float | None,
    warmup_ms: float,
    repeat_ms: float,
) -> None:
    """Before anything is compiled: what means nothing would be taken for a fault of the candidates, and remembered."""
    for name, count in (("candidates", candidates), ("jobs", jobs)):
        if count is None and name == "jobs":
            continue
        if not isinstance(count, int) or count < 1:
            raise TuningError(f"{name}={count!r} is no number of {name}", hint="pass an integer of 1 or more")
    for name, value in (
        ("budget_s", budget_s),
        ("timeout_s", timeout_s),
        ("tolerance", tolerance),
        ("warmup_ms", warmup_ms),
        ("repeat_ms", repeat_ms),
    ):
        if value is None and name in ("budget_s", "tolerance"):
            continue
        least = "above 0" if name == "timeout_s" else "of 0 or more"
        if not isinstance(value, (int, float)) or not 0 <= value < inf or (name == "timeout_s" and value == 0):
            raise TuningError(
                f"{name}={value!r}, and it is a number {least}", hint="leave it out to have what is usual"
            )


def tune_call(
    factory: KernelFactory, args: tuple[Any, ...], target: str | Target | Chip, keywords: Mapping[str, Any]
) -> TuneReport:
    """`factory.tune(...)`: tells the options of :func:`tune` from the arguments of the kernel by their names."""
    names = [p.name for p in inspect.signature(tune).parameters.values() if p.kind is p.KEYWORD_ONLY]
    own = {name: value for name, value in keywords.items() if name in names}
    others = {name: value for name, value in keywords.items() if name not in names}
    for name in others:
        near = difflib.get_close_matches(name, names, 1, cutoff=0.8)
        if near and name not in factory.signature.parameters:
            raise KernelError(f"tune has no option {name!r}", hint=f"did you mean {near[0]!r}?")
    return tune(factory, args, others, target=target, **own)


@dataclass(slots=True)
class _Run:
    """A tuning run: what all shapes share."""

    factory: KernelFactory
    parcel: Parcel
    chip: Chip
    options: CompileOptions
    conditions: Conditions
    candidates: int
    timeout_s: float
    resume: bool
    store: Store
    progress: Progress
    deadline: float

    def through(self, shapes: Sequence[_Shape], site: Site) -> TuneReport:
        """Tunes the shapes one after the other; those that another tuner is at work on come last."""
        started = time.monotonic()
        reports: dict[int, ShapeReport] = {}
        waiting = list(range(len(shapes)))
        interrupted = False
        try:
            while waiting and time.monotonic() < self.deadline:
                busy = []
                for count, index in enumerate(waiting):
                    if time.monotonic() >= self.deadline:
                        busy += waiting[count:]
                        break
                    done = self._one(shapes[index], index, site, self._share(len(waiting) - count), reports)
                    if not done:
                        busy.append(index)
                if busy == waiting and time.monotonic() < self.deadline:
                    self.progress.say("another process is tuning what is left; waiting for its results")
                    time.sleep(_WAIT_S)
                waiting = busy
        except KeyboardInterrupt:
            interrupted = True
        except BaseException:
            site.abort()
            raise
        finally:
            if interrupted or time.monotonic() >= self.deadline:
                site.abort()
        found = [
            reports.get(index) or ShapeReport(stored_arguments(shape.arguments), waiting=self.candidates)
            for index, shape in enumerate(shapes)
        ]
        report = TuneReport(
            kernel=self.factory.name,
            target=self.chip.target,
            environment=site.environment,
            shapes=found,
            seconds=time.monotonic() - started,
            store=str(self.store.path),
            interrupted=interrupted,
            # What would not be done in time was not begun.
            out_of_time=not interrupted and any(shape.waiting and not shape.error for shape in found),
        )
        if report.out_of_time:
            site.abort()  # before the deadline too: what is still being compiled would be waited for
        if interrupted:
            raise TuningInterrupted(report)
        return report

    def _share(self, left: int) -> float:
        """When the next of `left` shapes has had its part of the time."""
        now = time.monotonic()
        return self.deadline if self.deadline == inf else now + (self.deadline - now) / left

    def _one(self, shape: _Shape, index: int, site: Site, deadline: float, reports: dict[int, ShapeReport]) -> bool:
        """Tunes one shape and puts its report into `reports`; False when another process is at work on it.

        A shape that cannot be tuned is reported with what is in the way, and the others go on.
        """
        try:
            plan = plan_shape(
                self.factory,
                self.parcel,
                shape.arguments,
                shape.fixed,
                self.chip,
                self.options,
                site.environment,
                self.candidates,
            )
        except (TuningError, KernelError) as error:
            self.progress.say(f"{error.message}")
            reports[index] = ShapeReport(stored_arguments(shape.arguments), error=error.message)
            return True
        with alone(self._lock(plan)) as mine:
            if not mine:
                return False
            conditions = replace(self.conditions, problem=uuid.uuid4().hex, device=site.device)
            run = ShapeRun(
                self.factory,
                plan,
                conditions,
                site,
                self.store,
                self.progress,
                number=index + 1,
                timeout_s=self.timeout_s,
                deadline=deadline,
                ends=self.deadline + _GRACE_S,
                resume=self.resume,
            )
            try:
                run.run()
            except TuningStoreError:
                raise
            except TuningError as error:
                if not error.details.get("one_shape"):
                    raise
                self.progress.say(error.message)
                reports[index] = replace(run.report(), error=error.message)
                return True
            finally:
                reports.setdefault(index, run.report())
        return True

    def _lock(self, plan: Plan) -> Path:
        """The file that stands for a shape in this store."""
        key = plan.key
        words = (key.kernel, key.fingerprint, key.arguments, key.options, key.chip, key.environment.digest)
        digest = hashlib.sha256("\0".join(words).encode()).hexdigest()[:24]
        return self.store.path.with_name(f"{self.store.path.name}.locks") / f"{digest}.lock"


def _shapes(factory: KernelFactory, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[_Shape]:
    """The shapes that a call means, each once."""
    if "simulate" in kwargs and "simulate" not in factory.signature.parameters:
        raise TuningError(
            f"{factory.name}: a simulator is not timed: it proves the meaning of the code, never its speed",
            hint="leave simulate out, and tune on a machine with the chip",
        )
    items: Iterable[Any] = args[0] if len(args) == 1 and isinstance(args[0], list) else [args]
    found: dict[str, _Shape] = {}
    for item in items:
        positional = () if isinstance(item, Mapping) else tuple(item) if isinstance(item, (tuple, list)) else (item,)
        named = {**kwargs, **(item if isinstance(item, Mapping) else {})}
        arguments = factory.arguments(positional, named)
        fixed = factory.given_tiles(named)
        found.setdefault(repr((sorted(arguments.items()), sorted(fixed.items()))), _Shape(arguments, fixed))
    if not found:
        raise TuningError(f"{factory.name}: there is no shape to tune", hint=f"call it as {factory.usage}")
    return list(found.values())


__all__ = ["TuningInterrupted", "tune"]
