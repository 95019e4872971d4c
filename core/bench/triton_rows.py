"""The Triton row kernels at their best: rows a program and warps are chosen by measuring all of them first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from core.bench.workloads.base import NotMeasured, empty_like

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


def compile_all(operator: str, rows: int, columns: int, dtype: str) -> int:
    """Compiles every configuration into Triton's cache and says how many there are.

    Raises:
        NotMeasured: Triton is not installed, or there is no device that it compiles for.
    """
    kernel = _kernel(operator)
    from core.bench.workloads.base import dtype_of

    kind = dtype_of(dtype)
    pointers = [kind] * (2 + _VECTORS[operator])
    count = 0
    for config in configs(columns):
        kernel.warmup(*pointers, rows, **_constants(config, rows, columns), num_warps=config.warps, grid=(1,))
        count += 1
    return count


def tuned(operator: str, x: Any, vectors: Sequence[Any]) -> tuple[Callable[..., None], str]:
    """The fastest configuration for these tensors, as a function of (x, *vectors, y), and its name.

    Raises:
        NotMeasured: Triton is not installed, or none of the configurations runs.
    """
    from core.tuning.inputs import rotation
    from core.tuning.measure import cache_bytes, measure_together

    kernel = _kernel(operator)
    rows, columns = x.shape
    sets = rotation([x, *vectors, empty_like(x)], cache_bytes(x.device)) or [[x, *vectors, empty_like(x)]]
    works: dict[str, list[Callable[[], None]]] = {}
    calls: dict[str, Callable[..., None]] = {}
    failures: list[str] = []
    for config in configs(columns):
        call = _calling(kernel, config, rows, columns)
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
    return calls[best], f"{best}, the best of {len(calls)}"


_VECTORS = {"softmax": 0, "layernorm": 2, "rmsnorm": 1}


def _kernel(operator: str) -> Any:
    try:
        from core.bench import triton_kernels
    except ImportError as error:
        raise NotMeasured(f"Triton cannot be imported ({error})") from error
    return getattr(triton_kernels, f"{operator}_rows")


def _width(columns: int) -> int:
    return 1 << max(0, columns - 1).bit_length()


def _constants(config: Config, rows: int, columns: int) -> dict[str, Any]:
    width = _width(columns)
    exact = rows % config.rows == 0 and width == columns
    return {"columns": columns, "ROWS": config.rows, "WIDTH": width, "EXACT": exact}


def _calling(kernel: Any, config: Config, rows: int, columns: int) -> Callable[..., None]:
    constants = _constants(config, rows, columns)
    grid = (-(-rows // config.rows),)

    def call(*tensors: Any) -> None:
        kernel[grid](*tensors, rows, **constants, num_warps=config.warps)

    return call


def _bound(call: Callable[..., None], tensors: Sequence[Any]) -> Callable[[], None]:
    return lambda: call(*tensors)
