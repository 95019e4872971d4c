"""Launches on a CUDA device: what the compiled call does to values, streams, graphs, devices, threads and memory."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import tilelang.language as T
import torch
from hypothesis import given
from hypothesis import strategies as st

import core
from core.runtime import load_exported
from core.runtime.compiled import MISS
from tests.properties import examples
from tests.runtime import launch_kernels

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device"),
]

ROOT = Path(__file__).parents[2]
needs_hopper = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] < 9, reason="no clusters or tensor maps here"
)
two_devices = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="this machine has one CUDA device")


@pytest.fixture(scope="module")
def scaled() -> core.Kernel:
    return warm(core.compile(launch_kernels.scaled(), target="cuda", out_idx=[3]))


@pytest.fixture(scope="module")
def product() -> core.Kernel:
    kernel = core.compile(launch_kernels.product(), target="cuda", out_idx=[2])
    kernel(torch.zeros(128, 256, device="cuda").half(), torch.zeros(256, 128, device="cuda").half())
    assert kernel.provenance.launch == "the CUDA driver, compiled"
    return kernel


def warm(kernel: core.Kernel) -> core.Kernel:
    """After its first call a kernel is called through its compiled check."""
    kernel(torch.zeros(4, 64, device="cuda"), 1.0, 1)
    assert kernel.provenance.launch == "the CUDA driver, compiled"
    assert kernel._call is not None
    return kernel


def relu(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.relu(a.float() @ b.float())


@examples(40)
@given(rows=st.integers(0, 400), n=st.integers(1, 5), factor=st.floats(-4, 4, width=32))
def test_values_for_any_number_of_rows(scaled: core.Kernel, rows: int, n: int, factor: float) -> None:
    x = torch.randn(rows, 64, device="cuda")
    y = torch.full((rows + 1, 64), float("nan"), device="cuda")
    assert scaled._call is not None
    assert scaled._call(x, factor, 1, y[:rows]) is not MISS
    torch.testing.assert_close(y[:rows], x * factor)
    assert y[rows:].isnan().all()


def test_an_empty_grid_launches_nothing(scaled: core.Kernel) -> None:
    y = torch.full((4, 64), 7.0, device="cuda")
    scaled(torch.zeros(4, 64, device="cuda"), 1.0, 0, y)
    assert (y == 7).all()
    assert scaled(torch.zeros(0, 64, device="cuda"), 1.0, 1).shape == (0, 64)


@needs_hopper
def test_tensor_maps_follow_addresses_and_sizes(product: core.Kernel) -> None:
    assert product.lowered.metadata["launch_plan"]["maps"], "the kernel is to use tensor maps"
    b = torch.randn(256, 128, device="cuda").half()
    for rows in (128, 1, 300, 128, 77, 1024):
        for _ in range(3):
            a = torch.randn(rows, 256, device="cuda").half()
            torch.testing.assert_close(product(a, b).float(), relu(a, b), rtol=2e-2, atol=2e-2)


@needs_hopper
def test_data_that_no_tensor_map_can_describe_is_refused(product: core.Kernel) -> None:
    memory = torch.zeros(128 * 256 + 8, device="cuda").half()
    b = torch.zeros(256, 128, device="cuda").half()
    with pytest.raises(core.LaunchError, match="must start at a multiple of 16 bytes"):
        product(memory[1 : 1 + 128 * 256].view(128, 256), b)
    with pytest.raises(core.ShapeMismatch, match="has no elements"):
        product(memory[:0].view(0, 256), b)
    product(memory[8:].view(128, 256), b)
    torch.cuda.synchronize()


@needs_hopper
@pytest.mark.parametrize("promised", [True, False], ids=["promised", "not promised"])
def test_rows_that_were_promised_to_be_even_and_are_not_are_refused(promised: bool) -> None:
    width = T.dynamic("width")

    @T.prim_func
    def tiles(A: T.Tensor((256, width), "float16"), B: T.Tensor((256, 64), "float16")):
        with T.Kernel(2, threads=128) as b:
            rows = T.Tensor((256, width), "float16", A.data)
            a = T.alloc_shared((64, 64), "float16")
            for k in T.Pipelined(2, num_stages=2):
                T.copy(rows[b * 128 + k * 64, 0], a)
                T.copy(a, B[b * 128 + k * 64, 0])

    kernel = core.compile(tiles, target="cuda", out_idx=[1], options={"aligned_rows": promised})
    for columns in (72, 68, 80):
        x = torch.randn(256, columns, device="cuda").half()
        if promised and columns % 8:
            refused = r"describe A at .*; strides must be multiples of 16 bytes"
            with pytest.raises(core.LaunchError, match=refused) as caught:
                kernel(x)
            assert "compile without it" in caught.value.hint
        else:
            torch.testing.assert_close(kernel(x), x[:, :64])


def test_data_that_vector_code_cannot_address_is_refused_and_the_context_lives(scaled: core.Kernel) -> None:
    memory = torch.randn(8 * 64 + 4, device="cuda")
    for start in (1, 2, 3):
        x = memory[start : start + 8 * 64].view(8, 64)
        for arguments in ((x, 2.0, 1), (x.clone(), 2.0, 1, x)):
            with pytest.raises(core.LaunchError, match="must start at a multiple of 16 bytes") as caught:
                scaled(*arguments)
            assert caught.value.location is not None
        torch.testing.assert_close(scaled(x.clone(), 2.0, 1), x * 2)
    torch.testing.assert_close(scaled(memory[4:].view(8, 64), 2.0, 1), memory[4:].view(8, 64) * 2)
    torch.cuda.synchronize()


def test_scalar_code_takes_any_element() -> None:
    kernel = core.compile(launch_kernels.several(), target="cuda")
    for start in range(5):
        memory = torch.zeros(256, device="cuda")
        kernel(memory[start : start + 130], 4)
        want = torch.zeros(256, device="cuda")
        want[start : start + 130] = 2.0
        torch.testing.assert_close(memory, want)


def test_too_large_a_grid_is_refused_with_its_numbers(scaled: core.Kernel) -> None:
    with pytest.raises(core.ResourceExceeded, match="70000 blocks along grid axis y, the chip launches 65535"):
        scaled(torch.zeros(4, 64, device="cuda"), 1.0, 70000)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda x: x.cpu(), core.LaunchError, "is on cpu, the kernel runs on cuda"),
        (lambda x: x.half(), core.ShapeMismatch, "is float32, got float16"),
        (lambda x: x[:, :63].contiguous(), core.ShapeMismatch, "axis 1 must be 64"),
        (lambda x: x.view(-1), core.ShapeMismatch, "rank 1"),
        (lambda x: x.t().contiguous().t(), core.LaunchError, "must be contiguous"),
    ],
)
def test_wrong_tensors_are_refused_with_the_reason(scaled: core.Kernel, change: Any, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        scaled(change(torch.zeros(8, 64, device="cuda")), 1.0, 1)


@pytest.mark.alone
def test_the_current_stream_is_used(scaled: core.Kernel) -> None:
    x, y = torch.zeros(8, 64, device="cuda"), torch.zeros(8, 64, device="cuda")
    stream = torch.cuda.Stream()
    # The driver loads a kernel when it is first launched, and may wait for the device to do so.
    assert (x.fill_(1.0) != y).all()
    assert (y == 0).all()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        x.fill_(3.0)
        scaled(x, 2.0, 1, y)
        queued = not stream.query()
    assert queued, "the launch waited for the device"
    assert (y == 0).all(), "the launch did not wait for what was before it on its stream"
    stream.synchronize()
    assert (y == 6).all()


def test_the_first_launch_may_be_inside_a_graph_and_the_graph_outlives_the_kernel() -> None:
    x, y = torch.randn(8, 64, device="cuda"), torch.zeros(8, 64, device="cuda")
    kernel = core.compile(launch_kernels.scaled(), target="cuda", out_idx=[3])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(x, 2.0, 1, y)
        kernel(y, 2.0, 1, y)
    del kernel
    gc.collect()
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(y, x * 4)


@pytest.mark.alone
def test_a_kernel_may_go_while_its_launches_are_queued() -> None:
    x, y = torch.randn(8, 64, device="cuda"), torch.zeros(8, 64, device="cuda")
    kernel = core.compile(launch_kernels.scaled(), target="cuda", out_idx=[3])
    kernel(x, 1.0, 1, y)
    torch.cuda._sleep(200_000_000)
    kernel(x, 2.0, 1, y)
    del kernel
    gc.collect()
    torch.testing.assert_close(y, x * 2)


def test_outputs_made_inside_a_graph_are_of_its_pool(scaled: core.Kernel) -> None:
    x = torch.randn(8, 64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = scaled(x, 2.0, 1) + 1
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.testing.assert_close(y, x * 2 + 1)


@two_devices
def test_tensors_say_the_device_and_the_current_one_stays(scaled: core.Kernel) -> None:
    for device in (1, 0, 1):
        for current in (0, 1):
            with torch.cuda.device(current):
                x = torch.randn(8, 64, device=f"cuda:{device}")
                y = scaled(x, 2.0, 1)
                assert torch.cuda.current_device() == current
            assert y.device == x.device
            torch.testing.assert_close(y, x * 2)
    with pytest.raises(core.LaunchError, match="but A is on cuda:0"):
        scaled(torch.zeros(8, 64, device="cuda:0"), 1.0, 1, torch.zeros(8, 64, device="cuda:1"))


@two_devices
@pytest.mark.alone
def test_each_device_s_own_current_stream_is_used(scaled: core.Kernel) -> None:
    x = torch.zeros(8, 64, device="cuda:1")
    y = torch.zeros_like(x)
    scaled(x.fill_(0.0), 5.0, 1, y)
    stream = torch.cuda.Stream("cuda:1")
    torch.cuda.synchronize("cuda:1")
    with torch.cuda.device(1), torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        x.fill_(1.0)
        with torch.cuda.device(0):
            scaled(x, 5.0, 1, y)
    stream.synchronize()
    assert (y == 5).all()


def test_a_new_thread_needs_no_context_of_its_own(scaled: core.Kernel) -> None:
    x = torch.randn(8, 64, device="cuda")
    found: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: found.append(scaled(x, 3.0, 1)))
    thread.start()
    thread.join()
    torch.testing.assert_close(found[0], x * 3)


@needs_hopper
def test_threads_share_a_kernel(product: core.Kernel) -> None:
    wrong: list[str] = []

    def work(seed: int) -> None:
        generator = torch.Generator("cuda").manual_seed(seed)
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(30):
                a = torch.randn(64 + seed, 256, device="cuda", generator=generator).half()
                b = torch.randn(256, 128, device="cuda", generator=generator).half()
                if not torch.allclose(product(a, b).float(), relu(a, b), rtol=2e-2, atol=2e-2):
                    wrong.append(f"thread {seed}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.alone
def test_a_host_function_that_needs_python_does_not_stop_a_full_queue(scaled: core.Kernel) -> None:
    """More launches than the driver queues, behind work that is not done: the lock of Python is free meanwhile."""
    x, y = torch.randn(8, 64, device="cuda"), torch.empty(8, 64, device="cuda")
    ticks = 0
    stop = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.wait(0.005):
            ticks += 1

    thread = threading.Thread(target=tick)
    thread.start()
    torch.cuda._sleep(1_000_000_000)
    for _ in range(3000):
        scaled(x, 2.0, 1, y)
    stop.set()
    thread.join()
    torch.cuda.synchronize()
    assert ticks > 20


def test_memory_comes_back_and_references_are_kept_straight(scaled: core.Kernel) -> None:
    x = torch.randn(1024, 64, device="cuda")
    scaled(x, 1.0, 1)
    torch.cuda.synchronize()
    before, references = torch.cuda.memory_allocated(), sys.getrefcount(x)
    for _ in range(500):
        scaled(x, 1.0, 1)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before
    assert sys.getrefcount(x) == references


@needs_hopper
@pytest.mark.parametrize("name", ["clustered", "whole_grid", "dependent"])
def test_special_launches_give_right_values(name: str) -> None:
    kernel = core.compile(getattr(launch_kernels, name)(), target="cuda")
    x = torch.randn(1024, device="cuda")
    start = x.clone()
    for _ in range(3):
        kernel(x)
    assert kernel.provenance.launch == "the CUDA driver, compiled"
    torch.testing.assert_close(x, start + 3)


def test_launches_in_order_under_their_conditions() -> None:
    kernel = core.compile(launch_kernels.several(), target="cuda")
    for n in (3, 4, 3):
        x = torch.randn(128, device="cuda")
        start = x.clone()
        kernel(x, n)
        # The second launch runs n times over: every block of 64 doubles what is in its part, the others are outside.
        torch.testing.assert_close(x, (start + 1) * (2 if n > 3 else 1))


def test_without_a_c_compiler_the_plan_is_interpreted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from core.codegen import host

    # Not the search itself: nvcc needs a host compiler of its own.
    monkeypatch.setattr(host, "build_launch", lambda *_, **__: {})
    monkeypatch.setenv("TILEHAL_CACHE_DIR", str(tmp_path))
    kernel = core.compile(launch_kernels.scaled(), target="cuda", out_idx=[3])
    x = torch.randn(9, 64, device="cuda")
    for _ in range(2):
        torch.testing.assert_close(kernel(x, 2.0, 1), x * 2)
    assert kernel.provenance.launch == "the CUDA driver, interpreted: no C compiler when it was built"


def test_torch_compile_with_inductor_keeps_the_kernel(scaled: core.Kernel) -> None:
    op = scaled.as_torch_op("tilehal_test_device::scaled")

    def run(x: torch.Tensor) -> torch.Tensor:
        return op(x + 1, 2.0, 1) * 3

    compiled = torch.compile(run, fullgraph=True, dynamic=True)
    for rows in (8, 200):
        x = torch.randn(rows, 64, device="cuda")
        torch.testing.assert_close(compiled(x), run(x))


EXPORTED = """
import sys
BLOCKED = ("tilelang", "tvm", "tvm_ffi", "backends", "pluggy")
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ImportError(f"{name} is blocked in this process")
sys.meta_path.insert(0, Blocked())
import torch
from core.runtime import load_exported
kernel = load_exported(sys.argv[1])
b = torch.randn(256, 128, device="cuda").half()
for rows in (128, 77, 128):
    a = torch.randn(rows, 256, device="cuda").half()
    wanted = torch.relu(a.float() @ b.float())
    torch.testing.assert_close(kernel(a, b).float(), wanted, rtol=2e-2, atol=2e-2)
    c = torch.zeros(rows, 128, device="cuda").half()
    kernel.launch(a.data_ptr(), b.data_ptr(), c.data_ptr(), symbols={"M": rows})
    torch.cuda.synchronize()
    torch.testing.assert_close(c.float(), wanted, rtol=2e-2, atol=2e-2)
