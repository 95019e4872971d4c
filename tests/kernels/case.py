"""What a corpus entry is: a kernel, how to make its arguments, and what it must compute.

A kernel is one of

* a `PrimFunc` factory: a plain function returning a `@T.prim_func` (`out_idx` says which parameters are outputs);
* a lazy `@tilelang.jit(out_idx=[...])` factory;
* an eager `@tilelang.jit` kernel (`T.const`, `T.empty`), specialised from example tensors.

Nothing here imports `core`: the corpus is also lowered with stock TileLang to show that it is ordinary code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

Argument = torch.Tensor | int | float
Style = Literal["factory", "lazy", "eager"]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """`|got - expected| <= atol + rtol * |expected|`, and why that much is allowed."""

    atol: float
    rtol: float
    reason: str


EXACT = Tolerance(0.0, 0.0, "moves, integers, and single operations that IEEE 754 rounds correctly")

#: Distance between 1 and the next number.
EPSILON = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float8_e4m3fn": 2.0**-3,
}


def rounded(dtype: str, ulps: float = 1.0, atol: float = 1e-7) -> Tolerance:
    """The value is computed in float32 or better and rounded to `dtype`: the rounding may go either way."""
    return Tolerance(atol, ulps * EPSILON[dtype], f"{ulps:g} ulp of {dtype}")


def maths(ulps: float = 8.0, atol: float = 2e-6) -> Tolerance:
    """float32 maths functions: a few ulp each on every chip (CUDA's tables say 1 to 4), some of them chained."""
    return Tolerance(atol, ulps * EPSILON["float32"], f"{ulps:g} ulp of float32 for library functions")


def summed(terms: int, dtype: str = "float32", *, accumulate: str = "float32", scale: float = 1.0) -> Tolerance:
    """A sum of `terms` products of standard normals (times `scale`), accumulated in `accumulate`, stored as `dtype`.

    The order of a sum is free. Partial sums grow to a few times sqrt(terms); each of the `terms` additions rounds by
    half an eps of that, or truncates by one (matrix units do), at random: the worst of very many outputs stays under
    4 * eps * terms * scale, about 6 standard deviations. Storing rounds once.
    """
    eps = EPSILON[accumulate]
    return Tolerance(
        4.0 * eps * terms * scale, EPSILON[dtype], f"sum of {terms} terms in {accumulate}, stored as {dtype}"
    )


def summed_fp8(terms: int, dtype: str = "float32") -> Tolerance:
    """A product of 8-bit floats: the matrix units of some chips (Hopper) keep about 14 bits of the running sum."""
    return Tolerance(terms * 2.0**-13, EPSILON[dtype], f"sum of {terms} float8 products in about 14 bits, as {dtype}")


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel at one set of parameters.

    Attributes:
        name: `topic.kernel[parameters]`, unique in the corpus.
        kernel: the factory, lazy or eager kernel.
        inputs: fresh random arguments for a call, in the order the caller passes them (outputs left out), on the CPU.
        reference: what the call must give for these arguments: one tensor per output, in order, computed with torch in
            float32 or better where rounding matters. Never sees arguments the kernel has already changed.
        tolerance: how far each output may be from the reference.
        style: see the module's docstring.
        args, kwargs: compile-time arguments (of the factory, or constexprs of an eager kernel).
        out_idx: for a plain factory, which parameters are outputs.
        updates: positions among the call's arguments of tensors that the kernel changes in place. Their final contents
            are outputs too, after those returned.
        tags: what the kernel exercises.
        stock_refusal: empty when stock TileLang lowers the kernel for CUDA; else a part of the message with which it
            refuses. The kernel is kept because its meaning is clear and other backends compile it; a CUDA backend may
            refuse it with a typed error or, better, make it work.
    """

    name: str
    kernel: Any
    inputs: Callable[[torch.Generator], Sequence[Argument]]
    reference: Callable[..., torch.Tensor | Sequence[torch.Tensor]]
    tolerance: Tolerance
    style: Style = "lazy"
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    out_idx: tuple[int, ...] | None = None
    updates: tuple[int, ...] = ()
    tags: frozenset[str] = frozenset()
    stock_refusal: str = ""

    @property
    def topic(self) -> str:
        """Name of the module of `tests.kernels` it lives in."""
        return self.name.partition(".")[0]

    def prim_func(self) -> Any:
        """The traced kernel, compiled for nothing yet."""
        if self.style == "factory":
            return self.kernel(*self.args, **self.kwargs)
        if self.style == "lazy":
            return self.kernel.get_tir(*self.args, **self.kwargs)
        return self.kernel.get_tir(*self.example(), **self.kwargs)

    def example(self) -> list[Argument]:
        """Arguments whose shapes and dtypes are right; their values do not matter."""
        return list(self.inputs(torch.Generator().manual_seed(0)))

    def compile(self, target: str, **options: Any) -> Any:
        """`core.compile` as a user would call it for this kind of kernel."""
        import core

        if self.style == "factory":
            outputs = None if self.out_idx is None else list(self.out_idx)
            return core.compile(self.prim_func(), target=target, out_idx=outputs, **options)
        if self.style == "lazy":
            return core.compile(self.kernel, *self.args, target=target, **self.kwargs, **options)
        return core.compile(self.kernel, *self.example(), target=target, **self.kwargs, **options)

    def run(self, kernel: Callable[..., Any], inputs: Sequence[Argument], device: str = "cpu") -> list[torch.Tensor]:
        """Calls a compiled kernel on copies of `inputs`. All outputs: those returned, then those updated."""
        arguments = [_copied(x, device) if isinstance(x, torch.Tensor) else x for x in inputs]
        returned = kernel(*arguments)
        if returned is None:
            outputs = []
        elif isinstance(returned, torch.Tensor):
            outputs = [returned]
        else:
            outputs = list(returned)
        return outputs + [arguments[position] for position in self.updates]

    def expected(self, inputs: Sequence[Argument]) -> list[torch.Tensor]:
        """The reference's outputs as a list."""
        result = self.reference(*[x.clone() if isinstance(x, torch.Tensor) else x for x in inputs])
        return [result] if isinstance(result, torch.Tensor) else list(result)

    def check(self, outputs: Sequence[torch.Tensor], inputs: Sequence[Argument]) -> float:
        """Compares with the reference; returns the largest absolute error, raises AssertionError beyond tolerance."""
        expected = self.expected(inputs)
        assert len(outputs) == len(expected), f"{len(outputs)} outputs, the reference has {len(expected)}"
        return max(
            compare(got, want, self.tolerance, f"{self.name}: output {position}")
            for position, (got, want) in enumerate(zip(outputs, expected, strict=True))
        )


def _copied(x: torch.Tensor, device: str) -> torch.Tensor:
    """A copy with the same strides; `clone` and `to` close the gaps between the rows of a slice."""
    return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=device).copy_(x)


