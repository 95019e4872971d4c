"""Element-wise kernels: tails in one and two dimensions, broadcasts, casts, conditions, maths, integers."""

from collections.abc import Iterator

import tilelang
import tilelang.language as T
import torch
import torch.nn.functional as F

from tests.kernels.case import EXACT, Case, maths, randint, randn, rounded, torch_dtype

MATHS = "exp exp2 log log2 log1p sqrt rsqrt tanh sigmoid erf sin cos floor ceil trunc abs".split()


@tilelang.jit(out_idx=[2])
def add(N, block_N=256, dtype="float32"):
    """C = A + B; the last block hangs over the end."""

    @T.prim_func
    def main(A: T.Tensor((N,), dtype), B: T.Tensor((N,), dtype), C: T.Tensor((N,), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), threads=128) as bx:
            for i in T.Parallel(block_N):
                C[bx * block_N + i] = A[bx * block_N + i] + B[bx * block_N + i]

    return main


@tilelang.jit
def add_2d(A, B, block_M: int = 16, block_N: int = 64):
    """C = A + B through on-chip tiles, both dimensions with a tail."""
    M, N = T.const("M, N")
    A: T.Tensor[[M, N], T.float32]
    B: T.Tensor[[M, N], T.float32]
    C = T.empty((M, N), T.float32)
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
        A_shared = T.alloc_shared((block_M, block_N), "float32")
        B_local = T.alloc_fragment((block_M, block_N), "float32")
        T.copy(A[by * block_M, bx * block_N], A_shared)
        T.copy(B[by * block_M, bx * block_N], B_local)
        for i, j in T.Parallel(block_M, block_N):
            B_local[i, j] += A_shared[i, j]
        T.copy(B_local, C[by * block_M, bx * block_N])
    return C


@tilelang.jit
def scale_and_shift(X, alpha: T.float32, beta: T.float32, n: T.int32, block: int = 128):
    """Y[:n] = alpha * X + beta, the rest of Y is X: three scalars known only at run time."""
    N = T.const("N")
    X: T.Tensor[[N], T.float32]
    Y = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
        for i in T.Parallel(block):
            if bx * block + i < n:
                Y[bx * block + i] = alpha * X[bx * block + i] + beta
            else:
                Y[bx * block + i] = X[bx * block + i]
    return Y


@tilelang.jit(out_idx=[-1])
def relu(M, N, block_M=32, block_N=32, dtype="float16"):
    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            x = T.alloc_fragment((block_M, block_N), dtype)
            T.copy(X[by * block_M, bx * block_N], x)
            for i, j in T.Parallel(block_M, block_N):
                x[i, j] = T.max(x[i, j], 0)
            T.copy(x, Y[by * block_M, bx * block_N])

    return main


@tilelang.jit(out_idx=[-1])
def activation(N, kind, block_N=512, dtype="bfloat16"):
    """gelu (exact or tanh form) or silu, computed in float32 and stored in a 16-bit type."""

    @T.prim_func
    def main(X: T.Tensor((N,), dtype), Y: T.Tensor((N,), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), threads=128) as bx:
            x = T.alloc_fragment((block_N,), "float32")
            T.copy(X[bx * block_N], x)
            for i in T.Parallel(block_N):
                if kind == "gelu":
                    x[i] = 0.5 * x[i] * (1.0 + T.erf(x[i] * 0.7071067811865476))
                elif kind == "gelu_tanh":
                    x[i] = 0.5 * x[i] * (1.0 + T.tanh(0.7978845608028654 * (x[i] + 0.044715 * x[i] * x[i] * x[i])))
                else:
                    x[i] = x[i] * T.sigmoid(x[i])
            T.copy(x, Y[bx * block_N])

    return main


@tilelang.jit
def swiglu(X, block_M: int = 8, block_N: int = 64):
    """Y = silu(gate) * up, where the rows of X hold the gate and then the up projection."""
    M, width = T.const("M, width")
    X: T.Tensor[[M, width], T.float16]
    N = width // 2
    Y = T.empty((M, N), T.float16)
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
        for i, j in T.Parallel(block_M, block_N):
            if by * block_M + i < M and bx * block_N + j < N:
                gate = T.cast(X[by * block_M + i, bx * block_N + j], "float32")
                up = T.cast(X[by * block_M + i, N + bx * block_N + j], "float32")
                Y[by * block_M + i, bx * block_N + j] = gate / (1.0 + T.exp(-gate)) * up
    return Y


