"""What the compiler adds to a kernel, as modelled, against the code it generates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import core
from core.conformance.schedules import prepare
from core.conformance.schedules.tree import BlockBarrier, Body, Launch, Node
from core.ops._attention_schedule import Schedule
from core.ops._gemm_warp_specialized import warp_specialized
from core.ops._product import Product
from core.ops.attention_hopper import warp_specialised
from core.ops.gemm_split import split_gemm
from core.ops.gemm_warpgroups import WarpgroupTile, warpgroup_gemm
from tests.conformance.schedules.exchange import exchange

TILE = {"block_M": 128, "block_N": 128, "block_K": 64, "num_stages": 3}


def attention() -> Any:
    schedule = Schedule(block_M=128, block_N=64, num_stages=2, threads=256, workers=2, ping_pong=True)
    return warp_specialised(1, 1, 1, 512, 512, 64, schedule, causal=True, base2=0.2, dtype="float16")


def specialized() -> Any:
    more = {"threads": 256, "panel": 2, "policy": 1, "cluster": 2, "workers": 2}
    return warp_specialized(Product.typed(512, 256, 256, "float16", None, None), **TILE, **more)


def warpgroups() -> Any:
    return warpgroup_gemm(
        Product.typed(512, 256, 256, "float16", None, None), WarpgroupTile(**TILE, cluster=2, blocks=4)
    )


def split() -> Any:
    product = Product.typed(64, 256, 512, "float16", None, None)
    return split_gemm(product, block_M=64, block_N=64, block_K=64, num_stages=3, splits=2)


def handed_on() -> Any:
    return exchange(5)


def walk(body: Body) -> Iterator[Node]:
    for node in body:
        yield node
        for inner in ("body", "then", "otherwise"):
            yield from walk(getattr(node, inner, ()))


def modelled(launch: Launch) -> list[int]:
    """Threads that meet at each barrier that was added, and at each that the kernel has for its whole block."""
    met = [node for node in walk(launch.body) for _ in range(node.synchronised + isinstance(node, BlockBarrier))]
    return sorted(32 * len(node.group) for node in met)


def generated(kernel: Any, threads: int) -> list[int]:
    """The same of the code. TileLang's own named barriers are the ones from 3 on; the kernels' own begin at 8."""
    source = core.compile(kernel, target="cuda:h200", out_idx=[-1]).get_kernel_source()
    _, source = source.split("tl::fence_barrier_init();", 1)
    _, source = source.split(";", 1)  # all threads see the barriers' first state
    partial = re.findall(r"__sync_thread_partial\(([3-7]), (\d+)\)", source)
    return sorted([int(count) for _, count in partial] + [threads] * source.count("__syncthreads()"))


@pytest.mark.parametrize("make", [attention, specialized, warpgroups, split, handed_on], ids=lambda make: make.__name__)
def test_the_barriers_are_those_of_the_generated_code(make):
    kernel = make()
    (launch,) = prepare(kernel).launches
    assert modelled(launch) == generated(kernel, launch.threads)
    assert modelled(launch)
