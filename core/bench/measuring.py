"""What the process that measures does with a case: compile one contender, or check and time all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from core.bench.case import Case
from core.bench.contenders import RAW, RULE, TUNED
from core.bench.triton_rows import CONTENDERS as TRITON_ROWS
from core.bench.triton_rows import compile_all as compile_rows
from core.bench.workloads import NotMeasured, Other, Workload, workload
from core.bench.workloads.base import Inputs, Make
from core.errors import LaunchError, TileHALError, summary

if TYPE_CHECKING:
    import torch

    from core.runtime.kernel import Kernel

#: Share of the device's free memory that one contender's copies of its arguments may take.
_MEMORY_SHARE = 0.15


class SpoiltError(Exception):
    """A contender failed in a way after which the process must not be used: the device's context may be lost.

    Attributes:
        contender: who it was.
        reason: how.
    """

    def __init__(self, contender: str, reason: str) -> None:
        super().__init__(f"{contender}: {reason}")
        self.contender = contender
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Settings:
    """How a case is measured.

    Attributes:
        target: what is compiled for.
        ours: which of `RULE`, `TUNED` and `RAW` take part.
        seed: of the inputs.
        repeat_ms, warmup_ms: for each contender, with cold and with warm caches each.
        within_s: seconds that are left for the case; None for no limit. What cannot be timed in it is not begun.
    """

    target: str
    ours: Sequence[str] = (RULE, RAW)
    seed: int = 0
    repeat_ms: float = 60.0
    warmup_ms: float = 15.0
    within_s: float | None = None


def compile_contender(case: Case, name: str, target: str) -> dict[str, Any]:
    """Compiles one contender into the caches that the measuring process reads: one of Triton's or one of ours.

    Raises as compiling does; NotMeasured where it cannot be had here.
    """
    work = workload(case)
    if name in TRITON_ROWS:
        rows, columns = case.shape["M"], case.shape["N"]
        return {"kernels": compile_rows(case.operator, rows, columns, case.dtype, overlapped=TRITON_ROWS[name])}
    kernel = _kernel(work, TUNED if name == TUNED else RULE, target)
    if name == RAW:
        _raw(work, kernel)
    else:
        kernel.build()
    return _about(kernel)


def measure_case(case: Case, settings: Settings, skip: Mapping[str, str], say: Callable[[str], None]) -> dict[str, Any]:
    """Checks and times every contender of a case, in turn, with cold and with warm caches.

    Args:
        skip: contenders that are left out, with the reason: they ended an earlier process.
        say: told which contender is run for the first time, so that who ends the process is known.

    Returns:
        JSON-able: `contenders` by name (status, reason, what is known of it, the measurements) and `ratios`: by name,
        how many times as fast ours is; on the CPU, `others_share` of its time went to other processes meanwhile.

    Raises:
        NotMeasured: timing it takes longer than there is time.
        SpoiltError: a contender failed at run time; the case can be measured without it in a new process.
    """
    import torch

    from core.target import resolve
    from core.tuning.measure.contention import OthersShare

    until = None if settings.within_s is None else time.monotonic() + settings.within_s
    work = workload(case)
    device = torch.device(resolve(settings.target).require_torch_device())
    if device.type != "cpu":
        getattr(torch, device.type).empty_cache()  # how much memory is free decides how many copies are made
    generator = torch.Generator(device=device)
    generator.manual_seed(settings.seed)
    inputs = work.inputs(Make(device, generator, case.dtype))
    contenders, works = _checked(work, inputs, device, settings, skip, say)
    ratios: dict[str, dict[str, Any]] = {}
    watch = OthersShare() if device.type == "cpu" else None
    if works:
        if until is not None:
            _check_time(works, device, until - time.monotonic())
        say("timing")
        for l2 in ("cold", "warm"):
            measurements, faster = _timed(works, device, settings, cold=l2 == "cold")
            for name, measurement in measurements.items():
                contenders[name][l2] = measurement
            for ours, others in faster.items():
                for name, ratio in others.items():
                    ratios.setdefault(ours, {}).setdefault(name, {})[l2] = ratio
    found = {"contenders": contenders, "ratios": ratios, "clock_hz": _clock_hz(device)}
    return found if watch is None else {**found, "others_share": watch.share()}


def _check_time(works: Mapping[str, list[Callable[[], Any]]], device: torch.device, left_s: float) -> None:
    """Raises NotMeasured when the fewest samples of every contender take longer than that."""
    import torch

    from core.tuning.measure import LEAST_SAMPLES

    began = time.monotonic()
    for calls in works.values():
        calls[0]()
    getattr(torch, device.type).synchronize()
    # With cold and with warm caches, after a call to warm up.
    needed_s = 2 * (LEAST_SAMPLES + 1) * (time.monotonic() - began)
    if needed_s > left_s:
        raise NotMeasured(
            f"no time left: timing it takes {needed_s:.0f} s or more, and {max(0.0, left_s):.0f} s are left"
        )


def _checked(
    work: Workload,
    inputs: Inputs,
    device: torch.device,
    settings: Settings,
    skip: Mapping[str, str],
    say: Callable[[str], None],
) -> tuple[dict[str, dict[str, Any]], dict[str, list[Callable[[], Any]]]]:
    """What became of each contender's first call, and the calls to time of those that are right; see `measure_case`."""
    expected = work.expected(inputs)
    contenders: dict[str, dict[str, Any]] = {}
    works: dict[str, list[Callable[[], Any]]] = {}
    for name, make in _contenders(work, inputs, settings).items():
        if name in skip:
            contenders[name] = {"status": "failed", "reason": skip[name]}
            continue
        say(name)
        try:
            other, about = make()
            wrong = _check(other, expected)
        except NotMeasured as error:
            contenders[name] = {"status": "not measured", "reason": str(error)}
        except LaunchError as error:
            raise SpoiltError(name, summary(error)) from error
        except TileHALError as error:
            contenders[name] = {"status": "failed", "reason": summary(error)}
        except Exception as error:  # of another library, or of the device
            raise SpoiltError(name, summary(error)[:300]) from error
        else:
            status = "wrong" if wrong else "ok"
            contenders[name] = {"status": status, "reason": wrong or "", "note": other.note, **about}
            if not wrong:
                works[name] = rotated(other, device)
    return contenders, works