print(kernel.how)
print(sorted(set(sys.modules) & set(BLOCKED)))
"""


def test_an_exported_kernel_runs_where_tilelang_cannot_be_imported(product: core.Kernel, tmp_path: Path) -> None:
    folder = product.export(tmp_path / "product")
    done = subprocess.run([sys.executable, "-c", EXPORTED, str(folder)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    how, loaded = done.stdout.splitlines()
    # "interpreted" where torch has its exchange table from tvm_ffi only, which is blocked here.
    assert how.startswith("the CUDA driver, ")
    assert loaded == "[]"


C_PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
#include "scaled.h"
static void *find(const char *name) { return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name); }
int main(int count, char **arguments) {
    static float x[100 * 64], y[100 * 64];
    void *context;
    unsigned long long a, c;
    scaled_kernel *kernel;
    int (*init)(unsigned), (*retain)(void **, int), (*current)(void *);
    int (*allocate)(unsigned long long *, size_t);
    int (*to)(unsigned long long, const void *, size_t);
    int (*from)(void *, unsigned long long, size_t);
    *(void **)&init = find("cuInit");
    *(void **)&retain = find("cuDevicePrimaryCtxRetain");
    *(void **)&current = find("cuCtxSetCurrent");
    *(void **)&allocate = find("cuMemAlloc_v2");
    *(void **)&to = find("cuMemcpyHtoD_v2");
    *(void **)&from = find("cuMemcpyDtoH_v2");
    for (int i = 0; i < 100 * 64; ++i) x[i] = (float)(i % 97);
    if (count != 2 || init(0) || retain(&context, 0) || current(context)) return 1;
    if (allocate(&a, sizeof x) || allocate(&c, sizeof y) || to(a, x, sizeof x)) return 2;
    if (scaled_load(&kernel, arguments[1]) || scaled_launch(kernel, 0, NULL, (void *)a, 2.5f, 1, (void *)c, 100)) {
        printf("%s\\n", scaled_error());
        return 3;
    }
    if (from(y, c, sizeof y)) return 4;
    for (int i = 0; i < 100 * 64; ++i) if (y[i] != x[i] * 2.5f) return 5;
    scaled_unload(kernel);
    return 0;
}
"""


