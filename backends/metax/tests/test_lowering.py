"""MACA C++ on any machine: what the source must contain, and what is refused before any compiler."""

from __future__ import annotations

import re
from typing import Any

import pytest
import tilelang.language as T
import torch

import core
from backends.metax.tests.kernels import matmul, scaled_rows
from tests.kernels import Case, all_kernels, construct
from tests.properties import first_of_each
from tests.timing import within

#: Cases that `metax:c500` refuses, and a part of the reason.
REFUSED = {
    "reduction.reduce_rows[sum-float32-10x100-ragged]": "no available layout found",
    "reduction.reduce_rows[max-int32-10x6-ragged]": "power of two",
    "reduction.reduce_keepdim[20x64]": "keeps the reduced dimension",
    "softmax.softmax[7x200]": "no available layout found",
    "gemm.gemm[nn-float16-float16-64x64x64]": "accumulate these in float32",
    "attention.flash_attention[causal-tail-d128]": "needs 80 KiB, 16 KiB too much",
}


def target_of(case: Case) -> str:
    """fp8 has matrix instructions on C600 only."""
    return "metax:c600" if "fp8" in case.name or "float8" in case.name else "metax:c500"


@pytest.mark.parametrize(
    "case",
    first_of_each(all_kernels(), lambda case: case.name if case.name in REFUSED else construct(case)),
    ids=lambda case: case.name,
)
def test_the_corpus_agrees_with_torch_or_is_refused_for_a_known_reason(case: Case) -> None:
    reason = REFUSED.get(case.name)
    if reason is not None:
        with pytest.raises(core.TileHALError, match=re.escape(reason)) as caught:
            case.compile(target_of(case))
        assert caught.value.location is not None
        return
    kernel = case.compile(target_of(case), simulate=True)
    code = "\n".join(line.partition("//")[0] for line in kernel.get_kernel_source().splitlines())
    assert re.search(r'extern "C" __global__ void __launch_bounds__\(\d+\)', code)
    for foreign in ("hip", "amdgcn", "rocwmma", "__half", "asm", "tl::", "0xffffffff"):
        assert not re.search(rf"\b{foreign}", code), foreign
    inputs = list(case.inputs(torch.Generator().manual_seed(11)))
    case.check(case.run(kernel, inputs), inputs)


def test_a_product_is_the_vendors_builtin_on_swapped_operands() -> None:
    source = core.compile(matmul(), target="metax:c500").get_kernel_source()
    assert "c_lane = __builtin_mxc_mma_16x16x16f16(a_lane, b_lane, c_lane);" in source
    assert "tilehal_mma_16x16x16_float16(c, " in source


@pytest.mark.parametrize(
    ("target", "dtype", "accumulator", "builtin", "operand"),
    [
        ("metax:c500", "int8", "int32", "__builtin_mxc_mma_16x16x16i8", "int a_lane"),
        ("metax:c600", "int8", "int32", "__builtin_mxc_mma_16x16x32i8", "tilehal::platform::i32x2 a_lane"),
        ("metax:c500", "bfloat16", "float32", "__builtin_mxc_mma_16x16x16bf16", "tilehal::platform::i16x4 a_lane"),
        ("metax:c500", "float32", "float32", "__builtin_mxc_mma_16x16x4f32", "float a_lane"),
        ("metax:c600", "float8_e4m3fn", "float32", "__builtin_mxc_mma_16x16x32f8", "tilehal::platform::i32x2 a_lane"),
    ],
)
def test_each_type_has_its_instruction(target: str, dtype: str, accumulator: str, builtin: str, operand: str) -> None:
    source = core.compile(matmul(dtype=dtype, accumulator=accumulator), target=target).get_kernel_source()
    assert f"{builtin}(" in source
    assert operand in source


def test_the_short_integer_instruction_takes_a_second_zero_word_on_c600() -> None:
    kernel = core.compile(matmul(dtype="int8", accumulator="int32", block=(64, 64, 48), stages=0), target="metax:c600")
    source = kernel.get_kernel_source()
    assert "__builtin_mxc_mma_16x16x16i8(" in source
    assert "tilehal::platform::i32x2 a_lane = {};\n  __builtin_memcpy(&a_lane, a + a_first, 4 *" in source


