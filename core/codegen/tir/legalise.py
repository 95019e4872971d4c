"""One meaning on every target: makes a PrimFunc lower to what docs/program.md says, or refuses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from core.codegen.tir import atomics, bits, copies, narrow, order, products, slices, views
from core.codegen.tir.differences import NO_SPECIALISATION, Difference, Remedy, Rule, differences
from core.errors import UnsupportedOp
from core.program.nodes import For, Stmt
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
        sequential: loops that are no longer pipelined, by the name of their variable, with the rule and why.
        relaxations: meanings the user allowed to be relaxed (`tf32`), for `kernel.config`.
    """

    prim_func: Any
    pass_configs: dict[str, Any] = field(default_factory=dict)
    rewrites: list[str] = field(default_factory=list)
    sequential: list[tuple[str, str]] = field(default_factory=list)
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
    found = differences(program.view, chip, options)
    for difference in found:
        if difference.remedy is Remedy.REFUSED:
            raise UnsupportedOp(
                difference.message,
                hint=difference.hint,
                location=difference.stmt.location,
                details={"rule": difference.rule.value, "stock": difference.stock},
            )
    result = Legalised(program.prim_func)
    for difference in found:
        if difference.rule is Rule.ODD_WARPGROUP_TILE:
            result.set_config("tl.disable_wgmma", True, options.pass_configs, difference.message, difference.stmt)
        elif difference.rule is Rule.MOVED_DEFINITION:
            result.set_config(NO_SPECIALISATION, True, options.pass_configs, difference.message, difference.stmt)
        elif difference.remedy is Remedy.RELAXED:
            relaxed = f"tf32: {difference.message}"
            if relaxed not in result.relaxations:
                result.relaxations.append(relaxed)
    result.prim_func, lines = slices.one_by_one(result.prim_func)
    if lines:
        at = ", ".join(str(line) for line in sorted(set(lines)))
        moved = "elements of a slice that begins at no multiple of its length move one by one"
        result.rewrites.append(f"{moved} (line {at})")
    result.prim_func, converted = atomics.convert_values(result.prim_func)
    if converted:
        result.rewrites.append(f"{converted} atomic(s) of an element get their value in the element's type")
    # All of the function: what the view folds away or does not know is arithmetic too.
    result.prim_func, changed = narrow.wrap(result.prim_func)
    if changed:
        result.rewrites.append("integer arithmetic wraps in its own type: casts made explicit, since C widens it")
    signed = [one for one in found if one.rule is Rule.SIGNED_POPCOUNT]
    if signed:
        result.prim_func = bits.unsigned_popcount(result.prim_func)
        _say(signed, result)
    _ordered(program, found, chip, options, result)
    viewed = [one for one in found if one.rule is Rule.VIEWED_TILE]
    if viewed:
        result.prim_func, loops = views.without_pipeline(result.prim_func)
        _say(viewed, result)
        why = f"{Rule.VIEWED_TILE.value}, it fills a tile that it uses through a view"
        result.sequential += [(str(loop.name), why) for loop in loops]
    _bulk_copies(program, found, result)
    if "tma" in chip.features:
        before = result.prim_func
        result.prim_func = copies.without_tma(before, copies.laid_out(before))
        if not result.prim_func.body.same_as(before.body):
            result.rewrites.append("tensors with a layout of their own are not copied in bulk, which would ignore it")
    _products(found, result)
    return result


def _ordered(
    program: Program, found: Sequence[Difference], chip: Chip, options: CompileOptions, result: Legalised
) -> None:
    """Keeps the statements of a block in order where they touch global memory that others of them have written."""
    unordered = [one for one in found if one.rule is Rule.GLOBAL_ORDER]
    if not unordered:
        return
    done = order.ordered(result.prim_func, [launch.uses_threads for launch in program.view.launches])
    if not done.changed:
        return
    result.prim_func = copies.without_tma(done.prim_func, done.memories)
    if "tma" in chip.features and any(isinstance(one, For) and one.num_stages for one in statements(program.view)):
        # A barrier of all threads would stand where only those that compute come by.
        why = "barriers are for all threads of a block"
        result.set_config(NO_SPECIALISATION, True, options.pass_configs, why, unordered[0].stmt)
    _say(unordered, result)
    if done.loops:
        names = ", ".join(sorted({str(loop.name) for loop in done.loops}))
        result.rewrites.append(f"rounds of {names} do not overlap: they touch what other rounds write")
        why = f"{Rule.GLOBAL_ORDER.value}, its rounds touch what other rounds write"
        result.sequential += [(str(loop.name), why) for loop in done.loops]


def _bulk_copies(program: Program, found: Sequence[Difference], result: Legalised) -> None:
    """Keeps copies away from the bulk tensor copy engine where it would change or fail the kernel."""
    kept_off = [one for one in found if one.rule in (Rule.SAFE_VALUE, Rule.SYMBOLIC_ROWS, Rule.UNAWAITED_COPY)]
    if kept_off:
        positions = {buffer.parameter for one in kept_off for buffer in one.buffers}
        function = result.prim_func
        memories = [function.buffer_map[function.params[at]].data for at in positions if at is not None]
        result.prim_func = copies.without_tma(function, memories)
    _say(kept_off, result)


def _products(found: Sequence[Difference], result: Legalised) -> None:
    """Spells out the matrix products that the matrix unit cannot do, or not exactly."""
    rules = (Rule.EXACT_FLOAT32, Rule.NO_MATRIX_INSTRUCTION)
    replaced = [one for one in found if one.rule in rules and one.remedy is Remedy.REWRITTEN]
    if replaced:
        operands = {(one.buffers[0].dtype, one.buffers[1].dtype) for one in replaced}
        result.prim_func = products.as_loops(result.prim_func, frozenset(operands))
    _say(replaced, result)


def _say(found: Sequence[Difference], result: Legalised) -> None:
    """Each rewrite once, with its lines."""
    lines: dict[str, list[int]] = {}
    for one in found:
        text = f"{one.message} ({one.hint})" if one.hint else one.message
        lines.setdefault(text, []).extend([one.stmt.location.line] if one.stmt.location else [])
    for text, at in lines.items():
        where = f" (line {', '.join(str(line) for line in sorted(set(at)))})" if at else ""
        result.rewrites.append(text + where)
