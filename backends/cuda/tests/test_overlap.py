"""Launches that may start before the one in front of them has ended: where each waits, and that a stream's order holds.

The device code's wait must be in front of every access to global memory and outside every condition; on a device, long
chains of launches that read what the one in front wrote, with blocks that end late, must give what they would in turn.
"""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import tilelang.language as T
import torch

import core
from core.codegen.launch import capability
from core.codegen.native import plan_of
from core.hardware import load_chips
from core.ops.attention import attention
from core.ops.gemm import gemm
from core.ops.layernorm import layernorm
from core.ops.mla import mla_decode
from core.ops.softmax import softmax
from tests.kernels import all_kernels

WAIT = "cudaGridDependencySynchronize();"
TRIGGER = "cudaTriggerProgrammaticLaunchCompletion();"


def entries(kernel: core.Kernel) -> dict[str, tuple[list[str], list[str]]]:
    """The pointers and descriptors that each entry point is given, and the lines of its body."""
    source = kernel.get_kernel_source()
    found = {}
    for name in kernel.entry_points:
        start = re.search(rf"__global__[^;{{]*\b{name}\(([^;]*?)\) \{{\n", source)
        assert start is not None
        given = [part for part in start[1].split(",") if "*" in part or "CUtensorMap" in part]
        parameters = [part.split()[-1].lstrip("*") for part in given]
        body = source[start.end() :].partition("\n}\n")[0]
        found[name] = parameters, [line.strip() for line in body.splitlines() if line.strip()]
    return found


def check_waits(kernel: core.Kernel) -> None:
    """Each entry point waits once, behind nothing that touches memory, outside every condition; and is launched so."""
    for name, (parameters, lines) in entries(kernel).items():
        assert lines.count(WAIT) == 1, (name, kernel.get_kernel_source())
        before = lines[: lines.index(WAIT)]
        assert lines.count(TRIGGER) == before.count(TRIGGER) <= 1, (name, before)
        assert sum(line.count("{") - line.count("}") for line in before) == 0, before
        touching = re.compile(rf"\b({'|'.join(parameters)})\b|tma_(load|store)|cp_async|atomic|asm")
        wrong = [line for line in before if touching.search(line) and "prefetch_tma_descriptor" not in line]
        assert not wrong, (name, wrong)
    plan = plan_of(kernel.lowered)
    assert plan is not None
    assert all(launch.programmatic for launch in plan.launches)


def lets_start(kernel: core.Kernel) -> list[str]:
    """The lines of a kernel's one entry point between its declarations and its wait that let the next launch start."""
    ((_, lines),) = entries(kernel).values()
    before = lines[: lines.index(WAIT)]
    return before[before.index(TRIGGER) - 1 :] if TRIGGER in before else []


#: Operators by hand with the tiles that the rules choose, without the ranking.
OPERATORS: dict[str, Callable[[], core.Kernel]] = {
    "softmax": lambda: softmax.compile(4096, 4096, target="cuda:h200"),
    "layernorm": lambda: layernorm.compile(100, 1000, target="cuda:h200"),
    "gemm": lambda: gemm.compile(
        4096, 4096, 4096, target="cuda:h200", variant="warpgroups", block_M=128, block_N=256, block_K=64, num_stages=4,
        threads=256, panel=8, policy=1, cluster=2, workers=132, splits=1,
    ),
    "gemm, few rows": lambda: gemm.compile(16, 4096, 4096, target="cuda:h200"),
    "attention": lambda: attention.compile(
        1, 8, 8, 1024, 1024, 128, target="cuda:h200", causal=True, variant="overlapped", block_M=64, block_N=176,
        num_stages=2, threads=128, workers=0,
    ),
    "mla": lambda: mla_decode.compile(
        64, 16, 8192, target="cuda:h200", variant="two_groups_in_turn", block_M=16, block_N=64, num_stages=2,
        threads=256, splits=1,
    ),
}  # fmt: skip
SLOW = ("mla",)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.wide] if n in SLOW else []) for n in OPERATORS])
def test_operators_wait_before_they_touch_memory(name: str) -> None:
    check_waits(OPERATORS[name]())


@pytest.mark.wide
@pytest.mark.parametrize("case", all_kernels(), ids=lambda case: case.name)
def test_every_kernel_waits_before_it_touches_memory(case: Any) -> None:
    if case.stock_refusal:  # TileLang has no code for it on CUDA, with or without a wait
        with pytest.raises(core.TileHALError):
            case.compile("cuda:h200")
        return
    kernel = case.compile("cuda:h200")
    plan = plan_of(kernel.lowered)
    if plan is None or any(launch.cooperative for launch in plan.launches):
        assert WAIT not in kernel.get_kernel_source()
    else:
        check_waits(kernel)