def test_float32_products_are_exact_unless_tf32_is_allowed() -> None:
    program = matmul(dtype="float32")
    exact = core.compile(program, target="metax:c600")
    assert "mma" not in exact.get_kernel_source()
    assert any("fused multiply-add loops" in line for line in exact.provenance.rewrites)
    relaxed = core.compile(program, target="metax:c600", fast_math=True)
    assert "__builtin_mxc_mma_16x16x8tf32(" in relaxed.get_kernel_source()
    assert any(line.startswith("tf32") for line in relaxed.config.relaxations)


@pytest.mark.parametrize(("stages", "versions"), [(0, 1), (1, 1), (2, 2), (3, 3)])
def test_stages_are_versions_of_the_shared_buffers(stages: int, versions: int) -> None:
    kernel = core.compile(matmul(stages=stages), target="metax:c500")
    assert kernel.resources.predicted.dynamic_shared_bytes == versions * (64 * 32 + 32 * 64) * 2
    assert "copy_start" not in kernel.get_kernel_source()


@pytest.mark.parametrize("mode", ["plain", "checked"])
def test_asynchronous_copies_give_the_same_product(mode: str) -> None:
    options = {"async_copy": True, "simulator": mode}
    kernel = core.compile(matmul(100, 72, 160), target="metax:c500", out_idx=[2], simulate=True, options=options)
    a, b = torch.randn(100, 160).half(), torch.randn(160, 72).half()
    torch.testing.assert_close(kernel(a, b), a.float() @ b.float(), atol=1e-4, rtol=1e-5)


def test_asynchronous_copies_are_an_option() -> None:
    source = core.compile(matmul(), target="metax:c500", options={"async_copy": True}).get_kernel_source()
    assert "#define TILEHAL_ASYNC_COPY 1" in source
    assert "tilehal::copy_start<16>(" in source
    assert "tilehal::copy_wait<" in source


def test_maths_is_accurate_unless_fast_math() -> None:
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                A[i] = T.exp(A[i])

    assert "= expf(" in core.compile(main, target="metax:c500").get_kernel_source()
    assert "= __expf(" in core.compile(main, target="metax:c500", fast_math=True).get_kernel_source()


def test_compiling_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    core.compile(matmul(M=192), target="metax:c500")
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


# --------------------------------------------------------------------------------------------------- refusals


def refusal(prim_func: Any, target: str = "metax:c500") -> core.TileHALError:
    with within(1.0), pytest.raises(core.TileHALError) as caught:
        core.compile(prim_func, target=target)
    assert caught.value.location is not None
    return caught.value


def test_a_tile_over_64_kib_is_refused_with_what_fits() -> None:
    error = refusal(matmul(256, 256, 256, block=(128, 128, 128), stages=2, threads=256))
    assert isinstance(error, core.ResourceExceeded)
    assert "64 KiB" in str(error)


def test_shared_memory_that_lowering_adds_counts_against_the_chips_limit() -> None:
    @T.prim_func
    def row_sums(A: T.Tensor((2, 16384), "float16"), B: T.Tensor((2,), "float32")):
        with T.Kernel(1, threads=256):
            tile = T.alloc_shared((2, 16384), "float16")
            x = T.alloc_fragment((2, 512), "float32")
            total = T.alloc_fragment((2,), "float32")
            T.copy(A, tile)
            for i, j in T.Parallel(2, 512):
                x[i, j] = tile[i, j] + tile[i, 16383 - j]
            T.reduce_sum(x, total, dim=1)
            T.copy(tile, A)
            T.copy(total, B)

    # The tile is all of a block's 64 KiB; the reduction over 256 threads needs a float32 of each besides.
    with pytest.raises(core.ResourceExceeded, match="66,560 bytes of shared memory per block once lowered"):
        core.compile(row_sums, target="metax:c500", build=False)


def test_threads_that_are_no_whole_waves_are_refused() -> None:
    error = refusal(matmul(threads=96))
    assert "96 threads" in str(error)
    assert "64 or 128" in error.hint


def test_a_block_of_more_than_512_threads_is_refused_on_c550_only() -> None:
    program = matmul(256, 256, 64, block=(128, 128, 32), threads=1024)
    assert "allows 512" in str(refusal(program, "metax:c550"))
    assert core.compile(program, target="metax:c500").resources.predicted.threads == 1024


