"""How large a convolution's result is: for its factory, and for its function of torch tensors."""

from __future__ import annotations

from typing import Any

import torch

from core.errors import KernelError


def output_extents(height: Any, width: Any, size: Any, *, stride: Any, padding: Any, dilation: Any) -> tuple[Any, Any]:
    """Height and width of the result, pixels; the images' may be symbolic.

    Raises:
        KernelError: a number is none of elements, or images of known extents are smaller than the weight.
    """
    for name, elements, least in (("stride", stride, 1), ("padding", padding, 0), ("dilation", dilation, 1)):
        if not isinstance(elements, int) or elements < least:
            raise KernelError(
                f"conv2d: {name}={elements!r}, and it is an integer of {least} or more",
                hint="it is the same in both directions",
            )
    out_height, out_width = (
        (extent + 2 * padding - dilation * (size - 1) - 1) // stride + 1 for extent in (height, width)
    )
    if any(isinstance(extent, (int, torch.SymInt)) and extent < 1 for extent in (out_height, out_width)):
        raise KernelError(
            f"conv2d: images of {height} x {width} with padding {padding} are smaller than a weight of {size} x {size}"
            f" with dilation {dilation}",
            hint="pad them, or leave the call out",
        )
    return out_height, out_width
