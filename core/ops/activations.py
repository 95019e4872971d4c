"""Activation functions, element by element: alone, and with one half of each row gating the other."""

from collections.abc import Callable, Mapping
from typing import Any

from core._tilelang import import_tilelang
from core.errors import KernelError
from core.ops._dtypes import FLOATS, INTEGERS
from core.tiling import kernel, threads, tile

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)

#: exp(x) = exp2(x · log2 e): every chip's exponential unit works in base 2.
_LOG2_E = 1.4426950408889634
_SQRT_2, _SQRT_2_BY_PI = 1.4142135623730951, 0.7978845608028654


def relu(x: Any) -> Any:
    """`max(x, 0)`; NaN stays NaN."""
    return T.if_then_else(x < 0, T.cast(0, x.dtype), x)


def sigmoid(x: Any) -> Any:
    """`1 / (1 + exp(-x))`."""
    return 1.0 / (1.0 + T.exp2(x * -_LOG2_E))


def silu(x: Any) -> Any:
    """`x · sigmoid(x)`, also called swish."""
    return x / (1.0 + T.exp2(x * -_LOG2_E))


def gelu(x: Any) -> Any:
    """`x · Φ(x)` with the distribution function of the standard normal (Hendrycks and Gimpel 2016)."""
    return 0.5 * x * (1.0 + T.erf(x / _SQRT_2))


def gelu_tanh(x: Any) -> Any:
    """The approximation of :func:`gelu` by a hyperbolic tangent, from the same paper."""
    return 0.5 * x * (1.0 + T.tanh(_SQRT_2_BY_PI * (x + 0.044715 * x * x * x)))


#: The functions by name: expressions of one float32 element, `relu` of one of any type.
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": relu,
    "sigmoid": sigmoid,
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "tanh": T.tanh,
}


def function(name: str) -> Callable[[Any], Any]:
    """The function of this name.

    Raises:
        KernelError: there is none.
    """
    if name not in ACTIVATIONS:
        raise KernelError(f"there is no activation {name!r}", hint=f"the activations are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _computed_of(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Types that a function is computed of: one that gives one of its arguments, of integers too."""
    return (*FLOATS, *INTEGERS) if arguments["name"] == "relu" else FLOATS


@kernel(out=["Y"], dtypes={"dtype": _computed_of}, symbolic=("N",))
def activation(
    N: Any,
    *,
    name: str = "relu",
    dtype: str = "float16",
    block_N: int = tile("N"),
    threads: int = threads(),
) -> Any:
    """`Y[i] = f(X[i])`, computed in float32; of integers, in their own type.

    Args:
        N: elements, in whatever shape; may be symbolic (`T.dynamic`).
        name: of the function, a key of :data:`ACTIVATIONS`.
        dtype: of X and Y.

    Raises:
        ShapeMismatch: the function is not computed of `dtype`.
        KernelError: there is no such function.
    """
    apply = function(name)
    computed = dtype if dtype in INTEGERS else "float32"

    @T.prim_func
    def main(X: T.Tensor((N,), dtype), Y: T.Tensor((N,), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), threads=threads) as bx:
            x = T.alloc_fragment((block_N,), computed)
            T.copy(X[bx * block_N], x)
            for i in T.Parallel(block_N):
                x[i] = apply(x[i])
            T.copy(x, Y[bx * block_N])

    return main


@kernel(out=["Y"], dtypes={"dtype": FLOATS}, symbolic=("M", "N"))
def gated_activation(
    M: Any,
    N: Any,
    *,
    name: str = "silu",
    dtype: str = "float16",
    block_M: int = tile("M"),
    block_N: int = tile("N"),
    threads: int = threads(),
) -> Any:
    """`Y[i, j] = f(X[i, j]) · X[i, N + j]`, computed in float32: the first half of each row gates the second.

    Args:
        M: rows; it and N may be symbolic (`T.dynamic`).
        N: columns of Y; X has twice as many.
        name: of the function, a key of :data:`ACTIVATIONS`.
        dtype: of X and Y.

    Raises:
        ShapeMismatch: it is not computed of `dtype`.
        KernelError: there is no such function.
    """
    apply = function(name)
    rows, columns = T.ceildiv(M, block_M), T.ceildiv(N, block_N)

    @T.macro
    def block(X, Y, row, column):
        gate = T.alloc_fragment((block_M, block_N), "float32")
        value = T.alloc_fragment((block_M, block_N), "float32")
        T.copy(X[row : row + block_M, 0, column : column + block_N], gate)
        T.copy(X[row : row + block_M, 1, column : column + block_N], value)
        for i, j in T.Parallel(block_M, block_N):
            value[i, j] = apply(gate[i, j]) * value[i, j]
        T.copy(value, Y[row, column])

    @T.macro
    def body(X, Y):
        if isinstance(N, int):
            # One axis of blocks: of the others chips launch 65535, and there may be millions of rows.
            with T.Kernel(rows * columns, threads=threads) as b:
                block(X, Y, b // columns * block_M, b % columns * block_N)
        else:
            # Each element would divide by a number of columns that only a call says.
            with T.Kernel(columns, rows, threads=threads) as (bx, by):
                block(X, Y, by * block_M, bx * block_N)

    @T.prim_func
    def main(X: T.Tensor((M, 2, N), dtype), Y: T.Tensor((M, N), dtype)):
        body(X, Y)

    return main
