"""`core.compile` for every style of kernel, and moving the result to another chip."""

from typing import Any

import pytest
import tilelang
import tilelang.language as T
import torch

import core
from core.portability.tracing import traced_program


@tilelang.jit(out_idx=[1])
def softmax(M: int, N: int, block_M: int = 4, dtype: str = "float16"):
    """Row softmax as articles show it."""

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            tile = T.alloc_shared((block_M, N), dtype)
            x = T.alloc_fragment((block_M, N), "float32")
            largest = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], tile)
            T.copy(tile, x)
            T.reduce_max(x, largest, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = T.exp(x[i, j] - largest[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, Y[bx * block_M, 0])

    return main


@tilelang.jit(out_idx=[2])
def add(N: int, block_N: int = 256, dtype: str = "float32"):
    """Elementwise addition as articles show it."""

    @T.prim_func
    def main(A: T.Tensor((N,), dtype), B: T.Tensor((N,), dtype), C: T.Tensor((N,), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), threads=128) as bx:
            for i in T.Parallel(block_N):
                C[bx * block_N + i] = A[bx * block_N + i] + B[bx * block_N + i]

    return main


@tilelang.jit
def eager_negate(A: Any):
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 64), threads=64) as bx:
        for i in T.Parallel(64):
            B[bx * 64 + i] = -A[bx * 64 + i]
    return B


@tilelang.jit
def eager_scale(A: Any, factor: float):
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 64), threads=64) as bx:
        for i in T.Parallel(64):
            B[bx * 64 + i] = A[bx * 64 + i] * factor
    return B


def test_a_newcomers_softmax_runs_on_the_cpu_and_moves_to_a_gpu_and_back() -> None:
    kernel = core.compile(softmax, 30, 256, target="cpu")
    x = torch.randn(30, 256).half()
    expected = torch.softmax(x.float(), dim=1)
    assert torch.allclose(kernel(x).float(), expected, atol=1e-3)
    moved = kernel.with_target("cuda:h200")
    assert moved.target == "cuda:h200"
    assert "__global__" in moved.get_kernel_source()
    assert moved.program.signature.outputs == (1,)
    assert torch.equal(moved.with_target("cpu")(x), kernel(x))


def test_a_newcomers_addition_does_too() -> None:
    kernel = core.compile(add, 1000, target="cuda:h200", build=False).with_target("cpu")
    a, b = torch.randn(1000), torch.randn(1000)
    assert torch.equal(kernel(a, b), a + b)


def test_an_eager_kernel_moves() -> None:
    x = torch.randn(100)
    kernel = core.compile(eager_negate, x, target="cpu")
    assert torch.equal(kernel(x), -x)
    assert "__global__" in kernel.with_target("cuda:h200").get_kernel_source()


def test_an_example_of_another_dtype_is_refused_also_beside_a_number() -> None:
    x = torch.randn(100)
    assert torch.equal(core.compile(eager_scale, x, 2.0, target="cpu")(x), x * 2)
    with pytest.raises(core.ShapeMismatch, match="is float32, got float16"):
        core.compile(eager_negate, x.half(), target="cpu")
    with pytest.raises(core.ShapeMismatch, match="is float32, got float16"):
        core.compile(eager_scale, x.half(), 2.0, target="cpu")


def test_a_kernel_whose_numbers_are_fixed_says_so_when_asked_to_change_them() -> None:
    kernel = core.compile(add, 64, target="cpu", build=False)
    with pytest.raises(core.KernelError, match="cannot change block_N") as caught:
        kernel.with_target("cuda:h200", block_N=128)
    assert "compile the factory again" in caught.value.hint


def test_options_of_tilelang_that_mean_something_else_here_are_refused() -> None:
    assert core.compile(add, 64, target="cpu", build=False, execution_backend="tvm_ffi")
    with pytest.raises(core.KernelError, match="execution_backend='cython'"):
        core.compile(add, 64, target="cpu", execution_backend="cython")
    with pytest.raises(core.KernelError, match="target_host='llvm'"):
        core.compile(add, 64, target="cpu", target_host="llvm")


def test_a_second_compilation_comes_from_the_cache_and_is_the_same() -> None:
    first, second = (core.compile(add, 977, target="cuda:h200", build=False) for _ in range(2))
    assert (first.provenance.source_cached, second.provenance.source_cached) == (False, True)
    assert first.provenance.cache_key == second.provenance.cache_key
    assert first.get_kernel_source() == second.get_kernel_source()


