"""What is refused before any compiler runs: the type, the line and a hint."""

from dataclasses import replace

import pytest
import tilelang.language as T

from core.errors import KernelError, ShapeMismatch, TileHALError, UnsupportedOp
from core.program import Gemm, Launch, Program, Reduce, Scan, Stmt, View
from core.program.check import check


def refused(prim_func, error: type[TileHALError], line_holding: str) -> TileHALError:
    """The error a kernel is refused with; its location is the line of this file that holds the text."""
    with pytest.raises(error) as caught:
        _ = Program(prim_func).view
    found = caught.value
    assert found.hint
    assert found.location is not None
    with open(found.location.file) as source:
        assert line_holding in source.readlines()[found.location.line - 1]
    return found


def test_parameters_that_share_one_tensor():
    """TileLang takes them for one tensor and ignores the first, silently."""
    row = T.Tensor((8,), "float32")

    @T.prim_func
    def main(n: T.int32, A: row, B: row):
        with T.Kernel(1, threads=32):
            T.copy(A, B)

    error = refused(main, KernelError, "def main(n: T.int32, A: row, B: row)")
    assert error.message == "parameters A and B are the same tensor to TileLang: they share one T.Tensor(...)"


@pytest.mark.parametrize("allocate", [T.alloc_shared, T.alloc_fragment])
def test_memory_of_a_block_outside_every_launch(allocate):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        tile = allocate((64,), "float32")
        with T.Kernel(1, threads=64):
            T.copy(A, tile)

    error = refused(main, UnsupportedOp, "tile = allocate(")
    assert "T.alloc_global" in error.hint


def test_scratch_memory_of_a_size_that_the_host_computes():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), n: T.int32):
        size = T.bind(n * 2)
        scratch = T.alloc_buffer((size,), "float32")
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                scratch[i] = A[i]

    error = refused(main, UnsupportedOp, "scratch = ")
    assert error.message == "the size of scratch depends on a variable that is computed outside `with T.Kernel(...)`"


