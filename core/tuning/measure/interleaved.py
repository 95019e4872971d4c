"""Measuring one call, or several in turn: what is asked of the clocks, and what comes out.

How samples are taken and what they mean is told in the package's own docstring.
"""

from __future__ import annotations

import contextlib
import gc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from core.errors import DeviceUnavailable, KernelError, LaunchError, TileHALError
from core.tuning.inputs import CACHE_TURNOVER
from core.tuning.measure.caches import UNKNOWN_CACHE_BYTES, cache_bytes, host_flush
from core.tuning.measure.device import DeviceContender, TorchDevice
from core.tuning.measure.host import Call, Clock, HostContender
from core.tuning.measure.statistics import Interval, median_interval, quantile, ratio_interval

if TYPE_CHECKING:
    import torch

#: Samples of each contender: the fewest whose smallest and largest hold the median with 95% (they do with 98%), and as
#: many as anybody needs.
LEAST_SAMPLES = 7
MOST_SAMPLES = 1000
#: How long a sample should take. The device needs about 2 us from an event to the first call of a graph and back: 0.2%.
SAMPLE_S = 1e-3
#: What is measured: a function, or the same work on several sets of buffers, taken in turn when the caches are cold.
Work = Callable[[], Any] | Sequence[Callable[[], Any]]


@dataclass(frozen=True, slots=True)
class Measurement:
    """How long one call takes.

    Attributes:
        median_s: the median of the samples, seconds.
        low_s, high_s: the interval that holds the median, see `confidence`.
        confidence: of the interval; as asked, or what so few samples reach.
        samples: seconds per call, in the order they were taken; none was dropped.
        method: `graph`, `events` or `flush` (a device's clock), `wall` or `processor` (the host's).
        l2: whether the caches held what the call before left (`warm`) or nothing of it (`cold`).
        calls_per_sample: calls timed together.
        floor_s: what the same method reads for no call at all, where that is worth knowing; it is not subtracted.
        detail: how it was done, for people.
    """

    median_s: float
    low_s: float
    high_s: float
    confidence: float
    samples: tuple[float, ...]
    method: str
    l2: Literal["cold", "warm"]
    calls_per_sample: int = 1
    floor_s: float = 0.0
    detail: str = ""

    @property
    def spread(self) -> float:
        """Distance between the quartiles of the samples over their median: 0.01 is 1%."""
        return (quantile(self.samples, 0.75) - quantile(self.samples, 0.25)) / self.median_s if self.median_s else 0.0

    def to_json(self) -> dict[str, Any]:
        """As JSON-able data, with the spread and the number of samples in place of the samples."""
        data = asdict(self)
        data["samples"] = len(self.samples)
        data["spread"] = self.spread
        return data


@dataclass(frozen=True, slots=True)
class Together:
    """Contenders that were sampled in turn: `measurements` by name."""

    measurements: Mapping[str, Measurement]
    confidence: float

    def ratio(self, one: str, other: str) -> Interval:
        """How many times as long `one` takes as `other`: the median over the rounds, and its interval."""
        return ratio_interval(self.measurements[one].samples, self.measurements[other].samples, self.confidence)


class _Contender(Protocol):
    method: str
    detail: str
    calls_per_sample: int
    estimate_s: float
    floor_s: float

    def prepare(self) -> None: ...
    def take(self) -> None: ...
    def results(self) -> list[float]: ...


def measure(
    call: Work,
    device: torch.device | str,
    *,
    warmup_ms: float = 25.0,
    repeat_ms: float = 100.0,
    cold_l2: bool = False,
    confidence: float = 0.95,
    least_samples: int = LEAST_SAMPLES,
    most_samples: int = MOST_SAMPLES,
    clock: Clock = "wall",
    graph: bool = True,
    l2_bytes: int | None = None,
) -> Measurement:
    """Measures one call.

    Args:
        call: a function that does the work once: asynchronously on torch's current stream, or on the CPU. A sequence is
            the same work on several sets of buffers (`core.tuning.inputs.rotation` makes them), which is what cold
            caches need: it goes round them. With warm caches only the first is called.
        device: where the work runs: `cuda`, `cuda:1`, `cpu`; `cpu` for a simulator.
        warmup_ms: how long it is called before anything is timed; once at least, however long that takes.
        repeat_ms: how long it is sampled for, within `least_samples` and `most_samples`.
        cold_l2: that nothing the call touches is in the caches. Given one function only, they are flushed by reading
            something else before every call; on a device a sample then holds the events' own microsecond, `floor_s`.
        confidence: of the median's interval.
        clock: the host's clock to read: `wall` or, for this process alone, `processor`. Devices have their own.
        graph: whether calls may be captured into a CUDA graph; where they cannot be, they are queued.
        l2_bytes: of the last cache before the device's memory; asked of the device when None.

    Raises:
        KernelError: there is no function to call, or an option is none of those above.
        DeviceUnavailable: there is no such device.
        LaunchError: the work failed, or the device did while it was running.
        TileHALError: whatever of ours the work raises.
    """
    together = measure_together(
        {"": call},
        device,
        warmup_ms=warmup_ms,
        repeat_ms=repeat_ms,
        cold_l2=cold_l2,
        confidence=confidence,
        least_samples=least_samples,
        most_samples=most_samples,
        clock=clock,
        graph=graph,
        l2_bytes=l2_bytes,
    )
    return together.measurements[""]


