"""The matrix products scheduled by hand, simulated: clusters, persistent blocks, operands stored either way."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from core.conformance.schedules import Deadlock, EndsEarly, Race, ScheduleFault, prepare, run_schedule
from core.ops._gemm_warp_specialized import warp_specialized
from core.ops._product import Product
from core.ops.gemm_split import split_gemm
from core.ops.gemm_warpgroups import WarpgroupTile, warpgroup_gemm
from tests.conformance.schedules.mutants import first_fault, mutant

TILE = {"block_M": 128, "block_N": 128, "block_K": 64, "num_stages": 2}
SPECIALIZED = {**TILE, "threads": 256, "panel": 2, "policy": 1, "cluster": 1, "workers": 0}


def product(shape: tuple[int, int, int], trans_a: bool = False, trans_b: bool = False, **more: Any) -> Product:
    return Product.typed(*shape, "float16", None, None, trans_a=trans_a, trans_b=trans_b, **more)


def tensors(p: Product) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    lead = () if p.batch is None else (p.batch,)
    sizes = [(*lead, *p.stored_a(p.M, p.K)), (*lead, *p.stored_b(p.K, p.N))]
    sizes += [(p.N,)] * p.bias + [(*lead, p.M, p.N)] * p.residual
    given = [torch.randn(size, generator=generator).half() for size in sizes]
    return [*given, torch.full((*lead, p.M, p.N), float("nan")).half()]


def check(made: Any, p: Product, seeds: int = 2) -> None:
    for seed in range(seeds):
        given = tensors(p)
        run_schedule(made, given, seed=seed)
        a, b, *extra, c = given
        expected = (a.mT if p.trans_a else a).float() @ (b.mT if p.trans_b else b).float()
        if p.bias:
            expected = expected + extra.pop(0).float()
        expected = torch.relu(expected) if p.activation == "relu" else expected
        if p.residual:
            expected = expected + extra.pop(0).float()
        torch.testing.assert_close(c.float(), expected, atol=0.05, rtol=2e-3)


@pytest.mark.parametrize(
    ("shape", "options", "more"),
    [
        ((300, 136, 200), {"cluster": 2}, {"trans_b": True}),
        ((512, 128, 128), {"cluster": 2, "workers": 2}, {"trans_a": True}),
        ((256, 256, 136), {"workers": 1}, {"trans_a": True, "trans_b": True, "bias": True, "activation": "relu"}),
        ((128, 256, 128), {"policy": 2, "num_stages": 3}, {"residual": True}),
        ((128, 128, 64), {"cluster": 2, "workers": 2, "block_M": 64, "threads": 128}, {"batch": 2}),
    ],
    ids=str,
)
def test_a_warpgroup_loads_and_the_others_multiply(shape, options, more):
    p = product(shape, **more)
    check(prepare(warp_specialized(p, **{**SPECIALIZED, **options})), p)


@pytest.mark.parametrize(
    ("shape", "options", "more"),
    [
        ((200, 128, 200), {}, {}),
        ((300, 256, 128), {"cluster": 2, "blocks": 2}, {"trans_b": True}),
        ((256, 256, 192), {"cluster": 2, "blocks": 2, "alternate": True}, {"trans_a": True, "bias": True}),
        ((384, 128, 72), {"blocks": 1, "alternate": True, "num_stages": 3}, {"trans_b": True}),
    ],
    ids=str,
)
def test_warpgroups_multiply_on_their_own(shape, options, more):
    p = product(shape, **more)
    check(prepare(warpgroup_gemm(p, WarpgroupTile(**{**TILE, **options}))), p)


@pytest.mark.parametrize(("splits", "more"), [(1, {"trans_b": True}), (4, {"trans_a": True, "bias": True})])
def test_blocks_of_a_cluster_add_up_their_parts(splits, more):
    p = product((64, 128, 264), **more)
    made = prepare(split_gemm(p, block_M=64, block_N=64, block_K=64, num_stages=2, splits=splits))
    check(made, p)


@pytest.mark.parametrize(
    ("old", "new", "options", "kind"),
    [
        (
            "T.mbarrier_arrive(empty[stage], rank)",
            "T.mbarrier_arrive(empty[stage], 0)",
            {"cluster": 2},
            (Race, Deadlock),
        ),
        ("T.mbarrier_wait_parity(full[stage], (position // num_stages) & 1)", "pass", {}, Race),
        ("T.wait_wgmma(1)", "T.wait_wgmma(2)", {}, Race),
        ("((position // num_stages) & 1) ^ 1)", "(position // num_stages) & 1)", {}, Deadlock),
        ("[threads // _WARP * cluster]", "[threads // _WARP]", {"cluster": 2, "workers": 2}, ScheduleFault),
        ("T.cluster_sync()", "pass", {"cluster": 2, "workers": 2}, EndsEarly),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_taken_out_of_the_specialized_product_is_missed(tmp_path, old, new, options, kind):
    p = product((512, 128, 320))
    changed = mutant("core.ops._gemm_warp_specialized", tmp_path, old, new)
    fault = first_fault(prepare(changed.warp_specialized(p, **{**SPECIALIZED, **options})), lambda: tensors(p))
    assert isinstance(fault, kind)


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("T.tma_store_wait(1)", "pass", Race),
        ("        T.tma_store_wait(0)\n", "        pass\n", EndsEarly),
        ("T.mbarrier_arrive(order[1 - group])", "pass", Deadlock),
    ],
)
def test_what_is_taken_out_of_the_warpgroups_is_missed(tmp_path, old, new, kind):
    p = product((256, 256, 128))
    changed = mutant("core.ops.gemm_warpgroups", tmp_path, old, new)
    tile = changed.WarpgroupTile(**TILE, blocks=1, alternate=True)
    assert isinstance(first_fault(prepare(changed.warpgroup_gemm(p, tile)), lambda: tensors(p)), kind)
