"""Two warpgroups that hand tiles to each other, as attention with latent keys does, and ways to get it wrong."""

from __future__ import annotations

from typing import Any

import tilelang.language as T

GROUP = 128
#: Named barriers: the weights of a tile are there, and have been read.
FULL, EMPTY = 8, 9


def exchange(tiles: int, rows: int = 64, keys: int = 64, dim: int = 128, stages: int = 2, fault: str = "") -> Any:
    """`O = (Q Kᵀ) K`, `O` halved by columns: one warpgroup computes the weights, both multiply.

    Args:
        fault: what is left out or done wrong; the names are those of the tests.
    """
    half = dim // 2

    @T.prim_func
    def main(
        Q: T.Tensor((rows, dim), "float16"),
        K: T.Tensor((tiles * keys, dim), "float16"),
        O: T.Tensor((rows, dim), "float32"),  # noqa: E741  (the papers' letter)
    ):
        with T.Kernel(1, threads=3 * GROUP):
            q = T.alloc_shared((rows, dim), "float16")
            k = T.alloc_shared((stages, keys, dim), "float16")
            p = T.alloc_shared((rows, keys), "float16")
            scale = T.alloc_shared((rows,), "float32")
            left = T.alloc_shared((rows, half), "float32")
            scores = T.alloc_fragment((rows, keys), "float32")
            weights = T.alloc_fragment((rows, keys), "float16")
            ones = T.alloc_fragment((rows,), "float32")
            their_scale = T.alloc_fragment((rows,), "float32")
            left_sums = T.alloc_fragment((rows, half), "float32")
            right_sums = T.alloc_fragment((rows, half), "float32")
            q_full = T.alloc_barrier([1])
            k_full = T.alloc_barrier([1 if fault != "count" else 2] * stages)
            k_empty = T.alloc_barrier([2 * GROUP] * stages)
            thread = T.get_thread_binding()
            if thread < GROUP:
                T.tma_copy(Q, q, barrier=q_full[0])
                if thread == 0:
                    T.mbarrier_arrive(q_full[0])
                for t in T.serial(tiles):
                    T.mbarrier_wait_parity(k_empty[t % stages], ((t // stages) & 1) ^ (fault != "parity"))
                    T.tma_copy(K[t * keys : (t + 1) * keys, :], k[t % stages, :, :], barrier=k_full[t % stages])
                    if thread == 0:
                        T.mbarrier_arrive(k_full[t % stages])
                    if fault == "double arrival" and thread == 0:
                        T.mbarrier_arrive(k_full[t % stages])
            elif thread < 2 * GROUP:
                T.clear(left_sums)
                T.fill(ones, 0.5)
                if fault != "no scale":
                    T.copy(ones, scale)
                T.mbarrier_wait_parity(q_full[0], 0)
                for t in T.serial(tiles):
                    T.mbarrier_wait_parity(k_full[t % stages], (t // stages) & 1)
                    T.wgmma_gemm(q, k[t % stages, :, :], scores, transpose_B=True, clear_accum=True)
                    if fault != "registers":
                        T.wait_wgmma(0)
                    T.copy(scores, weights)
                    if t > 0 and fault != "turn":
                        T.sync_threads(EMPTY, 2 * GROUP)
                    T.copy(weights, p)
                    if fault != "fence":
                        T.fence_proxy_async()
                    T.named_barrier_arrive(FULL, 2 * GROUP)
                    T.wgmma_gemm(weights, k[t % stages, :, 0:half], left_sums)
                    if fault == "early release":
                        T.mbarrier_arrive(k_empty[t % stages])
                    T.wait_wgmma(0)
                    if fault not in ("early release", "arrival"):
                        T.mbarrier_arrive(k_empty[t % stages])
                T.copy(left_sums, left)
                T.fence_proxy_async()
                T.sync_threads(10, GROUP)
                T.tma_copy(left, O[0:rows, 0:half])
                if fault != "store":
                    T.tma_store_wait(0)
            else:
                T.clear(right_sums)
                for t in T.serial(tiles):
                    T.sync_threads(FULL, 2 * GROUP if fault != "named count" else 3 * GROUP)
                    T.mbarrier_wait_parity(k_full[t % stages], (t // stages) & 1)
                    T.wgmma_gemm(p, k[t % stages, :, half:dim], right_sums)
                    T.wait_wgmma(0)
                    if t < tiles - 1:
                        T.named_barrier_arrive(EMPTY, 2 * GROUP)
                    T.mbarrier_arrive(k_empty[t % stages])
                T.copy(scale, their_scale)
                for i, j in T.Parallel(rows, half):
                    right_sums[i, j] = right_sums[i, j] * their_scale[i] * 2.0
                T.copy(right_sums, O[0:rows, half:dim])

    return main