def compare(got: torch.Tensor, want: torch.Tensor, tolerance: Tolerance, what: str) -> float:
    """Largest absolute difference; AssertionError when any element is beyond tolerance, naming the worst.

    NaN equals NaN and an infinity equals itself, at any tolerance; shapes must agree.
    """
    assert got.shape == want.shape, f"{what}: shape {tuple(got.shape)}, expected {tuple(want.shape)}"
    got64, want64 = got.detach().cpu().to(torch.float64), want.detach().cpu().to(torch.float64)
    same = (got64 == want64) | (got64.isnan() & want64.isnan())
    error = torch.where(same, 0.0, (got64 - want64).abs())
    limit = torch.where(want64.isfinite(), tolerance.atol + tolerance.rtol * want64.abs(), 0.0)
    bad = ~same & ~(error <= limit)
    if bool(bad.any()):
        excess = torch.where(bad, torch.nan_to_num(error - limit, nan=torch.inf), -torch.inf)
        index = tuple(int(i) for i in torch.unravel_index(excess.argmax(), excess.shape))
        raise AssertionError(
            f"{what}: {int(bad.sum())} of {bad.numel()} elements beyond tolerance ({tolerance.reason}); at {index}: "
            f"got {got64[index].item():.9g}, expected {want64[index].item():.9g}, allowed {limit[index].item():.3g}"
        )
    return float(error.max()) if error.numel() else 0.0


def randn(gen: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
    """Standard normals times `scale`, rounded to `dtype`."""
    return (torch.randn(*shape, generator=gen) * scale).to(dtype)


def randint(gen: torch.Generator, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    """Integers in [low, high)."""
    return torch.randint(low, high, shape, generator=gen).to(dtype)


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype TileLang calls `name`."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype
