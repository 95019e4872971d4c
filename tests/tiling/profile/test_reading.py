"""What a profile holds: counted by hand for kernels small enough to count, and against the footprint for others."""

from collections import Counter
from typing import Any

import pytest
import tilelang.language as T

from core.program import Program
from core.tiling.profile import GlobalAccess, LaunchProfile, profile
from core.tiling.profile.formula import names_in, value_of
from tests.tiling.kernels import causal_scores, gemm


def launch_of(prim_func: Any) -> LaunchProfile:
    (launch,) = profile(Program(prim_func)).launches
    return launch


def by_tensor(launch: LaunchProfile) -> dict[str, GlobalAccess]:
    return {access.tensor: access for access in launch.accesses}


def test_a_matrix_product_counted_by_hand() -> None:
    launch = launch_of(gemm(1000, 1024, 4096))
    assert launch.grid == (4, 8)
    assert launch.threads == 256
    assert (launch.order, launch.panel) == ("row", 8)
    assert [loop.stages for loop in launch.loops] == [0, 3]
    assert launch.trips() == ((1.0, 64.0),)
    (product,) = launch.products
    assert (product.m, product.n, product.k, product.policy, product.loop) == (128, 256, 64, 1, 1)
    assert (product.a_scope, product.b_scope, product.in_flight) == ("shared", "shared", False)
    access = by_tensor(launch)
    assert (access["A"].extents, access["A"].varies, access["A"].loop) == ((128, 64), ("axis1", "loop1"), 1)
    assert (access["B"].extents, access["B"].varies) == ((64, 256), ("axis0", "loop1"))
    assert (access["C"].mode, access["C"].accumulator, access["C"].loop) == ("write", True, 0)
    assert access["B"].bytes == 64 * 256 * 2
    assert access["B"].run_bytes == 512  # a part of a row
    assert [(b.name, b.bytes, b.versions) for b in launch.buffers] == [
        ("a", 16384, 3),
        ("b", 32768, 3),
        ("c", 131072, 1),
    ]


def test_rows_that_a_tile_holds_whole_lie_in_one_piece() -> None:
    launch = launch_of(gemm(512, 256, 64))
    access = by_tensor(launch)
    assert access["A"].run_bytes == 128 * 64 * 2  # K is one tile: its rows follow one another
    assert access["B"].run_bytes == 64 * 256 * 2


def test_a_tile_goes_no_further_than_its_tensor() -> None:
    launch = launch_of(gemm(16, 100, 4096))
    assert by_tensor(launch)["A"].extents == (16, 64)
    assert by_tensor(launch)["B"].extents == (64, 100)


@pytest.mark.parametrize(
    "build", [gemm(512, 512, 1024), gemm(4096, 4096, 4096, 64, 64, 32, 0), causal_scores(2048, 64, 128, 64)]
)
def test_the_profile_agrees_with_the_footprint(build: Any) -> None:
    program = Program(build)
    footprint = program.footprint()
    launch = launch_of(build)
    trips = launch.trips()
    mean = [sum(column) / len(trips) for column in zip(*trips, strict=True)]
    read = sum(a.bytes * mean[a.loop] for a in launch.accesses if a.mode == "read") * launch.blocks
    written = sum(a.bytes * mean[a.loop] for a in launch.accesses if a.mode == "write") * launch.blocks
    assert read == pytest.approx(footprint.bytes_read)
    assert written == pytest.approx(footprint.bytes_written)
    operations = sum(p.operations * mean[p.loop] for p in launch.products) * launch.blocks
    assert footprint.flops is not None
    assert operations <= footprint.flops <= operations * 1.2


def test_blocks_before_a_diagonal_do_less() -> None:
    launch = launch_of(causal_scores(2048, 64, 128, 64))
    assert names_in(launch.loops[1].trips) == {"axis0"}
    assert [trips[1] for trips in launch.trips()] == [2.0 * (block + 1) for block in range(16)]
    assert value_of(launch.loops[1].trips, {"axis0": 3}) == 8


