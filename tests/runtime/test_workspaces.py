"""`T.alloc_global` outside every `T.Kernel`: what one launch leaves there, the next finds, on every target."""

from pathlib import Path
from typing import Any

import pytest
import tilelang.language as T
import torch

import core
from core.program import Program
from core.program.printer import view_text
from core.runtime import load_exported
from tests.runtime.workspace_kernels import split_k, three_launches, three_launches_expected

TARGETS: list[Any] = [
    pytest.param("cpu", {}, id="cpu"),
    pytest.param("metax:c500", {"simulate": True}, id="metax"),
    pytest.param("metax:c500", {"simulate": True, "options": {"simulator": "checked"}}, id="metax-checked"),
    pytest.param("ascend:910b3", {"simulate": True}, id="ascend"),
    pytest.param("cuda", {}, id="cuda", marks=pytest.mark.gpu),
]


def device(target: str) -> str:
    return "cuda" if target == "cuda" else "cpu"


@pytest.mark.parametrize(("target", "how"), TARGETS)
@pytest.mark.parametrize("rows", [128, 100], ids=["static", "tail"])
@pytest.mark.parametrize("symbolic", [False, True], ids=["sizes", "symbolic"])
def test_sums_of_parts_are_added_up_by_a_second_launch(
    target: str, how: dict[str, Any], rows: int, symbolic: bool
) -> None:
    M = T.dynamic("M") if symbolic else rows
    kernel = core.compile(split_k(M, 64, 256, parts=4), target=target, out_idx=[2], **how)
    a, b = torch.randn(rows, 256).half(), torch.randn(256, 64).half()
    expected = a.double() @ b.double()
    for _ in range(2):
        c = kernel(a.to(device(target)), b.to(device(target)))
        torch.testing.assert_close(c.cpu().double(), expected, atol=0.1, rtol=2e-3)


@pytest.mark.parametrize(("target", "how"), TARGETS)
def test_scratch_of_the_call_and_of_one_launch(target: str, how: dict[str, Any]) -> None:
    kernel = core.compile(three_launches(T.dynamic("M")), target=target, out_idx=[1], **how)
    for rows in (5, 9, 1):
        x = torch.arange(rows * 128, dtype=torch.int32).reshape(rows, 128)
        y = kernel(x.to(device(target)))
        assert torch.equal(y.cpu(), three_launches_expected(x))


def test_its_bytes_are_counted_once_and_belong_to_no_launch() -> None:
    program = Program(three_launches(10))
    assert program.footprint().workspace_bytes == 3 * 10 * 128 * 4
    assert [buffer.name for buffer in program.view.workspaces] == ["first", "second"]
    assert [[b.name for b in launch.buffers] for launch in program.view.launches] == [[], ["own"], []]
    assert "first: global int32[10, 128]" in view_text(program.view).splitlines()[0]


@pytest.fixture(scope="module")
def rows() -> core.Kernel:
    kernel: core.Kernel = core.compile(three_launches(T.dynamic("M")), target="cuda", out_idx=[1])
    kernel(torch.ones((1, 128), dtype=torch.int32, device="cuda"))
    assert kernel.provenance.launch == "the CUDA driver, compiled"
    return kernel


@pytest.mark.gpu
def test_calls_on_several_streams_have_scratch_memory_of_their_own(rows: core.Kernel) -> None:
    inputs = [torch.randint(-99, 99, (4096, 128), dtype=torch.int32, device="cuda") for _ in range(4)]
    streams = [torch.cuda.Stream() for _ in inputs]
    torch.cuda.synchronize()
    results: list[list[torch.Tensor]] = [[] for _ in inputs]
    for _ in range(50):
        for x, stream, found in zip(inputs, streams, results, strict=True):
            with torch.cuda.stream(stream):
                found.append(rows(x))
    torch.cuda.synchronize()
    for x, found in zip(inputs, results, strict=True):
        expected = three_launches_expected(x)
        assert all(torch.equal(y, expected) for y in found)


@pytest.mark.gpu
def test_a_graph_holds_calls_with_scratch_memory(rows: core.Kernel) -> None:
    x = torch.zeros((64, 128), dtype=torch.int32, device="cuda")
    other = torch.randint(-99, 99, (8192, 128), dtype=torch.int32, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first = rows(x)
        second = rows(first)
    for _ in range(3):
        x.random_(-99, 99)
        graph.replay()
        between = rows(other)
        assert torch.equal(first, three_launches_expected(x))
        assert torch.equal(second, three_launches_expected(first))
        assert torch.equal(between, three_launches_expected(other))


@pytest.mark.gpu
def test_an_exported_kernel_allocates_its_own_scratch_memory(rows: core.Kernel, tmp_path: Path) -> None:
    kernel = load_exported(rows.export(tmp_path / "rows"))
    for count in (3, 200):
        x = torch.randint(-99, 99, (count, 128), dtype=torch.int32, device="cuda")
        assert torch.equal(kernel(x), three_launches_expected(x))
