"""From something in generated code back to the line of the user's kernel it most likely came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.codegen.simt.translate import Foreign
from core.errors import Location

if TYPE_CHECKING:
    from core.program import Program


def user_line(program: Program, foreign: Foreign) -> Location | None:
    """The statement that spells the name, else the one that shares most names with its line, else the kernel.

    The generator prints no line numbers, but it keeps the names of buffers and of called functions.
    """
    from tvm import tirx

    from core.program.tir.spans import is_user_location, statement_location

    best: tuple[int, Location] | None = None
    reached: Location | None = None

    def visit(node: Any) -> bool:
        nonlocal best, reached
        if isinstance(node, tirx.Stmt):
            line = statement_location(node)
            # Inside one of TileLang's macros it is the user's statement in front of it that says where.
            reached = line if is_user_location(line) else reached
            if reached is not None and type(node).__name__ in ("Evaluate", "BufferStore", "Bind"):
                names, texts = _names(node)
                score = len(names & foreign.neighbours) + (1000 if foreign.name in names | texts else 0)
                if score and (best is None or score > best[0]):
                    best = (score, reached)
        return True

    tirx.stmt_functor.pre_order_visit(program.prim_func.body, visit)
    return best[1] if best is not None else program.location


def barrier_line(program: Program, count: str) -> Location | None:
    """The `T.sync_threads(id, count)` with this count, else the first T.sync_threads() of a branch, else the kernel."""
    from tvm import tirx

    from core.program.tir.spans import statement_location

    counted: list[Location | None] = []
    branched: list[Location | None] = []

    def barriers(stmt: Any, into: list[Location | None], arguments: int) -> None:
        def visit(node: Any) -> None:
            if type(node).__name__ != "Evaluate" or getattr(node.value, "op", None) is None:
                return
            given = list(node.value.args)
            is_barrier = getattr(node.value.op, "name", "") == "tirx.tvm_storage_sync" and len(given) == arguments
            if is_barrier and (arguments == 1 or str(given[2]) == count):
                into.append(statement_location(node))

        tirx.stmt_functor.post_order_visit(stmt, visit)

    body = program.prim_func.body
    barriers(body, counted, 3)
    tirx.stmt_functor.post_order_visit(
        body, lambda node: barriers(node, branched, 1) if type(node).__name__ == "IfThenElse" else None
    )
    return next((line for line in (*counted, *branched) if line is not None), program.location)


def _names(stmt: Any) -> tuple[set[str], set[str]]:
    """Names of the buffers and variables a statement uses, and its string literals and operators."""
    from tvm import tirx

    names: set[str] = set()
    texts: set[str] = set()

    def visit(node: Any) -> None:
        kind = type(node).__name__
        if kind in ("BufferLoad", "BufferStore"):
            names.add(str(node.buffer.name))
        elif kind == "Var":
            names.add(str(node.name))
        elif kind == "StringImm":
            texts.add(str(node.value))
        elif kind == "Call":
            texts.add(str(getattr(node.op, "name", "")).rpartition(".")[2])

    tirx.stmt_functor.post_order_visit(stmt, visit)
    return names, texts
