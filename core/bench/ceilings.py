"""Ceilings of a benchmark: what the device reaches, in the same run, at copying, at reading and at a large product.

Memory is measured as the operators are: with cold caches, each call on other copies of the tensors. Several sizes of
tensors are tried, and the fastest counts, because the largest is not the fastest: on an H200 torch copies a tensor of
32 MiB at 4.0 TB/s and one of 1 GiB at 2.8 TB/s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from core.bench.measuring import rotated
from core.bench.workloads.base import Other, dtype_of

if TYPE_CHECKING:
    import torch

#: Bytes of the tensor that is copied or read; on a device that needs long for large ones, the second.
SIZES = (2**25, 2**26, 2**27, 2**29)
SMALL_SIZES = (2**24,)
#: Milliseconds: a copy or sum is called for so long first, then sampled for so long; a product is sampled for so long.
_WARMUP_MS, _REPEAT_MS, _PRODUCT_MS = 10.0, 40.0, 60.0


def measure_ceilings(target: str, dtypes: Sequence[str], *, small: bool) -> dict[str, Any]:
    """Bytes per second of the fastest copy and of the fastest sum, which only reads; operations of a large product.

    Args:
        dtypes: operand types of the products.
        small: for a device that needs long for large ones.

    Returns:
        JSON-able: `bytes_per_s` and `read_bytes_per_s`, the fastest copy and sum; `ops_per_s` by type; `copies` and
        `reads`, for each size `bytes` (read and written) and `bytes_per_s`.
    """
    import torch

    from core.target import resolve
    from core.tuning.measure import measure

    device = torch.device(resolve(target).require_torch_device())
    sizes = SMALL_SIZES if small else SIZES
    copies = memory_rates(lambda source, into: into.copy_(source), 2, sizes, device)
    reads = memory_rates(torch.sum, 1, sizes, device)
    products = {}
    n = 256 if small else 8192
    for dtype in dtypes:
        a, b = (torch.randn(n, n, device=device).to(dtype_of(dtype)) for _ in range(2))
        product = measure(partial(torch.matmul, a, b, out=torch.empty_like(a)), device, repeat_ms=_PRODUCT_MS)
        products[dtype] = 2 * n**3 / product.median_s
    return {
        "bytes_per_s": max(one["bytes_per_s"] for one in copies),
        "read_bytes_per_s": max(one["bytes_per_s"] for one in reads),
        "ops_per_s": products,
        "copies": copies,
        "reads": reads,
    }


def memory_rates(
    call: Callable[..., Any], tensors: int, sizes: Sequence[int], device: torch.device
) -> list[dict[str, float]]:
    """For each size, the bytes of all tensors of a call and the bytes per second it moves.

    Args:
        call: takes `tensors` float32 tensors, and goes through each of them once.
        sizes: bytes of one tensor.
    """
    import torch

    from core.tuning.measure import measure

    found = []
    for size in sizes:
        calls = rotated(Other([torch.randn(size // 4, device=device) for _ in range(tensors)], call), device)
        taken = measure(calls, device, warmup_ms=_WARMUP_MS, repeat_ms=_REPEAT_MS, cold_l2=True)
        found.append({"bytes": tensors * size, "bytes_per_s": tensors * size / taken.median_s})
    return found
