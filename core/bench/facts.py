"""What a benchmark's figures belong to and are held against: machine, versions, and the device's own ceilings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any


def measure_ceilings(target: str, dtypes: Sequence[str], *, small: bool) -> dict[str, Any]:
    """What the device reaches: bytes per second of a large copy, operations per second of a large library product.

    Args:
        dtypes: operand types of the products.
        small: for a device that needs long for large ones.
    """
    import torch

    from core.bench.workloads.base import dtype_of
    from core.target import resolve
    from core.tuning.measure import measure

    device = torch.device(resolve(target).require_torch_device())
    size = 2**24 if small else 2**30
    source = torch.randint(0, 256, (size,), dtype=torch.uint8, device=device)
    taken = measure(partial(torch.empty_like(source).copy_, source), device, repeat_ms=60)
    found: dict[str, Any] = {"bytes_per_s": 2 * size / taken.median_s, "copied_bytes": size, "ops_per_s": {}}
    n = 256 if small else 8192
    for dtype in dtypes:
        a, b = (torch.randn(n, n, device=device).to(dtype_of(dtype)) for _ in range(2))
        product = measure(partial(torch.matmul, a, b, out=torch.empty_like(a)), device, repeat_ms=60)
        found["ops_per_s"][dtype] = 2 * n**3 / product.median_s
    return found


def describe(target: str) -> dict[str, Any]:
    """Host, device, driver, compilers and library versions; the device's identifier for its own tools."""
    import torch

    from core.target import resolve
    from core.tuning.baseline.environment import describe_host, describe_target

    device = torch.device(resolve(target).require_torch_device())
    found: dict[str, Any] = {
        "host": describe_host(),
        "target": {"name": resolve(target).chip.target, **describe_target(target)},
        "libraries": {name: installed(name) or "not installed" for name in ("tilelang", "triton", "flash-mla")},
        "device_type": device.type,
    }
    if device.type == "cuda":
        found["libraries"]["cuda of torch"] = str(torch.version.cuda)
        cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        found["libraries"]["cudnn"] = str(cudnn)
        identifier = getattr(torch.cuda.get_device_properties(device), "uuid", None)
        found["uuid"] = f"GPU-{identifier}" if identifier is not None else None
    return found


def installed(name: str) -> str | None:
    """Version of a distribution of this environment; None where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
