"""Tiles and tensors used through views: what counts is whose memory a buffer is, not its name or shape."""

from typing import Any

import pytest
import tilelang.language as T
import torch

import core
from core import _tilelang
from core.codegen.tir import Rule, differences, legalise
from core.compiler import CompileOptions
from core.program import Program

STEPS, ROWS, COLUMNS = 8, 32, 64
H200 = core.chip("cuda:h200")


def added(fills: str, uses: str, stages: int = 2) -> Any:
    """Adds up tiles of A; the copy fills the tile, and the addition reads it, as itself or through a view."""

    @T.prim_func
    def main(A: T.Tensor((STEPS * ROWS, COLUMNS), "float16"), B: T.Tensor((ROWS, COLUMNS), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((ROWS, COLUMNS), "float16")
            halves = T.reshape(a, (2, ROWS // 2, COLUMNS))
            c = T.alloc_fragment((ROWS, COLUMNS), "float32")
            T.clear(c)
            for k in T.Pipelined(STEPS, num_stages=stages):
                if fills == "tile":
                    T.copy(A[k * ROWS, 0], a)
                else:
                    T.copy(A[k * ROWS : k * ROWS + ROWS // 2, 0:COLUMNS], halves[0, 0 : ROWS // 2, 0:COLUMNS])
                    T.copy(A[k * ROWS + ROWS // 2 : k * ROWS + ROWS, 0:COLUMNS], halves[1, 0 : ROWS // 2, 0:COLUMNS])
                for i, j in T.Parallel(ROWS, COLUMNS):
                    if uses == "tile":
                        c[i, j] += a[i, j]
                    else:
                        c[i, j] += halves[i // (ROWS // 2), i % (ROWS // 2), j]
            T.copy(c, B)

    return main


def held() -> Any:
    """A tile that is filled before the loop and viewed in it: it needs no versions."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 32), "float16"), B: T.Tensor((STEPS * 32, 64), "float16"), C: T.Tensor((64, 64), "float32")
    ):
        with T.Kernel(1, threads=128):
            line = T.alloc_shared((64 * 32,), "float16")
            a = T.reshape(line, (64, 32))
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            T.copy(A, a)
            for k in T.Pipelined(STEPS, num_stages=2):
                T.copy(B[k * 32, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    return main


VIEWED = [("tile", "view"), ("view", "tile"), ("view", "view")]


@pytest.mark.parametrize("target", ["cuda:h200", "cuda:a100", "metax:c500"])
@pytest.mark.parametrize(("fills", "uses"), VIEWED)
def test_a_loop_that_fills_a_viewed_tile_is_not_pipelined(fills: str, uses: str, target: str) -> None:
    legal = legalise(Program(added(fills, uses)), core.chip(target), CompileOptions())
    assert "num_stages" not in legal.prim_func.script()
    (said,) = (line for line in legal.rewrites if line.startswith("rounds of k do not overlap"))
    assert "the view halves" in said


@pytest.mark.parametrize(
    "program",
    [added("tile", "tile"), added("tile", "view", 1), held()],
    ids=["no view", "one stage", "filled before the loop"],
)
def test_a_loop_whose_tiles_need_no_versions_or_get_them_stays_pipelined(program: Any) -> None:
    legal = legalise(Program(program), H200, CompileOptions())
    assert "num_stages" in legal.prim_func.script()
    assert Rule.VIEWED_TILE not in {one.rule for one in differences(Program(program).view, H200, CompileOptions())}


def test_tilelang_alone_keeps_one_version_of_a_viewed_tile() -> None:
    """When this fails, TileLang has been mended and the rewrite can go."""
    versions = {}
    for uses in ("tile", "view"):
        lowered = _tilelang.lower_native(added("tile", uses), {"kind": "cuda", "arch": "sm_90a"}, {})
        (copy,) = (line for line in lowered.device_source.splitlines() if "tma_load" in line)
        versions[uses] = "[((k & 1) * 2048)]" in copy
    assert versions == {"tile": True, "view": False}


@pytest.mark.parametrize(
    ("fills", "uses", "target"),
    [("view", "tile", "cpu"), ("tile", "view", "metax:c500"), ("view", "view", "metax:c500")],
)
def test_sums_of_viewed_tiles_agree_with_torch(fills: str, uses: str, target: str) -> None:
    kernel = core.compile(added(fills, uses), target=target, out_idx=[1], simulate=target != "cpu")
    x = torch.randn(STEPS * ROWS, COLUMNS).half()
    torch.testing.assert_close(kernel(x), x.float().reshape(STEPS, ROWS, COLUMNS).sum(0))
