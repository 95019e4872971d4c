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
from core.codegen.native import plan_of
from core.ops.attention import attention
from core.ops.gemm import gemm
from core.ops.layernorm import layernorm
from core.ops.mla import mla_decode
from core.ops.softmax import softmax
from tests.kernels import all_kernels

WAIT = "cudaGridDependencySynchronize();"
TRIGGER = "cudaTriggerProgrammaticLaunchCompletion();"


def entries(kernel: core.Kernel) -> dict[str, tuple[list[str], list[str]]]:
    """The parameters and the lines of the body of each entry point."""
    source = kernel.get_kernel_source()
    found = {}
    for name in kernel.entry_points:
        start = re.search(rf"__global__[^;{{]*\b{name}\(([^;]*?)\) \{{\n", source)
        assert start is not None
        parameters = [part.split()[-1].lstrip("*") for part in start[1].split(",")]
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


OPERATORS: dict[str, Callable[[str], core.Kernel]] = {
    "softmax": lambda target: softmax.compile(4096, 4096, target=target),
    "layernorm": lambda target: layernorm.compile(100, 1000, target=target),
    "gemm": lambda target: gemm.compile(4096, 4096, 4096, target=target),
    "gemm, few rows": lambda target: gemm.compile(16, 4096, 4096, target=target),
    "attention": lambda target: attention.compile(1, 8, 8, 1024, 1024, 128, target=target, causal=True),
    "mla": lambda target: mla_decode.compile(64, 16, 8192, target=target),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_wait_before_they_touch_memory(name: str) -> None:
    check_waits(OPERATORS[name]("cuda:h200"))


@pytest.mark.wide
@pytest.mark.parametrize("case", all_kernels(), ids=lambda case: case.name)
def test_every_kernel_waits_before_it_touches_memory(case: Any) -> None:
    try:
        kernel = case.compile("cuda:h200")
    except core.TileHALError:
        pytest.skip("refused for this chip")
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
    kernel = mla_decode.compile(64, 16, 8192, target="cuda:h200", splits=2)
    assert len(kernel.entry_points) == 2
    check_waits(kernel)


@pytest.mark.parametrize("target", ["cuda:a100-80gb", "cuda:rtx4090"])
def test_chips_before_hopper_launch_in_turn(target: str) -> None:
    kernel = softmax.compile(64, 1024, target=target)
    assert WAIT not in kernel.get_kernel_source()
    plan = plan_of(kernel.lowered)
    assert plan is not None
    assert not any(launch.programmatic for launch in plan.launches)


def test_it_can_be_switched_off() -> None:
    kernel = softmax.compile(64, 1024, target="cuda:h200", options={"overlap_launches": False})
    assert WAIT not in kernel.get_kernel_source()


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