@pytest.mark.parametrize(
    ("rows", "threads", "first"),
    # 132 units hold 2048 threads each: 8 blocks of 256 threads, 16 of 128, at most 32.
    [(4096, 256, 4096 - 132 * 8), (4096, 128, 4096 - 132 * 16), (16384, 32, 16384 - 132 * 32), (1056, 256, None)],
)
def test_the_last_blocks_let_the_next_launch_start(rows: int, threads: int, first: int | None) -> None:
    kernel = softmax.compile(rows, 1024, target="cuda:h200", variant="direct", block_M=1, threads=threads)
    expected = [] if first is None else [f"if ({first} <= ((int)blockIdx.x)) {{", TRIGGER, "}"]
    assert lets_start(kernel) == expected


def test_blocks_of_a_launch_of_unknown_size_ask_how_many_there_are() -> None:
    rows = T.dynamic("rows")

    @T.prim_func
    def twice(A: T.Tensor((rows, 1024), "float32"), B: T.Tensor((rows, 1024), "float32")):
        with T.Kernel(2, rows, threads=128) as (half, row):
            for i in T.Parallel(512):
                B[row, half * 512 + i] = A[row, half * 512 + i] * 2.0

    kernel = core.compile(twice, target="cuda:h200")
    condition, *rest = lets_start(kernel)
    assert rest == [TRIGGER, "}"]
    asked = condition.removeprefix("if (").removesuffix(") {").replace("(int)", "").replace("&&", "and")
    for total in (1000, 1056, 1057, 5000):
        names = {"rows": total, "blockIdx": SimpleNamespace(x=1, y=0)}
        found = [row for row in range(total) if eval(asked, names | {"blockIdx": SimpleNamespace(x=1, y=row)})]
        blocks = 2 * total
        assert found == ([row for row in range(total) if 2 * row + 1 >= blocks - 2112] if blocks > 2112 else [])


def test_several_launches_of_a_kernel_wait_for_each_other() -> None:
    tiles = {"variant": "pipelined", "block_M": 16, "block_N": 32, "num_stages": 2, "threads": 128}
    kernel = mla_decode.compile(64, 16, 8192, target="cuda:h200", splits=2, **tiles)
    assert len(kernel.entry_points) == 2
    check_waits(kernel)


@pytest.mark.parametrize("target", ["cuda:a100-80gb", "cuda:rtx4090"])
def test_chips_before_hopper_launch_in_turn(target: str) -> None:
    kernel = softmax.compile(64, 1024, target=target)
    assert WAIT not in kernel.get_kernel_source()
    plan = plan_of(kernel.lowered)
    assert plan is not None
    assert not any(launch.programmatic for launch in plan.launches)


def test_the_descriptor_says_which_chips_can() -> None:
    for chip in load_chips("backends.cuda"):
        assert ("programmatic_launch" in chip.features) == (capability(str(chip.codegen["arch"]))[0] >= 90), chip.name
    h200 = core.chip("cuda:h200")
    without = h200.model_copy(update={"features": tuple(set(h200.features) - {"programmatic_launch"})})
    assert WAIT not in softmax.compile(64, 1024, target=without, build=False).get_kernel_source()


def test_it_can_be_switched_off() -> None:
    kernel = softmax.compile(64, 1024, target="cuda:h200", options={"overlap_launches": False})
    assert WAIT not in kernel.get_kernel_source()


def test_more_blocks_than_an_int32_counts() -> None:
    @T.prim_func
    def many(B: T.Tensor((128,), "float32")):
        with T.Kernel(100_000, 50_000, threads=128):
            for i in T.Parallel(128):
                T.atomic_add(B[i], 1.0)

    (condition, *_) = lets_start(core.compile(many, target="cuda:h200"))
    assert str(5_000_000_000 - 132 * 16) in condition
    assert "((int64_t)((int)blockIdx.y)) * (int64_t)100000" in condition


def loads_into_a_variable() -> Any:
    @T.prim_func
    def kernel(A: T.Tensor((128,), "int32"), B: T.Tensor((128,), "int32")):
        with T.Kernel(4, threads=128) as bx:
            shared = T.alloc_shared((128,), "int32")
            T.fill(shared, 0)
            chosen = A[bx]
            for i in T.Parallel(128):
                B[i] = chosen * chosen + shared[i]

    return kernel


