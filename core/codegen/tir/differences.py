"""Where TileLang's own pipeline gives a statement another meaning than docs/program.md does, or none; what is done.

Data, not action: :func:`core.codegen.tir.legalise` applies it, `tilehal portability` prints it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from core.codegen.tir.order import unordered
from core.codegen.tir.specialisation import Unawaited, displaced
from core.codegen.tir.views import viewed_tiles
from core.program.expressions import constant_int
from core.program.nodes import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Copy,
    Expr,
    Fill,
    Gemm,
    Load,
    Math,
    Reduce,
    Region,
    Scope,
    Stmt,
    Store,
)
from core.program.walk import expressions, statements

if TYPE_CHECKING:
    from core.compiler.artifacts import CompileOptions
    from core.hardware import Chip
    from core.program.nodes import View


class Remedy(StrEnum):
    """What happens to the statement."""

    REFUSED = "refused"
    REWRITTEN = "rewritten"
    RELAXED = "relaxed"  # the user allowed the other meaning


class Rule(StrEnum):
    """Which difference it is; the values are stable, for SARIF and `--json`."""

    SLICED_REDUCE = "sliced-reduce"
    UNGUARDED_FILL = "unguarded-fill"
    SAFE_VALUE = "safe-value-without-tma"
    SYMBOLIC_ROWS = "symbolic-rows-without-tma"
    ODD_WARPGROUP_TILE = "odd-warpgroup-tile"
    EXACT_FLOAT32 = "float32-product"
    NO_MATRIX_INSTRUCTION = "no-matrix-instruction"
    OPERAND_IN_FRAGMENT = "product-operand-in-fragment"
    NARROW_INTEGERS = "narrow-integers"
    SIGNED_POPCOUNT = "signed-popcount"
    FRAGMENT_ELEMENT = "fragment-element"
    KEPT_DIMENSION = "kept-dimension"
    MOVED_DEFINITION = "moved-by-specialisation"
    UNAWAITED_COPY = "copy-awaited-too-late"
    VIEWED_TILE = "pipelined-tile-viewed"
    GLOBAL_ORDER = "order-of-global-memory"


@dataclass(frozen=True, slots=True)
class Difference:
    """One statement that the stock lowering gets wrong.

    Attributes:
        message: what differs and, unless it is refused, what the rewrite does.
        hint: what to write instead; empty when nothing is better.
        buffers: those the remedy concerns: the tensors kept off the bulk copy engine, the operands of a product.
        stock: what TileLang itself says of it, where it refuses.
    """

    rule: Rule
    remedy: Remedy
    stmt: Stmt
    message: str
    hint: str = ""
    buffers: tuple[Buffer, ...] = ()
    stock: str = ""


#: The pass configuration that keeps a block's warps alike.
NO_SPECIALISATION = "tl.disable_warp_specialized"
#: Integer types that C computes in `int`.
NARROW_INTEGERS = frozenset({"int8", "uint8", "int16", "uint16"})


def differences(view: View, chip: Chip, options: CompileOptions) -> tuple[Difference, ...]:
    """Every difference that `chip`'s stock lowering would make to a view, in statement order.

    Args:
        options: `fast_math` and `backend["tf32"]` allow TF32; `backend["aligned_rows"]` promises rows a multiple of 16
            bytes apart.
    """
    found: list[Difference] = []
    for stmt in statements(view):
        match stmt:
            case Reduce():
                found += _reduce(stmt, chip)
            case Fill():
                found += _fill(stmt)
            case Copy():
                found += _copy(stmt, chip, options)
            case Gemm():
                found += _gemm(stmt, chip, options)
            case _:
                pass
        found += _narrow(stmt)
        found += _popcount(stmt)
        found += _fragment_element(stmt)
    found += _specialised(view, chip, options)
    found += _viewed(view)
    found += _unordered(view)
    return tuple(found)


def _viewed(view: View) -> Iterator[Difference]:
    """The stock pipeline gives versions to buffers, not to their memory: what is used through a view has one."""
    for launch in view.launches:
        for loop, buffer in viewed_tiles(launch):
            message = (
                f"rounds of {loop.var.name} do not overlap: TileLang would keep one version of the tile behind the view"
                f" {buffer.name}"
            )
            hint = f"allocate it with the shape and type of {buffer.name} to have them overlap"
            yield Difference(Rule.VIEWED_TILE, Remedy.REWRITTEN, loop, message, hint, (buffer,))


def _specialised(view: View, chip: Chip, options: CompileOptions) -> Iterator[Difference]:
    """A chip with bulk copies has its pipelined loops split between warps that copy and warps that compute."""
    if "tma" not in chip.features or options.pass_configs.get(NO_SPECIALISATION):
        return
    for launch in view.launches:
        for one in displaced(launch):
            if isinstance(one, Unawaited):
                message = f"copies of {one.tensor.name} avoid TMA: {one.message}"
                yield Difference(Rule.UNAWAITED_COPY, Remedy.REWRITTEN, one.stmt, message, buffers=(one.tensor,))
            else:
                yield Difference(Rule.MOVED_DEFINITION, Remedy.REWRITTEN, one.stmt, one.message)


def _unordered(view: View) -> Iterator[Difference]:
    """Nothing of the stock lowering orders the threads of a block in global memory."""
    for stmt, storage in unordered(view):
        message = f"a barrier where the order matters in which a block's statements touch {storage.name}"
        yield Difference(Rule.GLOBAL_ORDER, Remedy.REWRITTEN, stmt, message)


def _reduce(stmt: Reduce, chip: Chip) -> Iterator[Difference]:
    """The stock lowering reduces the whole buffer (or its first rows) whatever the slice says."""
    for region, role in ((stmt.src, "source"), (stmt.dst, "destination")):
        if not _whole(region):
            yield Difference(
                Rule.SLICED_REDUCE,
                Remedy.REFUSED,
                stmt,
                f"T.reduce_{stmt.kind} over a slice of {region.buffer.name} ({role}): TileLang's {chip.vendor} lowering"
                " ignores the slice",
                "copy the slice into a buffer of its own and reduce that",
            )

    source, result = stmt.src.buffer, stmt.dst.buffer
    if result.scope is Scope.FRAGMENT and result.rank == source.rank > 1:
        yield Difference(
            Rule.KEPT_DIMENSION,
            Remedy.REFUSED,
            stmt,
            f"T.reduce_{stmt.kind} into {result.name}, which keeps the reduced dimension: TileLang has no layout",
            f"give {result.name} the shape of {source.name} without dimension {stmt.dim}",
            stock="Check failed: vars.size() == InputDim()",
        )


def _whole(region: Region) -> bool:
    return all(
        isinstance(low, Const) and low.value == 0 and extent == size
        for low, extent, size in zip(region.mins, region.extents, region.buffer.shape, strict=True)
    )


def _fill(stmt: Fill) -> Iterator[Difference]:
    """The stock lowering guards global fills only."""
    if stmt.guard and stmt.dst.buffer.scope is not Scope.GLOBAL:
        yield Difference(
            Rule.UNGUARDED_FILL,
            Remedy.REFUSED,
            stmt,
            f"T.fill may run past the end of {stmt.dst.buffer.name} and TileLang does not guard"
            f" {stmt.dst.buffer.scope.value} buffers",
            "clip the extent so that it is provably inside the buffer",
        )


def _copy(stmt: Copy, chip: Chip, options: CompileOptions) -> Iterator[Difference]:
    """The bulk tensor copy engine fills with zero, and takes only rows a multiple of 16 bytes apart."""
    if "tma" not in chip.features:
        return
    source = stmt.src.buffer
    filled = not (isinstance(stmt.fill, Const) and stmt.fill.value == 0)
    if stmt.src_guard and filled and source.parameter is not None:
        yield Difference(
            Rule.SAFE_VALUE,
            Remedy.REWRITTEN,
            stmt,
            f"copies of {source.name} avoid TMA, which ignores a non-zero safe value",
            buffers=(source,),
        )
    if options.backend.get("aligned_rows"):
        return
    for buffer in (source, stmt.dst.buffer):
        if buffer.parameter is not None and any(not isinstance(stride, Const) for stride in buffer.strides):
            yield Difference(
                Rule.SYMBOLIC_ROWS,
                Remedy.REWRITTEN,
                stmt,
                f"copies of {buffer.name} avoid TMA, which needs rows a multiple of 16 bytes apart; their length is"
                " symbolic",
                "options={'aligned_rows': True} promises it",
                (buffer,),
            )


def _gemm(stmt: Gemm, chip: Chip, options: CompileOptions) -> Iterator[Difference]:
    # N = 8 modulo 16 gives silently wrong results through warpgroup instructions (tile-ai/tilelang#2593).
    if "wgmma" in chip.features and stmt.n % 16 == 8 and stmt.m >= 64:
        why = f"gemm with N = {stmt.n} (8 modulo 16) must not use warpgroup instructions"
        yield Difference(Rule.ODD_WARPGROUP_TILE, Remedy.REWRITTEN, stmt, why)
    a, b = stmt.a.buffer, stmt.b.buffer
    offered = {(instruction.a_dtype, instruction.b_dtype) for instruction in chip.matrix_instructions}
    if not offered or (a.dtype, b.dtype) in offered:
        return
    if a.dtype == b.dtype == "float32":
        if options.fast_math or options.backend.get("tf32"):
            relaxed = "float32 matrix products round their operands to TF32 (10-bit mantissa)"
            yield Difference(Rule.EXACT_FLOAT32, Remedy.RELAXED, stmt, relaxed, buffers=(a, b))
            return
        rule, hint = Rule.EXACT_FLOAT32, "fast_math=True allows TF32"
        message = "float32 gemm as fused multiply-add loops, exact to float32"
        because = "the matrix unit would round it to TF32"
    else:
        rule, hint = Rule.NO_MATRIX_INSTRUCTION, f"{chip.target} has matrix instructions for {_pairs(offered)}"
        message = f"gemm of {a.dtype} and {b.dtype} as multiply-add loops: {chip.target} has no matrix instruction"
        because = f"{chip.target} has no matrix instruction for {a.dtype} and {b.dtype}"
    in_fragments = [buffer for buffer in (a, b) if buffer.scope is not Scope.SHARED]
    for buffer in in_fragments:
        yield Difference(
            Rule.OPERAND_IN_FRAGMENT,
            Remedy.REFUSED,
            stmt,
            f"T.gemm of {a.dtype} and {b.dtype} with {buffer.name} in a fragment: {because}, and the loops used instead"
            " read both operands from shared memory",
            "copy the operand to a shared buffer" + (f", or {hint}" if rule is Rule.EXACT_FLOAT32 else ""),
        )
    if not in_fragments:
        yield Difference(rule, Remedy.REWRITTEN, stmt, message, hint, (a, b))


def _pairs(offered: set[tuple[str, str]]) -> str:
    return ", ".join(sorted(a if a == b else f"{a} and {b}" for a, b in offered))


def _narrow(stmt: Stmt) -> Iterator[Difference]:
    """C widens 8- and 16-bit operators to int; TVM takes a widened uint32 for signed."""
    for expr in expressions(stmt):
        arithmetic = isinstance(expr, Binary) and expr.op in (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL)
        widened = isinstance(expr, Cast) and expr.dtype == "int64" and expr.a.dtype == "uint32"
        if widened or (arithmetic and expr.dtype in NARROW_INTEGERS):
            message = "integer arithmetic wraps in its own type: casts made explicit, since C widens it"
            yield Difference(Rule.NARROW_INTEGERS, Remedy.REWRITTEN, stmt, message)
            return


def _popcount(stmt: Stmt) -> Iterator[Difference]:
    """TileLang counts the bits of unsigned integers only."""
    for expr in expressions(stmt):
        if isinstance(expr, Math) and expr.function == "popcount" and expr.args[0].dtype.startswith("int"):
            message = "popcount of a signed integer counts the bits of the unsigned one"
            yield Difference(Rule.SIGNED_POPCOUNT, Remedy.REWRITTEN, stmt, message)
            return


def _fragment_element(stmt: Stmt) -> Iterator[Difference]:
    """A fragment is spread over threads; TileLang addresses none of its elements by number, but the first."""
    accesses: list[tuple[Buffer, tuple[Expr, ...]]] = [
        (expr.buffer, expr.indices) for expr in expressions(stmt) if isinstance(expr, Load)
    ]
    if isinstance(stmt, Store):
        accesses.append((stmt.buffer, stmt.indices))
    if isinstance(stmt, Copy):
        for region in (stmt.src, stmt.dst):
            single = zip(region.mins, region.extents, strict=True)
            accesses.append((region.buffer, tuple(low for low, extent in single if constant_int(extent) == 1)))
    for buffer, indices in accesses:
        places = [index.value for index in indices if isinstance(index, Const) and index.value != 0]
        if buffer.scope is Scope.FRAGMENT and places:
            yield Difference(
                Rule.FRAGMENT_ELEMENT,
                Remedy.REFUSED,
                stmt,
                f"{buffer.name} at {places[0]}: a fragment is spread over threads, and TileLang cannot address a place"
                " of it by number",
                f"copy {buffer.name} to a shared buffer (T.alloc_shared) and use that",
                stock=f"Fragment buffer access with non-zero index [{places[0]}] is not supported",
            )
            return
