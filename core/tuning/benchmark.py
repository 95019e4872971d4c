"""`kernel.benchmark()`: how long a kernel takes with cold and with warm caches, and what rates that makes."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from core.errors import KernelError
from core.runtime.signature import Signature, TensorArgument
from core.tuning.inputs import copy_arguments, make_arguments, moved_bytes, rotation
from core.tuning.measure import Measurement, Work, cache_bytes, measure

if TYPE_CHECKING:
    import torch

    from core.runtime.kernel import Kernel

L2 = Literal["cold", "warm"]

#: Share of the memory that is free which copies of the arguments may take.
_MEMORY_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Benchmark:
    """How long one call of a kernel takes on its device.

    Attributes:
        kernel, target: what was measured.
        cold: with nothing of the call's in the caches: weights that were last used a whole model ago.
        warm: the same call again and again.
        flops: operations of one call as the kernel's text counts them, padded tiles included; None when unknown.
        bytes_moved: the least traffic to global memory: every input once in, every output once out.
    """

    kernel: str
    target: str
    cold: Measurement
    warm: Measurement
    flops: float | None
    bytes_moved: int

    def measurement(self, l2: L2 = "cold") -> Measurement:
        """The one with caches in this state."""
        if l2 not in ("cold", "warm"):
            raise KernelError(f"caches are cold or warm, not {l2!r}", hint='pass "cold" or "warm"')
        return self.cold if l2 == "cold" else self.warm

    def tflops(self, l2: L2 = "cold") -> float | None:
        """10¹² operations per second at the median; None where the kernel computes nothing that is counted."""
        median_s = self.measurement(l2).median_s
        return self.flops / median_s / 1e12 if self.flops else None

    def bytes_per_s(self, l2: L2 = "cold") -> float:
        """`bytes_moved` per second at the median. With warm caches it can be above what the memory gives."""
        return self.bytes_moved / self.measurement(l2).median_s

    def to_json(self) -> dict[str, Any]:
        """As JSON-able data."""
        return {
            "kernel": self.kernel,
            "target": self.target,
            "flops": self.flops,
            "bytes_moved": self.bytes_moved,
            **{
                l2: {
                    **self.measurement(l2).to_json(),
                    "tflops": self.tflops(l2),
                    "bytes_per_s": self.bytes_per_s(l2),
                }
                for l2 in ("cold", "warm")
            },
        }

    def __str__(self) -> str:
        lines = [f"{self.kernel} on {self.target}"]
        for l2 in ("cold", "warm"):
            one = self.measurement(l2)
            rate = self.tflops(l2)
            lines.append(
                f"  {l2}  {one.median_s * 1e6:10.2f} us  ({one.low_s * 1e6:.2f} to {one.high_s * 1e6:.2f}, "
                f"{one.confidence:.0%}; spread {one.spread:.1%}; {one.method})"
                + (f"  {rate:.4g} TFLOP/s" if rate is not None else "")
                + f"  {self.bytes_per_s(l2) / 1e9:.4g} GB/s"
            )
        return "\n".join(lines)


def benchmark(
    kernel: Kernel,
    *tensors: Any,
    symbols: Mapping[str, int] | None = None,
    values: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    flops: float | None = None,
    bytes_moved: int | None = None,
    **options: Any,
) -> Benchmark:
    """Measures a kernel with cold and with warm caches.

    Args:
        kernel: a compiled kernel.
        tensors: its arguments, with or without the outputs; random ones are made when there are none.
        symbols, values, seed: for the random ones, as :func:`core.tuning.inputs.make_arguments` takes them.
        device: torch device for the random ones; the kernel's kind of device when None.
        flops, bytes_moved: of one call, where the kernel's text does not say what counts (padding, gathered rows).
        options: of :func:`core.tuning.measure.measure`: `warmup_ms`, `repeat_ms`, `confidence`, `clock`, `graph`, ...

    The tensors given are called with many times over, so one that the kernel both reads and writes changes. The copies
    that cold caches take use at most half of the free memory; beyond that, the caches are flushed.

    Raises:
        KernelError: the kernel runs in a simulator, whose time says nothing of the chip; an option is none; or as
            `make_arguments`.
        LaunchError, ShapeMismatch, DeviceUnavailable: as a call of the kernel.
    """
    if kernel.simulated:
        raise KernelError(
            f"{kernel.name} runs in a simulator of {kernel.target}, whose time says nothing of the chip",
            hint="measure on a machine with the device; `core.tuning.measure` times any function, if that is meant",
        )
    signature = kernel.program.signature
    _check(tensors, {"symbols": symbols, "values": values}, {"flops": flops, "bytes_moved": bytes_moved}, options)
    if tensors:
        arguments = complete_arguments(kernel, tensors)
        where: Any = next((value.device for value in arguments if hasattr(value, "device")), kernel.device_type)
    else:
        where = device or kernel.device_type
        arguments = make_arguments(signature, where, seed=seed, symbols=symbols, values=values)
    works = prepared(kernel, arguments, where, options.get("l2_bytes"))
    measured = {l2: measure(works[l2], where, cold_l2=l2 == "cold", **options) for l2 in works}
    known = symbols if symbols is not None else _symbols(signature, arguments)
    return Benchmark(
        kernel=kernel.name,
        target=kernel.target,
        cold=measured["cold"],
        warm=measured["warm"],
        flops=flops if flops is not None else kernel.program.footprint(known).flops,
        bytes_moved=bytes_moved if bytes_moved is not None else moved_bytes(signature, arguments),
    )


def _check(
    tensors: Sequence[Any], random: Mapping[str, Any], counts: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    needless = [name for name, value in random.items() if value is not None]
    if tensors and needless:
        raise KernelError(
            f"benchmark() got tensors and {needless[0]}=, which says what random arguments are made like",
            hint="leave one of them out",
        )
    for name, value in counts.items():
        if value is not None and (not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0):
            raise KernelError(f"{name}={value!r}, and it is a number of 0 or more for one call", hint="leave it out")
    taken = [name for name in inspect.signature(measure).parameters if name not in ("call", "device", "cold_l2")]
    unknown = [name for name in options if name not in taken]
    if unknown:
        raise KernelError(
            f"benchmark() has no option {unknown[0]!r}",
            hint=f"its options are symbols, values, seed, device, flops, bytes_moved, {', '.join(taken)}",
        )


def prepared(
    kernel: Callable[..., Any], arguments: Sequence[Any], device: torch.device | str, l2_bytes: int | None = None
) -> dict[L2, Work]:
    """What to hand to `measure` for warm and for cold caches: calls of the kernel with every argument passed in."""

    def call(values: Sequence[Any]) -> Callable[[], Any]:
        return lambda: kernel(*values)

    sets = buffer_sets(arguments, device, l2_bytes)
    return {"cold": [call(values) for values in sets], "warm": call(arguments)}


def buffer_sets(arguments: Sequence[Any], device: torch.device | str, l2_bytes: int | None = None) -> list[list[Any]]:
    """The arguments and as many copies as cold caches take, one after the other; no copies where there is no room."""
    most_bytes = int(free_bytes(device) * _MEMORY_SHARE)
    return rotation(arguments, l2_bytes or cache_bytes(device), most_bytes=most_bytes) or [list(arguments)]


def complete_arguments(kernel: Kernel, tensors: Sequence[Any]) -> list[Any]:
    """Every argument in order. Outputs that were not given are those of a first call."""
    signature = kernel.program.signature
    if len(tensors) == len(signature.arguments):
        return list(tensors)
    inputs = copy_arguments(tensors)  # the first call must not change what is measured
    outputs = kernel(*inputs)
    made = outputs if len(signature.outputs) > 1 else [outputs]
    given = iter(tensors)
    by_position = dict(zip(signature.outputs, made, strict=True))
    return [by_position[i] if i in by_position else next(given) for i in range(len(signature.arguments))]


def _symbols(signature: Signature, arguments: Sequence[Any]) -> dict[str, int]:
    """The symbolic dimensions that are the whole extent of some tensor's axis."""
    found: dict[str, int] = {}
    for argument, value in zip(signature.arguments, arguments, strict=True):
        if isinstance(argument, TensorArgument):
            for extent, actual in zip(argument.shape, value.shape, strict=True):
                if isinstance(extent, str) and extent in signature.symbols:
                    found.setdefault(extent, int(actual))
    return found


def free_bytes(device: torch.device | str) -> int:
    """Bytes that could be allocated on a device now."""
    import torch

    where = torch.device(device)
    if where.type == "cpu":
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(getattr(torch, where.type).mem_get_info(where)[0])
