"""Statements before a pipelined loop keep their meaning where TileLang has some warps copy and others compute."""

import re
from typing import Any

import pytest
import tilelang.language as T
import torch

import core
from core import _tilelang
from core.codegen.tir import Rule, differences, legalise
from core.compiler import CompileOptions
from core.ops import attention_varlen, conv2d, grouped_gemm
from core.program import Program

H200 = core.chip("cuda:h200")
M, N, K, BLOCK = 512, 256, 512, 128
TILE = (BLOCK, BLOCK)


@T.macro
def multiply(A, B, a, b, sums, row, column):
    for k in T.Pipelined(K // BLOCK, num_stages=2):
        T.copy(A[row, k * BLOCK], a)
        T.copy(B[k * BLOCK, column], b)
        T.gemm(a, b, sums)


def kernel(body: Any, depth: Any = K, width: Any = N) -> Any:
    """A kernel whose blocks do `body`: a macro of the tensors, two shared tiles, the sums, and the block's place.

    Args:
        depth, width: length of a row of A and of B.
    """

    @T.prim_func
    def main(
        A: T.Tensor((M, depth), "float16"),
        B: T.Tensor((K, width), "float16"),
        offsets: T.Tensor((9,), "int32"),
        n: T.int32,
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(N // BLOCK, M // BLOCK, threads=128) as (bx, by):
            a = T.alloc_shared(TILE, "float16")
            b = T.alloc_shared(TILE, "float16")
            sums = T.alloc_fragment(TILE, "float32")
            body(A, B, offsets, n, C, a, b, sums, by * BLOCK, bx * BLOCK, by)

    return main


# -- What would be moved -----------------------------------------------------------------------------------------------


@T.macro
def searched(A, B, offsets, n, C, a, b, sums, row, column, y):
    """A group is looked up in a loop, and a block without one does nothing."""
    first = T.alloc_var("int32", init=0)
    end = T.alloc_var("int32", init=0)
    for g in T.serial(8):
        if y >= offsets[g] and y < offsets[g + 1]:
            first = offsets[g] * BLOCK
            end = offsets[g + 1] * BLOCK
    if first < end:
        T.clear(sums)
        multiply(A, B, a, b, sums, first, column)
        T.copy(sums, C[first, column])


@T.macro
def given(A, B, offsets, n, C, a, b, sums, row, column, y):
    """The same, without a search."""
    first = T.alloc_var("int32", init=0)
    first = offsets[y]
    if first < n:
        T.clear(sums)
        multiply(A, B, a, b, sums, first, column)
        T.copy(sums, C[row, column])


@T.macro
def bound(A, B, offsets, n, C, a, b, sums, row, column, y):
    """The same with a value instead of a variable, of which TileLang itself says that it has none."""
    first = offsets[y]
    if first < n:
        T.clear(sums)
        multiply(A, B, a, b, sums, first, column)
        T.copy(sums, C[row, column])


@T.macro
def written_anyway(A, B, offsets, n, C, a, b, sums, row, column, y):
    """Blocks without work write zeros."""
    T.clear(sums)
    if y < n:
        multiply(A, B, a, b, sums, row, column)
    T.copy(sums, C[row, column])


@T.macro
def added_up(A, B, offsets, n, C, a, b, sums, row, column, y):
    """Sums over the rounds of an outer loop."""
    T.clear(sums)
    for _ in T.serial(n):
        multiply(A, B, a, b, sums, row, column)
    T.copy(sums, C[row, column])


@T.macro
def rounds(A, B, offsets, n, C, a, b, sums, row, column, y):
    """A variable that the outer loop's length depends on, and the copies too."""
    first = T.alloc_var("int32", init=0)
    first = offsets[y]
    for _ in T.serial(first):
        T.clear(sums)
        multiply(A, B, a, b, sums, first, column)
        T.copy(sums, C[row, column])


@T.macro
def scaled(A, B, offsets, n, C, a, b, sums, row, column, y):
    """The sums' first value is read before a condition, and changed behind it."""
    T.copy(C[row, column], sums)
    if y < n:
        for i, j in T.Parallel(BLOCK, BLOCK):
            sums[i, j] = sums[i, j] * 2
        multiply(A, B, a, b, sums, row, column)
        T.copy(sums, C[row, column])


@T.macro
def reused(A, B, offsets, n, C, a, b, sums, row, column, y):
    """A tile is taken into registers, and then used for another one."""
    tile = T.alloc_shared(TILE, "float32")
    T.copy(C[row, column], tile)
    T.copy(tile, sums)
    T.fill(tile, 1.0)
    multiply(A, B, a, b, sums, row, column)
    for i, j in T.Parallel(BLOCK, BLOCK):
        C[row + i, column + j] = sums[i, j] + tile[i, j]


@T.macro
def missed(A, B, offsets, n, C, a, b, sums, row, column, y):
    """What is set before a loop is needed behind it, and the loop may have no rounds."""
    factors = T.alloc_fragment((BLOCK,), "float32")
    T.fill(factors, 2.0)
    for _ in T.serial(n):
        T.clear(sums)
        multiply(A, B, a, b, sums, row, column)
        for i, j in T.Parallel(BLOCK, BLOCK):
            C[row + i, column + j] = sums[i, j] * factors[i]
    T.copy(factors, C[row : row + BLOCK, column])


@T.macro
def unending(A, B, offsets, n, C, a, b, sums, row, column, y):
    """TileLang itself fails for a loop inside a while."""
    count = T.alloc_var("int32", init=0)
    T.clear(sums)
    while count < n:
        multiply(A, B, a, b, sums, row, column)
        count = count + 1
    T.copy(sums, C[row, column])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (searched, r"sets first into the if \(line \d+\) around the pipelined loop, which asks for it first"),
        (given, "which asks for it first"),
        (bound, "which asks for it first"),
        (written_anyway, r"sets sums into the if \(line \d+\) around the pipelined loop, which may not run it"),
        (added_up, r"sets sums into the loop \(line \d+\) .* changes it from round to round"),
        (rounds, r"sets first into the loop \(line \d+\) .* which asks for it first"),
        (scaled, r"sets sums behind a statement that goes before it \(line \d+\)"),
        (reused, r"sets sums behind a statement that goes before it \(line \d+\)"),
        (missed, r"sets factors into the loop \(line \d+\) .* which may not run it"),
        (unending, "a pipelined loop inside a while"),
    ],
)
def test_a_kernel_that_specialisation_would_change_is_compiled_without_it(body: Any, reason: str) -> None:
    legal = legalise(Program(kernel(body)), H200, CompileOptions())
    assert legal.pass_configs == {"tl.disable_warp_specialized": True}
    said = legal.rewrites[0]
    assert re.search(reason, said)
    assert "tl.disable_warp_specialized=True (line" in said


# -- What keeps its meaning --------------------------------------------------------------------------------------------


@T.macro
def guarded(A, B, offsets, n, C, a, b, sums, row, column, y):
    """Nothing that the condition or anybody outside needs is set before it."""
    T.clear(sums)
    if y < n:
        multiply(A, B, a, b, sums, row, column)
        T.copy(sums, C[row, column])


@T.macro
def looked_up(A, B, offsets, n, C, a, b, sums, row, column, y):
    """The condition's values are needed behind the loop too, which keeps them where they are."""
    first = offsets[y]
    end = offsets[y + 1]
    if first < end:
        T.clear(sums)
        multiply(A, B, a, b, sums, first, column)
        T.copy(sums, C[first, column])


@T.macro
def counted(A, B, offsets, n, C, a, b, sums, row, column, y):
    """A variable that only the condition needs."""
    wanted = T.alloc_var("int32", init=0)
    wanted = offsets[y]
    if wanted > 0:
        T.clear(sums)
        multiply(A, B, a, b, sums, row, column)
        T.copy(sums, C[row, column])


@T.macro
def persistent(A, B, offsets, n, C, a, b, sums, row, column, y):
    """Tile after tile, each with sums of its own."""
    for t in T.serial(n):
        T.clear(sums)
        multiply(A, B, a, b, sums, t * BLOCK, column)
        T.copy(sums, C[t * BLOCK, column])


@pytest.mark.parametrize("body", [guarded, looked_up, counted, persistent])
def test_a_kernel_that_specialisation_does_not_change_keeps_it(body: Any) -> None:
    prim_func = kernel(body)
    assert legalise(Program(prim_func), H200, CompileOptions()).pass_configs == {}
    lowered = core.compile(prim_func, target="cuda:h200", build=False)
    assert lowered.config["threads"].effective == 256


def test_chips_without_bulk_copies_are_left_alone_and_so_is_who_has_it_off() -> None:
    view = Program(kernel(searched)).view
    assert [d.rule for d in differences(view, H200, CompileOptions())] == [Rule.MOVED_DEFINITION]
    assert differences(view, core.chip("cuda:a100"), CompileOptions()) == ()
    off = CompileOptions(pass_configs={"tl.disable_warp_specialized": True})
    assert differences(view, H200, off) == ()


def test_loops_whose_copies_have_symbolic_rows_alone_are_left_alone() -> None:
    """Their copies are no bulk copies. A row that is symbolic leaves a tensor one stride that is not."""

    def rules(**rows: Any) -> set[Rule]:
        return {one.rule for one in differences(Program(kernel(searched, **rows)).view, H200, CompileOptions())}

    depth, width = T.dynamic("depth"), T.dynamic("width")
    assert rules(depth=depth, width=width) == {Rule.SYMBOLIC_ROWS}
    assert rules(depth=depth) == rules(width=width) == {Rule.SYMBOLIC_ROWS, Rule.MOVED_DEFINITION}
    assert rules() == {Rule.MOVED_DEFINITION}


def test_who_wants_it_all_the_same_is_told_why_not() -> None:
    with pytest.raises(core.UnsupportedOp, match="which asks for it first, which needs") as caught:
        core.compile(
            kernel(searched), target="cuda:h200", build=False, pass_configs={"tl.disable_warp_specialized": False}
        )
    assert caught.value.location is not None


def test_the_operators_need_no_such_rewrite() -> None:
    tiles = {"block_M": 128, "block_N": 128, "num_stages": 2, "threads": 256}
    made = [
        attention_varlen.attention_varlen(3, 8, 2, 700, 900, 128, causal=causal, **tiles) for causal in (True, False)
    ]
    made.append(grouped_gemm.grouped_gemm(4, 512, 256, 512, block_K=64, **tiles))
    made.append(conv2d.conv2d(2, 28, 28, 64, 128, 3, block_K=64, **tiles))
    for prim_func in made:
        assert legalise(Program(prim_func), H200, CompileOptions()).pass_configs == {}


# -- The generated code ------------------------------------------------------------------------------------------------


def places(source: str, *patterns: str) -> list[int]:
    """Where the lines that match each pattern first stand in the kernel."""
    lines = source[source.rindex("__launch_bounds__") :].splitlines()
    return [next(i for i, line in enumerate(lines) if re.search(pattern, line)) for pattern in patterns]


SEARCH, TEST = r"first = \(offsets", r"if \(first < end\)"


def test_the_search_comes_before_the_condition_that_asks_what_it_found() -> None:
    compiled = core.compile(kernel(searched), target="cuda:h200", build=False)
    search, test = places(compiled.get_kernel_source(), SEARCH, TEST)
    assert search < test
    assert compiled.config["threads"].effective == 128


def test_tilelang_alone_asks_first() -> None:
    """When this fails, TileLang has been mended and the rewrite can go."""
    lowered = _tilelang.lower_native(kernel(searched), {"kind": "cuda", "arch": "sm_90a"}, {})
    search, test = places(lowered.device_source, SEARCH, TEST)
    assert test < search


# -- Copies before the loop --------------------------------------------------------------------------------------------


@T.macro
def prepared(A, B, offsets, n, C, a, b, sums, row, column, y):
    """A tile is doubled where it lies before the loop multiplies with it."""
    T.copy(A[row, 0], a)
    for i, j in T.Parallel(BLOCK, BLOCK):
        a[i, j] = a[i, j] * 2
    T.clear(sums)
    for k in T.Pipelined(K // BLOCK, num_stages=2):
        T.copy(B[k * BLOCK, column], b)
        T.gemm(a, b, sums)
    T.copy(sums, C[row, column])


@T.macro
def prepared_and_copied(A, B, offsets, n, C, a, b, sums, row, column, y):
    """The same, with copies of the same tensor in the loop, which are better made in bulk."""
    tile = T.alloc_shared(TILE, "float16")
    T.copy(A[row, 0], tile)
    for i, j in T.Parallel(BLOCK, BLOCK):
        tile[i, j] = tile[i, j] * 2
    T.clear(sums)
    for k in T.Pipelined(K // BLOCK, num_stages=2):
        T.copy(A[row, k * BLOCK], a)
        T.copy(B[k * BLOCK, column], b)
        T.gemm(a, b, sums)
        T.gemm(tile, b, sums)
    T.copy(sums, C[row, column])


@T.macro
def prepared_as_a_view_and_copied(A, B, offsets, n, C, a, b, sums, row, column, y):
    """The same through a view of the tensor."""
    rows = T.Tensor((M, K), "float16", A.data)
    tile = T.alloc_shared(TILE, "float16")
    T.copy(rows[row, 0], tile)
    for i, j in T.Parallel(BLOCK, BLOCK):
        tile[i, j] = tile[i, j] * 2
    T.clear(sums)
    for k in T.Pipelined(K // BLOCK, num_stages=2):
        T.copy(A[row, k * BLOCK], a)
        T.copy(B[k * BLOCK, column], b)
        T.gemm(a, b, sums)
        T.gemm(tile, b, sums)
    T.copy(sums, C[row, column])


@T.macro
def loaded(A, B, offsets, n, C, a, b, sums, row, column, y):
    """The loop is the first to use the tile."""
    T.copy(A[row, 0], a)
    T.clear(sums)
    for k in T.Pipelined(K // BLOCK, num_stages=2):
        T.copy(B[k * BLOCK, column], b)
        T.gemm(a, b, sums)
    T.copy(sums, C[row, column])


def test_a_tile_that_is_used_before_the_loop_is_not_copied_in_bulk() -> None:
    compiled = core.compile(kernel(prepared), target="cuda:h200", build=False)
    source = compiled.get_kernel_source()
    assert "tma_load(B_desc" in source
    assert "A_desc" not in source
    assert compiled.config["threads"].effective == 256
    (said,) = compiled.provenance.rewrites
    assert said.startswith("copies of A avoid TMA: a is used before the pipelined loop")


@pytest.mark.parametrize("body", [prepared_and_copied, prepared_as_a_view_and_copied])
def test_where_the_loop_copies_the_same_tensor_the_warps_stay_alike(body: Any) -> None:
    legal = legalise(Program(kernel(body)), H200, CompileOptions())
    assert legal.pass_configs == {"tl.disable_warp_specialized": True}


def test_a_tile_that_only_the_loop_uses_is_copied_in_bulk() -> None:
    source = core.compile(kernel(loaded), target="cuda:h200", build=False).get_kernel_source()
    assert "tma_load(A_desc" in source


def test_tilelang_alone_uses_the_tile_before_it_has_arrived() -> None:
    """When this fails, TileLang has been mended and the rewrite can go."""
    lowered = _tilelang.lower_native(kernel(prepared), {"kind": "cuda", "arch": "sm_90a"}, {})
    load, use, wait = places(lowered.device_source, r"tma_load\(A_desc", r"tl::mul2", r"== 0\) \{")
    assert load < use < wait


@pytest.mark.gpu
@pytest.mark.parametrize(
    "body",
    [searched, written_anyway, added_up, scaled, reused, unending, guarded, prepared, prepared_and_copied, loaded],
)
def test_the_device_computes_what_the_cpu_does(body: Any) -> None:
    generator = torch.Generator().manual_seed(7)
    a = torch.randn(M, K, generator=generator).half()
    b = torch.randn(K, N, generator=generator).half()
    c = torch.randn(M, N, generator=generator)
    offsets = torch.tensor([0, 1, 1, 3, 4, 4, 4, 4, 4], dtype=torch.int32)
    expected, got = c.clone(), c.cuda()
    core.compile(kernel(body), target="cpu")(a, b, offsets, 2, expected)
    core.compile(kernel(body), target="cuda")(a.cuda(), b.cuda(), offsets.cuda(), 2, got)
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-3, atol=1e-2)
