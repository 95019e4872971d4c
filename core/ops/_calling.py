"""What `core.ops.functional` is made of: kernels remembered by call, and tensors as a kernel reads them."""

from __future__ import annotations

import importlib
import threading
from typing import TYPE_CHECKING, Any

import torch

from core.errors import LaunchError, ShapeMismatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from core.runtime.kernel import Kernel

_kernels: dict[tuple[Any, ...], Kernel] = {}
_lock = threading.Lock()


def kernels() -> tuple[Kernel, ...]:
    """The kernels that calls have compiled so far; each knows its target, tiles and resources."""
    return tuple(_kernels.values())


def forget() -> None:
    """Drops the remembered kernels, for instance after tuning: the next call of a kind asks for its tiles again."""
    with _lock:
        _kernels.clear()


def on_rows(
    operator: str, x: Tensor, vectors: Sequence[Tensor], more: dict[str, Any], out: Tensor | None, options: Any
) -> Tensor:
    """An operator on rows: every dimension but the last is rows."""
    name = operator.partition(".")[2]
    flat = matrix(name, "x", x)
    arguments = {"M": flat[0], "N": flat[1], "dtype": dtype_name(x), **more}
    memory = None if out is None else packed(name, "out", out, x.shape, flat)
    result = run(operator, arguments, [packed(name, "x", x, x.shape, flat), *vectors], memory, options)[0]
    return result.view(x.shape) if out is None else out


def run(
    operator: str,
    arguments: dict[str, Any],
    tensors: Sequence[Tensor],
    out: Tensor | None,
    options: dict[str, Any],
) -> list[Tensor]:
    """The outputs of `module.factory`, from the kernel remembered for these arguments or compiled now."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise LaunchError(
            f"{operator.partition('.')[2]} has no backward, and an argument requires a gradient",
            hint="call it under torch.no_grad(), or detach its arguments",
        )
    for tensor in tensors:
        if tensor.numel() == 0:
            raise ShapeMismatch(
                f"{operator.partition('.')[2]}: an argument is {described(tensor)}, which has no elements",
                hint="leave the call out where there is nothing to compute",
            )
    target = options.get("target") or ("cpu" if tensors[0].device.type == "cpu" else "auto")
    where = target if isinstance(target, str) else str(getattr(target, "target", target))
    chosen = ((name, _hashable(options[name])) for name in sorted(options) if name != "target")
    key = (operator, where, *arguments.items(), *chosen)
    kernel = _kernels.get(key)
    if kernel is None:
        module, _, name = operator.partition(".")
        factory = getattr(importlib.import_module(f"core.ops.{module}"), name)
        with _lock:
            kernel = _kernels.get(key) or factory.compile(**arguments, **{**options, "target": target})
            _kernels[key] = kernel
    outputs = kernel(*tensors) if out is None else kernel(*tensors, out)
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def _hashable(option: Any) -> Any:
    return option if isinstance(option, (int, str, float, type(None))) else repr(option)


def stored(operator: str, name: str, tensor: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, bool]:
    """A matrix operand of this shape in the order it is stored in, and whether that is transposed."""
    if tensor.is_contiguous():
        return tensor.view(shape), False
    if tensor.mT.is_contiguous() and tensor.shape[-2] == shape[-2]:
        return tensor.mT.view((*shape[:-2], shape[-1], shape[-2])), True
    raise _loose(operator, name, tensor)


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


def _loose(operator: str, name: str, tensor: Tensor) -> ShapeMismatch:
    return ShapeMismatch(
        f"{operator}: {name} ({described(tensor)}) has strides {tensor.stride()}, which its kernel cannot read",
        hint=f"pass {name}.contiguous(), which copies it",
    )


def matrix(operator: str, name: str, tensor: Tensor) -> tuple[int, int]:
    """Rows and columns when every dimension but the last is rows."""
    if tensor.dim() == 0 or tensor.numel() == 0:
        raise ShapeMismatch(f"{operator}: {name} is {described(tensor)}, which has no rows", hint="it is (..., N)")
    return tensor.numel() // tensor.shape[-1], tensor.shape[-1]


def dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def described(tensor: Tensor) -> str:
    return f"{dtype_name(tensor)}{list(tensor.shape)}"
