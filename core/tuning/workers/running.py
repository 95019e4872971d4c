"""Running a candidate in a child process: against the CPU backend, against the reference, against the clock."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from core.errors import TileHALError, TuningError, summary
from core.tiling import Value
from core.tuning.benchmark import buffer_sets, prepared
from core.tuning.checking import difference, written
from core.tuning.inputs import copy_arguments, make_arguments
from core.tuning.measure import Measurement, Work, measure, measure_together
from core.tuning.workers.compiling import built, lowered, received, with_artifact
from core.tuning.workers.jobs import Conditions, CrossCheckJob, FinalJob, MeasureJob, Reply, Subject, Timing

if TYPE_CHECKING:
    import torch

    from core.runtime.kernel import Kernel

#: How much slower than the best so far a candidate is when measuring it longer cannot change anything.
CLEARLY_SLOWER = 1.25
#: Milliseconds of the first look at a candidate.
_LOOK_WARMUP_MS, _LOOK_REPEAT_MS = 5.0, 10.0
#: Sets of buffers that a finalist needs for a round trip worth the name.
_SETS_EACH = 8
#: Operations of a call up to which the CPU backend runs it as it is: about a second.
CPU_FLOPS = 2e9


@dataclass(slots=True)
class _Prepared:
    """What candidates of one problem share.

    Attributes:
        arguments: of a call.
        expected: what candidates should write, by position.
        sets: the arguments with the copies that cold caches take. Making them takes longer than timing most kernels:
            2.5 s for the 300 MiB cache of a server's CPU, where a kernel of 4 ms is timed in 0.2 s.
    """

    problem: str
    arguments: list[Any]
    expected: dict[int, Any] | None = None
    sets: list[list[Any]] | None = None


#: Of the last problem only: arguments may fill much of the device's memory.
_prepared: list[_Prepared] = []


def measure_candidate(job: MeasureJob) -> Reply:
    """Runs a candidate once and compares, then times it."""
    kernel = with_artifact(job.subject, job.tiles, job.artifact)
    conditions = job.conditions
    state = _state(job.subject, conditions, kernel)
    wrong = _wrong(kernel, state, conditions)
    if wrong is not None:
        return Reply("wrong", wrong)
    work = _shared_work(kernel, state, conditions)
    if conditions.best_s is not None:
        first = measure(
            work,
            conditions.device,
            warmup_ms=_LOOK_WARMUP_MS,
            repeat_ms=_LOOK_REPEAT_MS,
            cold_l2=conditions.cold_l2,
        )
        if first.median_s > CLEARLY_SLOWER * conditions.best_s:
            return Reply("ok", timings=(_timing(first),), details=_how(kernel))
    return Reply("ok", timings=(_timing(measure(work, conditions.device, **_long(conditions))),), details=_how(kernel))


def measure_finalists(job: FinalJob) -> Reply:
    """Times candidates in turn that were right before."""
    kernels = [with_artifact(job.subject, *one) for one in zip(job.tiles, job.artifacts, strict=True)]
    state = _state(job.subject, job.conditions, kernels[0])
    works = {str(index): work for index, work in enumerate(_final_works(kernels, state, job.conditions))}
    together = measure_together(works, job.conditions.device, **_long(job.conditions))
    return Reply("ok", timings=tuple(_timing(together.measurements[name]) for name in works))


def cross_check(job: CrossCheckJob) -> Reply:
    """Compares a candidate's outputs with the CPU backend's for the same inputs.

    The CPU runs the kernel with tiles of its own choice: what it computes does not depend on them. The reply says at
    which arguments, or why the CPU backend has nothing to say; then the candidate is not to blame.
    """
    subject, note = job.subject, ""
    flops = lowered(job.subject, job.tiles).lowered.resources.flops
    if flops is None or flops > CPU_FLOPS:
        if job.smaller is None:
            work = "an unknown number of" if flops is None else f"{flops:.3g}"
            return _unchecked(f"the CPU would take too long over {work} operations")
        subject = job.smaller
        note = " at " + ", ".join(
            f"{name}={value}" for name, value in subject.arguments.items() if value != job.subject.arguments[name]
        )
    try:
        reference = built(subject, {}, target="cpu")
    except TileHALError as error:
        return _unchecked(f"the CPU backend does not compile it: {summary(error)}")
    kernel = built(subject, job.tiles)
    conditions = job.conditions
    signature = kernel.program.signature
    on_cpu = _arguments(subject, conditions, kernel, "cpu")
    own = copy_arguments(on_cpu)
    there = [value.to(conditions.device) if hasattr(value, "device") else value for value in own]
    kernel(*there)
    reference(*on_cpu)
    wrong = difference(signature, there, {place: on_cpu[place] for place in written(signature)}, conditions.tolerance)
    if wrong is not None:
        return Reply("wrong", f"the CPU backend{note} disagrees: {wrong}")
    return Reply("ok", f"the CPU backend{note}")


def _unchecked(why: str) -> Reply:
    return Reply("ok", f"not checked: {why}", {"unchecked": why})


def _state(subject: Subject, conditions: Conditions, kernel: Kernel) -> _Prepared:
    """The arguments of the problem, made when it is new to this process."""
    if not _prepared or _prepared[0].problem != conditions.problem:
        _prepared.clear()
        arguments = _arguments(subject, conditions, kernel, conditions.device)
        _prepared.append(_Prepared(conditions.problem, arguments))
    state = _prepared[0]
    if state.expected is None:
        state.expected = _expected(subject, conditions, kernel, state.arguments)
    return state


def _arguments(subject: Subject, conditions: Conditions, kernel: Kernel, device: str) -> list[Any]:
    """Every argument of a call: random, but what the user gives."""
    values = received(conditions.values) if conditions.values is not None else None
    if callable(values):
        values = values(**_accepted(values, subject.arguments))
    try:
        return make_arguments(
            kernel.program.signature, device, seed=conditions.seed, symbols=conditions.symbols, values=values
        )
    except TileHALError as error:  # no candidate's fault
        raise TuningError(error.message, hint=error.hint) from error


def _expected(
    subject: Subject, conditions: Conditions, kernel: Kernel, arguments: Sequence[Any]
) -> dict[int, Any] | None:
    """What a right call writes, by position; None where there is nothing to compare with."""
    signature = kernel.program.signature
    positions = written(signature)
    if conditions.reference is not None:
        function = received(conditions.reference)
        inputs = [
            value
            for value, argument in zip(copy_arguments(arguments), signature.arguments, strict=True)
            if not getattr(argument, "is_output", False)
        ]
        try:
            given = function(*inputs, **_accepted(function, subject.arguments, skip=len(inputs)))
        except Exception as error:  # the user's code
            raise TuningError(
                f"the reference for {signature.name} raised {type(error).__name__}: {error}",
                hint=f"it is called with {len(inputs)} tensors, and the kernel's arguments that it takes by name",
            ) from error
        outputs = list(given) if isinstance(given, (tuple, list)) else [given]
        places = list(signature.outputs) or positions
        if len(outputs) != len(places):
            raise TuningError(
                f"the reference for {signature.name} returned {len(outputs)} tensors; the kernel writes {len(places)}",
                hint=f"return {', '.join(signature.arguments[place].name for place in places)}, in this order",
            )
        for place, output in zip(places, outputs, strict=True):
            _check_output(signature.arguments[place].name, output, arguments[place])
        return dict(zip(places, outputs, strict=True))
    if conditions.trusted is None:
        return None
    trusted = with_artifact(subject, conditions.trusted, conditions.trusted_artifact)
    values = copy_arguments(arguments)
    trusted(*values)
    return {place: values[place] for place in positions}


def _check_output(name: str, output: Any, written: torch.Tensor) -> None:
    """A reference that gives something else than the output is no candidate's fault."""
    shape = getattr(output, "shape", None)
    if not hasattr(output, "dtype") or not hasattr(output, "to") or shape != written.shape:
        found = type(output).__name__ if shape is None else f"a {type(output).__name__} of shape {tuple(shape)}"
        raise TuningError(
            f"the reference returned {found} for {name}, which is a tensor of shape {tuple(written.shape)}",
            hint="return a tensor of that shape; its dtype may be a wider one",
        )


