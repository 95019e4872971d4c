"""Whether a candidate computed what the reference says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from core.runtime.signature import Signature, TensorArgument

if TYPE_CHECKING:
    import torch

#: How far an element may be off, as a share of its own size and of the root mean square of all. Tiles differ in the
#: order of their sums, and results are rounded once: a few units in the last place of the output's type, no more.
TOLERANCES = {
    "torch.float64": 1e-9,
    "torch.float32": 1e-3,
    "torch.float16": 1e-2,
    "torch.bfloat16": 3e-2,
}
#: Of 8-bit floats.
_COARSE = 0.15


def written(signature: Signature) -> list[int]:
    """Positions of the tensors that a kernel writes: declared outputs, and what it changes in place."""
    return [
        index
        for index, argument in enumerate(signature.arguments)
        if isinstance(argument, TensorArgument) and (argument.writes or argument.is_output)
    ]


def difference(
    signature: Signature, found: Sequence[Any], expected: dict[int, Any], tolerance: float | None = None
) -> str | None:
    """What is wrong with a call's tensors, in one line, or None.

    Args:
        found: every argument of the call, in order.
        expected: by position, what the kernel should have written; each on the device of the one found.
        tolerance: share by which an element may be off; by the type of each output when None.
    """
    for position, right in expected.items():
        name = signature.arguments[position].name
        said = tensor_difference(found[position], right.to(found[position].device), tolerance)
        if said is not None:
            return f"{name}: {said}"
    return None


def tensor_difference(found: torch.Tensor, right: torch.Tensor, tolerance: float | None = None) -> str | None:
    """What is wrong with one tensor, in one line, or None; arguments as for :func:`difference`, on one device."""
    import torch

    if found.shape != right.shape:
        return f"its shape is {tuple(found.shape)}, the reference's {tuple(right.shape)}"
    if not found.dtype.is_floating_point:
        off = found != right.to(found.dtype)
        worst = torch.zeros_like(found, dtype=torch.float32).masked_fill_(off, 1.0)
        return _said(found, right, off, worst, 0.0)
    share = tolerance if tolerance is not None else TOLERANCES.get(str(found.dtype), _COARSE)
    wide = torch.float64 if found.dtype is torch.float64 else torch.float32
    a, b = found.to(wide), right.to(wide)
    finite = b.isfinite()
    scale = b[finite].square().mean().sqrt() if bool(finite.any()) else torch.zeros((), device=b.device)
    error = (a - b).abs()
    # NaN compares false, so what is not provably near is off.
    off = ~(torch.where(finite, error <= share * (b.abs() + scale), (a == b) | (a.isnan() & b.isnan())))
    return _said(found, right, off, torch.where(off, error.nan_to_num(nan=float("inf")), 0.0), share)


def _said(found: torch.Tensor, right: torch.Tensor, off: torch.Tensor, worst: torch.Tensor, share: float) -> str | None:
    import torch

    count = int(off.sum())
    if count == 0:
        return None
    index = torch.unravel_index(worst.argmax(), worst.shape)
    place = ", ".join(str(int(axis)) for axis in index)
    within = f", allowed {share:g} of its size" if share else ""
    values = f"{found[index].item():g} instead of {right[index].item():g}"
    return f"{count:,} of {found.numel():,} elements are wrong{within}; the worst, [{place}], is {values}"
