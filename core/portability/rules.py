"""The rules behind a verdict: what the checks, the descriptor and the table of differences say about each statement.

Nothing a compilation decides is decided again here. Capacity and matrix types are `core.program.capacity`'s, what stock
lowering changes is `core.codegen.tir.differences`'; the rest follows from how a chip runs a block: as threads, through
TileLang's own pipeline, or as a whole, through the tile-level view.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from core.codegen.cpp.types import cpp_type
from core.codegen.tir import Remedy, differences
from core.compiler.artifacts import CompileOptions
from core.errors import Location, UnsupportedOp
from core.portability.lints import wave_width
from core.portability.model import Remark, Status
from core.program import walk
from core.program.capacity import memory_demands, violations
from core.program.footprint import footprint
from core.program.nodes import For, Gemm, LoopKind, OpaqueExpr, OpaqueStmt, Scope, Stmt, Var, VarKind, View
from core.program.rows import uneven_rows

if TYPE_CHECKING:
    from core.hardware import Chip

#: Kinds of TVM target that are machines of threads in waves.
_THREAD_KINDS = frozenset({"cuda", "rocm", "opencl", "vulkan", "metal", "webgpu"})
#: Those that the C++ family serves.
_CPP_KINDS = frozenset({"llvm", "c"})
#: Descriptor key of chips whose own compiler plans on-chip memory: the backend judges capacity while lowering.
PLANS_MEMORY = "plans_memory"
#: Descriptor key of chips whose backend copies synchronously by default, whatever the chip has.
SYNCHRONOUS_COPIES = "synchronous_copies"
_STATUS_OF = {
    Remedy.REFUSED: Status.REFUSED,
    Remedy.REWRITTEN: Status.EMULATED,
    Remedy.RELAXED: Status.EMULATED,
}


def runs_threads(chip: Chip) -> bool:
    """Whether a block is threads in waves; otherwise one core, or one matrix and vector engine, runs it as a whole."""
    return chip.codegen.get("tvm_kind") in _THREAD_KINDS or chip.limits.threads_per_block is not None


def remarks(view: View, chip: Chip, refused_at: Location | None = None) -> Iterator[Remark]:
    """Everything there is to say about a view on a chip.

    Args:
        refused_at: a line that no target can take: what lowering it would do is of no interest.
    """
    refused = {refused_at} - {None}
    for error in violations(footprint(view), chip):
        if isinstance(error, UnsupportedOp):
            refused.add(error.location)
        yield Remark(error.code, Status.REFUSED, error.message, error.hint, error.location)
    if chip.codegen.get(PLANS_MEMORY):
        yield from _over_the_plan(view, chip)
    yield from _unserved_scopes(view, chip)
    if chip.codegen.get("tvm_kind") in _CPP_KINDS:
        yield from _types_without_cpp(view)
    if runs_threads(chip):
        for one in differences(view, chip, CompileOptions()):
            if one.stmt.location in refused:
                continue
            yield Remark(one.rule.value, _STATUS_OF[one.remedy], one.message, one.hint, one.stmt.location)
        yield from wave_width(view, chip)
        yield from _uneven_rows(view)
    for launch in view.launches:
        for stmt in walk.statements(launch.body):
            yield from _statement(stmt, chip)
            if isinstance(stmt, Gemm) and stmt.location not in refused:
                yield from _product(stmt, chip)


def _statement(stmt: Stmt, chip: Chip) -> Iterator[Remark]:
    threads = runs_threads(chip)
    if not threads and any(isinstance(e, Var) and e.kind is VarKind.THREAD for e in walk.expressions(stmt)):
        yield Remark(
            "thread-index",
            Status.REFUSED,
            "reads a thread index, and this chip runs a block as a whole",
            "say what the block does with T.Parallel, T.copy and T.reduce_* instead of per thread",
            stmt.location,
        )
    for operation in _opaque(stmt):
        yield _opaque_remark(operation, stmt, chip, threads=threads)
    pipelined = isinstance(stmt, For) and stmt.kind is LoopKind.PIPELINED and stmt.num_stages > 0
    synchronous = bool(chip.codegen.get(SYNCHRONOUS_COPIES))
    if pipelined and threads and (synchronous or "async_copy" not in chip.features):
        why = "copies are synchronous unless asked otherwise" if synchronous else "there are no asynchronous copies"
        yield Remark(
            "pipelining",
            Status.EMULATED,
            f"on {chip.target} {why}: stages overlap only as far as its compiler reorders loads",
            location=stmt.location,
        )


def _opaque(stmt: Stmt) -> Iterator[str]:
    if isinstance(stmt, OpaqueStmt):
        yield stmt.operation
    for expr in walk.expressions(stmt):
        if isinstance(expr, OpaqueExpr):
            yield expr.operation


def _opaque_remark(operation: str, stmt: Stmt, chip: Chip, *, threads: bool) -> Remark:
    if chip.codegen.get("tvm_kind") == "cuda":
        return Remark(
            "opaque-construct",
            Status.NATIVE,
            f"{operation} goes to TileLang's CUDA lowering as it is; no other vendor need know it",
            location=stmt.location,
        )
    hint = "use the tile operations of docs/program.md, which every target knows"
    if threads:
        message = f"{operation} is outside the portable language: whether {chip.vendor} has it, compiling shows"
        return Remark("opaque-construct", Status.UNKNOWN, message, hint, stmt.location)
    message = f"{operation} is outside the portable language, and a chip that runs blocks as a whole needs its meaning"
    return Remark("opaque-construct", Status.REFUSED, message, hint, stmt.location)


def _product(stmt: Gemm, chip: Chip) -> Iterator[Remark]:
    """Products on a chip that is not lowered through TileLang's pipeline, or that has no matrix instructions at all."""
    if runs_threads(chip) and chip.matrix_instructions:
        return  # one of `differences`
    a, b = stmt.a.buffer.dtype, stmt.b.buffer.dtype
    if any((i.a_dtype, i.b_dtype) == (a, b) for i in chip.matrix_instructions):
        return
    known = "has none for these types" if chip.matrix_instructions else "describes none"
    message = f"gemm of {a} and {b} as multiply-adds, without matrix instructions: {chip.target} {known}"
    yield Remark("no-matrix-instruction", Status.EMULATED, message, location=stmt.location)


