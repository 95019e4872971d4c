"""The kernels of `tests.kernels.silent`: one construct each, as short as it can be."""

import tilelang
import tilelang.language as T

# ------------------------------------------------------------------------------------------------------------ copies


@tilelang.jit(out_idx=[1])
def copy_short_source():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_fragment((8,), "float32")
            T.copy(A[0:3], tile)
            T.copy(tile, B)

    return main


@tilelang.jit(out_idx=[1])
def copy_short_destination():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_fragment((8,), "float32")
            T.copy(A[0:8], tile)
            T.copy(tile, B[20:22])

    return main


@tilelang.jit(out_idx=[1])
def copy_long_destination():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_fragment((8,), "float32")
            T.copy(A[0:8], tile)
            T.copy(tile[0:4], B[30:40])

    return main


@tilelang.jit(out_idx=[1])
def copy_global_to_global():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            T.copy(A[50:53], B[40:50])

    return main


@tilelang.jit(out_idx=[1])
def copy_rows_of_tile():
    @T.prim_func
    def main(A: T.Tensor((8, 64), "float32"), B: T.Tensor((8, 64), "float32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_fragment((8, 64), "float32")
            T.copy(A, tile)
            T.copy(tile, B[0:4, :])

    return main


@tilelang.jit(out_idx=[1])
def copy_run_time_extent():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((8,), "float32"), n: T.int32):
        with T.Kernel(1, threads=128):
            tile = T.alloc_fragment((8,), "float32")
            T.copy(A[0:n], tile)
            T.copy(tile, B)

    return main


@tilelang.jit(out_idx=[1])
def copy_past_shared():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((8,), "float32")
            T.copy(A[0:8], tile)
            T.copy(tile[4:12], B[0:8])

    return main


@tilelang.jit(out_idx=[1])
def copy_tail_is_overwritten():
    @T.prim_func
    def main(A: T.Tensor((50,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((64,), "float32")
            T.fill(tile, 7.0)
            T.copy(A[0], tile)
            T.copy(tile, B)

    return main


@tilelang.jit
def copy_tail_not_written():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((50,), "float32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_fragment((64,), "float32")
            T.copy(A, tile)
            T.copy(tile, B[40])

    return main


@tilelang.jit(out_idx=[1])
def copy_window():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((16,), "float32"), start: T.int32):
        with T.Kernel(1, threads=128):
            tile = T.alloc_fragment((16,), "float32")
            T.copy(A[start], tile)
            T.copy(tile, B)

    return main


@tilelang.jit(out_idx=[1])
def copy_row_outside():
    @T.prim_func
    def main(A: T.Tensor((8, 64), "float32"), B: T.Tensor((64,), "float32"), row: T.int32):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((64,), "float32")
            T.copy(A[row, 0:64], tile)
            T.copy(tile, B)

    return main


@tilelang.jit(out_idx=[2])
def copy_safe_value():
    @T.prim_func
    def main(A: T.Tensor((64, 80), "float16"), B: T.Tensor((96, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((64, 32), "float16")
            B_shared = T.alloc_shared((32, 64), "float16")
            C_local = T.alloc_fragment((64, 64), "float32")
            T.annotate_safe_value({A: -1.0})
            T.clear(C_local)
            for k in T.Pipelined(3, num_stages=2):
                T.copy(A[0, k * 32], A_shared)
                T.copy(B[k * 32, 0], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C)

    return main


# ------------------------------------------------------------------------------------------------------------- fills


@tilelang.jit(out_idx=[1])
def fill_one_element():
    @T.prim_func
    def main(A: T.Tensor((8, 8), "float32"), B: T.Tensor((8, 8), "float32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((8, 8), "float32")
            T.copy(A, tile)
            T.fill(tile[2, 0], 7.0)
            T.copy(tile, B)

    return main


@tilelang.jit(out_idx=[1])
def fill_past_shared():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((8,), "float32")
            T.copy(A[0:8], tile)
            T.fill(tile[6:12], 7.0)
            T.copy(tile, B)

    return main


@tilelang.jit(out_idx=[1])
def fill_shared_clipped():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32"), start: T.int32):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((8,), "float32")
            neighbour = T.alloc_shared((8,), "float32")
            T.copy(A, tile)
            T.copy(A, neighbour)
            T.fill(tile[start : start + 4], 5.0)
            for i in T.Parallel(8):
                B[i] = tile[i] + neighbour[i] - A[i]

    return main


@tilelang.jit
def fill_global_clipped():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), start: T.int32):
        with T.Kernel(1, threads=128):
            T.fill(A[start : start + 4], 5.0)

    return main


# ---------------------------------------------------------------------------------------------------------- products


@tilelang.jit(out_idx=[2])
def gemm_float32():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64, 64), "float32"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((64, 64), "float32")
            B_shared = T.alloc_shared((64, 64), "float32")
            C_local = T.alloc_fragment((64, 64), "float32")
            T.copy(A, A_shared)
            T.copy(B, B_shared)
            T.gemm(A_shared, B_shared, C_local, clear_accum=True)
            T.copy(C_local, C)

    return main


@tilelang.jit(out_idx=[2])
def gemm_clears_slice():
    @T.prim_func
    def main(A: T.Tensor((32, 32), "float16"), B: T.Tensor((32, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((32, 32), "float16")
            B_shared = T.alloc_shared((32, 64), "float16")
            C_local = T.alloc_fragment((64, 64), "float32")
            T.copy(A, A_shared)
            T.copy(B, B_shared)
            T.fill(C_local, 3.0)
            T.gemm(A_shared, B_shared, C_local[0:32, 0:64], clear_accum=True)
            T.copy(C_local, C)

    return main


@tilelang.jit(out_idx=[2])
def gemm_narrow_columns():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 72), "float16"), C: T.Tensor((64, 72), "float32")):
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((64, 64), "float16")
            B_shared = T.alloc_shared((64, 72), "float16")
            C_local = T.alloc_fragment((64, 72), "float32")
            T.copy(A, A_shared)
            T.copy(B, B_shared)
            T.gemm(A_shared, B_shared, C_local, clear_accum=True)
            T.copy(C_local, C)

    return main


@tilelang.jit(out_idx=[2])
def gemm_int8_extremes():
    @T.prim_func
    def main(A: T.Tensor((64, 128), "int8"), B: T.Tensor((64, 128), "int8"), C: T.Tensor((64, 64), "int32")):
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((64, 128), "int8")
            B_shared = T.alloc_shared((64, 128), "int8")
            C_local = T.alloc_fragment((64, 64), "int32")
            T.copy(A, A_shared)
            T.copy(B, B_shared)
            T.gemm(A_shared, B_shared, C_local, transpose_B=True, clear_accum=True)
            T.copy(C_local, C)

    return main


# -------------------------------------------------------------------------------------------------------- reductions


@tilelang.jit(out_idx=[1])
def reduce_rows_slice():
    @T.prim_func
    def main(X: T.Tensor((32, 64), "float32"), Y: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((32, 64), "float32")
            y = T.alloc_fragment((16,), "float32")
            T.copy(X, x)
            T.reduce_sum(x[16:32, :], y, dim=1)
            T.copy(y, Y)

    return main


@tilelang.jit(out_idx=[1])
def reduce_columns_slice():
    @T.prim_func
    def main(X: T.Tensor((32, 64), "float32"), Y: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((32, 64), "float32")
            y = T.alloc_fragment((32,), "float32")
            T.copy(X, x)
            T.reduce_sum(x[:, 0:32], y, dim=1)
            T.copy(y, Y)

    return main


@tilelang.jit(out_idx=[1])
def reduce_shared_slice():
    @T.prim_func
    def main(X: T.Tensor((32, 64), "float32"), Y: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=128):
            x = T.alloc_shared((32, 64), "float32")
            y = T.alloc_fragment((16,), "float32")
            T.copy(X, x)
            T.reduce_max(x[8:24, :], y, dim=1)
            T.copy(y, Y)

    return main


@tilelang.jit(out_idx=[1])
def reduce_converts_first():
    @T.prim_func
    def main(X: T.Tensor((8, 64), "float32"), Y: T.Tensor((8,), "float16")):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((8, 64), "float32")
            y = T.alloc_fragment((8,), "float16")
            T.copy(X, x)
            T.reduce_sum(x, y, dim=1)
            T.copy(y, Y)

    return main


@tilelang.jit(out_idx=[1, 2])
def reduce_max_nan():
    @T.prim_func
    def main(X: T.Tensor((8, 64), "float32"), top: T.Tensor((8,), "float32"), bottom: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((8, 64), "float32")
            high = T.alloc_fragment((8,), "float32")
            low = T.alloc_fragment((8,), "float32")
            T.copy(X, x)
            T.reduce_max(x, high, dim=1)
            T.reduce_min(x, low, dim=1)
            T.copy(high, top)
            T.copy(low, bottom)

    return main


@tilelang.jit(out_idx=[2])
def reduce_max_nan_keeps_old():
    @T.prim_func
    def main(X: T.Tensor((8, 64), "float32"), old: T.Tensor((8,), "float32"), Y: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((8, 64), "float32")
            y = T.alloc_fragment((8,), "float32")
            T.copy(X, x)
            T.copy(old, y)
            T.reduce_max(x, y, dim=1, clear=False)
            T.copy(y, Y)

    return main


@tilelang.jit
def atomics_outside_are_skipped():
    @T.prim_func
    def main(X: T.Tensor((16,), "int32"), Y: T.Tensor((12,), "int32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(16):
                T.atomic_add(Y[i], X[i])

    return main


@tilelang.jit
def atomic_converts_value():
    @T.prim_func
    def main(X: T.Tensor((64,), "float16"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(64):
                T.atomic_add(Y[i], X[i])

    return main


@tilelang.jit(out_idx=[1])
def im2col_past_the_batch():
    @T.prim_func
    def main(X: T.Tensor((1, 5, 5, 32), "float16"), Y: T.Tensor((32, 32), "float16")):
        with T.Kernel(1, threads=128):
            columns = T.alloc_shared((32, 32), "float16")
            T.im2col(X, columns, 0, 0, 1, 1, 1, 0)
            T.copy(columns, Y)

    return main


# ------------------------------------------------------------------------------------------------ guards and fragments


@tilelang.jit(out_idx=[1])
def guarded_load_inside_expression():
    @T.prim_func
    def main(A: T.Tensor((50,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(64):
                B[i] = A[i] * 2.0 + 1.0

    return main


@tilelang.jit(out_idx=[1])
def negative_index_wraps():
    @T.prim_func
    def main(A: T.Tensor((16,), "float32"), B: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=128):
            B[0] = A[-1]
            for i in T.Parallel(3):
                B[i + 1] = A[i - 5]

    return main


@tilelang.jit(out_idx=[1])
def unknown_sign_is_guarded():
    @T.prim_func
    def main(A: T.Tensor((16,), "float32"), B: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(16):
                B[i] = A[i - 2]

    return main


@tilelang.jit(out_idx=[1])
def permuted_fragment():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((64,), "float32")
            y = T.alloc_fragment((64,), "float32")
            T.copy(A, x)
            for i in T.Parallel(64):
                y[i] = x[63 - i]
            T.copy(y, B)

    return main


@tilelang.jit(out_idx=[1])
def constant_fragment_index():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((64,), "float32")
            T.copy(A, x)
            B[0] = x[5]

    return main


# ----------------------------------------------------------------------------------------------------------- control


@tilelang.jit(out_idx=[1])
def buffer_in_loop_keeps_contents():
    @T.prim_func
    def main(A: T.Tensor((4, 64), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            for k in T.serial(4):
                total = T.alloc_fragment((64,), "float32")
                if k == 0:
                    T.clear(total)
                for i in T.Parallel(64):
                    total[i] += A[k, i]
                if k == 3:
                    T.copy(total, B)

    return main


@tilelang.jit
def empty_grid():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), n: T.int32):
        with T.Kernel(T.ceildiv(n, 16), threads=128) as bx:
            for i in T.Parallel(16):
                A[bx * 16 + i] = 0.0

    return main


@tilelang.jit(out_idx=[2])
def gemm_without_terms():
    K = T.dynamic("K")

    @T.prim_func
    def main(A: T.Tensor((64, K), "float16"), B: T.Tensor((K, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((64, 32), "float16")
            B_shared = T.alloc_shared((32, 64), "float16")
            C_local = T.alloc_fragment((64, 64), "float32")
            T.fill(C_local, 2.0)
            for k in T.Pipelined(T.ceildiv(K, 32), num_stages=2):
                T.copy(A[0, k * 32], A_shared)
                T.copy(B[k * 32, 0], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C)

    return main


@tilelang.jit
def value_is_captured():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(64):
                before = A[i]
                A[i] = A[i] + 1.0
                B[i] = before

    return main


@tilelang.jit(out_idx=[2])
def choice_is_lazy():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32"), C: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(64):
                C[i] = T.if_then_else(B[i] != 0, A[i] // B[i], -7)

    return main


# -------------------------------------------------------------------------------------------------------- arithmetic


@tilelang.jit(out_idx=[1, 2])
def round_ties_to_even(N):
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32"), Z: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(N):
                Y[i] = T.round(X[i])
                Z[i] = T.nearbyint(X[i])

    return main


@tilelang.jit(out_idx=[2, 3, 4, 5])
def maximum_of_nan(N):
    @T.prim_func
    def main(
        X: T.Tensor((N,), "float32"),
        Y: T.Tensor((N,), "float32"),
        high: T.Tensor((N,), "float32"),
        low: T.Tensor((N,), "float32"),
        left: T.Tensor((N,), "float32"),
        right: T.Tensor((N,), "float32"),
    ):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(N):
                high[i] = T.max(X[i], Y[i])
                low[i] = T.min(X[i], Y[i])
                left[i] = T.max(X[i], 1.0)
                right[i] = T.max(1.0, X[i])

    return main


@tilelang.jit(out_idx=[1])
def clamp_keeps_nan(N):
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(N):
                Y[i] = T.clamp(X[i], -1.0, 1.5)

    return main


@tilelang.jit(out_idx=[2, 3, 4])
def narrow_integers_wrap():
    @T.prim_func
    def main(
        U: T.Tensor((64,), "uint8"),
        S: T.Tensor((64,), "int8"),
        total: T.Tensor((64,), "int32"),
        square: T.Tensor((64,), "int32"),
        below: T.Tensor((64,), "int32"),
    ):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(64):
                total[i] = U[i] + U[i]
                square[i] = S[i] * S[i]
                below[i] = U[i] - T.cast(S[i], "uint8")

    return main


@tilelang.jit(out_idx=[1])
def integers_wrap():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(64):
                B[i] = A[i] * A[i] * 31 + A[i]

    return main


@tilelang.jit(out_idx=[1])
def unsigned_difference():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int64")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(64):
                B[i] = T.cast(A[i], "uint32") - 50

    return main


@tilelang.jit(out_idx=[1, 2])
def half_literals():
    @T.prim_func
    def main(H: T.Tensor((4,), "float16"), Y: T.Tensor((4,), "float32"), Z: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(4):
                Y[i] = H[i] * 2
                Z[i] = H[i] * 2.0

    return main


@tilelang.jit(out_idx=[3])
def half_rounds_each_time():
    @T.prim_func
    def main(
        A: T.Tensor((256,), "float16"),
        B: T.Tensor((256,), "float16"),
        C: T.Tensor((256,), "float16"),
        D: T.Tensor((256,), "float16"),
    ):
        with T.Kernel(1, threads=128):
            total = T.alloc_fragment((256,), "float16")
            for i in T.Parallel(256):
                total[i] = A[i] + B[i]
            for i in T.Parallel(256):
                D[i] = total[i] * C[i]

    return main


@tilelang.jit(out_idx=[2])
def bfloat16_and_half():
    @T.prim_func
    def main(B: T.Tensor((4,), "bfloat16"), H: T.Tensor((4,), "float16"), Y: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(4):
                Y[i] = B[i] + H[i]

    return main


@tilelang.jit(out_idx=[1, 2, 3])
def casts_of_floats(N):
    @T.prim_func
    def main(
        X: T.Tensor((N,), "float32"),
        eighth: T.Tensor((N,), "float32"),
        half: T.Tensor((N,), "float32"),
        brain: T.Tensor((N,), "float32"),
    ):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(N):
                eighth[i] = T.cast(T.cast(X[i], "float8_e4m3fn"), "float32")
                half[i] = T.cast(T.cast(X[i], "float16"), "float32")
                brain[i] = T.cast(T.cast(X[i] * 1.00390625, "bfloat16"), "float32")

    return main


@tilelang.jit(out_idx=[1, 2, 3])
def casts_to_integers(N):
    @T.prim_func
    def main(
        X: T.Tensor((N,), "float32"),
        whole: T.Tensor((N,), "int32"),
        narrow: T.Tensor((N,), "int8"),
        truth: T.Tensor((N,), "int32"),
    ):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(N):
                whole[i] = T.cast(X[i], "int32")
                narrow[i] = T.cast(T.cast(X[i], "int32"), "int8")
                truth[i] = T.cast(T.cast(X[i], "bool"), "int32")

    return main


@tilelang.jit(out_idx=[2, 3, 4])
def exponential_is_accurate():
    @T.prim_func
    def main(
        X: T.Tensor((256,), "float32"),
        angle: T.Tensor((256,), "float32"),
        power: T.Tensor((256,), "float32"),
        logarithm: T.Tensor((256,), "float32"),
        sine: T.Tensor((256,), "float32"),
    ):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(256):
                power[i] = T.exp(X[i])
                logarithm[i] = T.log(T.abs(X[i]))
                sine[i] = T.sin(angle[i])

    return main


@tilelang.jit(out_idx=[1])
def subnormals_are_kept():
    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(64):
                Y[i] = X[i] * 0.25

    return main


@tilelang.jit(out_idx=[1])
def population_count():
    @T.prim_func
    def main(X: T.Tensor((64,), "int32"), Y: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(64):
                Y[i] = T.popcount(X[i])

    return main


@tilelang.jit(out_idx=[1])
def classification(N):
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((3, N), "int32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(N):
                Y[0, i] = T.cast(T.isnan(X[i]), "int32")
                Y[1, i] = T.cast(T.isinf(X[i]), "int32")
                Y[2, i] = T.cast(T.isfinite(X[i]), "int32")

    return main
