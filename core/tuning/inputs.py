"""Arguments to measure a kernel with: random inputs, poisoned outputs, and copies in number enough to outgrow a cache.

Never zeros: a chip draws less power and clocks higher on them, so that a kernel measured on zeros looks faster than it
is. Never an output that could pass unwritten: every byte of it says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from core.errors import KernelError
from core.runtime.extents import Extent
from core.runtime.signature import ScalarArgument, Signature, TensorArgument
from core.runtime.values import as_scalar, torch_dtype

if TYPE_CHECKING:
    import torch

#: How many times its capacity a rotation of argument sets goes through a cache. A cache that replaces lines at random
#: still holds exp(-4 (1 - h)) = h, 2%, of what the same call left there a round ago; at twice its capacity it is 20%.
CACHE_TURNOVER = 4
#: Argument sets of one rotation at most: each is a call to capture, and small sets are better flushed.
MOST_SETS = 256

#: One byte of an integer output that nothing has written. Of a float's, all bits are set: NaN in every format.
_POISON_BYTE = 0x7D
#: What random integers are drawn from: products of bytes use the whole range; wider ones are often indices or lengths,
#: for which only `values` can say what is valid.
_BYTE_RANGES = {"int8": (-128, 128), "uint8": (0, 256)}
_INDEX_RANGE = (0, 2)


def make_arguments(
    signature: Signature,
    device: torch.device | str,
    *,
    seed: int = 0,
    symbols: Mapping[str, int] | None = None,
    values: Mapping[str, Any] | None = None,
) -> list[Any]:
    """Every argument of a kernel in order, outputs included: `make_arguments(kernel.program.signature, "cuda")`.

    Floats are normally distributed, bytes and booleans uniform, wider integers 0 or 1; outputs are poisoned (NaN, or a
    byte pattern), except those that the kernel reads too, which start at zero as an accumulator does.

    Args:
        seed: the same seed gives the same arguments on the same kind of device.
        symbols: the extent of each symbolic dimension.
        values: by parameter name, what to use instead: a tensor, a number, or a function of (shape, dtype, device) that
            returns a tensor. Needed for integers that must be valid indices, and for integer scalars.

    Raises:
        KernelError: a symbolic dimension or an integer scalar has no value, or one that it cannot have; a name in
            `values` or `symbols` is none; or there is no room for the arguments.
    """
    import torch

    given = dict(values or {})
    unknown = given.keys() - {argument.name for argument in signature.arguments}
    if unknown:
        raise KernelError(
            f"{signature.name} has no parameter {sorted(unknown)[0]!r}",
            hint=f"its parameters are {', '.join(argument.name for argument in signature.arguments)}",
        )
    strange = [symbol for symbol in (symbols or {}) if symbol not in signature.symbols]
    if strange:
        raise KernelError(
            f"{signature.name} has no symbolic dimension {strange[0]!r}",
            hint=f"its symbolic dimensions are {', '.join(signature.symbols) or 'none: leave symbols out'}",
        )
    missing = [symbol for symbol in signature.symbols if symbol not in (symbols or {})]
    if missing:
        raise KernelError(
            f"{signature.name} has symbolic dimensions: {', '.join(missing)}",
            hint=f"say what to measure: symbols={{{missing[0]!r}: 4096}}",
        )
    names: dict[str, Any] = {}
    for symbol, extent in (symbols or {}).items():
        names[symbol] = as_scalar(extent, "int64")
        if names[symbol] is None or names[symbol] < 0:
            raise KernelError(
                f"{signature.name}: the extent of {symbol} cannot be {extent!r}", hint="pass an integer of 0 or more"
            )
    generator = torch.Generator(device=device)
    generator.manual_seed(seed)
    made: dict[int, Any] = {}
    for index, argument in enumerate(signature.arguments):  # scalars first: a shape may depend on one
        if isinstance(argument, ScalarArgument):
            made[index] = names[argument.name] = _scalar(signature, argument, given)
    for index, argument in enumerate(signature.arguments):
        if isinstance(argument, TensorArgument):
            try:
                made[index] = _tensor(argument, names, device, generator, given)
            except RuntimeError as error:
                raise KernelError(
                    f"{signature.name}: {argument.name} cannot be made on {device}: {str(error).splitlines()[0]}",
                    hint="say smaller extents, or hand in tensors of your own",
                ) from error
    return [made[index] for index in range(len(signature.arguments))]


def random_tensor(
    shape: Sequence[int], dtype: str, device: torch.device | str, generator: torch.Generator
) -> torch.Tensor:
    """A contiguous tensor of TileLang's `dtype` with random contents, see :func:`make_arguments`."""
    import torch

    kind = torch_dtype(dtype)
    size = tuple(shape)
    if re.fullmatch(r"float(16|32|64)|bfloat16|float", dtype):
        return torch.randn(size, dtype=kind, device=device, generator=generator)
    if re.match(r"float8_e[45]m[23]", dtype):
        return torch.randn(size, dtype=torch.float16, device=device, generator=generator).to(kind)
    if dtype.startswith("float8_e8m0"):  # powers of two around one
        return torch.randint(121, 134, size, dtype=torch.uint8, device=device, generator=generator).view(kind)
    if dtype == "bool":
        return torch.randint(0, 2, size, dtype=torch.uint8, device=device, generator=generator).to(kind)
    if re.fullmatch(r"u?int(16|32|64)", dtype):
        return torch.randint(*_INDEX_RANGE, size, device=device, generator=generator).to(kind)
    if dtype in _BYTE_RANGES:
        return torch.randint(*_BYTE_RANGES[dtype], size, dtype=kind, device=device, generator=generator)
    # Packed formats of less than a byte: any bits are valid.
    return torch.randint(0, 256, size, dtype=torch.uint8, device=device, generator=generator).view(kind)


