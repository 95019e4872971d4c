"""Attention: flash attention forward in its usual variants, linear attention, retention, rotary embedding."""

from collections.abc import Iterator

import tilelang
import tilelang.language as T
import torch

from tests.kernels.case import Argument, Case, Tolerance, randn, rounded, summed

LOG2_E = 1.4426950408889634

# Scores are float32 sums over D of float16 products; probabilities are rounded to float16 before the second product, as
# every implementation does, and the result is stored as float16: a few float16 ulp of values of size 1.
ATTENTION = Tolerance(2e-3, 2e-3, "probabilities and output rounded to float16")


@tilelang.jit(out_idx=[3])
def flash_attention(
    batch, heads, kv_heads, seq_q, seq_k, dim, causal=False, sink=False, dtype="float16", block_M=64, block_N=64
):
    """softmax(Q K^T / sqrt(dim)) V in one pass over tiles of keys, never storing the scores.

    `heads / kv_heads` query heads share a key head. Causal: query i sees the keys up to i + seq_k - seq_q. `sink` adds
    one learned logit per head to the denominator. Keys past the end of the last tile are masked.
    """
    scale = LOG2_E / dim**0.5
    group = heads // kv_heads

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, seq_q, dim), dtype),
        K: T.Tensor((batch, kv_heads, seq_k, dim), dtype),
        V: T.Tensor((batch, kv_heads, seq_k, dim), dtype),
        O: T.Tensor((batch, heads, seq_q, dim), dtype),  # noqa: E741  (the paper's letter)
        sinks: T.Tensor((heads,), "float32"),
    ):
        with T.Kernel(T.ceildiv(seq_q, block_M), heads, batch, threads=128) as (bx, h, b):
            q = T.alloc_shared((block_M, dim), dtype)
            k = T.alloc_shared((block_N, dim), dtype)
            v = T.alloc_shared((block_N, dim), dtype)
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_fragment((block_M, block_N), dtype)
            output = T.alloc_fragment((block_M, dim), "float32")
            row_max = T.alloc_fragment((block_M,), "float32")
            old_max = T.alloc_fragment((block_M,), "float32")
            rescale = T.alloc_fragment((block_M,), "float32")
            tile_sum = T.alloc_fragment((block_M,), "float32")
            row_sum = T.alloc_fragment((block_M,), "float32")

            T.copy(Q[b, h, bx * block_M : (bx + 1) * block_M, :], q)
            T.fill(output, 0)
            T.fill(row_sum, 0)
            T.fill(row_max, -T.infinity("float32"))
            tiles = (
                T.min(T.ceildiv(seq_k, block_N), T.ceildiv((bx + 1) * block_M + seq_k - seq_q, block_N))
                if causal
                else T.ceildiv(seq_k, block_N)
            )
            for t in T.Pipelined(tiles, num_stages=2):
                T.copy(K[b, h // group, t * block_N : (t + 1) * block_N, :], k)
                for i, j in T.Parallel(block_M, block_N):
                    if causal:
                        scores[i, j] = T.if_then_else(
                            bx * block_M + i + seq_k - seq_q >= t * block_N + j, 0, -T.infinity("float32")
                        )
                    else:
                        scores[i, j] = T.if_then_else(t * block_N + j < seq_k, 0, -T.infinity("float32"))
                T.gemm(q, k, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(row_max, old_max)
                T.reduce_max(scores, row_max, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    rescale[i] = T.exp2(old_max[i] * scale - row_max[i] * scale)
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.exp2(scores[i, j] * scale - row_max[i] * scale)
                T.reduce_sum(scores, tile_sum, dim=1)
                for i in T.Parallel(block_M):
                    row_sum[i] = row_sum[i] * rescale[i] + tile_sum[i]
                for i, j in T.Parallel(block_M, dim):
                    output[i, j] *= rescale[i]
                T.copy(scores, weights)
                T.copy(V[b, h // group, t * block_N : (t + 1) * block_N, :], v)
                T.gemm(weights, v, output, policy=T.GemmWarpPolicy.FullRow)
            if sink:
                for i in T.Parallel(block_M):
                    row_sum[i] += T.exp2(sinks[h] * LOG2_E - row_max[i] * scale)
            for i, j in T.Parallel(block_M, dim):
                output[i, j] /= row_sum[i]
            T.copy(output, O[b, h, bx * block_M : (bx + 1) * block_M, :])

    return main


@tilelang.jit
def decode_attention(q, K, V, lengths, block_N: int = 32):
    """One query per sequence over a cache of which `lengths[b]` entries are valid; no matrix unit, all masked."""
    B, S, D = T.const("B, S, D")
    q: T.Tensor[[B, D], T.float16]
    K: T.Tensor[[B, S, D], T.float16]
    V: T.Tensor[[B, S, D], T.float16]
    lengths: T.Tensor[[B], T.int32]
    out = T.empty((B, D), T.float32)
    with T.Kernel(B, threads=128) as b:
        q_local = T.alloc_fragment((D,), "float32")
        tile = T.alloc_fragment((block_N, D), "float32")
        scores = T.alloc_fragment((block_N,), "float32")
        tile_out = T.alloc_fragment((D,), "float32")
        output = T.alloc_fragment((D,), "float32")
        largest = T.alloc_fragment((1,), "float32")
        previous = T.alloc_fragment((1,), "float32")
        tile_sum = T.alloc_fragment((1,), "float32")
        total = T.alloc_fragment((1,), "float32")
        T.copy(q[b, 0:D], q_local)
        T.clear(output)
        T.clear(total)
        T.fill(largest, -T.infinity("float32"))
        for t in T.serial(T.ceildiv(lengths[b], block_N)):
            for i, j in T.Parallel(block_N, D):
                tile[i, j] = T.cast(K[b, t * block_N + i, j], "float32") * q_local[j]
            T.reduce_sum(tile, scores, dim=1)
            for i in T.Parallel(block_N):
                scores[i] = T.if_then_else(
                    t * block_N + i < lengths[b],
                    scores[i] * (LOG2_E / T.sqrt(T.cast(D, "float32"))),
                    -T.infinity("float32"),
                )
            T.copy(largest, previous)
            T.reduce_max(scores, largest, dim=0, clear=False)
            for i in T.Parallel(block_N):
                scores[i] = T.exp2(scores[i] - largest[0])
            T.reduce_sum(scores, tile_sum, dim=0)
            for i in T.Parallel(1):
                total[i] = total[i] * T.exp2(previous[i] - largest[i]) + tile_sum[i]
            for i, j in T.Parallel(block_N, D):
                tile[i, j] = T.cast(V[b, t * block_N + i, j], "float32") * scores[i]
            T.reduce_sum(tile, tile_out, dim=0)
            for j in T.Parallel(D):
                output[j] = output[j] * T.exp2(previous[0] - largest[0]) + tile_out[j]
        for j in T.Parallel(D):
            out[b, j] = output[j] / total[0]
    return out


@tilelang.jit(out_idx=[3])
def linear_attention(batch, heads, seq, dim, chunk=64, dtype="float16", decay=False):
    """Causal linear attention in chunks: inside a chunk by masked products, across chunks through a dim x dim state.

    With `decay`, retention: each head forgets by its own gamma = 1 - 2^(-5 - h) per step.
    """

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, seq, dim), dtype),
        K: T.Tensor((batch, heads, seq, dim), dtype),
        V: T.Tensor((batch, heads, seq, dim), dtype),
        O: T.Tensor((batch, heads, seq, dim), "float32"),  # noqa: E741  (the paper's letter)
    ):
        with T.Kernel(heads, batch, threads=128) as (h, b):
            q = T.alloc_shared((chunk, dim), dtype)
            k = T.alloc_shared((chunk, dim), dtype)
            v = T.alloc_shared((chunk, dim), dtype)
            scores = T.alloc_fragment((chunk, chunk), "float32")
            weights = T.alloc_shared((chunk, chunk), dtype)
            state = T.alloc_fragment((dim, dim), "float32")
            state_shared = T.alloc_shared((dim, dim), dtype)
            output = T.alloc_fragment((chunk, dim), "float32")
            log_gamma = T.log2(1.0 - T.exp2(-5.0 - T.cast(h, "float32")))
            T.clear(state)
            for c in T.serial(T.ceildiv(seq, chunk)):
                T.copy(Q[b, h, c * chunk, 0], q)
                T.copy(K[b, h, c * chunk, 0], k)
                T.copy(V[b, h, c * chunk, 0], v)
                # What earlier chunks left in the state.
                T.copy(state, state_shared)
                T.gemm(q, state_shared, output, clear_accum=True)
                if decay:
                    for i, j in T.Parallel(chunk, dim):
                        output[i, j] *= T.exp2(log_gamma * T.cast(i + 1, "float32"))
                # This chunk's own part.
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, chunk):
                    if decay:
                        scores[i, j] *= T.if_then_else(i >= j, T.exp2(log_gamma * T.cast(i - j, "float32")), 0.0)
                    else:
                        scores[i, j] = T.if_then_else(i >= j, scores[i, j], 0.0)
                T.copy(scores, weights)
                T.gemm(weights, v, output)
                T.copy(output, O[b, h, c * chunk, 0])
                # The state after it.
                if decay:
                    for i, j in T.Parallel(dim, dim):
                        state[i, j] *= T.exp2(log_gamma * chunk)
                    for i, j in T.Parallel(chunk, dim):
                        v[i, j] = T.cast(v[i, j], "float32") * T.exp2(log_gamma * T.cast(chunk - 1 - i, "float32"))
                T.gemm(k, v, state, transpose_A=True)

    return main


@tilelang.jit
def rope(X, cos, sin, block_S: int = 8):
    """Rotary position embedding, the half-split form, for every head of a token."""
    S, H, D, half = T.const("S, H, D, half")
    X: T.Tensor[[S, H, D], T.bfloat16]
    cos: T.Tensor[[S, half], T.float32]
    sin: T.Tensor[[S, half], T.float32]
    Y = T.empty((S, H, D), T.bfloat16)
    with T.Kernel(T.ceildiv(S, block_S), H, threads=128) as (bs, h):
        for i, j in T.Parallel(block_S, half):
            if bs * block_S + i < S:
                left = T.cast(X[bs * block_S + i, h, j], "float32")
                right = T.cast(X[bs * block_S + i, h, j + half], "float32")
                c = cos[bs * block_S + i, j]
                s = sin[bs * block_S + i, j]
                Y[bs * block_S + i, h, j] = left * c - right * s
                Y[bs * block_S + i, h, j + half] = right * c + left * s
    return Y


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor, *, causal: bool, sink: bool):
    q, k, v = q.double(), k.double(), v.double()
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if causal:
        queries, keys = scores.shape[-2:]
        hidden = torch.ones(queries, keys, dtype=torch.bool).triu(keys - queries + 1)
        scores = scores.masked_fill(hidden, -torch.inf)
    if sink:
        extra = sinks.double()[None, :, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, extra], -1)
    weights = scores.softmax(-1)
    return weights[..., : k.shape[-2]] @ v


