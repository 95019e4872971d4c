"""What the stock pipeline gets silently wrong, or leaves open: for each a minimal kernel and the one honest answer.

Each entry is either a value (docs/program.md says which) or a refusal that names the line. A target may refuse what it
cannot do right; it may never give another value. `stock` says what stock TileLang 0.1.15 does instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tests.kernels import silent_kernels as kernels
from tests.kernels.case import EXACT, Argument, Case, Tolerance, maths, randint, randn, rounded, summed

INFINITY = float("inf")
NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Silent:
    """A silent difference.

    Attributes:
        case: the kernel, its inputs and what it means. The reference of a refused kernel is never asked.
        stock: what the stock pipeline does with it.
        refusal: name of the `core.errors` class every target must raise, empty when the kernel has a value.
    """

    case: Case
    stock: str
    refusal: str = ""

    @property
    def name(self) -> str:
        """The case's name."""
        return self.case.name


def _no_value(*_: Argument) -> torch.Tensor:
    raise AssertionError("a kernel that must be refused has no value")


def _refused(name: str, kernel: Any, stock: str, error: str = "ShapeMismatch", *, inputs: Any = None) -> Silent:
    made = inputs or (lambda gen: [randn(gen, 64)])
    return Silent(Case(f"silent.{name}", kernel, made, _no_value, EXACT), stock, error)


def _value(
    name: str,
    kernel: Any,
    stock: str,
    inputs: Callable[[torch.Generator], Sequence[Argument]],
    reference: Callable[..., torch.Tensor | Sequence[torch.Tensor]],
    tolerance: Tolerance = EXACT,
    *,
    args: tuple[Any, ...] = (),
    updates: tuple[int, ...] = (),
) -> Silent:
    return Silent(Case(f"silent.{name}", kernel, inputs, reference, tolerance, args=args, updates=updates), stock)