def measure_together(
    contenders: Mapping[str, Work],
    device: torch.device | str,
    *,
    warmup_ms: float = 25.0,
    repeat_ms: float = 100.0,
    cold_l2: bool = False,
    confidence: float = 0.95,
    least_samples: int = LEAST_SAMPLES,
    most_samples: int = MOST_SAMPLES,
    clock: Clock = "wall",
    graph: bool = True,
    l2_bytes: int | None = None,
) -> Together:
    """Measures several calls in turn, so that they can be compared. Arguments as for :func:`measure`, times for each.

    Raises as :func:`measure`; KernelError when there is nothing to measure.
    """
    import torch

    where = device_here(device)
    _check_options(warmup_ms, repeat_ms, confidence, least_samples, most_samples, clock)
    works = {name: _as_calls(name, work) for name, work in contenders.items()}
    if not works:
        raise KernelError("there is nothing to measure", hint="give one function at least")
    on_host = where.type == "cpu"
    flush_bytes = CACHE_TURNOVER * (l2_bytes or cache_bytes(where)) if cold_l2 else 0
    shared = None if on_host else TorchDevice(where, flush_bytes or CACHE_TURNOVER * UNKNOWN_CACHE_BYTES)
    common = {"warm_up_s": warmup_ms / 1e3, "sample_s": min(SAMPLE_S, repeat_ms / 1e3 / least_samples)}
    ready: dict[str, _Contender] = {}
    try:
        with contextlib.nullcontext() if on_host else getattr(torch, where.type).device(where):
            for name, calls in works.items():
                used, flush = (calls, len(calls) == 1) if cold_l2 else (calls[:1], False)
                if shared is None:
                    flusher = host_flush(flush_bytes) if flush else None
                    ready[name] = HostContender(used, clock=clock, flush=flusher, **common)
                else:
                    ready[name] = DeviceContender(shared, used, flush=flush, graph=graph, **common)
            samples = sample_in_turn(ready, repeat_ms / 1e3, least_samples, most_samples)
    except TileHALError:
        raise
    except RuntimeError as error:
        raise LaunchError(
            f"what was being measured failed: {error}",
            hint="call it once by itself; a fault of an earlier launch can surface here too: run with "
            "TILEHAL_LAUNCH_BLOCKING=1 to find it",
        ) from error
    return Together(
        {name: _measurement(ready[name], samples[name], works[name], cold_l2, confidence) for name in works}, confidence
    )


def sample_in_turn(
    contenders: Mapping[str, _Contender], repeat_s: float, least_samples: int, most_samples: int
) -> dict[str, list[float]]:
    """Samples every contender once a round, forwards and backwards in turn, for about `repeat_s` each."""
    round_s = sum(one.estimate_s for one in contenders.values())
    rounds = max(least_samples, min(most_samples, round(len(contenders) * repeat_s / round_s)))
    order = list(contenders.values())
    with _no_garbage_collection():
        for one in order:
            one.prepare()
        for _ in range(rounds):
            for one in order:
                one.take()
            order.reverse()
        return {name: one.results() for name, one in contenders.items()}


def _as_calls(name: str, work: Work) -> list[Call]:
    calls = [work] if callable(work) else list(work) if isinstance(work, (list, tuple)) else []
    if not calls or not all(callable(call) for call in calls):
        raise KernelError(f"{name or 'the work'} has no function to call", hint="give one function at least")
    return calls


def device_here(device: torch.device | str) -> torch.device:
    """A device that is there. Raises DeviceUnavailable for others."""
    import torch

    try:
        where = torch.device(device)
    except RuntimeError as error:
        raise DeviceUnavailable(
            f"{device!r} is no device of torch's", hint='name one: "cpu", "cuda", "cuda:1"'
        ) from error
    if where.type == "cpu":
        return where
    module = getattr(torch, where.type, None)
    count = module.device_count() if module is not None and module.is_available() else 0
    if (where.index or 0) >= count:
        raise DeviceUnavailable(
            f"torch sees {count} {where.type} devices here, so {where} cannot be measured",
            hint='measure where the device is; "cpu" measures the host',
        )
    return where


def _check_options(
    warmup_ms: float, repeat_ms: float, confidence: float, least_samples: int, most_samples: int, clock: str
) -> None:
    def refused(name: str, value: Any, wanted: str) -> KernelError:
        return KernelError(f"{name}={value!r}, and it is {wanted}", hint="leave it out to have what is usual")

    for name, value in (("warmup_ms", warmup_ms), ("repeat_ms", repeat_ms)):
        if not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
            raise refused(name, value, "a number of milliseconds, 0 or more")
    if not isinstance(confidence, (int, float)) or not 0 < confidence < 1:
        raise refused("confidence", confidence, "a probability between 0 and 1, such as 0.95")
    if not isinstance(least_samples, int) or least_samples < 1:
        raise refused("least_samples", least_samples, "a number of samples, 1 or more")
    if not isinstance(most_samples, int) or most_samples < least_samples:
        raise refused("most_samples", most_samples, f"a number of samples, least_samples={least_samples} or more")
    if clock not in ("wall", "processor"):
        raise refused("clock", clock, '"wall" or "processor"')


def _measurement(
    one: _Contender, samples: Sequence[float], calls: Sequence[Call], cold: bool, confidence: float
) -> Measurement:
    interval = median_interval(samples, confidence)
    detail = one.detail
    if cold and len(calls) > 1:
        detail += f", {len(calls)} sets of buffers in turn"
    return Measurement(
        median_s=interval.value,
        low_s=interval.low,
        high_s=interval.high,
        confidence=interval.confidence,
        samples=tuple(samples),
        method=one.method,
        l2="cold" if cold else "warm",
        calls_per_sample=one.calls_per_sample,
        floor_s=one.floor_s,
        detail=detail,
    )


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A collection in the middle of a sample would be somebody else's time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