def _decode(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    rows = []
    for b, length in enumerate(lengths.tolist()):
        weights = (k[b, :length].double() @ q[b].double() / q.shape[1] ** 0.5).softmax(0)
        rows.append(weights @ v[b, :length].double())
    return torch.stack(rows)


def _linear_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, decay: bool) -> torch.Tensor:
    q, k, v = q.double(), k.double(), v.double()
    seq = q.shape[2]
    distance = torch.arange(seq)[:, None] - torch.arange(seq)[None, :]
    mask = (distance >= 0).double().expand(q.shape[1], seq, seq)
    if decay:
        gamma = 1.0 - torch.exp2(-5.0 - torch.arange(q.shape[1], dtype=torch.float64))
        mask = torch.where(distance >= 0, gamma[:, None, None] ** distance, 0.0)
    return (q @ k.mT * mask) @ v


def _rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    left, right = x.double().chunk(2, -1)
    cos, sin = cos.double()[:, None], sin.double()[:, None]
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


def _qkv(gen: torch.Generator, b: int, h: int, kv: int, sq: int, sk: int, d: int, scale: float = 1.0) -> list[Argument]:
    shapes = ((b, h, sq, d), (b, kv, sk, d), (b, kv, sk, d))
    return [randn(gen, *shape, dtype=torch.float16, scale=scale) for shape in shapes]


