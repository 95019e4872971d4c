"""What the device itself reaches in the run that it bounds: bytes per second of copying and of reading, and products.

Memory is measured as the rows' copies are, with cold caches, calls going round copies of their tensors, and with
tensors of several sizes, of which the fastest counts: on an H200 torch's copy of a tensor of 32 MiB reaches 4.0 TB/s,
that of one of 1 GiB 2.8 TB/s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from core.bench.measuring import rotated
from core.bench.workloads.base import Other, dtype_of

if TYPE_CHECKING:
    import torch

#: Bytes of one tensor that is copied or read; and of that on a device that needs long for large ones.
SIZES = (2**25, 2**26, 2**27, 2**29)
SMALL_SIZES = (2**24,)
#: How long each is called before it is sampled, and sampled; and a product.
_WARMUP_MS, _REPEAT_MS, _PRODUCT_MS = 10.0, 40.0, 60.0


def measure_ceilings(target: str, dtypes: Sequence[str], *, small: bool) -> dict[str, Any]:
    """Bytes per second of the fastest copy and of the fastest sum, which only reads; operations of a large product.

    Args:
        dtypes: operand types of the products.
        small: for a device that needs long for large ones.

    Returns:
        JSON-able: `bytes_per_s`, `read_bytes_per_s`, `ops_per_s` by type; `copies` and `reads`, each size's bytes
        (those that are written count too) and rate.
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
    """Of a call that goes once through each of its tensors: bytes of all of them and bytes per second, by their size.

    Args:
        call: takes `tensors` float32 tensors.
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
