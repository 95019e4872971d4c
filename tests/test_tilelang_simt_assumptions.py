"""What the SIMT family assumes about the wheel: `core._tilelang.simt` and `core._tilelang.hostplan`."""

from __future__ import annotations

from typing import Any

import pytest

from core import _tilelang
from core._tilelang.simt import _context

tilelang = _tilelang.import_tilelang()
import tilelang.language as T  # noqa: E402 - tilelang must be imported through TileHAL first


class Recorder:
    """An emitter that notes what it is asked, and lowers a product to a call."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def infer_layout(self, gemm: Any, threads: int) -> dict[Any, Any]:
        self.asked.append(("layout", int(gemm.M), int(gemm.N), int(gemm.K), threads))
        return {}

    def lower(self, gemm: Any, thread_index: Any, threads: int) -> Any:
        self.asked.append(("lower", str(gemm.a_dtype), str(gemm.accum_dtype), threads))

        @T.prim_func
        def product() -> None:
            T.evaluate(T.call_extern("handle", "the_product"))

        return product


@pytest.fixture
def matmul() -> Any:
    @T.prim_func
    def main(A: T.Tensor((64, 32), "float16"), B: T.Tensor((32, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_shared((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c)
            T.copy(c, C)

    return main


def lower(prim_func: Any, emitter: Any = None, wave_lanes: int = 64, **options: Any) -> _tilelang.SimtModules:
    return _tilelang.lower_simt(
        prim_func,
        wave_lanes=wave_lanes,
        async_copy=options.pop("async_copy", False),
        emitter=emitter or Recorder(),
        pass_configs=options,
    )


@pytest.mark.parametrize("wave_lanes", [32, 64])
def test_our_emitter_is_asked_on_both_wave_widths(matmul: Any, wave_lanes: int) -> None:
    recorder = Recorder()
    modules = lower(matmul, recorder, wave_lanes)
    assert ("layout", 64, 64, 32, 128) in recorder.asked
    assert ("lower", "float16", "float32", 128) in recorder.asked
    assert "the_product()" in modules.source


def test_a_context_around_an_unregistered_module_is_accepted() -> None:
    from tilelang.backend.module import list_backends

    context = _context("gfx90a", 64)
    assert context.name == "tilehal-simt-gfx90a"
    assert context.name not in list_backends()
    assert "tilehal-simt" in context.target.keys
    assert int(context.target.attrs["thread_warp_size"]) == 64


def test_making_the_target_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    _context.cache_clear()
    _context("gfx90a", 64)
    assert capfd.readouterr().err == ""


def test_explicit_stages_pipeline_without_asynchronous_copies() -> None:
    @T.prim_func
    def main(A: T.Tensor((512,), "float32"), B: T.Tensor((512,), "float32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((128,), "float32")
            for k in T.Pipelined(4, num_stages=2, order=[0, 1], stage=[0, 1]):
                T.copy(A[k * 128], s)
                T.copy(s, B[k * 128])

    modules = lower(main)
    assert modules.functions[0].dynamic_shared_bytes == 2 * 128 * 4
    assert "cp_async" not in modules.source


def test_the_asynchronous_architecture_emits_copies_with_groups() -> None:
    @T.prim_func
    def main(A: T.Tensor((512,), "float32"), B: T.Tensor((512,), "float32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((128,), "float32")
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k * 128], s)
                T.copy(s, B[k * 128])

    source = lower(main, async_copy=True).source
    assert "tl::cp_async_gs<" in source
    assert "tl::cp_async_wait<" in source


def test_the_plan_says_where_every_argument_comes_from() -> None:
    M = T.dynamic("M")

    @T.prim_func
    def main(A: T.Tensor((M, 64), "float32"), n: T.int32, s: T.float32, C: T.Tensor((M, 64), "float32")):
        if n > 3:
            with T.Kernel(T.ceildiv(M, 2), threads=64) as bx:
                W = T.alloc_global((M, 64), "float32")
                for j in T.Parallel(64):
                    W[bx, j] = A[bx, j] * s
                for j in T.Parallel(64):
                    C[bx, j] = W[bx, j]

    modules = lower(main)
    (step,) = modules.plan.steps
    (function,) = modules.functions
    assert dict(zip(("A", "C"), (a for a in step.arguments if a.startswith("tensor:")), strict=True)) == {
        "A": "tensor:0",
        "C": "tensor:3",
    }
    assert "workspace:0" in step.arguments
    assert "s" in step.arguments
    assert modules.plan.scalars == {"n": 1, "s": 2}
    assert len(step.arguments) == len(function.argument_types)
    assert len(step.extents) == len(function.launch_tags)
    values = {"M": 5, "n": 4, "s": 1.0}
    tags = dict(zip(function.launch_tags, (eval(e, {}, values) for e in step.extents), strict=True))
    assert (tags["blockIdx.x"], tags["threadIdx.x"]) == (3, 64)
    assert [eval(c, {}, values) for c in step.conditions] == [True]
    assert [eval(c, {}, {**values, "n": 3}) for c in step.conditions] == [False]
    ((dtype, count),) = modules.plan.workspaces
    assert (dtype, eval(count, {}, values)) == ("float32", 320)