def _angles(gen: torch.Generator) -> list[Argument]:
    angle = torch.arange(21, dtype=torch.float32)[:, None] * 10000.0 ** (-torch.arange(32) / 32)
    return [randn(gen, 21, 3, 64, dtype=torch.bfloat16), angle.cos(), angle.sin()]


def cases() -> Iterator[Case]:
    flash: list[tuple[str, tuple[int, int, int, int, int, int], dict[str, bool], set[str]]] = [
        ("plain-d64", (1, 2, 2, 128, 128, 64), {}, set()),
        ("tail-d64", (1, 2, 2, 75, 100, 64), {}, {"tail", "masked"}),
        ("causal-d64", (2, 1, 1, 128, 128, 64), {"causal": True}, {"causal"}),
        ("causal-tail-d128", (1, 1, 1, 90, 150, 128), {"causal": True}, {"causal", "tail", "masked"}),
        ("gqa-d64", (1, 4, 2, 64, 80, 64), {}, {"gqa", "tail", "masked"}),
        ("sink-d64", (1, 2, 1, 64, 64, 64), {"causal": True, "sink": True}, {"causal", "gqa", "sink"}),
    ]
    for name, shape, options, tags in flash:
        causal, sink = options.get("causal", False), options.get("sink", False)
        yield Case(
            f"attention.flash_attention[{name}]",
            flash_attention,
            lambda gen, shape=shape: [*_qkv(gen, *shape), randn(gen, shape[1])],
            lambda q, k, v, s, causal=causal, sink=sink: _attention(q, k, v, s, causal=causal, sink=sink),
            ATTENTION,
            args=shape,
            kwargs=options,
            tags=frozenset({"attention", "gemm", "softmax", "rank-4", "3d-grid", "pipelined"} | tags),
        )
    yield Case(
        "attention.decode_attention[3x70x64]",
        decode_attention,
        lambda gen: [
            randn(gen, 3, 64, dtype=torch.float16),
            randn(gen, 3, 70, 64, dtype=torch.float16),
            randn(gen, 3, 70, 64, dtype=torch.float16),
            torch.tensor([1, 37, 70], dtype=torch.int32),
        ],
        _decode,
        Tolerance(1e-5, 1e-5, "float32 throughout: sums of 70 terms, exp2 of arguments up to about 10"),
        style="eager",
        tags=frozenset({"attention", "softmax", "masked", "indirect", "dynamic-loop"}),
    )
    yield Case(
        "attention.linear_attention[1x2x128x64]",
        linear_attention,
        lambda gen: _qkv(gen, 1, 2, 2, 128, 128, 64, scale=0.25),
        lambda q, k, v: _linear_attention(q, k, v, decay=False),
        # State and in-chunk scores are rounded to float16 (size about 0.25^2 * sqrt(64)) and summed over 64 terms.
        summed(64, "float16", accumulate="float16", scale=0.0625),
        args=(1, 2, 128, 64),
        tags=frozenset({"attention", "linear-attention", "gemm", "rank-4"}),
    )
    yield Case(
        "attention.retention[1x3x192x64]",
        linear_attention,
        lambda gen: _qkv(gen, 1, 3, 3, 192, 192, 64, scale=0.25),
        lambda q, k, v: _linear_attention(q, k, v, decay=True),
        summed(64, "float16", accumulate="float16", scale=0.0625),
        args=(1, 3, 192, 64),
        kwargs={"decay": True},
        tags=frozenset({"attention", "retention", "gemm", "maths", "rank-4"}),
    )
    yield Case(
        "attention.rope[21x3x64]",
        rope,
        _angles,
        _rope,
        rounded("bfloat16", atol=1e-6),
        style="eager",
        tags=frozenset({"rope", "elementwise", "rank-3", "bfloat16", "tail"}),
    )
