"""One meaning on every target: makes a PrimFunc lower to what docs/program.md says, or refuses it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from core.codegen.tir import copies, narrow, products
from core.errors import UnsupportedOp
from core.program.nodes import Buffer, Const, Copy, Fill, Gemm, Reduce, Region, Scope, Stmt
from core.program.walk import statements

if TYPE_CHECKING:
    from core.compiler.artifacts import CompileOptions
    from core.hardware import Chip
    from core.program import Program


@dataclass(slots=True)
class Legalised:
    """A PrimFunc ready for the stock pipeline, and what was done to it.

    Attributes:
        prim_func: the rewritten function.
        pass_configs: pass configuration the rewrites rely on; joined with, and never against, the user's.
        rewrites: one line each, for provenance.
        relaxations: meanings the user allowed to be relaxed (`tf32`), for `kernel.config`.
    """

    prim_func: Any
    pass_configs: dict[str, Any] = field(default_factory=dict)
    rewrites: list[str] = field(default_factory=list)
    relaxations: list[str] = field(default_factory=list)

    def set_config(self, key: str, value: Any, user: Mapping[str, Any], why: str, stmt: Stmt) -> None:
        """Sets a pass configuration for `stmt`; a contrary one of the user's is an error, never overruled."""
        if user.get(key, value) != value:
            raise UnsupportedOp(
                f"{why}, which needs {key}={value!r}, but pass_configs says {user[key]!r}",
                hint=f"leave {key} out of pass_configs",
                location=stmt.location,
            )
        if key not in self.pass_configs:
            self.pass_configs[key] = value
            self.rewrites.append(f"{why}: {key}={value!r}" + (f" (line {stmt.location.line})" if stmt.location else ""))


def legalise(program: Program, chip: Chip, options: CompileOptions) -> Legalised:
    """Applies every rewrite that `chip` needs.

    Raises:
        UnsupportedOp: a form that the stock lowering gets wrong and that no rewrite covers, with its line.
    """
    result = Legalised(program.prim_func)
    for stmt in statements(program.view):
        for kind, rule in _RULES:
            if isinstance(stmt, kind):
                rule(stmt, chip, options, result)
    result.prim_func, changed = narrow.wrap(result.prim_func)
    if changed:
        result.rewrites.append("integer arithmetic wraps in its own type: casts made explicit, since C widens it")
    _bulk_copies(program, chip, options, result)
    _float32_products(program, options, result)
    return result


def _whole(region: Region) -> bool:
    return all(
        isinstance(low, Const) and low.value == 0 and extent == size
        for low, extent, size in zip(region.mins, region.extents, region.buffer.shape, strict=True)
    )


def _sliced_reduce(stmt: Reduce, chip: Chip, options: CompileOptions, result: Legalised) -> None:
    """The stock lowering reduces the whole buffer (or its first rows) whatever the slice says."""
    for region, role in ((stmt.src, "source"), (stmt.dst, "destination")):
        if not _whole(region):
            raise UnsupportedOp(
                f"T.reduce_{stmt.kind} over a slice of {region.buffer.name} ({role}): TileLang's {chip.vendor} lowering"
                " ignores the slice",
                hint="copy the slice into a buffer of its own and reduce that",
                location=stmt.location,
            )


def _bulk_copies(program: Program, chip: Chip, options: CompileOptions, result: Legalised) -> None:
    """Keeps copies away from the bulk tensor copy engine where it would change or fail the kernel.

    It fills what is out of bounds with zero, whatever the safe value is, and it takes only rows that lie a multiple of
    16 bytes apart, which a symbolic row length does not promise.
    """
    if "tma" not in chip.features:
        return
    filled: set[str] = set()
    unaligned: set[str] = set()
    for stmt in statements(program.view):
        if not isinstance(stmt, Copy):
            continue
        if stmt.src_guard and not (isinstance(stmt.fill, Const) and stmt.fill.value == 0):
            filled |= _tensor_name(program, stmt.src.buffer)
        for buffer in (stmt.src.buffer, stmt.dst.buffer):
            if not options.backend.get("aligned_rows") and any(not isinstance(s, Const) for s in buffer.strides):
                unaligned |= _tensor_name(program, buffer)
    if filled | unaligned:
        result.prim_func = copies.without_tma(result.prim_func, frozenset(filled | unaligned))
    if filled:
        result.rewrites.append(f"copies of {', '.join(sorted(filled))} avoid TMA, which ignores a non-zero safe value")
    if unaligned:
        result.rewrites.append(
            f"copies of {', '.join(sorted(unaligned))} avoid TMA, which needs rows a multiple of 16 bytes apart; their"
            " length is symbolic (options={'aligned_rows': True} promises it)"
        )


def _tensor_name(program: Program, buffer: Buffer) -> set[str]:
    """The name of a parameter's buffer in the PrimFunc; empty for an on-chip buffer."""
    if buffer.parameter is None:
        return set()
    function = program.prim_func
    return {str(function.buffer_map[function.params[buffer.parameter]].name)}


def _unguarded_fill(stmt: Fill, chip: Chip, options: CompileOptions, result: Legalised) -> None:
    """The stock lowering guards global fills only."""
    if stmt.guard and stmt.dst.buffer.scope is not Scope.GLOBAL:
        raise UnsupportedOp(
            f"T.fill may run past the end of {stmt.dst.buffer.name} and TileLang does not guard"
            f" {stmt.dst.buffer.scope.value} buffers",
            hint="clip the extent so that it is provably inside the buffer",
            location=stmt.location,
        )


def _odd_warpgroup_tile(stmt: Gemm, chip: Chip, options: CompileOptions, result: Legalised) -> None:
    """N = 8 modulo 16 gives silently wrong results through warpgroup instructions (tile-ai/tilelang#2593)."""
    if "wgmma" in chip.features and stmt.n % 16 == 8 and stmt.m >= 64:
        why = f"gemm with N = {stmt.n} (8 modulo 16) must not use warpgroup instructions"
        result.set_config("tl.disable_wgmma", True, options.pass_configs, why, stmt)


def _float32_products(program: Program, options: CompileOptions, result: Legalised) -> None:
    """Matrix units round float32 operands to TF32; only a user who allows it gets that."""
    found = [s for s in statements(program.view) if isinstance(s, Gemm) and s.a.buffer.dtype == "float32"]
    if not found:
        return
    if options.fast_math or options.backend.get("tf32"):
        result.relaxations.append("tf32: float32 matrix products round their operands to TF32 (10-bit mantissa)")
        return
    for gemm in found:
        for operand in (gemm.a, gemm.b):
            if operand.buffer.scope is not Scope.SHARED:
                raise UnsupportedOp(
                    f"float32 T.gemm with {operand.buffer.name} in a fragment: the matrix unit would round it to TF32,"
                    " and the exact path reads both operands from shared memory",
                    hint="copy the operand to a shared buffer, or allow TF32 with fast_math=True",
                    location=gemm.location,
                )
    result.prim_func = products.as_loops(result.prim_func)
    result.rewrites.append(
        f"{len(found)} float32 gemm(s) as fused multiply-add loops, exact to float32; fast_math=True allows TF32"
    )


_Rule = Callable[[Any, "Chip", "CompileOptions", Legalised], None]
_RULES: tuple[tuple[type[Stmt], _Rule], ...] = (
    (Reduce, _sliced_reduce),
    (Fill, _unguarded_fill),
    (Gemm, _odd_warpgroup_tile),
)
