"""Software pipelining of loops whose copies are synchronous.

The stock ROCm pipeline drops `num_stages` where the chip has no asynchronous copies. Told which statement belongs to
which stage it pipelines all the same: the copies of a later iteration are issued before the products of this one, into
another version of their buffers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_READ, _WRITE = 1, 2
_SIMPLE = ("Evaluate", "For", "BufferStore", "IfThenElse")


@dataclass(slots=True)
class Pipelined:
    """The function with its loops staged, and the loops that asked for stages and got none: their variable, and why."""

    prim_func: Any
    staged: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)


def stage_loops(prim_func: Any) -> Pipelined:
    """Assigns stages in every loop with `num_stages` of at least 2 that has no stages of its own.

    Copies from global to shared memory whose buffer nothing else in the loop writes, and nothing reads before, go to
    stage 0 and the rest to the last.

    The function is simplified before: what the pipeline would leave out of a loop (a mask that no tile needs) must not
    be counted among the statements that have a stage.

    Assumes: a `T.Pipelined` loop is a serial `For` annotated `num_stages`, and `PipelinePlanning` takes
    `tl_pipeline_order` and `tl_pipeline_stage` as they are.
    """
    from tilelang.ir import get_stmt_span, set_stmt_span
    from tilelang.transform import Simplify
    from tvm import IRModule, tirx
    from tvm.ir import Op

    result = Pipelined(prim_func)
    simplified = Simplify()(IRModule({"main": prim_func}))["main"]

    def rewrite(loop: Any) -> Any:
        stages = int(loop.annotations.get("num_stages", 0))
        if stages < 2 or "tl_pipeline_stage" in loop.annotations:
            return None
        assigned = _assign(loop, stages)
        if isinstance(assigned, str):
            result.refused.append((str(loop.loop_var.name), assigned))
            return None
        result.staged += 1
        span = get_stmt_span(loop)
        body = loop.body
        if not _at_least(loop.extent, stages):
            # The pass that places barriers takes it that the loop runs, so the barrier in it covers what the first
            # copies wrote. When it does not run, only one that belongs to the last stage does.
            barrier = tirx.Evaluate(tirx.Call("int32", Op.get("tirx.tvm_storage_sync"), [tirx.StringImm("shared")]))
            if span is not None:
                set_stmt_span(barrier, span)
            first = assigned.index(stages - 1)
            body = tirx.SeqStmt([*body.seq[:first], barrier, *body.seq[first:]])
            assigned.insert(first, stages - 1)
        annotations = {
            **loop.annotations,
            "tl_pipeline_order": _order(assigned),
            "tl_pipeline_stage": assigned,
        }
        staged = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, None, annotations)
        if span is not None:
            set_stmt_span(staged, span)
        return staged

    body = tirx.stmt_functor.ir_transform(simplified.body, None, rewrite, ["tirx.For"])
    if result.staged:
        result.prim_func = simplified.with_body(body, prim_func.span)
    return result


def _assign(loop: Any, stages: int) -> list[int] | str:
    """The stage of each statement, or why the loop cannot be pipelined."""
    if type(loop.body).__name__ != "SeqStmt":
        return "it has one statement"
    statements = list(loop.body.seq)
    for stmt in statements:
        if type(stmt).__name__ not in _SIMPLE:
            return f"it holds a {type(stmt).__name__}"
    effects = [_effects(stmt) for stmt in statements]
    assigned = []
    for index, stmt in enumerate(statements):
        early = _loads_ahead(stmt, index, effects)
        assigned.append(0 if early else stages - 1)
    if 0 not in assigned:
        return "no copy from global memory can be made ahead of its use"
    if stages - 1 not in assigned:
        return "it does nothing but copy"
    return assigned


def _at_least(extent: Any, count: int) -> bool:
    return type(extent).__name__ == "IntImm" and int(extent) >= count


def _order(stages: list[int]) -> list[int]:
    """Position of each statement in the new loop body: what is loaded ahead first, else as in the source."""
    places = sorted(range(len(stages)), key=lambda index: (stages[index] != 0, index))
    return [places.index(index) for index in range(len(stages))]


def _loads_ahead(stmt: Any, index: int, effects: list[dict[Any, int]]) -> bool:
    call: Any = getattr(stmt, "value", None)
    if type(stmt).__name__ != "Evaluate" or getattr(getattr(call, "op", None), "name", "") != "tl.tileop.copy":
        return False
    source, destination = (call.args[side].args[0].buffer for side in (0, 1))
    if str(source.scope()) != "global" or not str(destination.scope()).startswith("shared"):
        return False
    others = [effect for position, effect in enumerate(effects) if position != index]
    if any(effect.get(destination.data, 0) & _WRITE for effect in others):
        return False
    if any(destination.data in effect for effect in effects[:index]):
        return False
    inputs = {data for data, access in effects[index].items() if access & _READ}
    return not any(effect.get(data, 0) & _WRITE for effect in others for data in inputs)


def _effects(stmt: Any) -> dict[Any, int]:
    """What a statement does to each buffer, by data variable; anything unclear counts as both."""
    from tvm import tirx

    found: dict[Any, int] = {}

    def note(data: Any, access: int) -> None:
        found[data] = found.get(data, 0) | access

    def visit(node: Any) -> None:
        kind = type(node).__name__
        if kind == "BufferStore":
            note(node.buffer.data, _WRITE)
        elif kind == "BufferLoad":
            note(node.buffer.data, _READ)
        elif kind == "Call":
            name = getattr(node.op, "name", "")
            if name == "tl.tileop.region" or name == "tl.region":
                note(node.args[0].buffer.data, int(node.args[1]))
            elif name in ("tirx.address_of", "tl.access_ptr"):
                note(node.args[0].buffer.data, _READ | _WRITE)
            elif name == "tirx.tvm_access_ptr":
                note(node.args[1], _READ | _WRITE)

    tirx.stmt_functor.post_order_visit(stmt, visit)
    return found
