"""Generated MACA C++ on the simulator: right numbers, planted faults at the user's line, layouts that are wrong."""

from __future__ import annotations

import inspect
import time
from dataclasses import replace
from typing import Any

import pytest
import tilelang.language as T
import torch

import core
from backends.metax.simulator import simulate
from core.compiler import CompileOptions
from core.hardware import Chip, LaneLayout

M, N, K = 64, 96, 64


def matmul(m: int, n: int, k: int, block: int, depth: int, stages: int = 1, threads: int = 128) -> Any:
    @T.prim_func
    def main(A: T.Tensor((m, k), "float16"), B: T.Tensor((k, n), "float16"), C: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, block), T.ceildiv(m, block), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block, depth), "float16")
            B_shared = T.alloc_shared((depth, block), "float16")
            C_local = T.alloc_fragment((block, block), "float32")
            T.clear(C_local)
            for step in T.Pipelined(T.ceildiv(k, depth), num_stages=stages):
                T.copy(A[by * block, step * depth], A_shared)
                T.copy(B[step * depth, bx * block], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block, bx * block])

    return main


def line_of(text: str) -> int:
    """Line of this file, inside `matmul`, that contains `text`."""
    lines, first = inspect.getsourcelines(matmul)
    return next(first + i for i, line in enumerate(lines) if text in line)


@pytest.fixture(scope="module")
def compiled() -> Any:
    return core.compile(matmul(M, N, K, 32, 32), target="metax:c500", simulate=True)


def operands(m: int = M, n: int = N, k: int = K) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    a, b = torch.randn(m, k).half(), torch.randn(k, n).half()
    return a, b, a.float() @ b.float()


