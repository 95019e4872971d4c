"""Calls that stand as statements, each to its node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from core.conformance.schedules import tree
from core.program.tir.tileops import annotations_of

if TYPE_CHECKING:
    from core.conformance.schedules.reading import Reader

Operator = Callable[["Reader", Any], "tree.Node | None"]


def _flag(value: Any) -> bool:
    return bool(getattr(value, "value", value))


def _copy(reader: Reader, call: Any) -> tree.Node:
    notes = annotations_of(call.annotations)
    source, target = reader.place(call.args[0]), reader.place(call.args[1])
    barrier = notes.get("barrier")
    block = notes.get("dst_block")
    bulk = call.op.name == "tl.tileop.tma_copy"
    if bulk and barrier is None and source.tensor.is_global:
        raise reader.unknown("a bulk load without a barrier")
    if call.op.name == "tl.tileop.async_copy":
        raise reader.unknown("T.async_copy")
    if block is not None and barrier is None:
        raise reader.unknown("a copy to another block without a barrier")
    return tree.Copy(
        source=source,
        target=target,
        pairs=_pairs(reader, source, target),
        bulk=bulk or block is not None,
        barrier=reader.barrier(barrier) if barrier is not None else None,
        multicast=int(notes.get("cluster_mask", 0)),
        block=reader.compile(block) if hasattr(block, "dtype") else _number(block),
        leader_threads=int(notes.get("leader_scope_threads", 0)),
        no_bulk=bool(notes.get("disable_tma", False)) or notes.get("prefer_instruction") in ("sync", "cp_async"),
    )


def _number(value: Any) -> tree.Expression | None:
    return None if value is None else tree.Expression(lambda warp: int(value))


#: How near a scope is to the arithmetic; the nearer side of a copy says how much is copied.
_NEAR = {"local.fragment": 3, "local": 3, "shared": 2, "shared.dyn": 2}


def _pairs(reader: Reader, source: tree.Place, target: tree.Place) -> tuple[tuple[int, int], ...]:
    """The dimensions that go together: those longer than 1, in order; the nearer side's extents count for both."""
    near, far = source, target
    if _NEAR.get(target.tensor.scope, 0) > _NEAR.get(source.tensor.scope, 0):
        near, far = target, source
    ours = [dimension for dimension, extent in enumerate(near.extents) if extent != 1]
    theirs = [dimension for dimension, extent in enumerate(far.extents) if extent != 1]
    if len(ours) != len(theirs):
        raise reader.unknown(f"a copy between {list(source.extents)} and {list(target.extents)} elements")
    extents = list(far.extents)
    for mine, other in zip(ours, theirs, strict=True):
        extents[other] = near.extents[mine]
    far.extents = tuple(extents)
    pairs = zip(ours, theirs, strict=True)
    return tuple(pairs) if near is source else tuple((other, mine) for mine, other in pairs)


def _fill(reader: Reader, call: Any) -> tree.Node:
    return tree.Fill(reader.place(call.args[0]), reader.compile(call.args[1]))


def _reduce(reader: Reader, call: Any) -> tree.Node:
    kind = str(call.args[2].value)
    if annotations_of(call.annotations).get("nan_propagate"):
        raise reader.unknown("nan_propagate")
    source, target = reader.place(call.args[0]), reader.place(call.args[1])
    return tree.Reduce(source, target, kind, int(call.args[3]), _flag(call.args[4]))


def _product(reader: Reader, call: Any) -> tree.Node:
    args = call.args
    a, b, c = (reader.place(arg) for arg in args[:3])
    m, n, k = (reader.constant(arg, "an extent of a product") for arg in args[5:8])
    return tree.Product(
        a=a,
        b=b,
        c=c,
        transpose_a=_flag(args[3]),
        transpose_b=_flag(args[4]),
        m=m,
        n=n,
        k=k,
        policy=reader.constant(args[8], "a policy"),
        clear=reader.compile(args[9]),
        waits=annotations_of(call.annotations).get("wg_wait", 0) != -1,
    )


def _arrive(reader: Reader, call: Any) -> tree.Node:
    block = reader.compile(call.args[1]) if len(call.args) > 1 else None
    return tree.Arrive(reader.barrier(call.args[0]), block)


def _arrive_expecting(reader: Reader, call: Any) -> tree.Node:
    return tree.Arrive(reader.barrier(call.args[0]), None, reader.compile(call.args[1]))


def _sync(reader: Reader, call: Any) -> tree.Node:
    if len(call.args) == 1:
        return tree.BlockBarrier()
    if len(call.args) != 3:
        raise reader.unknown("a named barrier without a count")
    return tree.NamedBarrier(reader.compile(call.args[1]), reader.compile(call.args[2]), waits=True)


def _named_arrive(reader: Reader, call: Any) -> tree.Node:
    return tree.NamedBarrier(reader.compile(call.args[0]), reader.compile(call.args[1]), waits=False)


def _nothing(reader: Reader, call: Any) -> None:
    return None


OPERATORS: dict[str, Operator] = {
    "tl.tileop.copy": _copy,
    "tl.tileop.tma_copy": _copy,
    "tl.tileop.async_copy": _copy,
    "tl.tileop.fill": _fill,
    "tl.tileop.reduce": _reduce,
    "tl.tileop.gemm": _product,
    "tl.tileop.wgmma_gemm": _product,
    "tirx.ptx_arrive_barrier": _arrive,
    "tl.ptx_arrive_cluster_barrier": _arrive,
    "tirx.ptx_arrive_barrier_expect_tx": _arrive_expecting,
    "tl.mbarrier_expect_tx": lambda reader, call: tree.Expect(
        reader.barrier(call.args[0]), reader.compile(call.args[1])
    ),
    "tl.mbarrier_wait_parity": lambda reader, call: tree.Wait(
        reader.barrier(call.args[0]), reader.compile(call.args[1])
    ),
    "tirx.tvm_storage_sync": _sync,
    "tl.named_barrier_arrive": _named_arrive,
    "tl.fence_proxy_async": lambda reader, call: tree.Fence(),
    "tl.wait_wgmma": lambda reader, call: tree.WaitProducts(reader.compile(call.args[0])),
    "tl.warpgroup_wait": lambda reader, call: tree.WaitProducts(reader.compile(call.args[0])),
    "tl.tma_store_arrive": lambda reader, call: tree.CommitStores(),
    "tl.tma_store_wait": lambda reader, call: tree.WaitStores(reader.compile(call.args[0])),
    "tl.cluster_sync": lambda reader, call: tree.ClusterBarrier(arrives=True, waits=True),
    "tl.cluster_arrive": lambda reader, call: tree.ClusterBarrier(arrives=True, waits=False),
    "tl.cluster_arrive_relaxed": lambda reader, call: tree.ClusterBarrier(arrives=True, waits=False, relaxed=True),
    "tl.cluster_wait": lambda reader, call: tree.ClusterBarrier(arrives=False, waits=True),
    # Registers, and what keeps the compiler from moving them about: without effect on what is computed.
    "tl.set_max_nreg": _nothing,
    "tl.no_set_max_nreg": _nothing,
    "tl.warpgroup_fence_operand": _nothing,
    "tl.warpgroup_arrive": _nothing,
    "tl.warpgroup_commit_batch": _nothing,
    "tl.sync_warp": _nothing,
    "tirx.assume": _nothing,
}
