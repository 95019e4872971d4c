"""Softmax and the normalisations in every variant: any width, on the CPU, in both simulators, and as Hopper runs them.

What an H200 would be sent is read, not run; the variant `bulk` runs in simulated schedules.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import core
from core.conformance.schedules import Deadlock, Race, prepare, run_schedule
from core.ops.layernorm import layernorm
from core.ops.rmsnorm import add_rmsnorm, rmsnorm
from core.ops.softmax import softmax
from tests.conformance.schedules.mutants import first_fault, mutant
from tests.kernels.case import torch_dtype
from tests.ops import references
from tests.properties import compiling

FACTORIES = {"softmax": softmax, "layernorm": layernorm, "rmsnorm": rmsnorm, "add_rmsnorm": add_rmsnorm}
#: Rows, columns, and the tile: whole rows, and tiles of which the last is partial.
WHOLE, TILED = (7, 100, 4, 128), (6, 200, 2, 64)
STAGED = {"variant": "staged", "workers": 0, "buffers": 1, "resident": 0}
DIRECT = {"variant": "direct", "workers": 0, "buffers": 1, "resident": 0}
#: Blocks that stay for two or three tiles, the last of which may lie beyond the matrix.
STAYING = {**DIRECT, "workers": 2}


def inputs(name: str, M: int, N: int, dtype: str) -> list[torch.Tensor]:
    rows = [torch.randn(M, N) * 2 + 1 for _ in range(2 if name == "add_rmsnorm" else 1)]
    vectors = [torch.randn(N) for _ in range({"softmax": 0, "layernorm": 2}.get(name, 1))]
    return [x.to(torch_dtype(dtype)) for x in (*rows, *vectors)]


def expected(name: str, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    if name == "add_rmsnorm":
        x, residual, weight = tensors
        total = (x.float() + residual.float()).to(x.dtype)
        return [references.rmsnorm(total, weight), total]
    return [getattr(references, name)(*tensors)]


def run(target: str, name: str, shape: tuple[int, int, int, int], dtype: str = "float16", **more: Any) -> None:
    M, N, block_M, block_N = shape
    tiles = {"block_M": block_M, "block_N": block_N, "threads": 128, **STAGED, **more}
    kernel = FACTORIES[name].compile(M, N, target=target, dtype=dtype, **tiles)
    device = "cuda" if target.startswith("cuda") else "cpu"
    tensors = inputs(name, M, N, dtype)
    wanted = expected(name, tensors)
    outputs = [torch.full((M, N), float("nan"), dtype=torch_dtype(dtype), device=device) for _ in wanted]
    kernel(*(tensor.to(device) for tensor in tensors), *outputs)
    for got, value in zip(outputs, wanted, strict=True):
        references.assert_near(got.cpu(), value, references.rows_tolerance(dtype))


@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize(("shape", "dtype"), [(WHOLE, "bfloat16"), (TILED, "float32")])
def test_on_the_cpu(name, shape, dtype):
    run("cpu", name, shape, dtype)


@pytest.mark.parametrize(
    ("name", "variant", "shape", "dtype", "threads"),
    [
        ("softmax", DIRECT, (9, 768, 2, 1024), "bfloat16", 32),  # three accesses a thread, no power of two
        ("softmax", STAYING, (9, 600, 2, 1024), "float16", 64),
        ("layernorm", DIRECT, (5, 130, 4, 256), "float32", 128),
        ("layernorm", STAYING, (5, 1024, 1, 1024), "float16", 128),
        ("rmsnorm", STAYING, (3, 33, 1, 64), "bfloat16", 32),
        ("add_rmsnorm", DIRECT, (7, 100, 4, 128), "float16", 64),
        ("add_rmsnorm", STAYING, (7, 512, 2, 512), "float16", 128),
    ],
)
def test_rows_in_registers_on_the_cpu(name, variant, shape, dtype, threads):
    run("cpu", name, shape, dtype, **{**variant, "threads": threads})


@pytest.mark.parametrize(
    ("target", "name", "shape", "variant"),
    [
        ("metax:c500", "softmax", WHOLE, STAGED),
        ("ascend:910b3", "softmax", TILED, STAGED),
        ("ascend:910b3", "layernorm", WHOLE, DIRECT),
        ("metax:c500", "add_rmsnorm", TILED, STAGED),
        ("ascend:910b3", "rmsnorm", TILED, STAGED),
        ("metax:c500", "layernorm", (5, 600, 2, 1024), STAYING),
        ("ascend:910b3", "add_rmsnorm", (5, 600, 1, 1024), STAYING),
    ],
)
def test_in_the_simulators(target, name, shape, variant):
    run(target, name, shape, simulate=True, **variant)


@given(
    name=st.sampled_from(sorted(FACTORIES)),
    M=st.integers(1, 9),
    N=st.integers(1, 300),
    how=st.sampled_from([("tiled", STAGED), ("whole", STAGED), ("whole", DIRECT), ("whole", STAYING)]),
)
@compiling(4)
def test_any_shape(name, M, N, how):
    run("cpu", name, (M, N, 2, 32 if how[0] == "tiled" else 512), **how[1])


def test_one_kernel_for_any_number_of_rows():
    import tilelang.language as T

    tiles = {"block_M": 2, "block_N": 256, "threads": 64, **STAYING}
    kernel = softmax.compile(T.dynamic("M"), 200, target="cpu", **tiles)
    for rows in (1, 5, 9):
        x = torch.randn(rows, 200).half()
        references.assert_near(kernel(x), references.softmax(x), references.rows_tolerance("float16"))


# ------------------------------------------------------------------------------------------------------ special values


@pytest.mark.parametrize(("block_N", "variant"), [(64, STAGED), (256, STAGED), (256, DIRECT)])
def test_softmax_of_rows_that_are_partly_or_wholly_masked(block_N, variant):
    x = torch.randn(3, 200).half()
    x[0, :130] = x[1, 70:] = x[2] = -torch.inf
    y = softmax.compile(3, 200, target="cpu", block_M=2, block_N=block_N, threads=128, **variant)(x)
    references.assert_near(y, references.softmax(x), references.rows_tolerance("float16"))
    assert y[2].isnan().all()


@pytest.mark.parametrize("variant", [STAGED, DIRECT], ids=lambda variant: variant["variant"])
def test_softmax_of_rows_masked_with_the_lowest_number(variant):
    """Whose product with log2 e is minus infinity."""
    x = torch.randn(2, 64).bfloat16()
    x[0] = x[1, 40:] = torch.finfo(torch.bfloat16).min
    y = softmax.compile(2, 64, target="cpu", dtype="bfloat16", block_M=1, block_N=64, threads=32, **variant)(x)
    references.assert_near(y, references.softmax(x), references.rows_tolerance("bfloat16"))
    assert (y[0] == 1 / 64).all()


@pytest.mark.parametrize(("block_N", "variant"), [(256, STAGED), (32, STAGED), (256, STAYING)])
def test_layernorm_of_rows_far_from_zero_keeps_its_variance(block_N, variant):
    x = (torch.randn(4, 256) * 0.01 + 100).float()
    weight, bias = torch.ones(256), torch.zeros(256)
    tiles = {"block_M": 2, "block_N": block_N, "threads": 128, **variant, "workers": min(1, variant["workers"])}
    kernel = layernorm.compile(4, 256, target="cpu", dtype="float32", **tiles)
    # The input itself is known to 2^-17 only: 100 has an ulp of 7.6e-6, 1/1300 of the deviation.
    torch.testing.assert_close(
        kernel(x, weight, bias).double(), references.layernorm(x, weight, bias), atol=2e-3, rtol=0
    )


# ----------------------------------------------------------------------------------------------------------- on Hopper


def bulk(name: str, M: int, N: int, **tiles: Any) -> Any:
    given = {"block_M": 1, "block_N": N, "threads": 64, "variant": "bulk", "workers": 3, "buffers": 2, "resident": 2}
    return FACTORIES[name](M, N, **{**given, **tiles})


@pytest.mark.parametrize(
    ("name", "shape", "tiles"),
    [
        ("softmax", (14, 1024), {}),
        ("softmax", (2, 512), {"buffers": 3}),  # fewer tiles than blocks
        ("layernorm", (11, 504), {"block_M": 2, "buffers": 3}),  # the last tile and the last run are partial
        ("add_rmsnorm", (9, 512), {"threads": 32, "workers": 2}),
    ],
)
def test_bulk_copies_in_simulated_schedules(name, shape, tiles):
    kernel = prepare(bulk(name, *shape, **tiles))
    for seed in range(3):
        tensors = inputs(name, *shape, "float16")
        wanted = expected(name, tensors)
        outputs = [torch.full(shape, float("nan"), dtype=torch.float16) for _ in wanted]
        run_schedule(kernel, [*tensors, *outputs], seed=seed)
        for got, value in zip(outputs, wanted, strict=True):
            references.assert_near(got, value, references.rows_tolerance("float16"))


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("T.mbarrier_wait_parity(full[buffer], turn // rows.buffers & 1)", "pass", Race),
        ("turn // rows.buffers & 1", "turn // rows.buffers & 1 ^ 1", (Race, Deadlock)),
        ("[_WARP] * rows.buffers", "[_WARP + 1] * rows.buffers", Deadlock),
    ],
)
def test_what_is_taken_out_of_the_buffered_walk_is_missed(tmp_path, monkeypatch, old, new, kind):
    changed = mutant("core.ops._row_walks", tmp_path, old, new)
    monkeypatch.setattr("core.ops.softmax.walk", changed.walk)

    def tensors() -> list[torch.Tensor]:
        return [*inputs("softmax", 28, 512, "float16"), torch.empty(28, 512).half()]

    assert isinstance(first_fault(prepare(bulk("softmax", 28, 512, block_M=2)), tensors), kind)


def source(name: str, N: int, **tiles: Any) -> str:
    return FACTORIES[name].compile(4096, N, target="cuda:h200", build=False, **tiles).get_kernel_source()


@pytest.mark.parametrize(
    ("name", "workers"), [("softmax", 0), ("layernorm", 528), ("rmsnorm", 0), ("add_rmsnorm", 528)]
)
def test_rows_in_registers_are_loaded_and_stored_in_16_bytes(name, workers):
    code = source(name, 5120, block_M=1, block_N=8192, threads=128, **{**DIRECT, "workers": workers})
    assert "*(uint4*)(Y + " in code
    assert "= *(uint4*)(X + " in code
    assert ("= *(uint4*)(weight + " in code) is (name != "softmax")
    assert not any(f"*({kind}*)({tensor} + " in code for kind in ("uint2", "uint1", "half_t") for tensor in "XY")
    # Through shared memory goes what warps exchange, and vectors that blocks keep.
    assert "tma_store" not in code
    # One exchange a reduction: a barrier before it is read and, where memory is used again, one before it is written.
    assert 1 <= code.count("__syncthreads()") <= 4
    assert "AllReduce<tl::SumOp, 32, 1" in code


def test_the_compiler_is_told_how_many_blocks_a_unit_shall_hold():
    assert "__launch_bounds__(256, 6)" in source(
        "rmsnorm", 4096, block_M=1, block_N=4096, threads=256, **{**DIRECT, "resident": 6}
    )


def test_rows_that_are_not_aligned_keep_their_warps():
    code = source("softmax", 4004, block_M=1, block_N=4096, threads=128, **DIRECT)
    assert "*(uint2*)(Y + " in code
    assert "AllReduce<tl::SumOp, 32, 1" in code


def test_bulk_copies_bring_whole_rows_without_descriptors():
    code = source("layernorm", 4096, block_M=2, block_N=4096, threads=256, variant="bulk", workers=264, buffers=3)
    assert "tl::tma_load((&(((half_t*)" in code
    assert "CUtensorMap" not in code
    assert "*(uint4*)(Y + " in code


@pytest.mark.parametrize("name", ["softmax", "add_rmsnorm"])
def test_rows_leave_an_h200_in_whole_vectors(name):
    code = source(name, 4096, block_M=1, block_N=4096, threads=256, **STAGED)
    assert "tma_store" in code
    assert "*(uint4*)(X + " in code


@pytest.mark.gpu
@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize(
    ("shape", "tiles"),
    [
        ((1030, 4096, 1, 4096), {**DIRECT, "threads": 256}),
        ((515, 4004, 2, 4096), {**DIRECT, "threads": 128}),
        ((1030, 5120, 1, 8192), {**STAYING, "workers": 132, "threads": 128, "resident": 4}),
        ((1030, 4096, 1, 4096), {**DIRECT, "variant": "bulk", "workers": 264, "buffers": 3, "threads": 256}),
        ((4099, 1000, 4, 1024), {**DIRECT, "variant": "bulk", "workers": 528, "buffers": 2, "threads": 128}),
        ((100, 512, 4, 512), {**DIRECT, "variant": "bulk", "workers": 132, "buffers": 4, "threads": 64}),
    ],
    ids=lambda value: value["variant"] if isinstance(value, dict) else str(value[1]),
)
def test_on_the_device(name, shape, tiles):
    run("cuda", name, shape, **tiles)


@pytest.mark.parametrize(
    ("tiles", "message"),
    [
        ({**STAGED, "workers": 4}, 'variant "staged" takes no workers=4'),
        ({**DIRECT, "block_N": 64}, "holds rows whole, block_N=64 is less than N=100"),
        ({**DIRECT, "buffers": 2}, 'variant "direct" has no buffers'),
        ({**DIRECT, "variant": "bulk", "buffers": 2}, "is for blocks that stay"),
        ({**STAYING, "variant": "bulk"}, "100 elements of float16 are not whole 16 bytes"),
    ],
)
def test_what_a_variant_does_not_have_is_refused(tiles, message):
    with pytest.raises(core.KernelError, match=message):
        softmax(8, 100, **{"block_M": 1, "block_N": 128, "threads": 64, **tiles})
