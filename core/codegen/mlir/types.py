"""MLIR types as values: scalars, ranked tensors, strided memrefs; and the types of TileLang's dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from core.errors import Location, UnsupportedOp

#: An extent, stride or offset known at compile time, or None (printed `?`).
Static: TypeAlias = int | None


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar type by its MLIR spelling: `f32`, `i8`, `i1`, `index`."""

    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def is_float(self) -> bool:
        return self.name.startswith(("f", "bf"))

    @property
    def bits(self) -> int:
        """Width in bits; 64 for `index`."""
        return 64 if self.name == "index" else int(self.name.lstrip("bfi"))


@dataclass(frozen=True, slots=True)
class Tensor:
    """A ranked tensor."""

    shape: tuple[Static, ...]
    element: Scalar

    def __str__(self) -> str:
        return f"tensor<{_dimensions(self.shape)}{self.element}>"

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape, all of which must be known."""
        if any(extent is None for extent in self.shape):
            raise ValueError(f"{self} has an extent that is not known")
        return tuple(extent for extent in self.shape if extent is not None)


@dataclass(frozen=True, slots=True)
class MemRef:
    """A memory reference; `strides` None means packed row-major at offset 0."""

    shape: tuple[Static, ...]
    element: Scalar
    strides: tuple[Static, ...] | None = None
    offset: Static = 0

    def __str__(self) -> str:
        layout = ""
        if self.strides is not None:
            strides = ", ".join("?" if stride is None else str(stride) for stride in self.strides)
            offset = "" if self.offset == 0 else f", offset: {'?' if self.offset is None else self.offset}"
            layout = f", strided<[{strides}]{offset}>"
        return f"memref<{_dimensions(self.shape)}{self.element}{layout}>"


Type: TypeAlias = Scalar | Tensor | MemRef


def _dimensions(shape: tuple[Static, ...]) -> str:
    return "".join("?x" if extent is None else f"{extent}x" for extent in shape)


INDEX = Scalar("index")
I1, I8, I16, I32, I64 = (Scalar(f"i{bits}") for bits in (1, 8, 16, 32, 64))
F16, BF16, F32, F64 = Scalar("f16"), Scalar("bf16"), Scalar("f32"), Scalar("f64")

#: 8-bit floats are kept as their bits: not every vendor's compiler has the types, all can do the integer arithmetic.
FLOAT8 = ("float8_e4m3fn", "float8_e4m3", "float8_e5m2")

_VALUES: Mapping[str, Scalar] = {
    "bool": I1,
    **{f"{sign}int{bits}": Scalar(f"i{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **dict.fromkeys(FLOAT8, I8),
    "float16": F16,
    "bfloat16": BF16,
    "float32": F32,
    "float64": F64,
}


def value_type(dtype: str, location: Location | None = None) -> Scalar:
    """The type of a value of `dtype`. Integers have no sign in MLIR; operations do.

    Raises:
        UnsupportedOp: there is none (4-bit types, vectors, ...), with the user's line.
    """
    found = _VALUES.get(dtype)
    if found is None:
        raise UnsupportedOp(
            f"dtype {dtype} has no MLIR type here", hint=f"use one of {', '.join(_VALUES)}", location=location
        )
    return found


def memory_type(dtype: str, location: Location | None = None) -> Scalar:
    """The type of an element in memory: a bool takes a byte."""
    return I8 if dtype == "bool" else value_type(dtype, location)


def element_of(type_: Type) -> Scalar:
    """The element type of a tensor or memref, a scalar type itself."""
    return type_ if isinstance(type_, Scalar) else type_.element


def shaped_like(type_: Type, element: Scalar) -> Scalar | Tensor:
    """`element` in the shape of a scalar or tensor type."""
    return Tensor(type_.shape, element) if isinstance(type_, Tensor) else element