def _wrong(kernel: Kernel, state: _Prepared, conditions: Conditions) -> str | None:
    values = copy_arguments(state.arguments)
    kernel(*values)
    if state.expected is None:
        _synchronize(conditions.device)
        return None
    return difference(kernel.program.signature, values, state.expected, conditions.tolerance)


def _shared_work(kernel: Kernel, state: _Prepared, conditions: Conditions) -> Work:
    """What to time, on buffers that the candidates after it are timed on too, where that changes nothing for them."""
    sets = _shared_sets(kernel, state, conditions)
    return [partial(kernel, *values) for values in sets] if sets else _work(kernel, state.arguments, conditions)


def _final_works(kernels: Sequence[Kernel], state: _Prepared, conditions: Conditions) -> list[Work]:
    """What to time in turn.

    On the CPU the shared buffers are dealt out where there are plenty: between two uses of a buffer the others' are
    used, so that as many bytes come between as if each had as many buffers of its own.
    """
    sets = _shared_sets(kernels[0], state, conditions) if conditions.device.startswith("cpu") else None
    if sets is None or len(sets) < _SETS_EACH * len(kernels):
        return [_work(kernel, state.arguments, conditions) for kernel in kernels]
    dealt = [sets[start :: len(kernels)] for start in range(len(kernels))]
    return [[partial(kernel, *values) for values in own] for kernel, own in zip(kernels, dealt, strict=True)]


