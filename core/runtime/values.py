"""What a kernel can be given: tensors whose data lies at an address, numbers that its parameters can hold.

Used where calls are checked in Python; the compiled check (`core.codegen.launch`) takes less, and leaves the rest to
that.
"""

from __future__ import annotations

import math
import re
from contextlib import AbstractContextManager
from functools import lru_cache
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from core.errors import LaunchError, Location, ShapeMismatch

if TYPE_CHECKING:
    import torch

#: The least finite number that a type rounds to infinity: half a unit in the last place beyond its greatest.
_OVERFLOWS_AT = {
    "float16": 65520.0,
    "bfloat16": float.fromhex("0x1.ffp127"),
    "float32": float.fromhex("0x1.ffffffp127"),
}


def torch_dtype(dtype: str) -> torch.dtype:
    """The torch dtype that stores TileLang's `dtype`. Raises ShapeMismatch when torch has none."""
    import torch

    found = getattr(torch, {"float8_e4m3": "float8_e4m3fn", "float": "float32"}.get(dtype, dtype), None)
    if not isinstance(found, torch.dtype):
        raise ShapeMismatch(f"torch has no dtype for {dtype}", hint="use a dtype that torch tensors can carry")
    return found


@lru_cache(maxsize=1)
def plain_types() -> frozenset[type]:
    """Tensor types without a dispatch of their own."""
    import torch

    return frozenset((torch.Tensor, torch.nn.Parameter))


def has_memory(value: Any) -> bool:
    """Whether a tensor's data can be read, as its shape and strides say, from its address."""
    return why_unreadable(value) is None


def why_unreadable(value: Any) -> tuple[str, str] | None:
    """What keeps a kernel from reading a tensor by address, to follow "it ", and what to do; None when nothing does.

    Subclasses that handle every operation themselves (`FakeTensor`, `DTensor`, quantised wrappers) only stand for data
    that is elsewhere, if anywhere; so do the tensors inside `torch.vmap` and `torch.func`, whose type is the plain one.
    """
    import torch

    if not isinstance(value, torch.Tensor):
        return f"is no tensor but a {type(value).__name__}", "convert it with torch.as_tensor"
    if torch.nn.parameter.is_lazy(value):
        return "has no shape yet: a module gives it one at its first call", "call the module before"
    if type(value) not in plain_types() and type(value).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return (
            f"is a {type(value).__name__}, which stands for data that a kernel cannot read",
            "pass the tensors it is made of; under torch.compile, call what k.as_torch_op(...) registers",
        )
    if value.layout is not torch.strided or value.is_nested:
        kind = "nested" if value.is_nested else str(value.layout).removeprefix("torch.")
        return f"is a {kind} tensor, and a kernel reads dense ones", "pass its values, or .to_dense()"
    if value.is_neg():
        return (
            "is a view whose values torch negates when it reads them, which a kernel does not",
            "pass .resolve_neg(), which copies it",
        )
    try:
        address = value.data_ptr()
    except RuntimeError:
        address = 0
    if address == 0 and value.numel() > 0 and not value.is_meta:
        return (
            "has no memory: it stands for data inside a transform (torch.vmap, torch.func, tracing), or its storage was"
            " freed",
            "call the kernel outside of the transform, or what k.as_torch_op(...) registers",
        )
    return None


def by_address() -> AbstractContextManager[None]:
    """Inside, a tensor is what lies at its address: no subclass is asked (`__torch_function__`) for its shape."""
    import torch

    found: AbstractContextManager[None] = torch._C.DisableTorchFunctionSubclass()
    return found


def is_recorded() -> bool:
    """Whether torch makes a graph of the operators that are called on this thread (`make_fx`), with data in them."""
    import torch

    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None


def check_stream(stream: Any, name: str, location: Location | None) -> None:
    """Raises LaunchError when what was passed as `stream=` is no handle."""
    if stream is None or (isinstance(stream, int) and not isinstance(stream, bool)):
        return
    handle = next((a for a in ("cuda_stream", "npu_stream") if hasattr(stream, a)), None)
    raise LaunchError(
        f"{name}: stream is the vendor's handle, an integer; got {type(stream).__name__}",
        hint=f"pass stream.{handle}" if handle else "leave it out for torch's current stream",
        location=location,
    )


def is_float(dtype: str) -> bool:
    """Whether a scalar of TileLang's `dtype` is a floating-point number."""
    return dtype.startswith(("float", "bfloat"))


def integer_bounds(dtype: str) -> tuple[int, int]:
    """Least and greatest value that an integer scalar of `dtype` can hold."""
    if dtype == "bool":
        return 0, 1
    bits = int(re.sub(r"\D", "", dtype))
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def as_scalar(value: Any, dtype: str) -> int | float | None:
    """The Python number that is passed for a scalar parameter of `dtype`; None when `value` is none or does not fit.

    Numbers of other libraries are taken (`numpy.int64`); tensors and arrays of one element are not, because reading one
    can wait for a device. A finite number that `dtype` would round to infinity does not fit.
    """
    if not isinstance(value, (int, float)):
        if _is_numpy_bool(value):
            value = bool(value)
        elif not isinstance(value, Real):
            return None
    if not is_float(dtype):
        if not isinstance(value, Integral):
            return None
        whole = int(value)
        least, most = integer_bounds(dtype)
        return (bool(whole) if dtype == "bool" else whole) if least <= whole <= most else None
    try:
        number = float(value)
    except OverflowError:
        return None
    return None if math.isfinite(number) and abs(number) >= _OVERFLOWS_AT.get(dtype, math.inf) else number


def explain_scalar(value: Any, dtype: str) -> tuple[str, str]:
    """Why :func:`as_scalar` gives None, to follow "a scalar <dtype>, ", and what to do."""
    number = isinstance(value, (Real, int)) or _is_numpy_bool(value)
    if not number or (not is_float(dtype) and not isinstance(value, Integral)):
        return f"got {type(value).__name__}", "pass a Python number; .item() of a tensor is one"
    shown = str(value) if not isinstance(value, int) or value.bit_length() < 256 else "so large an integer"
    if is_float(dtype):
        return f"which cannot hold {shown}", "pass a number that it can hold, infinity or NaN"
    least, most = integer_bounds(dtype)
    return f"which cannot hold {shown}", f"pass a number from {least} to {most}"


def _is_numpy_bool(value: Any) -> bool:
    """NumPy's boolean is registered as no kind of number."""
    return type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_")