def follows_a_pointer() -> Any:
    @T.prim_func
    def kernel(A: T.Tensor((4,), T.ptr), B: T.Tensor((128,), "int32")):
        with T.Kernel(4, threads=128) as bx:
            there = T.make_tensor(A[bx], (128,), "int32")
            for i in T.Parallel(128):
                B[i] = there[i]

    return kernel


def loads_in_a_condition() -> Any:
    @T.prim_func
    def kernel(A: T.Tensor((128,), "int32"), B: T.Tensor((128,), "int32")):
        with T.Kernel(4, threads=128) as bx:
            count = T.alloc_var("int32")
            count = 0
            while A[count] < 5:
                count = count + 1
            B[bx] = count

    return kernel


def asserts_and_prints() -> Any:
    @T.prim_func
    def kernel(A: T.Tensor((128,), "int32"), B: T.Tensor((128,), "int32")):
        with T.Kernel(4, threads=128) as bx:
            if T.get_thread_binding() == 0:
                T.print(A[bx], msg="first")
            T.device_assert(A[bx] > 0)
            B[bx] = 1

    return kernel


def ends_early() -> Any:
    rows = T.dynamic("rows")

    @T.prim_func
    def kernel(A: T.Tensor((rows, 128), "float32"), B: T.Tensor((rows, 128), "float32")):
        with T.Kernel(64, threads=128) as bx:
            if bx >= rows:
                T.thread_return()
            for i in T.Parallel(128):
                B[bx, i] = A[bx, i]

    return kernel


def only_adds() -> Any:
    @T.prim_func
    def kernel(B: T.Tensor((128,), "float32"), blocks: T.int64):
        with T.Kernel(blocks, 3, threads=128):
            one = T.alloc_fragment((128,), "float32")
            T.fill(one, 1.0)
            for i in T.Parallel(128):
                T.atomic_add(B[i], one[i])

    return kernel


AWKWARD = [loads_into_a_variable, follows_a_pointer, loads_in_a_condition, asserts_and_prints, ends_early, only_adds]


@pytest.mark.parametrize("kernel", AWKWARD, ids=lambda kernel: kernel.__name__)
def test_nothing_is_in_front_of_the_wait(kernel: Callable[[], Any]) -> None:
    compiled = core.compile(kernel(), target="cuda:h200")
    check_waits(compiled)
    ((_, lines),) = entries(compiled).values()
    assert not [line for line in lines[: lines.index(WAIT)] if line.startswith(("return", "while", "debug_print"))]


@pytest.mark.parametrize("how", ["operation", "by name", "source"])
def test_reads_that_need_not_stay_behind_a_wait_are_launched_in_turn(how: str) -> None:
    @T.prim_func
    def constant(A: T.Tensor((128,), "int32"), B: T.Tensor((128,), "int32")):
        with T.Kernel(1, threads=128):
            if how == "source":
                T.import_source("__device__ int get(const int* a) { return __ldg(a); }\n")
            for i in T.Parallel(128):
                if how == "operation":
                    B[i] = T.__ldg(A[i])
                else:
                    B[i] = T.call_extern("int32", "get" if how == "source" else "__ldg", T.address_of(A[i]))

    kernel = core.compile(constant, target="cuda:h200")
    assert "__ldg(" in kernel.get_kernel_source()
    assert WAIT not in kernel.get_kernel_source()
    plan = plan_of(kernel.lowered)
    assert plan is not None
    assert not plan.launches[0].programmatic


def window(writes: bool) -> Any:
    """For TVM's runtime: the host sets a window of the L2 cache."""

    @T.prim_func
    def kernel(A: T.Tensor((8192,), "float32"), B: T.Tensor((8192,), "float32")):
        with T.Kernel(64, threads=128, cluster_dims=(2, 1, 1)) as bx:
            T.annotate_l2_hit_ratio({A: 0.5})
            shared = T.alloc_shared((128,), "float32")
            for i in T.Parallel(128):
                shared[i] = i
            if writes:
                for i in T.Parallel(128):
                    B[bx * 128 + i] = A[bx * 128 + i] + shared[i]

    return kernel


def half_scalar(constant: bool) -> Any:
    """For TVM's runtime: a plan says it all, but our launch passes no float16 by value."""

    @T.prim_func
    def kernel(A: T.Tensor((8192,), "float32"), B: T.Tensor((8192,), "float32"), factor: T.float16):
        with T.Kernel(64, threads=128, cluster_dims=(2, 1, 1)) as bx:
            for i in T.Parallel(128):
                read = T.__ldg(A[bx * 128 + i]) if constant else A[bx * 128 + i]
                B[bx * 128 + i] = read * T.cast(factor, "float32")

    return kernel


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize(
    ("kernel", "option"), [(window, True), (window, False), (half_scalar, True), (half_scalar, False)]
)
def test_clusters_that_tvm_launches_wait(kernel: Callable[[bool], Any], option: bool, overlap: bool) -> None:
    """TVM's runtime lets every launch in clusters start early."""
    compiled = core.compile(kernel(option), target="cuda:h200", options={"overlap_launches": overlap})
    assert plan_of(compiled.lowered) is None
    ((_, lines),) = entries(compiled).values()
    assert lines.count(WAIT) == 1
    assert not [line for line in lines[: lines.index(WAIT)] if re.search(r"\bA\b|\bB\b|\{", line)]