def _shared_sets(kernel: Kernel, state: _Prepared, conditions: Conditions) -> list[list[Any]] | None:
    """The buffers for cold caches, made once; None with warm caches, or where a call reads what another wrote."""
    in_place = any(
        getattr(argument, "reads", False) and getattr(argument, "writes", False)
        for argument in kernel.program.signature.arguments
    )
    if not conditions.cold_l2 or in_place:
        return None
    if state.sets is None:
        state.sets = buffer_sets(state.arguments, conditions.device)
    return state.sets


def _work(kernel: Kernel, arguments: Sequence[Any], conditions: Conditions) -> Work:
    if conditions.cold_l2:
        return prepared(kernel, arguments, conditions.device)["cold"]
    return partial(kernel, *arguments)


def _long(conditions: Conditions) -> dict[str, Any]:
    return {
        "warmup_ms": conditions.warmup_ms,
        "repeat_ms": conditions.repeat_ms,
        "cold_l2": conditions.cold_l2,
    }


def _timing(measured: Measurement) -> Timing:
    return Timing(
        measured.median_s, measured.low_s, measured.high_s, len(measured.samples), f"{measured.method}, {measured.l2}"
    )


def _how(kernel: Kernel) -> Mapping[str, Any]:
    """What the toolchain made of a candidate, worth keeping beside its time."""
    actual = kernel.resources.actual
    found = {
        "registers": getattr(actual, "registers_per_thread", None),
        "spill_bytes": getattr(actual, "spill_store_bytes", None),
    }
    return {name: value for name, value in found.items() if value is not None}


def _accepted(function: Callable[..., Any], arguments: Mapping[str, Value], skip: int = 0) -> dict[str, Any]:
    """Those of the kernel's arguments that a function of the user's takes by name, past its first `skip` parameters."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict(arguments)
    by_name = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return {name: arguments[name] for name in by_name[skip:] if name in arguments}


def _synchronize(device: str) -> None:
    import torch

    getattr(torch, torch.device(device).type).synchronize()
