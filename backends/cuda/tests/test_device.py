"""Kernels on a CUDA device: values, streams, devices, threads, faults. Skipped where there is no device."""

import subprocess
import sys
import threading

import pytest
import tilelang
import tilelang.language as T
import torch

import core

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device"),
]


@tilelang.jit(out_idx=[1])
def scale(N: int, factor: float = 2.0):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 256), threads=128) as bx:
            for i in T.Parallel(256):
                B[bx * 256 + i] = A[bx * 256 + i] * factor

    return main


@tilelang.jit(out_idx=[1])
def scale_rows(block: int = 64):
    M, N = T.dynamic("M"), T.dynamic("N")

    @T.prim_func
    def main(A: T.Tensor((M, N), "float16"), B: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(N, block), M, threads=64) as (bx, by):
            for i in T.Parallel(block):
                B[by, bx * block + i] = A[by, bx * block + i] * T.float16(2)

    return main


@pytest.fixture(scope="module")
def doubled() -> core.Kernel:
    return core.compile(scale, 100_003, target="cuda")


def test_values_on_fresh_data(doubled: core.Kernel) -> None:
    x = torch.randn(100_003, device="cuda")
    assert torch.equal(doubled(x), x * 2)
    assert doubled.provenance.evidence == "device"


@pytest.mark.alone
def test_a_launch_is_on_the_current_stream_and_ordered_with_what_is_there(doubled: core.Kernel) -> None:
    stream = torch.cuda.Stream()
    x, threes = torch.zeros(100_003, device="cuda"), torch.full((100_003,), 3.0, device="cuda")
    # The driver loads a kernel when it is first launched, and may wait for the device to do so.
    doubled(torch.zeros_like(x).copy_(threes))
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # the copy below must wait for this, and the kernel for the copy
        x.copy_(threes)
        y = doubled(x)
        done = stream.query()
    assert not done, "the launch waited for the device instead of being queued"
    stream.synchronize()
    assert torch.equal(y, torch.full_like(y, 6.0))


def test_a_stream_handle_can_be_given(doubled: core.Kernel) -> None:
    stream = torch.cuda.Stream()
    x, y = torch.randn(100_003, device="cuda"), torch.zeros(100_003, device="cuda")
    torch.cuda.synchronize()
    doubled(x, y, stream=stream.cuda_stream)
    stream.synchronize()
    assert torch.equal(y, x * 2)


def test_a_launch_can_be_captured_in_a_graph(doubled: core.Kernel) -> None:
    x, y = torch.randn(100_003, device="cuda"), torch.zeros(100_003, device="cuda")
    doubled(x, y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        doubled(x, y)
    x.copy_(torch.randn_like(x))
    y.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, x * 2)


def test_symbolic_sizes_are_read_from_each_call() -> None:
    kernel = core.compile(scale_rows, target="cuda")
    for shape in ((3, 5), (1, 1000), (17, 64)):
        x = torch.randn(*shape, device="cuda").half()
        assert torch.equal(kernel(x), x * 2)
    with pytest.raises(core.ShapeMismatch, match="axis 1"):
        kernel(torch.zeros(3, 5, device="cuda").half(), torch.zeros(3, 6, device="cuda").half())


def test_wrong_arguments_are_refused_before_the_launch(doubled: core.Kernel) -> None:
    with pytest.raises(core.LaunchError, match="is on cpu, the kernel runs on cuda"):
        doubled(torch.zeros(100_003))
    with pytest.raises(core.ShapeMismatch, match="float16"):
        doubled(torch.zeros(100_003, device="cuda").half())
    with pytest.raises(core.ShapeMismatch, match="axis 0 must be 100003"):
        doubled(torch.zeros(7, device="cuda"))
    with pytest.raises(core.LaunchError, match="contiguous"):
        doubled(torch.zeros(2 * 100_003, device="cuda")[::2])


def test_many_threads_share_a_kernel(doubled: core.Kernel) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        generator = torch.Generator("cuda").manual_seed(seed)
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(20):
                x = torch.randn(100_003, device="cuda", generator=generator)
                if not torch.equal(doubled(x), x * 2):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="this machine has one CUDA device")
def test_a_kernel_runs_on_the_device_of_its_tensors(doubled: core.Kernel) -> None:
    for device in ("cuda:1", "cuda:0"):
        x = torch.randn(100_003, device=device)
        y = doubled(x)
        assert y.device == torch.device(device)
        assert torch.equal(y, x * 2)
    with pytest.raises(core.LaunchError, match="device"):
        doubled(torch.zeros(100_003, device="cuda:0"), torch.zeros(100_003, device="cuda:1"))


FAULT = """
import tilelang, torch, core
import tilelang.language as T

@T.prim_func
def out_of_bounds(A: T.Tensor((64,), "float32"), I: T.Tensor((64,), "int32")):
    with T.Kernel(1, threads=64):
        s = T.alloc_shared((64,), "float32")
        for i in T.Parallel(64):
            s[i] = 1.0
        for i in T.Parallel(64):
            s[I[i]] = A[i]
        for i in T.Parallel(64):
            A[i] = s[i]

kernel = core.compile(out_of_bounds, target="cuda")
a = torch.zeros(64, device="cuda")
try:
    kernel(a, torch.full((64,), 1 << 26, device="cuda", dtype=torch.int32))
except core.LaunchError as error:
    print("LaunchError", error.message)
"""


def test_a_fault_is_attributed_to_its_kernel_when_launches_block(tmp_path) -> None:
    import os

    script = tmp_path / "fault.py"
    script.write_text(FAULT)
    environment = {**os.environ, "TILEHAL_LAUNCH_BLOCKING": "1"}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith("LaunchError out_of_bounds failed on cuda:"), done.stdout + done.stderr


def test_what_the_compiler_reports_is_what_the_driver_sees(doubled: core.Kernel) -> None:
    """Registers and static shared memory of the cubin, asked of the driver."""
    import ctypes

    driver = ctypes.CDLL("libcuda.so.1")
    torch.zeros(1, device="cuda")
    module, function, value = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    image = doubled.binary().read_bytes()
    assert driver.cuModuleLoadData(ctypes.byref(module), image) == 0
    name = doubled.entry_points[0].encode()
    assert driver.cuModuleGetFunction(ctypes.byref(function), module, name) == 0
    actual = doubled.resources.actual
    assert actual is not None
    for attribute, expected in ((4, actual.registers_per_thread), (1, actual.static_shared_bytes)):
        assert driver.cuFuncGetAttribute(ctypes.byref(value), attribute, function) == 0
        assert value.value == expected


def test_a_grid_without_blocks_is_no_launch() -> None:
    @T.prim_func
    def clear(A: T.Tensor((64,), "float32"), n: T.int32):
        with T.Kernel(T.ceildiv(n, 16), threads=64) as bx:
            for i in T.Parallel(16):
                A[bx * 16 + i] = 0.0

    kernel = core.compile(clear, target="cuda")
    a = torch.ones(64, device="cuda")
    kernel(a, 0)
    assert a.sum().item() == 64
    kernel(a, 16)
    assert a.sum().item() == 48
