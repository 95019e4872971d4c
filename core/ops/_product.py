"""What a matrix product computes, whatever computes it: operands, types, and what is done to the sums on their way out.

Each variant of the product is a macro that is given the tensors; `Product.program` puts the signature around it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from core._tilelang import import_tilelang
from core.errors import KernelError

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)

from core.ops._dtypes import result_dtype, sum_dtype  # noqa: E402
from core.ops.activations import function  # noqa: E402


@dataclass(frozen=True)
class Product:
    """`C = activation(op(A) @ op(B) + bias) + residual`, once or for each of `batch` pairs.

    Attributes:
        M, N, K: extents, elements; may be symbolic.
        dtype: of A and B.
        out_dtype: of C, of the bias (N) and of the residual (as C).
        accum_dtype: of the sums.
        trans_a, trans_b: A is stored as K x M, B as N x K.
        batch: leading extent of A, B, C and the residual, may be symbolic; None is none.
        bias, activation, residual: which parts of the epilogue there are.

    Raises:
        KernelError: there is no such activation, or it is none for integers.
    """

    M: Any
    N: Any
    K: Any
    dtype: str
    out_dtype: str
    accum_dtype: str
    trans_a: bool = False
    trans_b: bool = False
    batch: Any = None
    bias: bool = False
    activation: str | None = None
    residual: bool = False

    def __post_init__(self) -> None:
        if self.activation is None:
            return
        function(self.activation)
        if not self.accum_dtype.startswith("float") and self.activation != "relu":
            raise KernelError(
                f"{self.activation} cannot be computed of sums in {self.accum_dtype}",
                hint='use "relu", or operands of a float',
            )

    @classmethod
    def typed(
        cls, M: Any, N: Any, K: Any, dtype: str, out_dtype: str | None, accum_dtype: str | None, **more: Any
    ) -> "Product":
        """With the types that go with `dtype` where none are given."""
        return cls(M, N, K, dtype, out_dtype or result_dtype(dtype), accum_dtype or sum_dtype(dtype), **more)

    def expect_known(self, variant: str, *names: str) -> None:
        """Raises KernelError where one of these extents is symbolic, of which the variant takes numbers only."""
        for name in names:
            extent = getattr(self, name)
            if extent is not None and not isinstance(extent, int):
                raise KernelError(
                    f"gemm: {name} is symbolic, and variant={variant!r} divides a known {name} among its blocks",
                    hint=f"give a number for {name}, or variant='tiled', which takes any size",
                )

    def stored_a(self, rows: Any, depth: Any) -> tuple[Any, Any]:
        """Extents, or a place, of a piece of op(A) in the order A is stored in."""
        return (depth, rows) if self.trans_a else (rows, depth)

    def stored_b(self, depth: Any, columns: Any) -> tuple[Any, Any]:
        """Extents, or a place, of a piece of op(B) in the order B is stored in."""
        return (columns, depth) if self.trans_b else (depth, columns)

    def finish(self, rows: int, columns: int) -> Callable[..., Any]:
        """A macro that turns a tile of sums into the tile of C, in place.

        It is called with the fragment (rows x columns), the bias and the residual (None where there is none), the
        tile's first row and column in C, and its place in the batch as a tuple of at most one index.
        """
        accum_dtype = self.accum_dtype
        apply = function(self.activation) if self.activation is not None else None

        @T.macro
        def macro(sums, bias, residual, row, column, at):
            if bias is not None:
                for i, j in T.Parallel(rows, columns):
                    sums[i, j] = sums[i, j] + T.cast(bias[column + j], accum_dtype)
            if apply is not None:
                for i, j in T.Parallel(rows, columns):
                    sums[i, j] = apply(sums[i, j])
            if residual is not None:
                for i, j in T.Parallel(rows, columns):
                    sums[i, j] = sums[i, j] + T.cast(residual[(*at, row + i, column + j)], accum_dtype)

        finish: Callable[..., Any] = macro
        return finish

    def program(self, body: Callable[..., Any]) -> Any:
        """The PrimFunc of a macro that takes A, B, C, the bias and the residual (None where there is none)."""
        lead = () if self.batch is None else (self.batch,)
        a_shape = (*lead, *self.stored_a(self.M, self.K))
        b_shape = (*lead, *self.stored_b(self.K, self.N))
        c_shape = (*lead, self.M, self.N)
        dtype, out_dtype = self.dtype, self.out_dtype
        bias_shape = (self.N,)
        if self.bias and self.residual:

            @T.prim_func
            def with_both(
                A: T.Tensor(a_shape, dtype),
                B: T.Tensor(b_shape, dtype),
                bias: T.Tensor(bias_shape, out_dtype),
                residual: T.Tensor(c_shape, out_dtype),
                C: T.Tensor(c_shape, out_dtype),
            ):
                body(A, B, C, bias, residual)

            return with_both
        if self.bias:

            @T.prim_func
            def with_bias(
                A: T.Tensor(a_shape, dtype),
                B: T.Tensor(b_shape, dtype),
                bias: T.Tensor(bias_shape, out_dtype),
                C: T.Tensor(c_shape, out_dtype),
            ):
                body(A, B, C, bias, None)

            return with_bias
        if self.residual:

            @T.prim_func
            def with_residual(
                A: T.Tensor(a_shape, dtype),
                B: T.Tensor(b_shape, dtype),
                residual: T.Tensor(c_shape, out_dtype),
                C: T.Tensor(c_shape, out_dtype),
            ):
                body(A, B, C, None, residual)

            return with_residual

        @T.prim_func
        def alone(A: T.Tensor(a_shape, dtype), B: T.Tensor(b_shape, dtype), C: T.Tensor(c_shape, out_dtype)):
            body(A, B, C, None, None)

        return alone
