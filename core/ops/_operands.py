"""What `core.ops.functional` asks of the tensors and numbers of a call, and tensors as a kernel reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from core.errors import KernelError, LaunchError, ShapeMismatch
from core.runtime.values import as_scalar, has_memory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor


def expect(operator: str, required: Mapping[str, Any], optional: Mapping[str, Any]) -> None:
    """What every function asks first: tensors. What dtypes it computes, its factory says.

    Raises:
        LaunchError: one is no tensor; those that are optional may be None.
    """
    given = {**required, **{name: value for name, value in optional.items() if value is not None}}
    for name, value in given.items():
        if not isinstance(value, torch.Tensor):
            raise LaunchError(
                f"{operator}: {name} is a tensor, got {type(value).__name__}", hint="convert it with torch.as_tensor"
            )


def matrix(operator: str, name: str, tensor: Tensor) -> tuple[int, int]:
    """Rows and columns when every dimension but the last is rows."""
    if tensor.dim() == 0 or tensor.numel() == 0:
        raise ShapeMismatch(f"{operator}: {name} is {described(tensor)}, which has no rows", hint="it is (..., N)")
    return tensor.numel() // tensor.shape[-1], tensor.shape[-1]


def packed(operator: str, name: str, tensor: Tensor, shape: Sequence[int], view: tuple[int, ...]) -> Tensor:
    """The tensor, which must have `shape` and no gaps, as `view`."""
    if tuple(tensor.shape) != tuple(shape):
        raise ShapeMismatch(
            f"{operator}: {name} is {described(tensor)}, expected {tuple(shape)}",
            hint="nothing is broadcast: expand it first",
        )
    if not tensor.is_contiguous():
        raise _loose(operator, name, tensor)
    return tensor.view(view)


def stored(operator: str, name: str, tensor: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, bool]:
    """A matrix operand of this shape in the order it is stored in, and whether that is transposed."""
    if tensor.is_contiguous():
        return tensor.view(shape), False
    if tensor.mT.is_contiguous() and tensor.shape[-2] == shape[-2]:
        return tensor.mT.view((*shape[:-2], shape[-1], shape[-2])), True
    raise _loose(operator, name, tensor)


def _loose(operator: str, name: str, tensor: Tensor) -> ShapeMismatch:
    return ShapeMismatch(
        f"{operator}: {name} ({described(tensor)}) has strides {tensor.stride()}, which its kernel cannot read",
        hint=f"pass {name}.contiguous(), which copies it",
    )


def apart(operator: str, out: Tensor | None, operands: Mapping[str, Tensor]) -> None:
    """Raises LaunchError when `out` shares memory with an operand that is read after some of `out` is written."""
    if out is None or not has_memory(out):
        return
    first, last = _span(out)
    for name, operand in operands.items():
        if not has_memory(operand) or operand.device != out.device:
            continue
        begin, end = _span(operand)
        if first < end and begin < last:
            raise LaunchError(
                f"{operator}: out shares memory with {name}, which is still read while out is written",
                hint="pass memory of its own as out",
            )


def _span(tensor: Tensor) -> tuple[int, int]:
    """Addresses of a tensor's first byte and of what is behind its last one."""
    if tensor.numel() == 0:
        return 0, 0
    elements = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + elements * tensor.element_size()


def ascending(operator: str, name: str, offsets: Tensor, last: int) -> None:
    """Raises ShapeMismatch when `offsets` on the host do not ascend from 0 to `last`.

    What is on a device is taken as it is, because looking at it would wait for the device.
    """
    if offsets.device.type != "cpu" or not has_memory(offsets):
        return
    if int(offsets[0]) != 0 or int(offsets[-1]) != last or bool((offsets[1:] < offsets[:-1]).any()):
        shown = f"from {int(offsets[0])} to {int(offsets[-1])}"
        raise ShapeMismatch(
            f"{operator}: {name} go {shown}, and must ascend from 0 to {last}",
            hint="the first is 0, the last the number of all rows, and none is less than the one before it",
        )


def between(operator: str, name: str, numbers: Tensor, least: int, most: int) -> None:
    """Raises ShapeMismatch when a number on the host is not from `least` to `most`; see :func:`ascending`."""
    if numbers.device.type != "cpu" or not has_memory(numbers) or numbers.numel() == 0:
        return
    low, high = int(numbers.min()), int(numbers.max())
    if low < least or high > most:
        raise ShapeMismatch(
            f"{operator}: {name} are from {low} to {high}, and must be from {least} to {most}",
            hint=f"no number in {name} may be less or more",
        )


def number(operator: str, name: str, value: Any, *, zero: bool) -> float:
    """A number above zero (or zero) that float32 holds. Raises KernelError when `value` is none."""
    found = as_scalar(value, "float32")
    if found is None or not (0 <= found < float("inf")) or (found == 0 and not zero):
        raise KernelError(
            f"{operator}: {name}={value!r}, and it is a number {'of 0 or more' if zero else 'above 0'}",
            hint="a tensor of one element is no number: pass its .item()",
        )
    return float(found)


def dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def described(tensor: Tensor) -> str:
    return f"{dtype_name(tensor)}{list(tensor.shape)}"