@tilelang.jit(out_idx=[3])
def broadcast(M, N, block_M=16, block_N=64):
    """Y = X * row + column: a row vector and a column vector over a matrix."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), "float32"),
        row: T.Tensor((N,), "float32"),
        column: T.Tensor((M,), "float32"),
        Y: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(M, block_M), T.ceildiv(N, block_N), threads=128) as (bm, bn):
            x = T.alloc_fragment((block_M, block_N), "float32")
            r = T.alloc_fragment((block_N,), "float32")
            c = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bm * block_M, bn * block_N], x)
            T.copy(row[bn * block_N], r)
            T.copy(column[bm * block_M], c)
            for i, j in T.Parallel(block_M, block_N):
                x[i, j] = x[i, j] * r[j] + c[i]
            T.copy(x, Y[bm * block_M, bn * block_N])

    return main


@tilelang.jit(out_idx=[1, 2, 3])
def cast_chain(N, block=128):
    """float32 -> float16 -> bfloat16 and float32 -> int32 -> int8: each step rounds, truncates or wraps."""

    @T.prim_func
    def main(
        X: T.Tensor((N,), "float32"),
        H: T.Tensor((N,), "float16"),
        B: T.Tensor((N,), "bfloat16"),
        I: T.Tensor((N,), "int8"),  # noqa: E741  (the matrix's usual letter)
    ):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            x = T.alloc_fragment((block,), "float32")
            h = T.alloc_fragment((block,), "float16")
            b = T.alloc_fragment((block,), "bfloat16")
            T.copy(X[bx * block], x)
            T.copy(x, h)
            for i in T.Parallel(block):
                b[i] = T.cast(T.cast(h[i], "float32"), "bfloat16")
            T.copy(h, H[bx * block])
            T.copy(b, B[bx * block])
            for i in T.Parallel(block):
                I[bx * block + i] = T.cast(T.cast(x[i] * 100.0, "int32"), "int8")

    return main


@tilelang.jit(out_idx=[2, 3])
def where(N, block=128):
    """A lazy choice that must not read past the end, a ternary, a clamp, and and/or/not conditions."""

    @T.prim_func
    def main(
        X: T.Tensor((N,), "float32"),
        Z: T.Tensor((N,), "float32"),
        shifted: T.Tensor((N,), "float32"),
        picked: T.Tensor((N,), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                shifted[bx * block + i] = T.if_then_else(bx * block + i + 3 < N, X[bx * block + i + 3], -1.0)
            for i in T.Parallel(block):
                x = X[bx * block + i]
                z = Z[bx * block + i]
                if (x > 0.0 and z > 0.0) or not (x + z < 1.0):
                    picked[bx * block + i] = T.clamp(x, -0.5, 0.5)
                elif z < -1.0:
                    picked[bx * block + i] = x if x < z else z
                else:
                    picked[bx * block + i] = T.Select(x < 0.0, -x, z)

    return main


@tilelang.jit(out_idx=[1])
def functions(N, block=128):
    """One output row per function of X (positive)."""

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((len(MATHS), N), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                x = X[bx * block + i]
                Y[0, bx * block + i] = T.exp(x)
                Y[1, bx * block + i] = T.exp2(x)
                Y[2, bx * block + i] = T.log(x)
                Y[3, bx * block + i] = T.log2(x)
                Y[4, bx * block + i] = T.log1p(x)
                Y[5, bx * block + i] = T.sqrt(x)
                Y[6, bx * block + i] = T.rsqrt(x)
                Y[7, bx * block + i] = T.tanh(x)
                Y[8, bx * block + i] = T.sigmoid(x)
                Y[9, bx * block + i] = T.erf(x)
                Y[10, bx * block + i] = T.sin(x)
                Y[11, bx * block + i] = T.cos(x)
                Y[12, bx * block + i] = T.floor(x)
                Y[13, bx * block + i] = T.ceil(x)
                Y[14, bx * block + i] = T.trunc(x)
                Y[15, bx * block + i] = T.abs(1.0 - x)

    return main


@tilelang.jit(out_idx=[2, 3])
def power_and_remainder(N, block=128):
    """Functions of two arguments."""

    @T.prim_func
    def main(
        X: T.Tensor((N,), "float32"),
        Y: T.Tensor((N,), "float32"),
        power: T.Tensor((N,), "float32"),
        remainder: T.Tensor((N,), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                power[bx * block + i] = T.pow(X[bx * block + i], Y[bx * block + i])
                remainder[bx * block + i] = T.fmod(Y[bx * block + i], X[bx * block + i])

    return main


@tilelang.jit
def integers(A, B, block: int = 128):
    """Floor and truncating division, remainders of either sign, shifts and bit operations, one row each."""
    N = T.const("N")
    A: T.Tensor[[N], T.int32]
    B: T.Tensor[[N], T.int32]
    C = T.empty((9, N), T.int32)
    with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
        for i in T.Parallel(block):
            if bx * block + i < N:
                a = A[bx * block + i]
                b = B[bx * block + i]
                C[0, bx * block + i] = a // b
                C[1, bx * block + i] = a % b
                C[2, bx * block + i] = T.truncdiv(a, b)
                C[3, bx * block + i] = T.truncmod(a, b)
                C[4, bx * block + i] = a >> 3
                C[5, bx * block + i] = (a & 1023) << 2
                C[6, bx * block + i] = (a ^ b) | 1
                C[7, bx * block + i] = ~a
                C[8, bx * block + i] = T.min(T.max(a, -100), b)
    return C


@tilelang.jit(out_idx=[-1])
def dropout(N, probability, block=256, dtype="float16"):
    """Inverted dropout with the mask given: Y = mask ? X / (1 - p) : 0."""

    @T.prim_func
    def main(X: T.Tensor((N,), dtype), mask: T.Tensor((N,), "uint8"), Y: T.Tensor((N,), dtype)):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            for i in T.Parallel(block):
                Y[bx * block + i] = T.if_then_else(
                    mask[bx * block + i] != 0, T.cast(X[bx * block + i], "float32") * (1.0 / (1.0 - probability)), 0.0
                )

    return main


def _scale_and_shift(x: torch.Tensor, alpha: float, beta: float, n: int) -> torch.Tensor:
    y = x.double()
    y[:n] = alpha * y[:n] + beta
    return y


def _activation(kind: str, x: torch.Tensor) -> torch.Tensor:
    x = x.double()
    if kind == "silu":
        return F.silu(x)
    return F.gelu(x, approximate="tanh" if kind == "gelu_tanh" else "none")


def _swiglu(x: torch.Tensor) -> torch.Tensor:
    gate, up = x.double().chunk(2, dim=1)
    return F.silu(gate) * up


def _cast_chain(x: torch.Tensor) -> list[torch.Tensor]:
    half = x.half()
    return [half, half.float().bfloat16(), (x * 100.0).to(torch.int32).to(torch.int8)]


def _where(x: torch.Tensor, z: torch.Tensor) -> list[torch.Tensor]:
    shifted = torch.cat([x[3:], torch.full((3,), -1.0)])
    first = ((x > 0) & (z > 0)) | ~(x + z < 1)
    otherwise = torch.where(z < -1, torch.minimum(x, z), torch.where(x < 0, -x, z))
    return [shifted, torch.where(first, x.clamp(-0.5, 0.5), otherwise)]


def _functions(x: torch.Tensor) -> torch.Tensor:
    x = x.double()
    return torch.stack([(1.0 - x).abs() if name == "abs" else getattr(torch, name)(x) for name in MATHS])


def _integers(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.stack(
        [
            torch.div(a, b, rounding_mode="floor"),
            torch.remainder(a, b),
            torch.div(a, b, rounding_mode="trunc"),
            torch.fmod(a, b),
            a >> 3,
            (a & 1023) << 2,
            (a ^ b) | 1,
            ~a,
            torch.minimum(a.clamp(min=-100), b),
        ]
    )


def cases() -> Iterator[Case]:
    for n, dtype in ((1000, "float32"), (4099, "float16"), (129, "bfloat16")):
        yield Case(
            f"elementwise.add[{n}-{dtype}]",
            add,
            lambda gen, n=n, dtype=dtype: [randn(gen, n, dtype=torch_dtype(dtype)) for _ in range(2)],
            lambda a, b: a + b,
            EXACT,
            args=(n,),
            kwargs={"dtype": dtype},
            tags=frozenset({"elementwise", "tail"}),
        )
    yield Case(
        "elementwise.add_2d[33x70]",
        add_2d,
        lambda gen: [randn(gen, 33, 70), randn(gen, 33, 70)],
        lambda a, b: a + b,
        EXACT,
        style="eager",
        tags=frozenset({"elementwise", "tail", "shared"}),
    )
    yield Case(
        "elementwise.scale_and_shift[300]",
        scale_and_shift,
        lambda gen: [randn(gen, 300), 1.5, -0.25, int(randint(gen, 1, 300, 1))],
        _scale_and_shift,
        rounded("float32", 2, atol=5e-7),  # the product rounds before the sum may cancel it
        style="eager",
        tags=frozenset({"elementwise", "tail", "scalar"}),
    )
    yield Case(
        "elementwise.relu[45x50]",
        relu,
        lambda gen: [randn(gen, 45, 50, dtype=torch.float16)],
        torch.relu,
        EXACT,
        args=(45, 50),
        tags=frozenset({"elementwise", "tail"}),
    )
    for kind, dtype in (("gelu", "float16"), ("gelu_tanh", "bfloat16"), ("silu", "bfloat16")):
        yield Case(
            f"elementwise.activation[{kind}-{dtype}]",
            activation,
            lambda gen, dtype=dtype: [randn(gen, 1100, dtype=torch_dtype(dtype), scale=2.0)],
            lambda x, kind=kind: _activation(kind, x),
            rounded(dtype, atol=1e-6),
            args=(1100, kind),
            kwargs={"dtype": dtype},
            tags=frozenset({"elementwise", "maths", "tail"}),
        )
    yield Case(
        "elementwise.swiglu[13x100]",
        swiglu,
        lambda gen: [randn(gen, 13, 200, dtype=torch.float16)],
        _swiglu,
        rounded("float16", atol=1e-6),
        style="eager",
        tags=frozenset({"elementwise", "maths", "tail"}),
    )
    yield Case(
        "elementwise.broadcast[37x100]",
        broadcast,
        lambda gen: [randn(gen, 37, 100), randn(gen, 100), randn(gen, 37)],
        lambda x, row, column: x.double() * row.double() + column.double()[:, None],
        rounded("float32", 2, atol=2e-6),  # products of size up to about 16 round, then cancel
        args=(37, 100),
        tags=frozenset({"elementwise", "broadcast", "tail"}),
    )
    yield Case(
        "elementwise.cast_chain[200]",
        cast_chain,
        lambda gen: [randn(gen, 200, scale=3.0)],
        _cast_chain,
        EXACT,
        args=(200,),
        tags=frozenset({"elementwise", "cast", "int8", "tail"}),
    )
    yield Case(
        "elementwise.where[300]",
        where,
        lambda gen: [randn(gen, 300), randn(gen, 300)],
        _where,
        EXACT,
        args=(300,),
        tags=frozenset({"elementwise", "condition", "tail"}),
    )
    yield Case(
        "elementwise.functions[200]",
        functions,
        lambda gen: [torch.rand(200, generator=gen) * 4.0 + 0.05],
        _functions,
        maths(),
        args=(200,),
        tags=frozenset({"elementwise", "maths", "tail"}),
    )
    yield Case(
        "elementwise.power_and_remainder[200]",
        power_and_remainder,
        lambda gen: [torch.rand(200, generator=gen) + 0.5, randn(gen, 200, scale=3.0)],
        lambda x, y: [x.double() ** y.double(), torch.fmod(y, x)],
        maths(16),
        args=(200,),
        tags=frozenset({"elementwise", "maths", "tail"}),
    )
    yield Case(
        "elementwise.integers[300]",
        integers,
        lambda gen: [
            randint(gen, -5000, 5000, 300),
            torch.where(randint(gen, 0, 2, 300) == 0, -1, 1).int() * randint(gen, 1, 50, 300),
        ],
        _integers,
        EXACT,
        style="eager",
        tags=frozenset({"elementwise", "integer", "tail"}),
    )
    yield Case(
        "elementwise.dropout[1000]",
        dropout,
        lambda gen: [randn(gen, 1000, dtype=torch.float16), randint(gen, 0, 4, 1000).clamp(max=1).to(torch.uint8)],
        lambda x, mask: x.double() * mask / 0.75,
        rounded("float16"),
        args=(1000, 0.25),
        tags=frozenset({"elementwise", "condition", "tail"}),
    )
