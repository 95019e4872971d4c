"""Matrix products as explicit loops, where a matrix unit would not keep their meaning."""

from __future__ import annotations

from typing import Any

from core._tilelang import tilelang_version
from core.codegen.tir.rebuild import with_span
from core.errors import UnsupportedOp
from core.program.tir.spans import statement_location

_GEMM_ARGUMENTS = 13


def as_loops(prim_func: Any, operands: frozenset[tuple[str, str]]) -> Any:
    """Replaces every `T.gemm` of a PrimFunc by a serial loop over k around a parallel loop over (m, n).

    Args:
        operands: the dtypes of A and B to replace; others stay.

    k is outermost, so that each thread keeps its accumulators in registers and reads one element of B per step. The
    accumulation order is that of k, in C's dtype. Spans are carried over.
    """
    from tvm import tirx

    def replace(stmt: Any) -> Any:
        call = stmt.value
        if getattr(getattr(call, "op", None), "name", "") != "tl.tileop.gemm":
            return None
        if len(call.args) != _GEMM_ARGUMENTS:
            # Passing it on would leave it to the matrix unit, silently.
            raise UnsupportedOp(
                f"T.gemm with {len(call.args)} arguments, the form of another TileLang release, cannot be rewritten",
                hint=f"trace the kernel with tilelang {tilelang_version()}",
                location=statement_location(stmt),
            )
        a, b, c = (call.args[i].args[0] for i in range(3))
        if (str(a.buffer.dtype), str(b.buffer.dtype)) not in operands:
            return None
        return with_span(_loops(call, a, b, c), stmt)

    body = tirx.stmt_functor.ir_transform(prim_func.body, None, replace, ["tirx.Evaluate"])
    return prim_func.with_body(body, prim_func.span)


def _loops(call: Any, a: Any, b: Any, c: Any) -> Any:
    from tvm import tirx

    transpose_a, transpose_b = bool(call.args[3]), bool(call.args[4])
    m, n, k = (int(call.args[i]) for i in (5, 6, 7))
    clear = call.args[9]
    accumulator = str(c.buffer.dtype)

    def element(load: Any, row: Any, column: Any) -> Any:
        *outer, first, second = load.indices
        return tirx.BufferLoad(load.buffer, [*outer, first + row, second + column])

    def target(row: Any, column: Any) -> list[Any]:
        *outer, first, second = c.indices
        return [*outer, first + row, second + column]

    def nest(body: Any, i: Any, j: Any) -> Any:
        inner = tirx.For(j, 0, n, tirx.ForKind.PARALLEL, body)
        return tirx.For(i, 0, m, tirx.ForKind.PARALLEL, inner)

    i, j, step = (tirx.Var(name, "int32") for name in ("gemm_m", "gemm_n", "gemm_k"))
    left = element(a, step, i) if transpose_a else element(a, i, step)
    right = element(b, j, step) if transpose_b else element(b, step, j)
    where = target(i, j)
    product = left.astype(accumulator) * right.astype(accumulator)
    update = tirx.BufferStore(c.buffer, tirx.BufferLoad(c.buffer, where) + product, where)
    statements = [tirx.For(step, 0, k, tirx.ForKind.SERIAL, nest(update, i, j))]
    if not (isinstance(clear, tirx.IntImm) and int(clear) == 0):
        i0, j0 = tirx.Var("gemm_m0", "int32"), tirx.Var("gemm_n0", "int32")
        zero = nest(tirx.BufferStore(c.buffer, tirx.const(0, accumulator), target(i0, j0)), i0, j0)
        known = isinstance(clear, tirx.IntImm)
        statements.insert(0, zero if known else tirx.IfThenElse(clear.astype("bool"), zero, None))
    return tirx.SeqStmt(statements) if len(statements) > 1 else statements[0]