def test_a_c_program_runs_an_exported_kernel(scaled: core.Kernel, tmp_path: Path) -> None:
    from tests.runtime.standin import c_compiler

    folder = scaled.export(tmp_path / "scaled")
    (tmp_path / "program.c").write_text(C_PROGRAM)
    sources = [str(tmp_path / "program.c"), str(folder / "scaled.c")]
    program = tmp_path / "program"
    subprocess.run([*c_compiler(), f"-I{folder}", *sources, "-o", str(program), "-ldl", "-lpthread"], check=True)
    done = subprocess.run([program, folder], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_an_artifact_for_another_chip_is_refused(scaled: core.Kernel, tmp_path: Path) -> None:
    from core.runtime import artifact

    folder = scaled.export(tmp_path / "scaled")
    data = json.loads((folder / artifact.METADATA).read_text())
    data["launch"]["capability"] = 75
    artifact.write(folder, data)
    with pytest.raises(core.DeviceUnavailable, match=r"was built for compute capability 7.5"):
        load_exported(folder)


def test_a_kernel_without_a_plan_is_launched_by_tilelang_s_host_code() -> None:
    @T.prim_func
    def kept(A: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            T.annotate_l2_hit_ratio({A: 0.5})
            for i in T.Parallel(64):
                C[i] = A[i] * 2.0

    kernel = core.compile(kept, target="cuda", out_idx=[1])
    x = torch.randn(64, device="cuda")
    torch.testing.assert_close(kernel(x), x * 2)
    assert kernel.provenance.launch.startswith("TileLang's host code through TVM-FFI: a call of ")


@pytest.mark.alone
def test_host_time_per_launch() -> None:
    """The goal is 4 us with outputs passed and 7 us with outputs allocated; twice that fails on a busy host too."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "launch_overhead.py"), "--rounds", "60"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    times = json.loads(done.stdout)["host_time_per_call"]
    assert times["tilehal, output passed"]["median_us"] <= 8
    assert times["tilehal, output allocated"]["median_us"] <= 14
