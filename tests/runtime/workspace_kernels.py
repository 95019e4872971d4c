"""Kernels whose launches hand values on through global scratch memory."""

import tilelang.language as T


def split_k(M, N, K, parts, block=64, swapped=False):
    """`C[M, N] = A[M, K] @ B[K, N]` (float16) from `parts` sums that a second launch adds up; M may be symbolic."""

    @T.prim_func
    def parts_of_k(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")):
        sums = T.alloc_global((parts, M, N), "float32")
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), parts, threads=128) as (bx, by, bz):
            a = T.alloc_shared((block, 32), "float16")
            b = T.alloc_shared((32, block), "float16")
            c = T.alloc_fragment((block, block), "float32")
            out = T.alloc_shared((block, block), "float32")
            T.clear(c)
            for k in T.Pipelined(K // parts // 32, num_stages=2):
                T.copy(A[by * block, (bz * (K // parts // 32) + k) * 32], a)
                T.copy(B[(bz * (K // parts // 32) + k) * 32, bx * block], b)
                T.gemm(a, b, c)
            T.copy(c, out)
            T.copy(out, sums[bz, by * block : (by + 1) * block, bx * block : (bx + 1) * block])
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
            one = T.alloc_shared((block, block), "float32")
            total = T.alloc_fragment((block, block), "float32")
            T.clear(total)
            for p in T.Pipelined(parts, num_stages=2):
                T.copy(sums[p, by * block : (by + 1) * block, bx * block : (bx + 1) * block], one)
                for i, j in T.Parallel(block, block):
                    total[i, j] += one[i, j]
            T.copy(total, C[by * block, bx * block])

    return parts_of_k


def three_launches(M, N=128):
    """`Y = 4 * X + the row before, twice over`: scratch of the call, its view, and scratch of one launch alone."""

    @T.prim_func
    def rows(X: T.Tensor((M, N), "int32"), Y: T.Tensor((M, N), "int32")):
        first = T.alloc_global((M, N), "int32")
        second = T.alloc_global((M, N), "int32")
        with T.Kernel(M, threads=128) as bx:
            for j in T.Parallel(N):
                first[bx, j] = X[bx, j] * 2
        with T.Kernel(M, threads=128) as bx:
            own = T.alloc_global((M, N), "int32")
            flat = T.reshape(first, (M * N,))
            for j in T.Parallel(N):
                own[bx, j] = flat[((bx + M - 1) % M) * N + j]
            for j in T.Parallel(N):
                second[bx, j] = own[bx, N - 1 - j] + first[bx, j]
        with T.Kernel(M, threads=128) as bx:
            for j in T.Parallel(N):
                Y[bx, j] = second[(bx + 1) % M, j] + first[bx, j]

    return rows


def three_launches_expected(x):
    """What :func:`three_launches` computes."""
    first = x * 2
    second = first.roll(1, 0).flip(1) + first
    return second.roll(-1, 0) + first