def poison(tensor: torch.Tensor) -> torch.Tensor:
    """Overwrites a tensor in place so that an element nobody has written stands out: NaN, or a fixed byte pattern."""
    import torch

    if tensor.dtype is torch.bool:
        return tensor.fill_(True)
    if tensor.dtype.is_floating_point and tensor.element_size() > 1:
        return tensor.fill_(math.nan)
    if tensor.is_contiguous():
        bits = 0xFF if tensor.dtype.is_floating_point else _POISON_BYTE
        tensor.view(torch.uint8).fill_(bits)
        return tensor
    width = tensor.element_size()
    pattern = int.from_bytes([_POISON_BYTE] * width, "little")
    return tensor.fill_(math.nan if tensor.dtype.is_floating_point else pattern)


def copy_arguments(arguments: Sequence[Any]) -> list[Any]:
    """The same arguments in memory of their own; strides stay."""
    import torch

    def copy(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).copy_(value)

    return [copy(value) for value in arguments]


def rotation(arguments: Sequence[Any], cache_bytes: int, *, most_bytes: int | None = None) -> list[list[Any]] | None:
    """Copies of a call's arguments that, taken in turn, leave a call nothing of its own in a cache of this size.

    The first set is the arguments themselves. None where it would take more than `MOST_SETS` copies, or more than
    `most_bytes` in all: then the cache has to be flushed before each call.
    """
    each = argument_bytes(arguments)
    count = math.ceil(CACHE_TURNOVER * cache_bytes / each) + 1 if each else MOST_SETS + 1
    if count > MOST_SETS or (most_bytes is not None and count * each > most_bytes):
        return None
    return [list(arguments), *(copy_arguments(arguments) for _ in range(count - 1))]


def argument_bytes(arguments: Sequence[Any]) -> int:
    """Bytes of all tensors among the arguments; one that appears twice counts once."""
    tensors = {id(value): value for value in arguments if hasattr(value, "element_size")}
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def moved_bytes(signature: Signature, arguments: Sequence[Any]) -> int:
    """The least global memory traffic of a call: each tensor that is read once in, each that is written once out."""
    total = 0
    for argument, value in zip(signature.arguments, arguments, strict=True):
        if isinstance(argument, TensorArgument):
            total += value.numel() * value.element_size() * (int(argument.reads) + int(argument.writes))
    return total


def _scalar(signature: Signature, argument: ScalarArgument, values: Mapping[str, Any]) -> Any:
    if argument.name in values:
        return values[argument.name]
    if argument.dtype.startswith(("float", "bfloat")):
        return 1.25
    raise KernelError(
        f"{signature.name}: nothing says what the {argument.dtype} scalar {argument.name} should be",
        hint=f"give it: values={{{argument.name!r}: ...}}",
    )


def _tensor(
    argument: TensorArgument,
    names: Mapping[str, Any],
    device: torch.device | str,
    generator: torch.Generator,
    values: Mapping[str, Any],
) -> torch.Tensor:
    shape = tuple(Extent(extent)(names) for extent in argument.shape)
    kind = torch_dtype(argument.dtype)
    given = values.get(argument.name)
    if given is not None:
        tensor = given(shape, kind, device) if callable(given) else given
        return _fitting(argument.name, tensor, shape, kind).to(device)
    strides = None if argument.strides is None else tuple(Extent(extent)(names) for extent in argument.strides)
    if argument.is_output or (argument.writes and not argument.reads):
        tensor = _empty(shape, strides, kind, device)
        return tensor.zero_() if argument.reads else poison(tensor)
    filled = random_tensor(shape, argument.dtype, device, generator)
    return filled if strides is None else _empty(shape, strides, kind, device).copy_(filled)


def _fitting(name: str, tensor: Any, shape: tuple[int, ...], kind: torch.dtype) -> torch.Tensor:
    """What `values` give for a parameter. Raises KernelError when it is not what the parameter takes."""
    import torch

    if not isinstance(tensor, torch.Tensor) or tuple(tensor.shape) != shape or tensor.dtype is not kind:
        found = f"{tensor.dtype} {list(tensor.shape)}" if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise KernelError(
            f"values give {found} for {name}, which is {kind} {list(shape)}",
            hint="give a tensor like that, or a function of (shape, dtype, device) that makes one",
        )
    return tensor


def _empty(
    shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: torch.dtype, device: torch.device | str
) -> torch.Tensor:
    import torch

    if strides is None:
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.empty_strided(shape, strides, dtype=dtype, device=device)
