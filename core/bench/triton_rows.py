"""The Triton row kernels at their best: rows a program and warps are chosen by measuring all of them first.

They take part twice: as Triton launches them by default, each when the one in front of it has ended; and overlapped,
each beginning while the one in front of it ends (programmatic dependent launch), where the device and Triton can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from core.bench.contenders import TRITON, TRITON_OVERLAPPED
from core.bench.facts import installed
from core.bench.workloads.base import NotMeasured, empty_like

#: The contenders by name, and whether their launches overlap.
CONTENDERS = {TRITON: False, TRITON_OVERLAPPED: True}
#: The operators that there are kernels of, with the number of vectors (weight, bias) that each reads.
_VECTORS = {"softmax": 0, "layernorm": 2, "rmsnorm": 1}
OPERATORS = tuple(_VECTORS)
#: Capability of the first devices on which launches can overlap (CUDA Programming Guide, Programmatic Dependent Launch
#: and Synchronization).
_OVERLAPPING_SINCE = (9, 0)
#: Elements of a thread that are worth trying, rows of a program, warps of a program, elements of a program at most.
_ELEMENTS = (8, 64)
_ROWS = (1, 2, 4, 8)
_WARPS = (1, 2, 4, 8, 16, 32)
_MOST_ELEMENTS = 2**15


@dataclass(frozen=True, slots=True)
class Config:
    """What is tuned."""

    rows: int
    warps: int

    def __str__(self) -> str:
        return f"{self.rows} row{'s' * (self.rows > 1)} a program, {self.warps} warp{'s' * (self.warps > 1)}"


def configs(columns: int) -> Iterator[Config]:
    """Every configuration that is tried for rows of so many elements."""
    width = _width(columns)
    for rows in _ROWS:
        for warps in _WARPS:
            each = rows * width / (32 * warps)
            if rows * width <= max(_MOST_ELEMENTS, width) and _ELEMENTS[0] <= each <= _ELEMENTS[1]:
                yield Config(rows, warps)


def compile_all(operator: str, rows: int, columns: int, dtype: str, *, overlapped: bool = False) -> int:
    """Compiles every configuration into Triton's cache and says how many there are.

    Args:
        overlapped: for launches that overlap; these are other kernels.

    Raises:
        NotMeasured: Triton is not installed, or launches are to overlap and cannot here.
    """
    kernel = _kernel(operator)
    if overlapped:
        require_overlap()
    from core.bench.workloads.base import dtype_of

    kind = dtype_of(dtype)
    pointers = [kind] * (2 + _VECTORS[operator])
    count = 0
    for config in configs(columns):
        kernel.warmup(*pointers, rows, **_options(config, rows, columns, overlapped), grid=(1,))
        count += 1
    return count


def tuned(
    operator: str, x: Any, vectors: Sequence[Any], *, overlapped: bool = False
) -> tuple[Callable[..., None], str]:
    """The fastest configuration for these tensors, as a function of (x, *vectors, y), and its name.

    Args:
        overlapped: that launches overlap, those of the configurations that are compared as well.

    Raises:
        NotMeasured: Triton is not installed, launches are to overlap and cannot here, or no configuration runs.
    """
    from core.tuning.inputs import rotation
    from core.tuning.measure import cache_bytes, measure_together

    kernel = _kernel(operator)
    if overlapped:
        require_overlap(x.device)
    rows, columns = x.shape
    sets = rotation([x, *vectors, empty_like(x)], cache_bytes(x.device)) or [[x, *vectors, empty_like(x)]]
    works: dict[str, list[Callable[[], None]]] = {}
    calls: dict[str, Callable[..., None]] = {}
    failures: list[str] = []
    for config in configs(columns):
        call = _calling(kernel, config, rows, columns, overlapped)
        try:
            call(*sets[0])
        except Exception as error:  # a configuration may need more than the device has
            failures.append(f"{config}: {error}")
            continue
        calls[str(config)] = call
        works[str(config)] = [_bound(call, one) for one in sets]
    if not calls:
        raise NotMeasured(f"no configuration runs: {failures[0] if failures else 'there is none'}")
    together = measure_together(works, x.device, warmup_ms=2, repeat_ms=8, cold_l2=True)
    best = min(together.measurements, key=lambda name: together.measurements[name].median_s)
    return calls[best], f"{best}, the best of {len(calls)}" + (", launches overlap" if overlapped else "")


def require_overlap(device: Any = None) -> None:
    """Passes where Triton's launches can overlap on a device; the current one when None.

    Raises:
        NotMeasured: they cannot; or Triton is not installed.
    """
    import torch

    if _module().gdc_wait is None:
        raise NotMeasured(f"launches of Triton {installed('triton')} cannot overlap: it has no gdc_wait")
    if torch.version.cuda is None or not torch.cuda.is_available():
        raise NotMeasured("launches overlap on NVIDIA's devices only")
    found = torch.cuda.get_device_capability(device)
    if found < _OVERLAPPING_SINCE:
        least, here = (".".join(map(str, one)) for one in (_OVERLAPPING_SINCE, found))
        raise NotMeasured(f"launches overlap from capability {least} on, and the device has {here}")


def _module() -> Any:
    try:
        from core.bench import triton_kernels
    except ImportError as error:
        raise NotMeasured(f"Triton cannot be imported ({error})") from error
    return triton_kernels


def _kernel(operator: str) -> Any:
    return getattr(_module(), f"{operator}_rows")


def _width(columns: int) -> int:
    return 1 << max(0, columns - 1).bit_length()


def _options(config: Config, rows: int, columns: int, overlapped: bool) -> dict[str, Any]:
    """The options of compiling and of launching: the same, since they are part of the key of Triton's cache."""
    width = _width(columns)
    exact = rows % config.rows == 0 and width == columns
    constants = {"columns": columns, "ROWS": config.rows, "WIDTH": width, "EXACT": exact, "OVERLAPPED": overlapped}
    # An older Triton does not know the option that is left out.
    return {**constants, "num_warps": config.warps, **({"launch_pdl": True} if overlapped else {})}


def _calling(kernel: Any, config: Config, rows: int, columns: int, overlapped: bool = False) -> Callable[..., None]:
    options = _options(config, rows, columns, overlapped)
    grid = (-(-rows // config.rows),)

    def call(*tensors: Any) -> None:
        kernel[grid](*tensors, rows, **options)

    return call


def _bound(call: Callable[..., None], tensors: Sequence[Any]) -> Callable[[], None]:
    return lambda: call(*tensors)