def test_float16_accumulation_is_refused() -> None:
    error = refusal(matmul(accumulator="float16"))
    assert isinstance(error, core.UnsupportedOp)
    assert "accumulate these in float32" in str(error)


def test_fp8_products_are_refused_on_c500() -> None:
    assert "float8_e4m3fn" in str(refusal(matmul(dtype="float8_e4m3fn")))


def test_a_chip_whose_waves_are_unknown_is_refused() -> None:
    with pytest.raises(core.TileHALError, match="unknown"):
        core.compile(matmul(), target="metax:n260")


# ------------------------------------------------------------------------------------------------- simulated


@pytest.mark.parametrize(
    "program",
    [
        matmul(),
        matmul(100, 72, 80, stages=3),
        matmul(64, 64, 32, stages=2),  # fewer iterations than stages
        matmul(dtype="float32"),
        matmul(16, 64, 64, block=(16, 64, 16), threads=64),
        matmul(16, 16, 64, block=(16, 16, 32)),  # two waves cannot share one tile: multiply-adds
    ],
)
def test_products_agree_with_torch(program: Any) -> None:
    kernel = core.compile(program, target="metax:c500", out_idx=[2], simulate=True)
    a, b = (torch.randn(*t.shape, generator=torch.Generator().manual_seed(i)) for i, t in enumerate(operands(kernel)))
    dtype = getattr(torch, operands(kernel)[0].dtype)
    a, b = a.to(dtype), b.to(dtype)
    torch.testing.assert_close(kernel(a, b), (a.double() @ b.double()).float(), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_tiles_of_8_bit_floats_have_tails(dtype: str) -> None:
    # The rest of a tile is filled with zeros of the type; the stock printer has none of float8_e5m2.
    kernel = core.compile(matmul(100, 72, 80, dtype=dtype), target="metax:c600", out_idx=[2], simulate=True)
    a, b = (torch.randn(*shape).to(getattr(torch, dtype)) for shape in ((100, 80), (80, 72)))
    torch.testing.assert_close(kernel(a, b), a.float() @ b.float(), atol=1e-4, rtol=1e-5)


def test_fewer_iterations_than_stages_and_none_at_all() -> None:
    K = T.dynamic("K")

    @T.prim_func
    def main(A: T.Tensor((64, K), "float16"), B: T.Tensor((K, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, 32), num_stages=3):
                T.copy(A[0, k * 32], a)
                T.copy(B[k * 32, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    kernel = core.compile(main, target="metax:c500", out_idx=[2], simulate=True, options={"simulator": "checked"})
    for length in (0, 20, 32, 64, 100, 200):
        a, b = torch.randn(64, length).half(), torch.randn(length, 64).half()
        torch.testing.assert_close(kernel(a, b), a.float() @ b.float(), atol=1e-4, rtol=1e-5)


def test_a_branch_that_no_iteration_takes_does_not_stand_in_the_way_of_stages() -> None:
    @T.prim_func
    def main(A: T.Tensor((64, 128), "float16"), B: T.Tensor((128, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, k * 32], a)
                T.copy(B[k * 32, 0], b)
                T.gemm(a, b, c)
                if (k + 1) * 32 > 128:
                    T.clear(c)
            T.copy(c, C)

    kernel = core.compile(main, target="metax:c500", out_idx=[2], simulate=True)
    assert any("1 loop(s) pipelined" in rewrite for rewrite in kernel.provenance.rewrites)
    a, b = torch.randn(64, 128).half(), torch.randn(128, 64).half()
    torch.testing.assert_close(kernel(a, b), a.float() @ b.float(), atol=1e-4, rtol=1e-5)


def operands(kernel: Any) -> Any:
    return kernel.program.signature.arguments[:2]


@pytest.mark.parametrize("n", [0, 5])
def test_symbols_scalars_workspaces_and_conditional_launches(n: int) -> None:
    kernel = core.compile(scaled_rows(), target="metax:c500", simulate=True)
    a, c = torch.randn(5, 64), torch.zeros(5, 64)
    kernel(a, n, 2.0, torch.zeros(64), c)
    torch.testing.assert_close(c, a + 2 * a[0] if n > 3 else torch.zeros(5, 64))