def _timed(
    works: Mapping[str, list[Callable[[], Any]]], device: torch.device, settings: Settings, *, cold: bool
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Every contender's measurement, and for each of ours how many times as fast it is as each of the others."""
    from core.tuning.measure import measure_together

    together = measure_together(works, device, warmup_ms=settings.warmup_ms, repeat_ms=settings.repeat_ms, cold_l2=cold)
    # Both sampled in the same rounds: the time of the other over ours.
    faster = {
        ours: {name: asdict(together.ratio(name, ours)) for name in works if name != ours}
        for ours in (RULE, TUNED)
        if ours in works
    }
    return {name: measurement.to_json() for name, measurement in together.measurements.items()}, faster


def _contenders(
    work: Workload, inputs: Inputs, settings: Settings
) -> dict[str, Callable[[], tuple[Other, dict[str, Any]]]]:
    """Everyone who takes part: ours first, then the others."""
    device = next(iter(inputs.values())).device

    def ours(name: str) -> Callable[[], tuple[Other, dict[str, Any]]]:
        def make() -> tuple[Other, dict[str, Any]]:
            from core.tuning.inputs import make_arguments

            kernel = _kernel(work, TUNED if name == TUNED else RULE, settings.target)
            signature = kernel.program.signature
            arguments = make_arguments(signature, device, seed=settings.seed, values=inputs)
            position = [argument.name for argument in signature.arguments].index(work.output)
            call = _raw(work, kernel) if name == RAW else kernel
            return Other(arguments, call, output=position), _about(kernel)

        return make

    def theirs(make: Callable[[], Other]) -> Callable[[], tuple[Other, dict[str, Any]]]:
        return lambda: (make(), {})

    return {name: ours(name) for name in settings.ours} | {
        name: theirs(make) for name, make in work.others(inputs).items()
    }


def _kernel(work: Workload, which: str, target: str) -> Kernel:
    """The operator as a user compiles it, with tiles by rule or by what tuning found.

    Raises:
        NotMeasured: nothing was tuned for it.
    """
    from core.tuning.results.lookup import use_tuned

    with use_tuned("exact" if which == TUNED else "off"):
        kernel = work.factory.compile(**work.arguments, target=target)
    choice = kernel.config.choice
    if which == TUNED and (choice is None or not choice.source.startswith("tuned:")):
        raise NotMeasured("nothing was tuned for these arguments: see `tilehal tune`")
    return kernel


def _raw(work: Workload, kernel: Kernel) -> Callable[..., Any]:
    """The same PrimFunc with the same tiles, compiled and launched by tilelang itself.

    Raises:
        NotMeasured: tilelang does not compile for this kind of device by itself.
    """
    from core._tilelang import import_tilelang

    if kernel.chip.vendor != "cuda":
        raise NotMeasured(f"tilelang itself does not compile for {kernel.target}")
    tilelang = import_tilelang()
    traced = work.factory.trace(work.factory.arguments((), work.arguments), kernel.config.tiles)
    raw: Callable[..., Any] = tilelang.compile(traced.prim_func, target="cuda", pass_configs=dict(traced.pass_configs))
    return raw


def _about(kernel: Kernel) -> dict[str, Any]:
    """What is known of a kernel of ours: its tiles, who chose them, what it occupies."""
    choice = kernel.config.choice
    actual = kernel.resources.actual
    return {
        "tiles": kernel.config.tiles,
        "chosen_by": choice.source if choice is not None else "",
        "predicted_s": choice.predicted_s if choice is not None else None,
        "registers": getattr(actual, "registers_per_thread", None),
        "spilled_bytes": getattr(actual, "spill_store_bytes", None),
        "cached": kernel.provenance.source_cached and kernel.provenance.binary_cached,
    }


def _check(other: Other, expected: torch.Tensor) -> str | None:
    """What is wrong with a first call's output, or None."""
    from core.tuning.checking import tensor_difference

    returned = other.call(*other.arguments)
    if not other.checked:
        return None
    found = returned if other.output is None else other.arguments[other.output]
    return tensor_difference(found, expected)


def rotated(other: Other, device: torch.device) -> list[Callable[[], Any]]:
    """Calls on sets of arguments of the contender's own: nobody finds in the caches what another left there.

    One call, before which the caches are to be flushed, where there is no room for the sets or they would be too many.
    """
    from core.tuning.benchmark import free_bytes
    from core.tuning.inputs import copy_arguments, rotation
    from core.tuning.measure import cache_bytes

    own = copy_arguments(other.arguments)
    room = int(free_bytes(device) * _MEMORY_SHARE)
    sets = rotation(own, cache_bytes(device), most_bytes=room) or [own]

    def bound(values: Sequence[Any]) -> Callable[[], Any]:
        return lambda: other.call(*values)

    return [bound(values) for values in sets]


def _clock_hz(device: torch.device) -> float | None:
    """The clock right after the last sample, by the device's own cycle counter."""
    if device.type == "cpu":
        return None
    from core.tuning.measure.device import TorchDevice

    return TorchDevice(device, 2**20).clock_hz()