def _shuffled(gen: torch.Generator, values: Sequence[float], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The values in a random order: none is special by its place."""
    return torch.tensor(values)[torch.randperm(len(values), generator=gen)].to(dtype)


def _nan_rows(gen: torch.Generator) -> list[Argument]:
    """Rows of 64 with a NaN first, in the middle, last, everywhere but once, and none."""
    x = randn(gen, 8, 64)
    for row, place in enumerate((0, 13, 63, 31)):
        x[row, place] = NAN
    x[4, :63] = NAN
    return [x]


def _without_nan(x: torch.Tensor) -> list[torch.Tensor]:
    return [torch.nan_to_num(x, nan=-INFINITY).amax(1), torch.nan_to_num(x, nan=INFINITY).amin(1)]


def _fmax(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    return [torch.fmax(x, y), torch.fmin(x, y), torch.fmax(x, torch.tensor(1.0)), torch.fmax(torch.tensor(1.0), x)]


def _window(x: torch.Tensor, start: int, length: int, fill: float = 0.0) -> torch.Tensor:
    """x[start : start + length], elements outside replaced by `fill`."""
    places = torch.arange(start, start + length)
    inside = (places >= 0) & (places < x.numel())
    return torch.where(inside, x[places.clamp(0, x.numel() - 1)], fill)


def _filled(x: torch.Tensor, start: int, stop: int, value: float) -> torch.Tensor:
    x[max(start, 0) : max(stop, 0)] = value
    return x


def _tail_stays(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    b[40:50] = a[:10]
    return b


def _safe_value_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A has 80 of 96 columns; the rest counts as -1. B has all 96 rows."""
    padded = torch.cat([a.double(), torch.full((a.shape[0], 16), -1.0, dtype=torch.float64)], 1)
    return padded @ b.double()


def _cleared_slice(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    product = a.double() @ b.double()
    return torch.cat([product, torch.full_like(product, 3.0)])


def _half(*x: torch.Tensor) -> list[torch.Tensor]:
    return [t.half() for t in x]


def _copies() -> Iterator[Silent]:
    nearer = "takes the extents of the side nearer to the registers"
    yield _refused("copy_short_source", kernels.copy_short_source, f"{nearer}: reads A[0:8]")
    yield _refused("copy_short_destination", kernels.copy_short_destination, f"{nearer}: writes B[20:28]")
    yield _refused("copy_long_destination", kernels.copy_long_destination, f"{nearer}: writes 4 of the 10 elements")
    yield _refused("copy_global_to_global", kernels.copy_global_to_global, "takes the source's extents: writes 3")
    yield _refused(
        "copy_rows_of_tile",
        kernels.copy_rows_of_tile,
        "writes all 8 rows of the fragment into a slice of 4",
        inputs=lambda gen: [randn(gen, 8, 64)],
    )
    yield _refused(
        "copy_run_time_extent",
        kernels.copy_run_time_extent,
        "ignores n",
        inputs=lambda gen: [randn(gen, 64), 5],
    )
    yield _refused("copy_past_shared", kernels.copy_past_shared, "copies past the end of the shared buffer")
    yield _value(
        "copy_tail_is_overwritten",
        kernels.copy_tail_is_overwritten,
        "the same: zeros replace what the tile held (people expect the old contents)",
        lambda gen: [randn(gen, 50)],
        lambda a: torch.cat([a, torch.zeros(14)]),
    )
    yield _value(
        "copy_tail_not_written",
        kernels.copy_tail_not_written,
        "the same, tested against the tensor's end and not against memory",
        lambda gen: [randn(gen, 64), randn(gen, 50)],
        _tail_stays,
        updates=(1,),
    )
    for start in (-3, 0, 61, 70):
        yield _value(
            f"copy_window[{start}]",
            kernels.copy_window,
            "the same; negative starts of unknown sign do not wrap",
            lambda gen, start=start: [randn(gen, 64), start],
            lambda a, start: _window(a, start, 16),
        )
    for row in (3, 9):
        yield _value(
            f"copy_row_outside[{row}]",
            kernels.copy_row_outside,
            "zeros, by the guard of global loads and not by the copy's",
            lambda gen, row=row: [randn(gen, 8, 64), row],
            lambda a, row: a[row] if row < 8 else torch.zeros(64),
        )
    yield _value(
        "copy_safe_value",
        kernels.copy_safe_value,
        "a TMA load (sm_90) fills with 0 whatever the safe value",
        lambda gen: [randn(gen, 64, 80, dtype=torch.float16), randn(gen, 96, 64, dtype=torch.float16)],
        _safe_value_product,
        summed(96),
    )


def _fills() -> Iterator[Silent]:
    yield _value(
        "fill_one_element",
        kernels.fill_one_element,
        "the same: a start point is one element for fill and a tile for copy",
        lambda gen: [randn(gen, 8, 8)],
        lambda a: torch.where(torch.arange(64).reshape(8, 8) == 16, 7.0, a),
    )
    yield _refused("fill_past_shared", kernels.fill_past_shared, "an error, as it should be")
    for start in (2, 6, 9):
        yield _value(
            f"fill_shared_clipped[{start}]",
            kernels.fill_shared_clipped,
            "writes past the end of the shared buffer",
            lambda gen, start=start: [randn(gen, 8), start],
            lambda a, start: _filled(a, start, start + 4, 5.0),
        )
        yield _value(
            f"fill_global_clipped[{start}]",
            kernels.fill_global_clipped,
            "the same",
            lambda gen, start=start: [randn(gen, 8), start],
            lambda a, start: _filled(a, start, start + 4, 5.0),
            updates=(0,),
        )


def _products() -> Iterator[Silent]:
    yield _value(
        "gemm_float32",
        kernels.gemm_float32,
        "CUDA rounds both operands to TF32: errors of 1e-3 instead of 1e-6",
        lambda gen: [randn(gen, 64, 64), randn(gen, 64, 64)],
        lambda a, b: a.double() @ b.double(),
        summed(64),
    )
    yield _value(
        "gemm_clears_slice",
        kernels.gemm_clears_slice,
        "the c target zeroes all of C",
        lambda gen: [randn(gen, 32, 32, dtype=torch.float16), randn(gen, 32, 64, dtype=torch.float16)],
        _cleared_slice,
        summed(32),
    )
    yield _value(
        "gemm_narrow_columns",
        kernels.gemm_narrow_columns,
        "wgmma with block_N = 8 mod 16: wrong values (tile-ai/tilelang#2593)",
        lambda gen: [randn(gen, 64, 64, dtype=torch.float16), randn(gen, 64, 72, dtype=torch.float16)],
        lambda a, b: a.double() @ b.double(),
        summed(64),
    )
    yield _value(
        "gemm_int8_extremes",
        kernels.gemm_int8_extremes,
        "exact",
        lambda gen: [
            torch.where(torch.rand(64, 128, generator=gen) < 0.9, -128, 127).to(torch.int8),
            torch.where(torch.rand(64, 128, generator=gen) < 0.9, -128, 127).to(torch.int8),
        ],
        lambda a, b: (a.long() @ b.long().T).int(),
    )


def _reductions() -> Iterator[Silent]:
    def matrix(gen: torch.Generator) -> list[Argument]:
        return [randn(gen, 32, 64)]

    yield _value(
        "reduce_rows_slice",
        kernels.reduce_rows_slice,
        "ignores the slice's start: rows 0..15",
        matrix,
        lambda x: x[16:32].double().sum(1),
        summed(64),
    )
    yield _value(
        "reduce_columns_slice",
        kernels.reduce_columns_slice,
        "ignores the slice's extent: all columns",
        matrix,
        lambda x: x[:, :32].double().sum(1),
        summed(32),
    )
    yield _value(
        "reduce_shared_slice",
        kernels.reduce_shared_slice,
        "stages a copy of the slice and reduces the whole of it",
        matrix,
        lambda x: x[8:24].amax(1),
    )
    yield _value(
        "reduce_converts_first",
        kernels.reduce_converts_first,
        "the same on CUDA; the c target wants equal types",
        lambda gen: [torch.tensor([1.0004, -1.0]).repeat(8, 32)[:, torch.randperm(64, generator=gen)]],
        lambda x: x.half().double().sum(1),
    )
    yield _value(
        "reduce_max_nan",
        kernels.reduce_max_nan,
        "ignored on CUDA and HIP; the c target restarts at it and forgets the old value",
        _nan_rows,
        _without_nan,
    )
    yield _value(
        "reduce_max_nan_keeps_old",
        kernels.reduce_max_nan_keeps_old,
        "the c target loses the old value",
        lambda gen: [torch.full((8, 64), NAN), randn(gen, 8)],
        lambda _, old: old,
    )
    yield _value(
        "atomics_outside_are_skipped",
        kernels.atomics_outside_are_skipped,
        "the same",
        lambda gen: [randint(gen, 0, 100, 16), torch.zeros(12, dtype=torch.int32)],
        lambda x, _: x[:12],
        updates=(1,),
    )
    yield _value(
        "atomic_converts_value",
        kernels.atomic_converts_value,
        "no conversion in the IR: left to the C++ overload",
        lambda gen: [randn(gen, 64, dtype=torch.float16), torch.zeros(64)],
        lambda x, _: x.double(),
        updates=(1,),
    )
    yield _value(
        "im2col_past_the_batch",
        kernels.im2col_past_the_batch,
        "caught by the guard of global loads only",
        lambda gen: [randn(gen, 1, 5, 5, 32, dtype=torch.float16)],
        lambda x: torch.cat([x.reshape(25, 32), torch.zeros(7, 32, dtype=torch.float16)]),
    )


def _guards() -> Iterator[Silent]:
    yield _value(
        "guarded_load_inside_expression",
        kernels.guarded_load_inside_expression,
        "the same: the load is 0 and the rest of the expression goes on",
        lambda gen: [randn(gen, 50)],
        lambda a: torch.cat([a * 2.0 + 1.0, torch.ones(14)]),
    )
    yield _value(
        "negative_index_wraps",
        kernels.negative_index_wraps,
        "the same: provably negative counts from the end",
        lambda gen: [randn(gen, 16)],
        lambda a: torch.cat([a[-1:], a[-5:-2]]),
    )
    yield _value(
        "unknown_sign_is_guarded",
        kernels.unknown_sign_is_guarded,
        "the same: 0 where the index is negative",
        lambda gen: [randn(gen, 16)],
        lambda a: torch.cat([torch.zeros(2), a[:14]]),
    )
    yield _value(
        "permuted_fragment",
        kernels.permuted_fragment,
        '"no available layout found"',
        lambda gen: [randn(gen, 64)],
        lambda a: a.flip(0),
    )
    yield _value(
        "constant_fragment_index",
        kernels.constant_fragment_index,
        "rejected for an index other than 0",
        lambda gen: [randn(gen, 64)],
        lambda a: a[5:6],
    )


def _control() -> Iterator[Silent]:
    yield _value(
        "buffer_in_loop_keeps_contents",
        kernels.buffer_in_loop_keeps_contents,
        "the same: one buffer for the launch",
        lambda gen: [randn(gen, 4, 64)],
        lambda a: a.double().sum(0),
        rounded("float32", 8, atol=1e-6),
    )
    for n in (0, -5):
        yield _value(
            f"empty_grid[{n}]",
            kernels.empty_grid,
            "the driver refuses a grid of no blocks",
            lambda gen, n=n: [randn(gen, 64), n],
            lambda a, _: a,
            updates=(0,),
        )
    for terms in (0, 1, 33):
        yield _value(
            f"gemm_without_terms[{terms}]",
            kernels.gemm_without_terms,
            "the same, where tensors of no elements are taken at all",
            lambda gen, terms=terms: [
                randn(gen, 64, terms, dtype=torch.float16),
                randn(gen, terms, 64, dtype=torch.float16),
            ],
            lambda a, b: 2.0 + a.double() @ b.double(),
            summed(64),
        )
    yield _value(
        "value_is_captured",
        kernels.value_is_captured,
        "the same: `y = A[i]` is read where it stands",
        lambda gen: [randn(gen, 64), torch.zeros(64)],
        lambda a, _: [a + 1.0, a],
        updates=(0, 1),
    )
    yield _value(
        "choice_is_lazy",
        kernels.choice_is_lazy,
        "the same: the side not taken is not evaluated",
        lambda gen: [randint(gen, -50, 50, 64), randint(gen, 0, 3, 64)],
        lambda a, b: torch.where(b != 0, torch.div(a, b.clamp(min=1), rounding_mode="floor"), -7),
    )


def _arithmetic() -> Iterator[Silent]:
    ties = [i / 2 for i in range(-9, 10)] + [0.49999997, -0.49999997, 8388609.0, 1e20, -1e20]
    yield _value(
        "round_ties_to_even",
        kernels.round_ties_to_even,
        "CUDA to even; HIP and c away from zero",
        lambda gen: [_shuffled(gen, ties)],
        lambda x: [torch.round(x), torch.round(x)],
        args=(len(ties),),
    )
    special = [NAN, NAN, INFINITY, -INFINITY, 0.0, 1.0, 2.0, -3.0]
    yield _value(
        "maximum_of_nan",
        kernels.maximum_of_nan,
        "CUDA and HIP give the other operand; the c target the second",
        lambda gen: [_shuffled(gen, special), _shuffled(gen, special)],
        _fmax,
        args=(len(special),),
    )
    yield _value(
        "clamp_keeps_nan",
        kernels.clamp_keeps_nan,
        "the same",
        lambda gen: [_shuffled(gen, special)],
        lambda x: x.clamp(-1.0, 1.5),
        args=(len(special),),
    )
    yield _value(
        "narrow_integers_wrap",
        kernels.narrow_integers_wrap,
        "C-like targets promote to int: 200 + 200 is 400",
        lambda gen: [randint(gen, 0, 256, 64, dtype=torch.uint8), randint(gen, -128, 128, 64, dtype=torch.int8)],
        lambda u, s: [(u + u).int(), (s * s).int(), (u - s.to(torch.uint8)).int()],
    )
    yield _value(
        "integers_wrap",
        kernels.integers_wrap,
        "the same on GPUs; undefined in C and C++",
        lambda gen: [randint(gen, -(2**31), 2**31 - 1, 64)],
        lambda a: a * a * 31 + a,
    )
    yield _value(
        "unsigned_difference",
        kernels.unsigned_difference,
        "the same: uint32 and int32 give uint32",
        lambda gen: [randint(gen, 0, 100, 64)],
        lambda a: torch.remainder(a.long() - 50, 2**32),
    )
    yield _value(
        "half_literals",
        kernels.half_literals,
        "the same: an int literal keeps float16, a float literal makes float32",
        lambda gen: [_shuffled(gen, [40000.0, 1.0, -50000.0, 3.0], torch.float16)],
        lambda h: [(h * 2).float(), h.float() * 2.0],
    )
    yield _value(
        "half_rounds_each_time",
        kernels.half_rounds_each_time,
        "the same",
        lambda gen: _half(randn(gen, 256), randn(gen, 256), randn(gen, 256)),
        lambda a, b, c: (a + b) * c,
    )
    yield _value(
        "bfloat16_and_half",
        kernels.bfloat16_and_half,
        "the same: bfloat16 + float16 is float16, its range lost",
        lambda gen: [_shuffled(gen, [1e5, 1.0, -2e6, 0.5], torch.bfloat16), randn(gen, 4, dtype=torch.float16)],
        lambda b, h: (b.half() + h).float(),
    )
    floats = [1e3, -1e3, 448.0, 464.0, 465.0, 0.0013, 17.0, 19.0, INFINITY, -INFINITY, 70000.0, 65519.0, 65520.0, 1.0]
    yield _value(
        "casts_of_floats",
        kernels.casts_of_floats,
        "the same on CUDA: float8 saturates, float16 overflows to infinity, ties go to even",
        lambda gen: [_shuffled(gen, floats)],
        lambda x: [
            x.clamp(-448.0, 448.0).to(torch.float8_e4m3fn).float(),
            x.half().float(),
            (x * 1.00390625).bfloat16().float(),
        ],
        args=(len(floats),),
    )
    numbers = [2.7, -2.7, 0.5, -0.5, 300.0, -129.0, 0.0, 1e-30]
    yield _value(
        "casts_to_integers",
        kernels.casts_to_integers,
        "the same: towards zero, then modulo 2^width",
        lambda gen: [_shuffled(gen, numbers)],
        lambda x: [x.int(), x.int().to(torch.int8), (x != 0).int()],
        args=(len(numbers),),
    )
    yield _value(
        "exponential_is_accurate",
        kernels.exponential_is_accurate,
        "HIP emits __expf, __logf, __sinf: wrong from the 4th digit on for large arguments",
        lambda gen: [torch.rand(256, generator=gen) * 160.0 - 80.0, torch.rand(256, generator=gen) * 6.28 - 3.14],
        lambda x, y: [x.double().exp(), x.double().abs().log(), y.double().sin()],
        maths(4, atol=1e-7),
    )
    yield _value(
        "subnormals_are_kept",
        kernels.subnormals_are_kept,
        "the same without fast maths",
        lambda gen: [torch.rand(64, generator=gen) * 1e-38],
        lambda x: x * 0.25,
    )
    yield _value(
        "population_count",
        kernels.population_count,
        '"Unresolved call tirx.popcount" on CUDA and c',
        lambda gen: [randint(gen, -(2**31), 2**31 - 1, 64)],
        lambda x: torch.stack([(x >> bit) & 1 for bit in range(32)]).sum(0).int(),
    )
    yield _value(
        "classification",
        kernels.classification,
        "the c target lacks them",
        lambda gen: [_shuffled(gen, special)],
        lambda x: torch.stack([x.isnan(), x.isinf(), x.isfinite()]).int(),
        args=(len(special),),
    )


def silent_cases() -> list[Silent]:
    """Every silent difference, by topic in the order of docs/program.md."""
    topics = (_copies, _fills, _products, _reductions, _guards, _control, _arithmetic)
    return [entry for topic in topics for entry in topic()]
