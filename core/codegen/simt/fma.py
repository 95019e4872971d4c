"""Products that no matrix instruction of the chip does: plain multiply-adds, operands in shared memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.codegen.simt.matrix import Product

_GEMM_ARGUMENTS = 13


def replace_products(prim_func: Any, reason: Callable[[Product, int, bool], str | None]) -> tuple[Any, list[str]]:
    """Replaces the `T.gemm`s for which `reason` gives one by loops: serial over k, parallel over (m, n).

    Each thread keeps its accumulators in registers; k is outermost. Operands in registers are put into shared memory
    first, since a thread needs elements that others hold. Spans are carried over.

    Args:
        reason: of (product, policy, whether C is a whole buffer): why not to use the matrix unit, or None.

    Returns:
        The function, and the reasons that applied.
    """
    from tilelang.ir import get_stmt_span, set_stmt_span
    from tvm import tirx

    reasons: list[str] = []
    staged: list[Any] = []

    def replace(stmt: Any) -> Any:
        call = stmt.value
        if getattr(getattr(call, "op", None), "name", "") != "tl.tileop.gemm" or len(call.args) != _GEMM_ARGUMENTS:
            return None
        a, b, c = (call.args[i].args[0] for i in range(3))
        m, n, k = (int(call.args[i]) for i in (5, 6, 7))
        product = Product(str(a.buffer.dtype), str(b.buffer.dtype), str(c.buffer.dtype), m, n, k)
        why = reason(product, int(call.args[8]), _whole(call.args[2]))
        if why is None:
            return None
        reasons.append(why)
        span = get_stmt_span(stmt)
        copies = []
        for position, name in ((0, "a"), (1, "b")):
            region = call.args[position]
            if str(region.args[0].buffer.scope()).startswith("local"):
                load, copy = _through_shared(region, f"gemm_{name}_{len(staged)}", staged)
                copies.append(copy)
                a, b = (load, b) if position == 0 else (a, load)
        body = tirx.SeqStmt([*copies, _loops(call, a, b, c, m, n, k)]) if copies else _loops(call, a, b, c, m, n, k)
        if span is not None:
            for part in (body, *copies):
                set_stmt_span(part, span)
        return body

    body = tirx.stmt_functor.ir_transform(prim_func.body, None, replace, ["tirx.Evaluate"])
    if not reasons:
        return prim_func, []
    if staged:
        body = _allocate(body, staged)
    return prim_func.with_body(body, prim_func.span), reasons


def _whole(region: Any) -> bool:
    load = region.args[0]
    extents = region.args[2:]
    return all(
        _is_zero(index) and _equal(extent, size)
        for index, extent, size in zip(load.indices, extents, load.buffer.shape, strict=True)
    )


def _is_zero(value: Any) -> bool:
    return type(value).__name__ == "IntImm" and int(value) == 0


def _equal(left: Any, right: Any) -> bool:
    return type(left).__name__ == type(right).__name__ == "IntImm" and int(left) == int(right)


def _through_shared(region: Any, name: str, staged: list[Any]) -> tuple[Any, Any]:
    """A shared buffer of the region's shape, as a load of its first element, and the copy that fills it."""
    from tvm import tirx

    load, extents = region.args[0], region.args[2:]
    buffer = tirx.decl_buffer([int(e) for e in extents], str(load.buffer.dtype), name, scope="shared.dyn")
    staged.append(buffer)
    origin = tirx.BufferLoad(buffer, [tirx.IntImm("int32", 0)] * len(extents))
    loops = [tirx.Var(f"{name}_{axis}", "int32") for axis in range(len(extents))]
    source = tirx.BufferLoad(load.buffer, [base + i for base, i in zip(load.indices, loops, strict=True)])
    body: Any = tirx.BufferStore(buffer, source, loops)
    for variable, extent in reversed(list(zip(loops, extents, strict=True))):
        body = tirx.For(variable, 0, int(extent), tirx.ForKind.PARALLEL, body)
    return origin, body


def _allocate(body: Any, buffers: list[Any]) -> Any:
    """Adds buffers to the block that allocates the kernel's own."""
    from tvm import tirx

    done = False

    def add(block: Any) -> Any:
        nonlocal done
        if done or str(block.name_hint) != "tilelang_root":
            return None
        done = True
        return tirx.SBlock(
            block.iter_vars,
            block.reads,
            block.writes,
            block.name_hint,
            block.body,
            block.init,
            [*block.alloc_buffers, *buffers],
            block.match_buffers,
            block.annotations,
        )

    return tirx.stmt_functor.ir_transform(body, None, add, ["tirx.SBlock"])


def _loops(call: Any, a: Any, b: Any, c: Any, m: int, n: int, k: int) -> Any:
    from tvm import tirx

    transpose_a, transpose_b, clear = bool(call.args[3]), bool(call.args[4]), call.args[9]
    accumulator = str(c.buffer.dtype)

    def at(load: Any, row: Any, column: Any) -> list[Any]:
        *outer, first, second = load.indices
        return [*outer, first + row, second + column]

    def nest(body: Any, i: Any, j: Any) -> Any:
        inner = tirx.For(j, 0, n, tirx.ForKind.PARALLEL, body)
        return tirx.For(i, 0, m, tirx.ForKind.PARALLEL, inner)

    i, j, step = (tirx.Var(name, "int32") for name in ("gemm_m", "gemm_n", "gemm_k"))
    left = tirx.BufferLoad(a.buffer, at(a, step, i) if transpose_a else at(a, i, step))
    right = tirx.BufferLoad(b.buffer, at(b, j, step) if transpose_b else at(b, step, j))
    where = at(c, i, j)
    total = tirx.BufferLoad(c.buffer, where) + left.astype(accumulator) * right.astype(accumulator)
    update = tirx.For(step, 0, k, tirx.ForKind.SERIAL, nest(tirx.BufferStore(c.buffer, total, where), i, j))
    if _is_zero(clear):
        return update
    i0, j0 = tirx.Var("gemm_m0", "int32"), tirx.Var("gemm_n0", "int32")
    zero = nest(tirx.BufferStore(c.buffer, tirx.const(0, accumulator), at(c, i0, j0)), i0, j0)
    if type(clear).__name__ != "IntImm":
        zero = tirx.IfThenElse(clear.astype("bool"), zero, None)
    return tirx.SeqStmt([zero, update])