def test_a_wait_that_some_blocks_do_not_come_to_is_made_up_for() -> None:
    """A launch behind one that ends early may wait for that one alone."""
    rows = T.dynamic("rows")

    @T.prim_func
    def some(A: T.Tensor((rows, 128), "float32"), B: T.Tensor((rows, 128), "float32")):
        with T.Kernel(64, threads=128) as bx:
            if bx < rows:
                T.pdl_sync()
                for i in T.Parallel(128):
                    B[bx, i] = A[bx, i]

    ((_, lines),) = entries(core.compile(some, target="cuda:h200")).values()
    assert lines.count(WAIT) == 2
    assert lines[-1] == WAIT

    @T.prim_func
    def returns(A: T.Tensor((rows, 128), "float32"), B: T.Tensor((rows, 128), "float32")):
        with T.Kernel(64, threads=128) as bx:
            if bx >= rows:
                T.thread_return()
            T.pdl_sync()
            for i in T.Parallel(128):
                B[bx, i] = A[bx, i]

    ((_, lines),) = entries(core.compile(returns, target="cuda:h200")).values()
    assert lines.count(WAIT) == 2
    assert lines[0] == WAIT


@pytest.mark.parametrize("how", ["a barrier over the grid", "source text", "not to overlap", "TVM launches"])
def test_such_a_wait_is_made_up_for_however_else_it_would_be_launched(how: str) -> None:
    rows = T.dynamic("rows")
    scalar = "float16" if how == "TVM launches" else "float32"  # our launch passes no float16 by value

    @T.prim_func
    def some(A: T.Tensor((rows, 128), "float32"), B: T.Tensor((rows, 128), "float32"), factor: T.dtype(scalar)):
        with T.Kernel(64, threads=128) as bx:
            if how == "source text":
                T.import_source("__device__ float get(float a) { return a; }\n")
            if bx < rows:
                T.pdl_sync()
                for i in T.Parallel(128):
                    B[bx, i] = A[bx, i] * T.cast(factor, "float32")
            if how == "a barrier over the grid":
                T.sync_grid()

    kernel = core.compile(some, target="cuda:h200", options={"overlap_launches": how != "not to overlap"})
    plan = plan_of(kernel.lowered)
    assert (plan is None) == (how == "TVM launches")
    assert plan is None or plan.launches[0].programmatic
    ((_, lines),) = entries(kernel).values()
    assert lines.count(WAIT) == 2
    assert lines[-1] == WAIT