def test_a_compilation_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    core.compile(softmax, 31, 128, target="cpu")
    core.compile(softmax, 31, 128, target="cuda:h200", build=False)
    assert capfd.readouterr() == ("", "")


def test_the_binary_of_a_role_it_does_not_have_names_those_it_has() -> None:
    kernel = core.compile(add, 64, target="cpu")
    assert kernel.binary().suffix == ".so"
    with pytest.raises(core.BuildFailed, match="no 'cubin' file") as caught:
        kernel.binary("cubin")
    assert "library" in caught.value.hint


def test_a_kernel_knows_whether_it_has_been_built() -> None:
    kernel = core.compile(add, 65, target="cpu", build=False)
    assert kernel.resources.actual is None
    assert kernel.provenance.toolchain is None
    kernel.build()
    assert kernel.resources.actual is not None
    assert kernel.provenance.toolchain


def test_a_misspelt_option_is_named_and_never_taken_for_the_kernels() -> None:
    for given, meant in (("simulat", "simulate"), ("out", "out_idx"), ("fastmath", "fast_math")):
        with pytest.raises(core.KernelError, match=f"no option '{given}'") as caught:
            core.compile(softmax, 8, 256, target="cpu", **{given: True})
        assert repr(meant) in caught.value.hint


def test_a_kernel_that_is_compiled_already_says_how_to_have_it_elsewhere() -> None:
    kernel = core.compile(add, 65, target="cpu", build=False)
    with pytest.raises(core.KernelError, match="main is compiled already, for cpu:host") as caught:
        core.compile(kernel, target="metax")
    assert "kernel.with_target(...)" in caught.value.hint
    with pytest.raises(core.KernelError, match="compiled already"):
        traced_program(kernel, (), {}, [])


def test_a_misspelt_argument_of_a_plain_function_is_named() -> None:
    def factory(N: int, block_N: int = 64):
        raise AssertionError((N, block_N))

    with pytest.raises(core.KernelError, match="factory has no argument 'block_n'") as caught:
        core.compile(factory, 64, block_n=32, target="cpu")
    assert caught.value.hint == "did you mean 'block_N'?"


def test_a_misspelt_pass_configuration_is_named() -> None:
    with pytest.raises(core.KernelError, match=r"tl\.disable_wgmmma") as caught:
        core.compile(softmax, 8, 256, target="cpu", pass_configs={"tl.disable_wgmmma": True})
    assert "'tl.disable_wgmma'" in caught.value.hint


@pytest.mark.parametrize("option", [{"pass_configs": ["x"]}, {"compile_flags": [3]}, {"options": "wide"}])
def test_options_of_another_kind_are_refused(option: dict[str, Any]) -> None:
    (name,) = option
    with pytest.raises(core.KernelError, match=f"^{name}=") as caught:
        core.compile(softmax, 4, 8, target="cpu", **option)
    assert caught.value.hint


@pytest.mark.parametrize("target", ["cpu", "cuda:h200", "metax:c500", "ascend:910b3"])
def test_a_misspelt_option_of_a_backend_is_named(target: str) -> None:
    with pytest.raises(core.KernelError, match="no option 'simulater'"):
        core.compile(softmax, 8, 256, target=target, options={"simulater": "checked"}, build=False)


def test_a_target_without_a_simulator_is_refused_when_compiling() -> None:
    with pytest.raises(core.UnsupportedOp, match="no simulator for cpu:host") as caught:
        core.compile(softmax, 8, 256, target="cpu", simulate=True)
    assert "leave simulate out" in caught.value.hint


def test_example_tensors_are_not_kept_alive() -> None:
    import weakref

    x = torch.randn(100)
    kernel = core.compile(eager_negate, x, target="cpu")
    gone = weakref.ref(x)
    del x
    assert gone() is None
    y = torch.randn(100)
    assert torch.equal(kernel.with_target("cpu")(y), -y)


def test_a_literal_32_for_the_width_of_a_wave_is_a_warning_where_waves_are_wider() -> None:
    @T.prim_func
    def lanes(A: T.Tensor((128,), "int32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding(0)
            A[tx] = tx % 32

    with pytest.warns(core.PortabilityWarning, match=r"test_driver.py:\d+: .* on metax:c500 it is 64"):
        core.compile(lanes, target="metax:c500", build=False)
    core.compile(lanes, target="cuda:h200", build=False)  # waves of 32: nothing to say, and a warning fails a test
