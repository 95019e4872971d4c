"""Loading a kernel's compiled argument check and launch (`core.codegen.launch`) into this process."""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from core.runtime.arguments import torch_dtype
from core.runtime.extents import Extent
from core.runtime.signature import ScalarArgument, Signature, TensorArgument


class _Miss:
    """What a compiled call gives back when its arguments are not what it checks for."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISS"


#: Given back untouched: the binder then says what is wrong, or makes the call itself.
MISS: Final = _Miss()


@dataclass(frozen=True, slots=True)
class CompiledCall:
    """The two functions of a loaded launch library.

    Attributes:
        call: takes the tensors and numbers of a call, all of them or the inputs only; gives the outputs, or `MISS`.
        raw: takes device index, stream handle, pointers and numbers, symbolic dimensions; checks nothing.

    Both raise RuntimeError with the driver's or the kernel's message.
    """

    call: Callable[..., Any]
    raw: Callable[..., None]


class CannotLoad(Exception):
    """The library cannot be used in this process; the message says why."""


def load(library: Path, signature: Signature, device_type: str, payload: bytes | int) -> CompiledCall:
    """Loads a launch library.

    Args:
        device_type: torch's name of the tensors' device.
        payload: the device binary, or the address of the CPU kernel's function.

    Raises:
        CannotLoad: another Python than CPython with its lock, a torch without DLPack's exchange table, or a library
            that is not for this machine.
    """
    import torch

    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise CannotLoad("this Python's objects have another layout")
    exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if exchange is None:
        raise CannotLoad(f"torch {torch.__version__} has no __dlpack_c_exchange_api__")
    try:
        bind = ctypes.PyDLL(str(library)).tilehal_bind
    except (OSError, AttributeError) as error:
        raise CannotLoad(str(error)) from error
    bind.restype, bind.argtypes = ctypes.py_object, [ctypes.py_object]
    prototypes = tuple(
        torch.empty(0, dtype=torch_dtype(argument.dtype)) if isinstance(argument, TensorArgument) else None
        for argument in signature.arguments
    )
    config = (
        torch.Tensor,
        torch.nn.Parameter,
        exchange,
        MISS,
        _Allocators(signature, device_type),
        prototypes,
        (None, payload, exchange),
        payload,
    )
    try:
        call, raw = bind(config)
    except Exception as error:
        raise CannotLoad(str(error)) from error
    return CompiledCall(call, raw)


class _Allocators:
    """For a device, how each output is made: a callable and its argument, or None for one that takes sizes.

    `empty_like` of a tensor that is there already is the cheapest way torch has; the one used has a single element.
    """

    def __init__(self, signature: Signature, device_type: str) -> None:
        self._outputs = [a for a in signature.arguments if not isinstance(a, ScalarArgument) and a.is_output]
        self._device_type = device_type

    def __call__(self, index: int) -> tuple[Any, ...]:
        import torch

        device = torch.device(self._device_type) if self._device_type == "cpu" else torch.device("cuda", index)
        made: list[Any] = []
        for argument in self._outputs:
            one = torch.empty((), dtype=torch_dtype(argument.dtype), device=device)
            if argument.strides is not None:
                made += [one.new_empty_strided, None]
                continue
            if any(isinstance(extent, str) for extent in argument.shape):
                made += [one.new_empty, None]
                continue
            shape = [Extent(extent)({}) for extent in argument.shape]
            template = one.expand(shape)
            packs = torch.empty_like(template, device="meta").is_contiguous()
            made += [torch.empty_like, template] if packs else [one.new_empty, shape]
        return tuple(made)
