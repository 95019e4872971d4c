"""What `core.ops.functional` is made of: kernels remembered by call."""

from __future__ import annotations

import importlib
import inspect
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from core._functions import near_name
from core.errors import KernelError, ShapeMismatch
from core.ops._graph_ops import only_shapes, refuse_gradients
from core.ops._operands import described, dtype_name, expect, matrix, packed
from core.runtime.values import torch_dtype

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor

    from core.runtime.kernel import Kernel
    from core.tiling.factory import KernelFactory

_kernels: dict[tuple[Any, ...], Kernel] = {}
_lock = threading.Lock()


class _Calling(threading.local):
    #: Whether calls on this thread build their kernels and launch none.
    builds_only = False


_calling = _Calling()


def kernels() -> tuple[Kernel, ...]:
    """The kernels that calls have compiled so far; each knows its target, tiles and resources."""
    return tuple(_kernels.values())


def forget() -> None:
    """Drops the remembered kernels, for instance after tuning: the next call of a kind asks for its tiles again."""
    with _lock:
        _kernels.clear()


@contextmanager
def building() -> Iterator[None]:
    """Inside it, calls on this thread compile and build their kernels and launch none: nobody writes the outputs.

    Needs no device: the tensors may lie where the target's kernels cannot run.
    """
    before, _calling.builds_only = _calling.builds_only, True
    try:
        yield
    finally:
        _calling.builds_only = before


def on_rows(
    operator: str, x: Tensor, vectors: Mapping[str, Tensor], more: dict[str, Any], out: Tensor | None, options: Any
) -> Tensor:
    """An operator on rows: every dimension but the last is rows, the vectors have one element for each column."""
    name = operator.partition(".")[2]
    expect(name, {"x": x, **vectors}, {"out": out})
    flat = matrix(name, "x", x)
    arguments = {"M": flat[0], "N": flat[1], "dtype": dtype_name(x), **more}
    memory = None if out is None else packed(name, "out", out, x.shape, flat)
    tensors = [packed(name, key, vector, flat[1:], flat[1:]) for key, vector in vectors.items()]
    operands = [packed(name, "x", x, x.shape, flat), *tensors]
    result = run(operator, arguments, operands, memory, options, shapes=[flat])[0]
    return result.view(x.shape) if out is None else out


def run(
    operator: str,
    arguments: dict[str, Any],
    tensors: Sequence[Tensor],
    out: Tensor | Sequence[Tensor] | None,
    options: dict[str, Any],
    *,
    shapes: Sequence[Sequence[int]],
    dtype: str | torch.dtype | None = None,
) -> list[Tensor]:
    """The outputs of `module.factory`, from the kernel remembered for these arguments or compiled now.

    Their shapes, and their dtype (None is the first tensor's), are what torch is told while it traces.
    """
    given = [] if out is None else [out] if isinstance(out, torch.Tensor) else list(out)
    refuse_gradients(operator.partition(".")[2], (*tensors, *given))
    for tensor in tensors:
        if tensor.numel() == 0:
            raise ShapeMismatch(
                f"{operator.partition('.')[2]}: an argument is {described(tensor)}, which has no elements",
                hint="leave the call out where there is nothing to compute",
            )
    if only_shapes():
        return given or _unwritten(tensors[0], shapes, dtype)
    target = options.get("target") or ("cpu" if tensors[0].device.type == "cpu" else "auto")
    where = target if isinstance(target, str) else str(getattr(target, "target", target))
    chosen = ((name, options[name]) for name in sorted(options) if name != "target")
    key = (operator, where, *((name, _key(value)) for name, value in (*arguments.items(), *chosen)))
    kernel = _kernels.get(key)
    if kernel is None:
        module, _, name = operator.partition(".")
        factory = getattr(importlib.import_module(f"core.ops.{module}"), name)
        _check_options(factory, arguments, options)
        with _lock:
            kernel = _kernels.get(key) or factory.compile(**arguments, **{**options, "target": target})
            _kernels[key] = kernel
    if _calling.builds_only:
        kernel.build()
        return given or _unwritten(tensors[0], shapes, dtype)
    outputs = kernel(*tensors, *given)
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def _unwritten(like: Tensor, shapes: Sequence[Sequence[int]], dtype: str | torch.dtype | None) -> list[Tensor]:
    kind = like.dtype if dtype is None else torch_dtype(str(dtype).removeprefix("torch."))
    return [like.new_empty(shape, dtype=kind) for shape in shapes]


def _check_options(factory: KernelFactory, arguments: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Raises KernelError for a keyword that neither the function, its factory nor :func:`core.compile` takes."""
    from core.compiler.driver import option_names

    own = [name for name in factory.signature.parameters if name not in arguments]
    for option in options:
        if option in own or option in option_names():
            continue
        near = near_name(option, (*own, *option_names()))
        function = getattr(importlib.import_module("core.ops.functional"), factory.name)
        taken = [name for name, p in inspect.signature(function).parameters.items() if p.kind is not p.VAR_KEYWORD]
        does = (inspect.getdoc(function) or "").partition("\n")[0].partition(";")[0].rstrip(".")
        more = f"{', '.join(factory.parameters)}, and options of core.compile such as target and simulate"
        raise KernelError(
            f"{factory.name} has no option {option!r}",
            hint=f"did you mean {near!r}?"
            if near
            else f"core.ops.functional.{factory.name}({', '.join(taken)}) is: {does}; it also takes {more}",
        )


def _key(value: Any) -> Any:
    """What tells an argument from others: also 1 from 1.0, which a factory may refuse."""
    return (type(value), value if isinstance(value, (int, str, float, type(None))) else repr(value))