def run_source(kernel: Any, source: str, mode: str, chip: Chip | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """What a changed source computes, and what it should."""
    a, b, expected = operands()
    c = torch.empty(M, N)
    lowered = replace(kernel._lowered, source=source)
    launch = simulate(chip or kernel.chip, lowered, CompileOptions(backend={"simulator": mode}))
    try:
        launch(a, b, c)
    except core.LaunchError as error:
        launch.locate(error, kernel._program)
        raise
    return c, expected


def wrong(got: torch.Tensor, expected: torch.Tensor) -> bool:
    return not torch.allclose(got, expected, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("mode", ["plain", "checked"])
def test_the_source_that_is_read_is_what_runs(compiled: Any, mode: str) -> None:
    got, expected = run_source(compiled, compiled.get_kernel_source(), mode)
    assert torch.allclose(got, expected, atol=1e-4, rtol=1e-5)


def test_provenance_states_every_rewrite_and_the_evidence(compiled: Any) -> None:
    a, b, expected = operands()
    c = torch.empty(M, N)
    compiled(a, b, c)
    assert torch.allclose(c, expected, atol=1e-4, rtol=1e-5)
    stated = [text for text in compiled.provenance.rewrites if text.startswith("simulator: ")]
    assert stated == [
        "simulator: extern __shared__ array -> pointer to the simulated block's dynamic shared memory",
        "simulator: one entry function added per kernel, after the source",
    ]
    assert compiled.provenance.evidence == "simulated"


# ------------------------------------------------------------------------------------------------ planted faults


def planted(kernel: Any, before: str, after: str) -> core.LaunchError:
    source = kernel.get_kernel_source()
    assert before in source
    with pytest.raises(core.LaunchError) as caught:
        run_source(kernel, source.replace(before, after), "checked")
    return caught.value


def test_without_its_barriers_the_generated_kernel_races_on_a_named_buffer(compiled: Any) -> None:
    error = planted(compiled, "__syncthreads();", "")
    assert error.details["fault"] in ("race", "uninitialised")
    assert error.details["buffer"] in ("A_shared", "B_shared")
    assert error.location is not None
    assert error.location.file == __file__
    assert error.location.line == line_of("T.gemm(")


def test_one_barrier_of_the_two_left_out_is_a_race(compiled: Any) -> None:
    source = compiled.get_kernel_source()
    first = source.index("__syncthreads();")
    assert source.count("__syncthreads();") >= 2
    with pytest.raises(core.LaunchError) as caught:
        run_source(compiled, source[:first] + source[first + len("__syncthreads();") :], "checked")
    error = caught.value
    assert error.details["fault"] == "race"
    assert error.details["access"] == "write"
    assert error.details["buffer"] in ("A_shared", "B_shared")
    assert error.location is not None
    assert error.location.line in (line_of("T.copy(A["), line_of("T.copy(B["))


def test_a_barrier_put_into_a_branch_is_divergent(compiled: Any) -> None:
    error = planted(
        compiled, "__syncthreads();", "__syncthreads();\n if ((int)threadIdx.x < 100) {\n __syncthreads();\n }"
    )
    assert error.details["fault"] == "divergent-barrier"
    assert error.location is not None
    assert error.location.file == __file__


def test_a_shared_index_off_by_one_names_the_buffer_and_the_copy(compiled: Any) -> None:
    # One vector beyond: the last thread's lands outside of the buffer.
    error = planted(compiled, "(((half_t*)A_shared) + ", "(((half_t*)A_shared) + 8 + ")
    assert error.details["fault"] in ("out-of-bounds", "uninitialised")
    assert error.details["buffer"] == "A_shared"
    assert error.location is not None
    assert error.location.line in (line_of("T.copy(A["), line_of("T.gemm("))


def test_a_tensor_index_off_by_one_names_the_tensor_and_the_copy(compiled: Any) -> None:
    error = planted(compiled, "*(float4*)(C + ", "*(float4*)(C + 4 + ")
    assert error.details["fault"] == "out-of-bounds"
    assert error.details["buffer"] == "C"
    assert error.location is not None
    assert error.location.line == line_of("T.copy(C_local")


# ------------------------------------------------------------------------------------------------ layouts


def with_layouts(chip: Chip, **layouts: LaneLayout) -> Chip:
    """The chip with other lane layouts of its float16 instruction."""
    instructions = tuple(
        i.model_copy(update=layouts) if i.name == "__builtin_mxc_mma_16x16x16f16" else i
        for i in chip.matrix_instructions
    )
    return chip.model_copy(update={"matrix_instructions": instructions})


def layout(row: str, column: str) -> LaneLayout:
    return LaneLayout(elements_per_lane=4, row=row, column=column)


#: k in another grouping: lane // 16 + 4 * i instead of 4 * (lane // 16) + i.
OTHER_K = "lane // 16 + 4 * i"


def test_swapped_operands_give_wrong_numbers(compiled: Any) -> None:
    source = compiled.get_kernel_source()
    call = "__builtin_mxc_mma_16x16x16f16(a_lane, b_lane, c_lane)"
    assert call in source
    assert wrong(*run_source(compiled, source.replace(call, call.replace("a_lane, b_lane", "b_lane, a_lane")), "plain"))


def test_a_transposed_result_gives_wrong_numbers(compiled: Any) -> None:
    chip = with_layouts(compiled.chip, c_layout=layout("lane % 16", "4 * (lane // 16) + i"))
    assert wrong(*run_source(compiled, compiled.get_kernel_source(), "plain", chip))


def test_a_wrong_grouping_of_k_in_one_operand_gives_wrong_numbers(compiled: Any) -> None:
    chip = with_layouts(compiled.chip, a_layout=layout("lane % 16", OTHER_K))
    assert wrong(*run_source(compiled, compiled.get_kernel_source(), "plain", chip))


def test_the_same_grouping_of_k_in_both_operands_does_not_matter(compiled: Any) -> None:
    a, b = layout("lane % 16", OTHER_K), layout(OTHER_K, "lane % 16")
    chip = with_layouts(compiled.chip, a_layout=a, b_layout=b)
    assert not wrong(*run_source(compiled, compiled.get_kernel_source(), "plain", chip))


# ------------------------------------------------------------------------------------------------ speed


def test_512_cubed_in_three_seconds_and_checked_in_ten_times_that() -> None:
    size = 512
    a, b, expected = operands(size, size, size)
    spent = {}
    for mode in ("plain", "checked"):
        kernel = core.compile(
            matmul(size, size, size, 128, 32, stages=2), target="metax:c500", simulate=True, options={"simulator": mode}
        )
        c = torch.empty(size, size)
        kernel(a, b, c)  # builds
        # Processor time: what other processes do meanwhile does not count. Both cores' time is in it.
        started = time.process_time()
        kernel(a, b, c)
        spent[mode] = time.process_time() - started
        assert torch.allclose(c, expected, atol=1e-3, rtol=1e-4)
    assert spent["plain"] <= 3.0
    assert spent["checked"] <= 10 * spent["plain"]