def test_element_work_is_counted_once_where_it_is_the_same_for_many() -> None:
    launch = launch_of(causal_scores(2048, 64, 128, 64))
    work = {(w.kind, w.elements) for w in launch.vector if w.loop == 1}
    # s * 0.5 - m * 0.5: one fused operation per element; m * 0.5 once per row.
    assert work == {("special", 128 * 64), ("arithmetic", 128 * 64), ("arithmetic", 128)}
    (reduction,) = launch.reductions
    assert (reduction.rows, reduction.length, reduction.accumulator) == (128, 64, True)


def test_query_heads_that_share_a_key_head_are_counted() -> None:
    @T.prim_func
    def main(K: T.Tensor((8, 128, 64), "float16"), O: T.Tensor((32, 128, 64), "float16")):  # noqa: E741
        with T.Kernel(32, threads=128) as h:
            k = T.alloc_shared((128, 64), "float16")
            T.copy(K[h // 4, 0, 0], k)
            T.copy(k, O[h, 0, 0])

    access = by_tensor(launch_of(main))
    assert access["O"].shares == (1,)
    assert access["K"].shares == (4,)


def test_copies_of_threads_that_only_copy_belong_to_the_loop_that_uses_the_tiles() -> None:
    stages, bm, bn, bk, K = 4, 128, 128, 64, 1024

    @T.prim_func
    def main(A: T.Tensor((512, K), "float16"), B: T.Tensor((K, 512), "float16"), C: T.Tensor((512, 512), "float32")):
        with T.Kernel(4, 4, threads=384) as (bx, by):
            a = T.alloc_shared((stages, bm, bk), "float16")
            b = T.alloc_shared((stages, bk, bn), "float16")
            c = T.alloc_fragment((bm, bn), "float32")
            full = T.alloc_barrier([128] * stages)
            thread = T.get_thread_binding()
            if thread >= 256:
                for k in T.serial(K // bk):
                    T.tma_copy(
                        A[by * bm : (by + 1) * bm, k * bk : (k + 1) * bk], a[k % stages, :, :], barrier=full[k % stages]
                    )
                    T.tma_copy(
                        B[k * bk : (k + 1) * bk, bx * bn : (bx + 1) * bn], b[k % stages, :, :], barrier=full[k % stages]
                    )
                    T.mbarrier_arrive(full[k % stages])
            else:
                T.clear(c)
                for k in T.serial(K // bk):
                    T.mbarrier_wait_parity(full[k % stages], (k // stages) & 1)
                    T.wgmma_gemm(a[k % stages, :, :], b[k % stages, :, :], c)
                    T.wait_wgmma(0)
                T.copy(c, C[by * bm, bx * bn])

    found = profile(Program(main))
    (launch,) = found.launches
    assert (launch.threads, launch.copy_threads) == (384, 128)
    (product,) = launch.products
    loop = launch.loops[product.loop]
    assert (loop.stages, loop.ahead) == (4, True)
    assert product.in_flight
    reads = [access for access in launch.accesses if access.mode == "read"]
    assert {access.loop for access in reads} == {product.loop}
    assert all(f"loop{product.loop}" in access.varies for access in reads)
    assert found.unknown == ()


def test_a_branch_of_few_threads_beside_a_product_of_all_is_no_role() -> None:
    @T.prim_func
    def main(A: T.Tensor((128, 64), "float16"), B: T.Tensor((64, 128), "float16"), C: T.Tensor((128, 128), "float32")):
        with T.Kernel(1, threads=128) as _:
            a = T.alloc_shared((128, 64), "float16")
            b = T.alloc_shared((64, 128), "float16")
            c = T.alloc_fragment((128, 128), "float32")
            t = T.alloc_local((4,), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c)
            if T.get_thread_binding() < 32:
                for i in T.Parallel(4):
                    t[i] = t[i] * 2.0
            T.copy(c, C)

    launch = launch_of(main)
    assert (launch.threads, launch.copy_threads, launch.roles) == (128, 0, ())


def test_what_depends_on_data_is_named() -> None:
    @T.prim_func
    def main(n: T.Tensor((4,), "int32"), A: T.Tensor((4, 1024), "float32")):
        with T.Kernel(4, threads=128) as bx:
            for k in T.serial(n[bx]):
                for i in T.Parallel(128):
                    A[bx, k * 128 + i] = A[bx, k * 128 + i] * 2.0

    found = profile(Program(main))
    assert found.unknown == ("a loop depends on data: taken as 1",)
    assert found.launches[0].trips() == ((1.0, 1.0),)


def test_a_loop_over_data_that_is_bounded_is_counted_at_its_longest() -> None:
    @T.prim_func
    def main(n: T.Tensor((4,), "int32"), A: T.Tensor((4, 1024), "float32")):
        with T.Kernel(4, threads=128) as bx:
            length = T.min(n[bx], 1000)
            for k in T.serial(T.ceildiv(length, 128)):
                for i in T.Parallel(128):
                    A[bx, k * 128 + i] = A[bx, k * 128 + i] * 2.0

    found = profile(Program(main))
    assert found.unknown == ()
    assert found.launches[0].trips() == ((1.0, 8.0),)


def test_symbolic_dimensions_take_the_values_given() -> None:
    M = T.dynamic("M")
    program = Program(gemm(M, 1024, 512))
    assert profile(program, {"M": 300}).launches[0].grid == (4, 3)
    found = profile(program)
    assert found.launches[0].grid == (4, 1)
    assert "a grid axis depends on a value that was not given: taken as 1" in found.unknown


def test_rows_are_symbolic_where_any_stride_is() -> None:
    rows, columns = T.dynamic("rows"), T.dynamic("columns")

    @T.prim_func
    def main(
        A: T.Tensor((4, 64), "float32"),
        B: T.Tensor((rows, 64), "float32"),
        C: T.Tensor((4, columns), "float32"),
        D: T.Tensor((4, rows, 64), "float32"),
    ):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((4, 64), "float32")
            T.copy(A, tile)
            T.copy(tile, B[0:4, 0:64])
            T.copy(tile, C[0:4, 0:64])
            T.copy(tile, D[0, 0:4, 0:64])

    (launch,) = profile(Program(main), {"rows": 8, "columns": 128}).launches
    symbolic = {tensor: access.symbolic_rows for tensor, access in by_tensor(launch).items()}
    assert symbolic == {"A": False, "B": False, "C": True, "D": True}


def test_views_of_a_tensor_are_accesses_of_the_tensor() -> None:
    """What a block reads a second time lies in the cache, whatever it is called."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            rows = T.Tensor((16, 256), "float16", A.data)
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((16, 256), "float16")
            T.copy(A, a)
            T.copy(rows, b)
            T.copy(b, T.Tensor((16, 256), "float16", B.data))

    assert [access.tensor for access in launch_of(main).accesses] == ["A", "A", "B"]


@pytest.mark.parametrize(
    ("height", "width", "extents"),
    [(30, 20, (1, 4, 20, 32)), (5, 100, (1, 1, 64, 32)), (4, 8, (2, 4, 8, 32))],
    ids=["lines of an image", "part of a line", "several images"],
)
def test_a_tile_of_pixels_and_terms_is_read_not_the_images(height: int, width: int, extents: tuple[int, ...]) -> None:
    @T.prim_func
    def convolution(X: T.Tensor((8, height, width, 64), "float16"), Y: T.Tensor((256, 576), "float16")):
        with T.Kernel(4, threads=128) as b:
            x = T.alloc_shared((64, 32), "float16")
            for k in T.Pipelined(18, num_stages=2):
                T.im2col(X, x, b, k, 3, 1, 1, 1)
                T.copy(x, Y[b * 64, k * 32])

    read = by_tensor(launch_of(convolution))["X"]
    assert read.extents == extents
    assert read.varies == ("axis0", "loop1")
    assert Program(convolution).footprint({}).bytes_read == 4 * 18 * 64 * 32 * 2


def gathered(channels: int, block_M: int = 64, block_K: int = 32, stages: int = 2) -> Any:
    """Pixels of 16 x 16 images, rows gathered element by element: of 3 x 3 windows of `channels` channels."""

    @T.prim_func
    def main(X: T.Tensor((4, 16, 16, channels), "float16"), Y: T.Tensor((1024, 9 * channels), "float16")):
        with T.Kernel(1024 // block_M, threads=128) as b:
            x = T.alloc_shared((block_M, block_K), "float16")
            for k in T.Pipelined(9 * channels // block_K, num_stages=stages):
                for i, j in T.Parallel(block_M, block_K):
                    place = k * block_K + j
                    pixel = b * block_M + i
                    x[i, j] = X[pixel // 256, pixel // 16 % 16, place // channels, place % channels]
                T.copy(x, Y[b * block_M, k * block_K])

    return main


def test_elements_found_one_by_one_are_a_tile_like_any_other() -> None:
    """What a variable bound inside of the loop stands for counts as much as the loop's own."""
    launch = launch_of(gathered(32))
    read = by_tensor(launch)["X"]
    assert (read.extents, read.fills, read.onchip, read.window) == ((4, 16, 1, 32), ("x",), "local", False)
    assert read.varies == ("axis0", "loop1")
    assert launch.shared[0].bytes == 64 * 32 * 2
    # Where the depth of a tile is not the channels', its columns are of several places in the window.
    assert by_tensor(launch_of(gathered(8)))["X"].elements == 64 * 32
    assert by_tensor(launch_of(gathered(24)))["X"].elements == 64 * 32


def test_instructions_that_find_an_element_are_counted_where_they_are_run() -> None:
    work: Counter[tuple[int, bool]] = Counter()
    for one in launch_of(gathered(24)).vector:
        if one.kind == "index":
            work[one.loop, one.fills] += one.elements
    elements = 64 * 32
    # Before the loop, for each element: two shifts and a mask of its pixel (256 and 16 are powers of two).
    # In it: quotient and remainder by 24, once for each column; then three multiply-adds, a pointer and the load.
    assert work == {(0, False): 3 * elements, (1, True): (3 + 4) * 32 + (3 + 2 + 1) * elements}


def test_columns_that_a_thread_has_several_of_are_found_for_each_element() -> None:
    """Of 128 threads, 48 columns wide, each has elements in three columns: none of what finds one serves another."""
    work = sum(one.elements for one in launch_of(gathered(24, block_K=48)).vector if one.kind == "index" and one.fills)
    assert work == (3 + 4 + 3 + 2 + 1) * 64 * 48


def test_what_neighbours_in_a_row_have_in_common_costs_no_instructions_for_each() -> None:
    @T.prim_func
    def main(A: T.Tensor((64, 128), "float16"), B: T.Tensor((512, 128), "float16")):
        with T.Kernel(8, threads=128) as b:
            x = T.alloc_shared((64, 128), "float16")
            for i, j in T.Parallel(64, 128):
                row = (b * 64 + i) // 8
                x[i, j] = A[row, j]
            T.copy(x, B[b * 64, 0])

    launch = launch_of(main)
    assert [work for work in launch.vector if work.kind == "index"] == []
    assert by_tensor(launch)["A"].extents == (64, 128)
    assert by_tensor(launch)["A"].fills == ("x",)


def test_a_tile_computed_from_what_is_on_chip_is_no_copy() -> None:
    @T.prim_func
    def main(A: T.Tensor((64, 128), "float16"), B: T.Tensor((64, 128), "float16")):
        with T.Kernel(1, threads=128):
            x = T.alloc_shared((64, 128), "float16")
            scale = T.alloc_fragment((64,), "float16")
            T.clear(scale)
            for i, j in T.Parallel(64, 128):
                x[i, j] = A[i, j] * scale[i]
            T.copy(x, B[0, 0])

    assert by_tensor(launch_of(main))["A"].fills == ()