def _over_the_plan(view: View, chip: Chip) -> Iterator[Remark]:
    """Memory that does not suffice as written, where the chip's compiler has the last word on what is kept there."""
    for launch in footprint(view).launches:
        for demand in memory_demands(launch, chip):
            limit, needed = demand.memory.block_limit_bytes, demand.needed_bytes
            if demand.spills or limit is None or needed is None or needed <= limit:
                continue
            yield Remark(
                "resource-exceeded",
                Status.UNKNOWN,
                f"as written this needs {needed:,} bytes of {demand.memory.name}, and {chip.target} has {limit:,}; its"
                " compiler plans this memory, so compiling decides",
                "use smaller tiles",
                max(demand.uses, key=lambda use: use.total_bytes or 0).location or launch.launch.location,
            )


def _uneven_rows(view: View) -> Iterator[Remark]:
    for rows in uneven_rows(view):
        yield Remark("uneven-rows", Status.UNKNOWN, rows.message, rows.hint, rows.reduce.location, warning=True)


def _types_without_cpp(view: View) -> Iterator[Remark]:
    parameters = [parameter.buffer for parameter in view.parameters if parameter.buffer is not None]
    on_chip = [buffer for launch in view.launches for buffer in launch.buffers]
    for buffer in (*parameters, *view.workspaces, *on_chip):
        try:
            cpp_type(buffer.dtype, buffer.location)
        except UnsupportedOp as error:
            yield Remark(error.code, Status.REFUSED, error.message, error.hint, error.location)


def _unserved_scopes(view: View, chip: Chip) -> Iterator[Remark]:
    """Buffers in scopes that only some chips have: barriers, tensor memory, a vendor's own levels.

    Every chip is meant to serve shared buffers and fragments; one that describes no memory for them is not judged.
    """
    for launch in view.launches:
        for buffer in launch.buffers:
            if buffer.scope in (Scope.SHARED, Scope.FRAGMENT) and not chip.memories_for_scope(buffer.scope.value):
                yield Remark(
                    "unserved-scope",
                    Status.UNKNOWN,
                    f"{buffer.name} is in {buffer.scope.value}, and no memory that {chip.target} describes serves that"
                    " scope: neither its room nor whether there is any is known",
                    f'{chip.vendor}\'s descriptor should name the memory: scopes = ["{buffer.scope.value}"]',
                    buffer.location or launch.location,
                )
            if buffer.scope not in (Scope.BARRIER, Scope.OTHER):
                continue
            scope = buffer.storage.tilelang_scope
            if chip.memories_for_scope(scope) and (runs_threads(chip) or buffer.scope is Scope.OTHER):
                continue
            yield Remark(
                "unserved-scope",
                Status.REFUSED,
                f"{buffer.name} is in {scope}: {chip.target} has no such memory",
                "use T.alloc_shared or T.alloc_fragment, which every chip serves",
                buffer.location or launch.location,
            )
