"""MetaX inside `tilelang.compile` and `@tilelang.jit`, with TileLang's own targets beside it in one process."""

from __future__ import annotations

from typing import Any

import pytest
import tilelang
import tilelang.language as T
import torch

import core
from backends.metax.tests.kernels import matmul
from core import _tilelang

BUILTIN = "__builtin_mxc_mma_16x16x16f16("


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    assert "metax" in core.install_tilelang_targets()


def test_tilelang_compile_goes_through_tilehal() -> None:
    kernel = tilelang.compile(matmul(), target="metax", out_idx=[2])
    assert BUILTIN in kernel.get_kernel_source()


def test_tilelang_jit_goes_through_tilehal_for_any_chip() -> None:
    @tilelang.jit(target="metax:c600", out_idx=[2])
    def factory(M: int) -> Any:
        return matmul(M, dtype="int8", accumulator="int32")

    assert "__builtin_mxc_mma_16x16x32i8(" in factory(128).get_kernel_source()


def test_without_a_device_the_call_explains() -> None:
    kernel = tilelang.compile(matmul(), target="metax", out_idx=[2])
    with pytest.raises(Exception, match="MetaX C500") as caught:
        kernel(torch.zeros(128, 96).half(), torch.zeros(96, 128).half())
    assert "simulate=True" in str(caught.value)


@pytest.mark.parametrize("order", [("metax", "hip"), ("hip", "metax")])
def test_the_built_in_targets_are_what_they_were(order: tuple[str, str]) -> None:
    sources = {}
    for name in order:
        if name == "hip":
            target = {"kind": "hip", "mcpu": "gfx90a"}
            sources[name] = _tilelang.lower_native(matmul(), target, {}).device_source
        else:
            sources[name] = core.compile(matmul(M=order.index("hip") * 64 + 64), target="metax").get_kernel_source()
    assert "__builtin_amdgcn_mfma_f32_16x16x16f16" in sources["hip"]
    assert BUILTIN in sources["metax"]
    cuda = _tilelang.lower_native(matmul(), {"kind": "cuda", "arch": "sm_90a"}, {}).device_source
    assert "gemm" in cuda or "wgmma" in cuda


def test_an_ascend_kernel_still_lowers_beside_it() -> None:
    from tilelang.backend.module import create_backend_context, list_backends

    assert "ascend" in {kind for module in list_backends().values() for kind in module.target_kinds}
    context = create_backend_context({"kind": "hip", "mcpu": "gfx90a"})
    assert context.module.name == "rocm"


def test_two_threads_lowering_for_both_do_not_mix() -> None:
    from concurrent.futures import ThreadPoolExecutor

    def lower(index: int) -> bool:
        program = matmul(M=64 * (index + 1), N=320)
        if index % 2:
            return BUILTIN in core.compile(program, target="metax").get_kernel_source()
        source = _tilelang.lower_native(program, {"kind": "hip", "mcpu": "gfx90a"}, {}).device_source
        return "__builtin_amdgcn_mfma" in source

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(lower, range(4)))


def test_the_language_of_a_vector_of_names_is_unchanged() -> None:
    @T.prim_func
    def copy(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                B[i] = A[i]

    assert "#include <tilehal/maca/platform.h>" in tilelang.compile(copy, target="metax").get_kernel_source()