def test_a_kernel_that_waits_itself_is_left_alone() -> None:
    @T.prim_func
    def waits(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32")):
        with T.Kernel(2, threads=128) as bx:
            T.pdl_sync()
            for i in T.Parallel(128):
                B[bx * 128 + i] = A[bx * 128 + i] + 1.0
            T.pdl_trigger()

    kernel = core.compile(waits, target="cuda:h200")
    ((_, lines),) = entries(kernel).values()
    assert lines.count(WAIT) == lines.count(TRIGGER) == 1
    assert lines.index(WAIT) < lines.index(TRIGGER) - 1
    plan = plan_of(kernel.lowered)
    assert plan is not None
    assert plan.launches[0].programmatic


def test_a_kernel_with_a_barrier_over_the_grid_is_launched_in_turn() -> None:
    @T.prim_func
    def meets(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32")):
        with T.Kernel(2, threads=128) as bx:
            for i in T.Parallel(128):
                A[bx * 128 + i] = A[bx * 128 + i] + 1.0
            T.sync_grid()
            for i in T.Parallel(128):
                B[bx * 128 + i] = A[255 - bx * 128 - i]

    kernel = core.compile(meets, target="cuda:h200")
    assert WAIT not in kernel.get_kernel_source()
    plan = plan_of(kernel.lowered)
    assert plan is not None
    assert plan.launches[0].cooperative
    assert not plan.launches[0].programmatic


# -- on a device -----------------------------------------------------------------------------------------------------

ELEMENTS, STEP = 1 << 20, 12_345


def moving(rounds: int) -> Any:
    """B[i] = A[i + STEP] + 1, where one block in seven ends late by `rounds` rounds of work."""

    @T.prim_func
    def move(A: T.Tensor((ELEMENTS,), "float32"), B: T.Tensor((ELEMENTS,), "float32")):
        with T.Kernel(ELEMENTS // 1024, threads=128) as bx:
            late = T.alloc_fragment((1024,), "float32")
            for i in T.Parallel(1024):
                late[i] = A[(bx * 1024 + i + STEP) % ELEMENTS]
            if bx % 7 == 3:
                for _ in T.serial(rounds):
                    for i in T.Parallel(1024):
                        late[i] = late[i] * 0.5 + T.sqrt(late[i] * late[i]) * 0.5  # as it was, which no compiler sees
            for i in T.Parallel(1024):
                B[bx * 1024 + i] = late[i] + 1.0

    return move


on_a_device = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")


def chain(kernel: core.Kernel, first: torch.Tensor, second: torch.Tensor, launches: int) -> None:
    """To and fro between two tensors, an even number of times."""
    for _ in range(launches // 2):
        kernel(first, second)
        kernel(second, first)


def expected(start: torch.Tensor, launches: int) -> torch.Tensor:
    return torch.roll(start, -(STEP * launches) % ELEMENTS) + launches


@pytest.mark.gpu
@on_a_device
@pytest.mark.parametrize("rounds", [0, 50, 2000])
def test_a_chain_of_launches_gives_what_they_give_in_turn(rounds: int) -> None:
    kernel = core.compile(moving(rounds), target="cuda")
    start = torch.randint(0, 1000, (ELEMENTS,), device="cuda").float()
    first, second = start.clone(), torch.empty_like(start)
    chain(kernel, first, second, 400)
    assert torch.equal(first, expected(start, 400))


@pytest.mark.gpu
@on_a_device
def test_a_launch_whose_own_wait_is_skipped_hides_nothing_from_the_one_behind_it() -> None:
    @T.prim_func
    def may_wait(A: T.Tensor((128,), "float32"), B: T.Tensor((128,), "float32"), waits: T.int32):
        with T.Kernel(1, threads=128):
            if waits > 0:
                T.pdl_sync()
                for i in T.Parallel(128):
                    B[i] = A[i]

    kernel, between = core.compile(moving(2000), target="cuda"), core.compile(may_wait, target="cuda")
    start = torch.randint(0, 1000, (ELEMENTS,), device="cuda").float()
    first, second, unused = start.clone(), torch.empty_like(start), torch.zeros(128, device="cuda")
    for _ in range(100):
        kernel(first, second)
        between(unused, unused, 0)
        kernel(second, first)
        between(unused, unused, 0)
    assert torch.equal(first, expected(start, 200))


@pytest.mark.gpu
@on_a_device
def test_a_chain_in_a_graph_with_other_work_between() -> None:
    kernel = core.compile(moving(50), target="cuda")
    start = torch.randint(0, 1000, (ELEMENTS,), device="cuda").float()
    first, second = start.clone(), torch.empty_like(start)
    kernel(first, second)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain(kernel, first, second, 10)
        first.add_(1.0)  # a kernel that signals nothing early
        chain(kernel, first, second, 10)
        second.copy_(first)  # and a copy
        kernel(second, first)
        kernel(first, second)
    first.copy_(start)
    for _ in range(20):
        graph.replay()
        first.copy_(second)
    assert torch.equal(first, expected(start, 22 * 20) + 20)


@pytest.mark.gpu
@on_a_device
def test_streams_that_wait_for_each_other() -> None:
    kernel = core.compile(moving(500), target="cuda")
    start = torch.randint(0, 1000, (ELEMENTS,), device="cuda").float()
    first, second = start.clone(), torch.empty_like(start)
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    for turn in range(200):
        here, there = streams[turn % 2], streams[1 - turn % 2]
        here.wait_stream(there)
        with torch.cuda.stream(here):
            kernel(*((first, second) if turn % 2 == 0 else (second, first)))
    torch.cuda.synchronize()
    assert torch.equal(first, expected(start, 200))


@pytest.mark.gpu
@on_a_device
def test_memory_that_is_given_back_and_taken_again() -> None:
    """The allocator reuses a tensor's memory as soon as the launch that reads it is queued."""
    kernel = core.compile(moving(500), target="cuda")
    start = torch.randint(0, 1000, (ELEMENTS,), device="cuda").float()
    found = start
    for _ in range(200):
        made = torch.empty_like(found)
        kernel(found, made)
        found = made
    assert torch.equal(found, expected(start, 200))
