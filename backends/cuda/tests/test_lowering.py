"""CUDA without a device: source for any chip on any machine, and what it must contain."""

from dataclasses import replace
from typing import Any

import pytest
import tilelang
import tilelang.language as T

import core
from backends.cuda.toolchain import find_nvcc


def nvcc_is_here() -> bool:
    """Whether the backend finds nvcc, wherever it looks."""
    try:
        find_nvcc()
    except core.ToolchainNotFound:
        return False
    return True


needs_nvcc = pytest.mark.skipif(not nvcc_is_here(), reason="no nvcc in CUDA_HOME, on PATH or from PyPI")


def gemm(
    M: int, N: int, K: int, dtype: str = "float16", bm: int = 128, bn: int = 128, bk: int = 64, threads: int = 256
):
    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, bn), T.ceildiv(M, bm), threads=threads) as (bx, by):
            a = T.alloc_shared((bm, bk), dtype)
            b = T.alloc_shared((bk, bn), dtype)
            c = T.alloc_fragment((bm, bn), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, bk), num_stages=2):
                T.copy(A[by * bm, k * bk], a)
                T.copy(B[k * bk, bx * bn], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * bm, bx * bn])

    return main


@tilelang.jit(out_idx=[1])
def softmax(M: int, N: int, block_M: int = 1, dtype: str = "float16"):
    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            x = T.alloc_fragment((block_M, N), "float32")
            m = T.alloc_fragment((block_M,), "float32")
            s = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], x)
            T.reduce_max(x, m, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = T.exp(x[i, j] - m[i])
            T.reduce_sum(x, s, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = x[i, j] / s[i]
            T.copy(x, Y[bx * block_M, 0])

    return main


def source(kernel: Any, *args: Any, target: str, **options: Any) -> str:
    return core.compile(kernel, *args, target=target, build=False, **options).get_kernel_source()


def test_hopper_uses_warpgroup_instructions_and_bulk_copies() -> None:
    kernel = core.compile(gemm, 1024, 1024, 1024, target="cuda:h200", build=False)
    assert "tl::wgmma_ss" in kernel.get_kernel_source()
    assert "tl::tma_load" in kernel.get_kernel_source()
    assert kernel.provenance.route == "tilelang-native"


def test_ampere_uses_neither() -> None:
    text = source(gemm, 1024, 1024, 1024, target="cuda:a100", threads=128)
    assert "mma_sync" in text
    assert "wgmma" not in text
    assert "tma_load" not in text


def test_a_vendor_alone_is_a_chip_and_never_an_architecture_nobody_asked_for() -> None:
    kernel = core.compile(gemm, 256, 256, 256, target="cuda", build=False)
    assert kernel.target.startswith("cuda:")
    assert kernel.chip.codegen["arch"] != "sm_50"


def test_warp_specialisation_shows_in_the_configuration() -> None:
    kernel = core.compile(gemm, 1024, 1024, 1024, target="cuda:h200", build=False)
    threads = kernel.config["threads"]
    assert (threads.requested, threads.effective) == (256, 384)
    assert "warp specialisation" in threads.note
    assert kernel.resources.predicted.threads == 384


def test_outputs_of_a_lazy_factory_are_inherited() -> None:
    kernel = core.compile(softmax, 64, 256, target="cuda:h200", build=False)
    assert kernel.program.signature.outputs == (1,)


def test_float32_products_stay_float32_unless_the_user_allows_otherwise() -> None:
    exact = core.compile(gemm, 256, 256, 256, "float32", 64, 64, 32, 128, target="cuda:h200", build=False)
    assert "wgmma" not in exact.get_kernel_source()
    assert "mma_sync" not in exact.get_kernel_source()
    assert any("float32 gemm" in line for line in exact.provenance.rewrites)
    assert exact.config.relaxations == ()
    relaxed = core.compile(
        gemm, 256, 256, 256, "float32", 64, 64, 32, 128, target="cuda:h200", build=False, fast_math=True
    )
    assert "kTensorFloat32" in relaxed.get_kernel_source()
    assert any(line.startswith("tf32") for line in relaxed.config.relaxations)


def test_a_non_zero_safe_value_keeps_the_copy_away_from_tma() -> None:
    def padded(safe: float):
        @T.prim_func
        def main(A: T.Tensor((100, 64), "float16"), B: T.Tensor((128, 64), "float16")):
            with T.Kernel(1, threads=128):
                s = T.alloc_shared((64, 64), "float16")
                T.annotate_safe_value({A: safe})
                for k in T.Pipelined(2, num_stages=2):
                    T.copy(A[k * 64, 0], s)
                    T.copy(s, B[k * 64, 0])

        return main

    kernel = core.compile(padded, -1.0, target="cuda:h200", build=False)
    assert "tma_load" not in kernel.get_kernel_source()
    assert any("safe value" in line for line in kernel.provenance.rewrites)
    assert core.compile(padded, 0.0, target="cuda:h200", build=False).provenance.rewrites == ()


@pytest.mark.parametrize("width", [128, T.dynamic("width")], ids=["a non-zero safe value", "rows of symbolic length"])
def test_a_view_of_a_tensor_is_kept_away_from_tma_as_the_tensor_is(width: Any) -> None:
    """A view has a name of its own: what counts is whose memory it is."""

    @T.prim_func
    def tiles(A: T.Tensor((2, 128, width), "float16"), B: T.Tensor((256, 128), "float16")):
        with T.Kernel(2, threads=128) as b:
            rows = T.Tensor((256, width), "float16", A.data)
            if isinstance(width, int):
                T.annotate_safe_value({rows: -1.0})
            a = T.alloc_shared((64, 128), "float16")
            c = T.alloc_fragment((64, 128), "float16")
            T.clear(c)
            for k in T.Pipelined(3, num_stages=2):
                T.copy(rows[(b + k) * 64 + 32, 0], a)
                for i, j in T.Parallel(64, 128):
                    c[i, j] += a[i, j]
            T.copy(c, B[b * 128, 0])

    kernel = core.compile(tiles, target="cuda:h200", build=False)
    assert any(line.startswith("copies of rows avoid TMA") for line in kernel.lowered.rewrites)
    assert "rows_desc" not in kernel.get_kernel_source()
    promised = core.compile(tiles, target="cuda:h200", build=False, options={"aligned_rows": True})
    assert ("rows_desc" in promised.get_kernel_source()) is not isinstance(width, int)


def test_a_sliced_reduction_is_refused_at_its_line() -> None:
    @T.prim_func
    def main(A: T.Tensor((8, 64), "float32"), B: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((8, 64), "float32")
            r = T.alloc_fragment((4,), "float32")
            T.copy(A, x)
            T.reduce_sum(x[2:6, :], r, dim=1)
            T.copy(r, B)

    with pytest.raises(core.UnsupportedOp, match="ignores the slice") as caught:
        core.compile(main, target="cuda:h200", build=False)
    assert caught.value.location is not None
    assert caught.value.location.file == __file__


def test_narrow_integers_wrap() -> None:
    @T.prim_func
    def main(A: T.Tensor((256,), "uint8"), B: T.Tensor((256,), "int32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(256):
                B[i] = A[i] + A[i]

    kernel = core.compile(main, target="cuda:h200", build=False)
    assert "(uchar)" in kernel.get_kernel_source()
    assert any("wraps" in line for line in kernel.provenance.rewrites)


def test_a_widened_uint32_keeps_all_its_bits() -> None:
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int64")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                B[i] = T.cast(T.cast(A[i], "uint32") - T.cast(50, "uint32"), "int64")

    text = source(main, target="cuda:h200")
    assert "(int64_t)4294967295)" in text  # all 32 bits; TVM's narrowing alone would sign-extend them
    assert "(int64_t)((int)" not in text.split("B[", 1)[1]


@needs_nvcc
def test_the_cubin_builds_and_reports_what_it_uses() -> None:
    kernel = core.compile(gemm, 1024, 1024, 1024, target="cuda:h200", build=True)
    assert kernel.binary().read_bytes()[:4] == b"\x7fELF"
    actual = kernel.resources.actual
    assert actual is not None
    assert actual.registers_per_thread is not None
    assert 64 < actual.registers_per_thread <= 255
    assert actual.spill_store_bytes == 0
    assert actual.static_shared_bytes is not None
    assert actual.dynamic_shared_bytes == 2 * (128 * 64 + 64 * 128) * 2
    assert kernel.provenance.toolchain is not None
    assert kernel.provenance.toolchain.startswith("nvcc ")


@needs_nvcc
def test_a_flag_nvcc_refuses_is_a_build_failure_with_command_and_source() -> None:
    with pytest.raises(core.BuildFailed, match="no-such-flag") as caught:
        core.compile(gemm, 256, 256, 256, target="cuda:h200", build=True, compile_flags="--no-such-flag")
    assert "kernel.cu" in str(caught.value)


def test_a_launch_without_a_device_says_what_is_missing() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a device")  # the message is for machines without one
    kernel = core.compile(softmax, 64, 256, target="cuda:h200", build=False)
    with pytest.raises(core.DeviceUnavailable, match="cannot run on cuda:h200"):
        kernel(torch.zeros(64, 256, dtype=torch.float16))


def test_threads_that_warp_specialisation_adds_count_against_the_chips_limit() -> None:
    with pytest.raises(core.ResourceExceeded, match="launches 1152 threads per block once lowered") as caught:
        core.compile(gemm, 1024, 1024, 1024, "float16", 256, 256, 32, 1024, target="cuda:h200", build=False)
    assert caught.value.location is not None
    assert caught.value.location.file == __file__
    assert "fewer threads" in caught.value.hint
    without = {"tl.disable_warp_specialized": True}
    kernel = core.compile(
        gemm, 1024, 1024, 1024, "float16", 256, 256, 32, 1024, target="cuda:h200", build=False, pass_configs=without
    )
    assert kernel.config["threads"].effective == 1024


def test_shared_memory_that_lowering_adds_counts_against_the_chips_limit() -> None:
    def row_sums(columns: int):
        @T.prim_func
        def main(A: T.Tensor((2, columns), "float16"), B: T.Tensor((2,), "float32")):
            with T.Kernel(1, threads=256):
                tile = T.alloc_shared((2, columns), "float16")
                x = T.alloc_fragment((2, 512), "float32")
                total = T.alloc_fragment((2,), "float32")
                T.copy(A, tile)
                for i, j in T.Parallel(2, 512):
                    x[i, j] = tile[i, j] + tile[i, columns - 1 - j]
                T.reduce_sum(x, total, dim=1)
                T.copy(tile, A)
                T.copy(total, B)

        return main

    # 227 KiB are what a block may have; the reduction over 256 threads needs a workspace besides.
    with pytest.raises(core.ResourceExceeded, match=r"needs 233,472 bytes of shared memory per block once lowered"):
        core.compile(row_sums, 227 * 1024 // 4, target="cuda:h200", build=False)
    assert core.compile(row_sums, 226 * 1024 // 4, target="cuda:h200", build=False).get_kernel_source()


def test_an_option_nobody_knows_is_refused_not_ignored() -> None:
    with pytest.raises(core.KernelError, match="the cuda backend has no option 'tf23'") as caught:
        core.compile(softmax, 64, 256, target="cuda:h200", build=False, options={"tf23": True})
    assert "did you mean 'tf32'?" in caught.value.hint
    assert core.compile(softmax, 64, 256, target="cuda:h200", build=False, options={"tf32": True})


def test_fragments_count_beside_the_shared_memory_that_lowering_lays_out() -> None:
    kernel = core.compile(gemm, 256, 256, 256, "float16", 128, 128, 32, 128, target="cuda:h200", build=False)
    figures = kernel.resources.predicted
    assert figures.memory_bytes["registers"] == 128 * 128 * 4
    # The barriers of the pipeline are static, and ptxas fills them up to where dynamic memory begins.
    assert figures.static_shared_bytes == 1024
    assert figures.memory_bytes["shared"] == (figures.dynamic_shared_bytes or 0) + 1024
    moved = figures.bytes_read + figures.bytes_written
    assert figures.arithmetic_intensity == figures.flops / moved
    assert replace(figures, flops=None).arithmetic_intensity is None
    assert replace(figures, bytes_read=0.0, bytes_written=0.0).arithmetic_intensity is None


def im2col(*windows: tuple[int, int, int, int]) -> Any:
    """Tiles of image matrices of one tensor: (kernel, stride, dilation, padding) of each."""

    @T.prim_func
    def im2col(X: T.Tensor((2, 32, 32, 64), "float16"), Y: T.Tensor((2, 128, 64), "float16")):
        with T.Kernel(2, threads=128) as b:
            x = T.alloc_shared((128, 64), "float16")
            for kernel, stride, dilation, padding in windows:
                for k in T.Pipelined(9, num_stages=2):
                    T.im2col(X, x, b, k, kernel, stride, dilation, padding)
                    T.copy(x, Y[b, 0, 0])

    return im2col


@pytest.mark.parametrize(
    ("window", "last"),
    [
        ((3, 1, 1, 1), -1),
        ((3, 1, 1, 0), -2),
        ((3, 2, 1, 0), -2),
        ((3, 1, 2, 1), -3),
        ((1, 1, 1, 0), 0),
        ((5, 2, 1, 1), -3),
    ],
    ids=str,
)
def test_windows_that_change_the_images_size_are_described_as_they_are(window: Any, last: int) -> None:
    """`padding - (kernel - 1) * dilation`, as the driver's encoder takes it; TileLang's host code has `-padding`."""
    plan = core.compile(im2col(window), target="cuda:h200", build=False).lowered.metadata["launch_plan"]
    (image,) = (item for item in plan["maps"] if item["pixels"])
    assert (image["lower"], image["upper"]) == ([-window[3]] * 2, [last] * 2)


def test_windows_that_the_host_does_not_tell_apart_are_refused() -> None:
    core.compile(im2col((3, 1, 1, 1), (3, 1, 1, 0)), target="cuda:h200", build=False)
    with pytest.raises(core.UnsupportedOp, match=r"images smaller or larger.* several sizes") as caught:
        core.compile(im2col((3, 1, 1, 0), (5, 1, 1, 0)), target="cuda:h200", build=False)
    assert caught.value.location is not None
    assert caught.value.location.line == im2col.__code__.co_firstlineno + 9
