"""Measures one case, or one yardstick, in this process."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from core.errors import BaselineError, TileHALError, summary
from core.tuning.baseline.sources import load
from core.tuning.baseline.suite import Case
from core.tuning.benchmark import prepared
from core.tuning.checking import difference
from core.tuning.inputs import argument_bytes, copy_arguments, make_arguments, moved_bytes
from core.tuning.measure import Work, measure
from core.tuning.measure.device import TorchDevice
from core.tuning.measure.host import Clock

if TYPE_CHECKING:
    import torch

    from core.runtime.kernel import Kernel

#: Extents of the yardsticks: a copy that no cache holds, and a product that no memory limits.
_COPY_BYTES = {"cpu": 64 * 2**20}
_COPY_DEFAULT_BYTES = 256 * 2**20
_PRODUCT = {"cpu": (512, "float32")}
_PRODUCT_DEFAULT = (4096, "float16")


@dataclass(frozen=True, slots=True)
class Settings:
    """How a baseline is measured.

    Attributes:
        passes: times that every case is measured, each time in a new process with new tensors.
        warmup_ms, repeat_ms: of one measurement; a case has two, with cold and with warm caches.
        clock: the host's clock for targets that run on it: `wall`, or `processor` on a machine that is not idle.
        timeout_s: longest that a case may take in a pass, compilation included.
    """

    passes: int = 5
    warmup_ms: float = 25.0
    repeat_ms: float = 50.0
    clock: Clock = "wall"
    timeout_s: float = 300.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure_case(case: Case, settings: Settings, *, index: int = 0, check: bool = True) -> dict[str, Any]:
    """One pass over a case, as JSON-able data: a part of a row.

    Args:
        index: of the pass; its inputs are drawn from this seed.
        check: compare the output with the reference before anything is timed.

    Raises:
        TileHALError: it does not load, compile or run. An output that is wrong is no error but `status: wrong`.
    """
    from core.compiler.driver import compile as compile_kernel

    factory = load(case.kernel)
    started = time.perf_counter()
    kernel: Kernel = compile_kernel(factory, target=case.target, build=True, **case.parameters)
    seconds = time.perf_counter() - started
    provenance = kernel.provenance
    device = kernel.device_type
    values = load(case.inputs)(**case.parameters) if case.inputs else None
    signature = kernel.program.signature
    arguments = make_arguments(signature, device, seed=index, symbols=case.symbols, values=values)
    found: dict[str, Any] = {
        "status": "ok",
        "flops": case.operations if case.flop_formula else kernel.program.footprint(case.symbols).flops,
        "bytes_moved": moved_bytes(signature, arguments),
        "memory": {**_memory(kernel), "tensor_bytes": argument_bytes(arguments)},
        "tiles": dict(kernel.config.tiles),
        "compile_s": None if provenance.source_cached or provenance.binary_cached else seconds,
    }
    if check and case.reference:
        found["error"], wrong = _check(case, kernel, arguments)
        if wrong:
            return {**found, "status": "wrong", "reason": wrong}
    works = prepared(kernel, arguments, device)
    for l2, work in works.items():
        found[l2] = _timed(work, device, settings, cold=l2 == "cold")
    return found


def measure_yardsticks(target: str, settings: Settings) -> dict[str, Any]:
    """A copy and a product of torch's on the target's device: what the machine gives, whatever our kernels do.

    With them the device's clock right after the product, in MHz, where it can be read.
    """
    import torch

    from core.target import resolve

    device = resolve(target).require_torch_device().split(":")[0]
    elements = _COPY_BYTES.get(device, _COPY_DEFAULT_BYTES) // 4
    extent, dtype = _PRODUCT.get(device, _PRODUCT_DEFAULT)
    source = torch.randn(elements, device=device)
    destination = torch.empty_like(source)
    a, b = (torch.randn(extent, extent, device=device).to(getattr(torch, dtype)) for _ in range(2))
    c = torch.empty_like(a)
    found: dict[str, Any] = {
        "copy": _timed(lambda: destination.copy_(source), device, settings, cold=False),
        "product": _timed(lambda: torch.mm(a, b, out=c), device, settings, cold=False),
    }
    clock_hz = None if device == "cpu" else TorchDevice(device, flush_bytes=4).clock_hz()
    return {**found, "clock_mhz": round(clock_hz / 1e6)} if clock_hz is not None else found


def _timed(work: Work, device: str, settings: Settings, *, cold: bool) -> dict[str, Any]:
    measured = measure(
        work,
        device,
        warmup_ms=settings.warmup_ms,
        repeat_ms=settings.repeat_ms,
        cold_l2=cold,
        clock=settings.clock,
    )
    return {"median_s": measured.median_s, "method": measured.method}


def _memory(kernel: Kernel) -> dict[str, int]:
    resources = kernel.resources.actual or kernel.resources.predicted
    names = ("registers_per_thread", "spill_store_bytes", "workspace_bytes")
    others = {name: getattr(resources, name) for name in names}
    return {**resources.memory_bytes, **{name: value for name, value in others.items() if value is not None}}


# ------------------------------------------------------------------------------------------------ right or wrong


def _check(case: Case, kernel: Kernel, arguments: Sequence[Any]) -> tuple[float | None, str]:
    """The error of a call on copies of the arguments, None where it is infinite, and what is wrong, if anything."""
    import torch

    signature = kernel.program.signature
    if not signature.outputs:
        raise BaselineError(
            f"{case.name} declares no output, so there is nothing to compare with {case.reference}",
            hint='declare it: @core.kernel(out=["C"])',
        )
    used = copy_arguments(arguments)
    inputs = [value for index, value in enumerate(arguments) if index not in signature.outputs]
    reference: Callable[..., Any] = load(case.reference)
    expected = reference(*inputs, **_accepted(reference, case.parameters))
    kernel(*used)
    outputs = [used[index] for index in signature.outputs]
    wanted = [expected] if isinstance(expected, torch.Tensor) else list(expected)
    if [tuple(one.shape) for one in outputs] != [tuple(one.shape) for one in wanted]:
        raise BaselineError(
            f"{case.reference} returns {[tuple(one.shape) for one in wanted]},"
            f" the outputs of {case.name} are {[tuple(one.shape) for one in outputs]}",
            hint="a reference returns the outputs in the kernel's order",
        )
    wrong = difference(signature, used, dict(zip(signature.outputs, wanted, strict=True)), case.tolerance)
    error = max(relative_error(one, other) for one, other in zip(outputs, wanted, strict=True))
    return (error if math.isfinite(error) else None), wrong or ""


def relative_error(output: torch.Tensor, expected: torch.Tensor) -> float:
    """Root mean square of the difference over that of what was expected; infinite where only one is finite."""
    exact = output.dtype.is_floating_point and output.element_size() < 8
    one, other = (tensor.float() if exact else tensor.double() for tensor in (output, expected))
    finite = other.isfinite()
    if not bool((one.isfinite() == finite).all()):
        return math.inf
    one, other = one.masked_fill(~finite, 0.0), other.masked_fill(~finite, 0.0)
    norm = float(other.norm())
    difference = float((one - other).norm())
    return difference / norm if norm else (0.0 if difference == 0 else math.inf)


def _accepted(function: Callable[..., Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that a function takes by name: a reference need not list tile sizes."""
    import inspect

    signature = inspect.signature(function)
    if any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values()):
        return dict(parameters)
    named = {name for name, one in signature.parameters.items() if one.kind is one.KEYWORD_ONLY}
    return {name: value for name, value in parameters.items() if name in named}


def failure(error: BaseException) -> dict[str, Any]:
    """What became of a case that raised, as JSON-able data."""
    kind = f"{type(error).__name__}: " if isinstance(error, TileHALError) else ""
    return {"status": "failed", "reason": kind + summary(error)}
