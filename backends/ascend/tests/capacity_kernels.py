"""Kernels whose tiles are swept over to compare the capacity check with the vendor's compiler."""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import tilelang.language as T


def gemm(bm: int, bn: int, bk: int, dtype: str, epilogue: bool) -> Any:
    """C = A @ B; with the epilogue, a bias and ReLU in between."""
    M, N, K = 4 * bm, 4 * bn, 4 * bk
    accumulator = "int32" if dtype == "int8" else "float32"

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), bias: T.Tensor((N,), accumulator),
        C: T.Tensor((M, N), accumulator),
    ):  # fmt: skip
        with T.Kernel(T.ceildiv(N, bn), T.ceildiv(M, bm), threads=128) as (bx, by):
            a = T.alloc_shared((bm, bk), dtype)
            b = T.alloc_shared((bk, bn), dtype)
            c = T.alloc_fragment((bm, bn), accumulator)
            row = T.alloc_fragment((bn,), accumulator)
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, bk), num_stages=2):
                T.copy(A[by * bm, k * bk], a)
                T.copy(B[k * bk, bx * bn], b)
                T.gemm(a, b, c)
            if epilogue:
                T.copy(bias[bx * bn], row)
                for i, j in T.Parallel(bm, bn):
                    c[i, j] = T.max(c[i, j] + row[j], T.cast(0, accumulator))
            T.copy(c, C[by * bm, bx * bn])

    return main


def softmax(rows: int, columns: int, dtype: str, tail: bool) -> Any:
    """Row softmax of whole rows, computed in float32; with a tail, the last block of rows is partial."""
    M = 4 * rows - (1 if tail else 0)

    @T.prim_func
    def main(X: T.Tensor((M, columns), dtype), Y: T.Tensor((M, columns), dtype)):
        with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
            x = T.alloc_fragment((rows, columns), "float32")
            largest = T.alloc_fragment((rows,), "float32")
            total = T.alloc_fragment((rows,), "float32")
            T.copy(X[bx * rows, 0], x)
            T.reduce_max(x, largest, dim=1)
            for i, j in T.Parallel(rows, columns):
                x[i, j] = T.exp(x[i, j] - largest[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(rows, columns):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, Y[bx * rows, 0])

    return main


def attention(bm: int, bn: int, D: int, causal: bool) -> Any:
    """Flash attention forward of one head."""
    M, N = 4 * bm, 4 * bn

    @T.prim_func
    def main(
        Q: T.Tensor((M, D), "float16"), K: T.Tensor((N, D), "float16"), V: T.Tensor((N, D), "float16"),
        Y: T.Tensor((M, D), "float16"),
    ):  # fmt: skip
        with T.Kernel(T.ceildiv(M, bm), threads=128) as bx:
            q = T.alloc_shared((bm, D), "float16")
            k = T.alloc_shared((bn, D), "float16")
            v = T.alloc_shared((bn, D), "float16")
            scores = T.alloc_fragment((bm, bn), "float32")
            weights = T.alloc_fragment((bm, bn), "float16")
            out = T.alloc_fragment((bm, D), "float32")
            largest = T.alloc_fragment((bm,), "float32")
            before = T.alloc_fragment((bm,), "float32")
            scale = T.alloc_fragment((bm,), "float32")
            part = T.alloc_fragment((bm,), "float32")
            total = T.alloc_fragment((bm,), "float32")
            T.copy(Q[bx * bm, 0], q)
            T.fill(out, 0)
            T.fill(total, 0)
            T.fill(largest, -T.infinity("float32"))
            for t in T.Pipelined(T.ceildiv(N, bn), num_stages=2):
                T.copy(K[t * bn, 0], k)
                if causal:
                    for i, j in T.Parallel(bm, bn):
                        scores[i, j] = T.if_then_else(bx * bm + i >= t * bn + j, 0, -T.infinity("float32"))
                else:
                    T.clear(scores)
                T.gemm(q, k, scores, transpose_B=True)
                T.copy(largest, before)
                T.reduce_max(scores, largest, dim=1, clear=False)
                for i in T.Parallel(bm):
                    scale[i] = T.exp2(before[i] * 0.18 - largest[i] * 0.18)
                for i, j in T.Parallel(bm, bn):
                    scores[i, j] = T.exp2(scores[i, j] * 0.18 - largest[i] * 0.18)
                T.reduce_sum(scores, part, dim=1)
                for i in T.Parallel(bm):
                    total[i] = total[i] * scale[i] + part[i]
                for i, j in T.Parallel(bm, D):
                    out[i, j] = out[i, j] * scale[i]
                T.copy(scores, weights)
                T.copy(V[t * bn, 0], v)
                T.gemm(weights, v, out)
            for i, j in T.Parallel(bm, D):
                out[i, j] = out[i, j] / total[i]
            T.copy(out, Y[bx * bm, 0])

    return main


_KERNELS = {"gemm": gemm, "softmax": softmax, "attention": attention}


def trace(name: str, parameters: Mapping[str, Any]) -> Any:
    """The traced kernel of a configuration."""
    return _KERNELS[name](**parameters)


def configurations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every configuration of the sweep."""
    for bm, bn in itertools.product((32, 64, 128, 192, 256), (64, 128, 256, 512)):
        for bk in (32, 64, 256):
            yield "gemm", {"bm": bm, "bn": bn, "bk": bk, "dtype": "float16", "epilogue": False}
        yield "gemm", {"bm": bm, "bn": bn, "bk": 64, "dtype": "float16", "epilogue": True}
    for bm, bn, bk in itertools.product((64, 128, 256), (128, 256), (64, 128, 256, 512)):
        yield "gemm", {"bm": bm, "bn": bn, "bk": bk, "dtype": "float32", "epilogue": False}
        yield "gemm", {"bm": bm, "bn": bn, "bk": 2 * bk, "dtype": "int8", "epilogue": False}
    for rows, columns in itertools.product((1, 2, 4, 8, 16), (768, 1024, 2048, 4096, 6144, 8192)):
        for dtype, tail in (("float16", False), ("float16", True), ("float32", False)):
            yield "softmax", {"rows": rows, "columns": columns, "dtype": dtype, "tail": tail}
    for columns in (12288, 16384, 20480, 24576, 32768, 49152):
        yield "softmax", {"rows": 1, "columns": columns, "dtype": "float16", "tail": False}
        yield "softmax", {"rows": 1, "columns": columns, "dtype": "float32", "tail": False}
    for bm, bn, D in itertools.product((32, 64, 128, 256), (32, 64, 128, 256), (64, 128)):
        for causal in (False, True):
            yield "attention", {"bm": bm, "bn": bn, "D": D, "causal": causal}


def verdicts(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Each recorded row with the backend's own verdict: whether it accepts the tile."""
    from backends.ascend import capacity
    from core.errors import ResourceExceeded
    from core.program import Launch, Program
    from core.target import resolve

    @cache
    def launch_of(name: str, parameters: str) -> Launch:
        return Program(trace(name, json.loads(parameters))).view.launches[0]

    for row in rows:
        chip = resolve(f"ascend:{row['chip']}").chip
        launch = launch_of(row["kernel"], json.dumps(row["parameters"]))
        try:
            capacity.check(capacity.estimate(launch, chip), chip)
        except ResourceExceeded:
            yield row, False
        else:
            yield row, True