def test_two_safe_values_of_one_memory():
    """TileLang keeps the last, for the tensor and for its view."""

    @T.prim_func
    def main(A: T.Tensor((50,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(
            1,
            threads=32,
        ):
            rows = T.reshape(A, (5, 10))
            T.annotate_safe_value({A: 1.0, rows: 2.0})
            for i in T.Parallel(64):
                B[i] = A[i] + rows[i // 10, i % 10]

    error = refused(main, KernelError, "T.annotate_safe_value({A: 1.0, rows: 2.0})")
    assert "of A, rows, two are one memory" in error.message


@pytest.mark.parametrize("padded", [False, True])
def test_safe_values_that_are_all_kept(padded):
    """One value for a tensor and its view, and calls of which Python takes one, or one after the other."""

    @T.prim_func
    def main(A: T.Tensor((50,), "float32"), B: T.Tensor((50,), "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            rows = T.reshape(A, (5, 10))
            T.annotate_safe_value({A: 1.0, rows: 1.0})
            if padded:
                T.annotate_safe_value({B: 3.0})
            else:
                T.annotate_safe_value({A: 1.0, B: 2.0})
            for i in T.Parallel(64):
                C[i] = A[i] + rows[i // 10, i % 10] + B[i]

    assert Program(main).view


NEAR = 2**31 - 1


def copied_near_the_limit(blocks, block, guarded=False):
    @T.prim_func
    def main(A: T.Tensor((NEAR,), "int8"), B: T.Tensor((NEAR,), "int8")):
        with T.Kernel(blocks, threads=128) as bx:
            for i in T.Parallel(block):
                if guarded:
                    if bx * block + i < NEAR:
                        B[bx * block + i] = A[bx * block + i]
                else:
                    B[bx * block + i] = A[bx * block + i]

    return main


def test_a_grid_that_wrapped_around():
    """TVM folds `2147483647 + 1023` in 32 bits: the launch had no blocks, and the output was never written."""
    error = refused(copied_near_the_limit(T.ceildiv(NEAR, 1024), 1024), ShapeMismatch, "with T.Kernel(blocks")
    assert "a grid of -2097152 blocks" in error.message
    assert "T.int64(size)" in error.hint


@pytest.mark.parametrize(("guarded", "line"), [(False, "B[bx * block + i] = A"), (True, "if bx * block + i < NEAR")])
def test_an_index_that_wraps_around(guarded, line):
    """Below 0 it passes for inside: the last block wrote in front of the tensor."""
    prim_func = copied_near_the_limit((NEAR - 1) // 1000 + 1, 1000, guarded)
    error = refused(prim_func, ShapeMismatch, line)
    assert "(bx * 1000) + i reaches 2147483999" in error.message


def test_a_tile_that_wraps_around():
    @T.prim_func
    def main(A: T.Tensor((NEAR,), "int8"), B: T.Tensor((NEAR,), "int8")):
        with T.Kernel((NEAR - 1) // 1000 + 1, threads=128) as bx:
            tile = T.alloc_shared((1000,), "int8")
            T.copy(A[bx * 1000], tile)
            T.copy(tile, B[bx * 1000])

    assert "bx * 1000 reaches 2147483999" in refused(main, ShapeMismatch, "T.copy(A[bx * 1000], tile)").message


def test_a_loop_that_wrapped_around():
    @T.prim_func
    def main(A: T.Tensor((NEAR,), "int8"), B: T.Tensor((1024,), "int8")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((1024,), "int8")
            for k in T.serial(T.ceildiv(NEAR, 1024)):
                T.copy(A[k * 1024], tile)
                T.copy(tile, B)

    assert "a loop of -2097152 rounds" in refused(main, ShapeMismatch, "for k in T.serial(").message


@pytest.mark.parametrize("block", [1000, 1024])
@pytest.mark.parametrize("guarded", [False, True])
def test_sizes_near_the_limit_counted_in_64_bits(block, guarded):
    assert Program(copied_near_the_limit(T.ceildiv(T.int64(NEAR), block), block, guarded)).view


def test_an_index_that_just_fits():
    assert Program(copied_near_the_limit(2**21, 1024)).view


def test_fill_past_the_end_of_a_shared_buffer():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((8,), "float32")
            T.fill(s[6:12], 1)
            T.copy(s, A)

    error = refused(main, ShapeMismatch, "T.fill(s[6:12], 1)")
    assert "reaches index 11 of dimension 0, which has 8 elements" in error.message


def test_fill_past_the_end_of_a_tensor():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            T.fill(A[6:12], 2)

    refused(main, ShapeMismatch, "T.fill(A[6:12], 2)")


def test_slice_that_leaves_a_shared_buffer_in_the_last_iteration():
    @T.prim_func
    def main(A: T.Tensor((8, 8), "float32")):
        with T.Kernel(8, threads=32) as b:
            s = T.alloc_shared((20,), "float32")
            for k in T.serial(3):
                T.copy(A[b, 0:8], s[k * 8 : k * 8 + 8])

    error = refused(main, ShapeMismatch, "T.copy(A[b, 0:8], s[k * 8 : k * 8 + 8])")
    assert "index 23" in error.message


def test_the_same_slice_under_a_condition_is_the_authors_business():
    @T.prim_func
    def main(A: T.Tensor((8, 8), "float32")):
        with T.Kernel(8, threads=32) as b:
            s = T.alloc_shared((20,), "float32")
            for k in T.serial(3):
                if k < 2:
                    T.copy(A[b, 0:8], s[k * 8 : k * 8 + 8])

    assert Program(main).view


def test_tile_that_hangs_over_a_tensor_is_a_tail_and_no_mistake():
    @T.prim_func
    def main(A: T.Tensor((4, 64), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((32, 64), "float32")
            T.copy(A[0, 0], s)
            T.copy(A[3, 0], s)

    assert Program(main).view


def test_tile_wholly_outside_a_tensor():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((32, 64), "float32")
            T.copy(A[64, 0], s)

    refused(main, ShapeMismatch, "T.copy(A[64, 0], s)")


def test_element_past_the_end_of_a_fragment():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            x = T.alloc_fragment((8,), "float32")
            T.copy(A, x)
            for i in T.Parallel(8):
                A[i] = x[i + 1]

    error = refused(main, ShapeMismatch, "A[i] = x[i + 1]")
    assert "index 8 of dimension 0, which has 8 elements" in error.message


def test_element_past_the_end_behind_a_lazy_condition():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            x = T.alloc_fragment((8,), "float32")
            T.copy(A, x)
            for i in T.Parallel(8):
                A[i] = T.if_then_else(i < 7, x[i + 1], 0.0)

    assert Program(main).view


def test_constant_index_outside_a_tensor():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            A[9] = 1.0

    refused(main, ShapeMismatch, "A[9] = 1.0")


@pytest.mark.parametrize("end", [3, 6])
def test_copy_of_slices_of_different_lengths(end):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((8,), "float32")
            T.copy(A[0:end], s[0:5])

    error = refused(main, ShapeMismatch, "T.copy(A[0:end], s[0:5])")
    assert f"extents {end} and 5 are unequal" in error.message


def test_copy_of_a_run_time_length():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), n: T.int32):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((8,), "float32")
            T.copy(A[0:n], s)

    error = refused(main, ShapeMismatch, "T.copy(A[0:n], s)")
    assert "may be unequal" in error.message
    assert "T.Parallel" in error.hint


def test_copy_of_a_run_time_start_is_fine():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), n: T.int32):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((8,), "float32")
            T.copy(A[n : n + 8], s)

    (launch,) = Program(main).view.launches
    assert launch.body[0].src_guard == (0,)


def test_copy_of_a_different_number_of_dimensions():
    @T.prim_func
    def main(A: T.Tensor((4, 16), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((64,), "float32")
            T.copy(A[0:4, 0:16], s[0:64])

    refused(main, ShapeMismatch, "T.copy(A[0:4, 0:16], s[0:64])")


def test_break_out_of_a_parallel_loop():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                if A[i] > 0:
                    T.loop_break()
                A[i] = 1

    refused(main, UnsupportedOp, "T.loop_break()")


def test_break_out_of_a_loop_inside_a_parallel_loop():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                for k in T.serial(4):
                    if A[i] > k:
                        break
                    A[i] = k

    assert Program(main).view


def test_statements_outside_every_launch():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        for i in T.serial(64):
            A[i] = 1

    refused(main, UnsupportedOp, "for i in T.serial(64):")


def test_transpose_into_the_wrong_shape():
    @T.prim_func
    def main(A: T.Tensor((8, 16), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((8, 16), "float32")
            t = T.alloc_shared((8, 16), "float32")
            T.copy(A, s)
            T.transpose(s, t)

    error = refused(main, ShapeMismatch, "T.transpose(s, t)")
    assert "(16, 8)" in error.hint


def test_gemm_of_different_types():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "bfloat16")
            c = T.alloc_fragment((64, 64), "float32")
            T.gemm(a, b, c)

    assert "float16 and bfloat16" in refused(main, ShapeMismatch, "T.gemm(a, b, c)").message


def test_gemm_of_two_kinds_of_float8():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 32), "float8_e4m3fn")
            b = T.alloc_shared((32, 64), "float8_e5m2")
            c = T.alloc_fragment((64, 64), "float32")
            T.gemm(a, b, c)

    assert Program(main).view


def test_size_that_no_parameter_determines():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(n, threads=128):
            A[0] = 1

    assert "n has no value" in refused(main, UnsupportedOp, "with T.Kernel(n").message


# TileLang itself refuses the following while tracing; older releases and hand-built functions may not.


def changed(prim_func, kind: type[Stmt], **fields) -> View:
    """The view of a kernel with fields of its statement of this kind replaced."""
    view = Program(prim_func).view
    (launch,) = view.launches
    body = tuple(replace(stmt, **fields) if isinstance(stmt, kind) else stmt for stmt in launch.body)
    assert body != launch.body
    (host,) = view.body
    assert isinstance(host, Launch)
    return replace(view, body=(replace(host, body=body),))


@T.prim_func
def operators(A: T.Tensor((64, 32), "float16"), B: T.Tensor((32, 16), "float16"), C: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=128):
        a = T.alloc_shared((64, 32), "float16")
        b = T.alloc_shared((32, 16), "float16")
        c = T.alloc_fragment((64, 16), "float32")
        m = T.alloc_fragment((64,), "float32")
        s = T.alloc_shared((64, 16), "float32")
        T.copy(A, a)
        T.copy(B, b)
        T.gemm(a, b, c, clear_accum=True)
        T.copy(c, s)
        T.cumsum(s, dim=1)
        T.reduce_sum(c, m, dim=1)
        T.copy(m, C)


@pytest.mark.parametrize(
    ("kind", "fields", "text"),
    [
        (Gemm, {"m": 32}, "A is a[0:+64, 0:+32]"),
        (Gemm, {"k": 16}, "A is a[0:+64, 0:+32]"),
        (Gemm, {"transpose_b": True}, "B is b[0:+32, 0:+16]"),
        (Gemm, {"n": 32}, "B is b[0:+32, 0:+16]"),
        (Reduce, {"dim": 2}, "over dimension 2 of c[0:+64, 0:+16], which has 2"),
        (Reduce, {"dim": 0}, "over dimension 0 into m[0:+64]"),
        (Scan, {"dim": 5}, "over dimension 5"),
    ],
)
def test_operands_that_do_not_fit(kind, fields, text):
    with pytest.raises(ShapeMismatch) as caught:
        check(changed(operators, kind, **fields))
    assert text in caught.value.message
    assert caught.value.hint
    assert caught.value.location is not None


@pytest.mark.parametrize(("shape", "dtype"), [((129,), "float16"), ((2, 64), "float32")])
def test_a_view_of_more_bytes_than_its_tensor_has(shape, dtype):
    @T.prim_func
    def main(A: T.Tensor((128,), "float16"), B: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=32):
            beyond = T.Tensor(shape, dtype, A.data)
            T.copy(beyond, B)

    error = refused(main, ShapeMismatch, "T.copy(beyond, B)")
    assert "of A, which has 256 (128 float16)" in str(error)


def test_a_view_of_more_bytes_than_its_tile_has():
    @T.prim_func
    def main(B: T.Tensor((129,), "float16")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((128,), "float16")
            beyond = T.Tensor((129,), "float16", tile.data)
            T.fill(tile, 1)
            for i in T.Parallel(129):
                B[i] = beyond[i]

    refused(main, ShapeMismatch, "B[i] = beyond[i]")


@pytest.mark.parametrize(("shape", "dtype"), [((2, 64), "float16"), ((64,), "float32"), ((100,), "float16")])
def test_a_view_of_as_many_bytes_or_fewer_is_fine(shape, dtype):
    @T.prim_func
    def main(A: T.Tensor((128,), "float16"), B: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=32):
            within = T.Tensor(shape, dtype, A.data)
            T.copy(within, B)

    _ = Program(main).view


def test_an_output_listed_twice():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            T.copy(A, B)

    with pytest.raises(KernelError, match="output position -1 is given twice") as caught:
        Program(main, out_idx=[1, -1])
    assert "once" in caught.value.hint


def test_a_parameter_that_torch_has_no_tensors_for():
    """Whatever the target: there is nothing to pass."""

    @T.prim_func
    def main(
        A: T.Tensor((8,), "float32"),
        B: T.Tensor((8,), "float4_e2m1fn"),  # the parameter
    ):
        with T.Kernel(1, threads=32):
            A[0] = 0.0

    with pytest.raises(UnsupportedOp, match="B is a tensor of float4_e2m1fn") as caught:
        _ = Program(main).signature
    assert "uint8" in caught.value.hint
    with open(caught.value.location.file) as source:
        assert "# the parameter" in source.readlines()[caught.value.location.line - 1]
