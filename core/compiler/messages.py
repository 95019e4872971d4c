"""Turns what TileLang and TVM say about a kernel into typed errors that keep the reason and name the user's line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from core._dtypes import DTYPES, OTHER_NAMES, meant_dtype
from core._tilelang import user_location
from core.errors import KernelError, Location, ResourceExceeded, ShapeMismatch, TileHALError, UnsupportedOp

if TYPE_CHECKING:
    from core.program.nodes import For, Stmt, View


@dataclass(frozen=True, slots=True)
class _Rule:
    """A known text. `about` names the class of the nodes it is about, where lowering has lost the line."""

    pattern: re.Pattern[str]
    error: type[TileHALError]
    hint: str
    about: str = ""


def _rule(pattern: str, error: type[TileHALError], hint: str, about: str = "") -> _Rule:
    return _Rule(re.compile(pattern, re.IGNORECASE | re.DOTALL), error, hint, about)


#: Known texts, most specific first. The message of the raised error is always TileLang's own reason.
_RULES = (
    # What a trace says.
    _rule(
        r"Cannot find value for constexpr variable",
        KernelError,
        "give the T.const by name (N=1024), or give an example of the tensor whose shape has it",
    ),
    _rule(
        r"multiple types of integer divisions",
        UnsupportedOp,
        "write // (rounds down) or T.truncdiv, or convert to a float type before dividing",
    ),
    _rule(
        r"Literal value .*(exceeds|less than)|value .* exceeds (maximum|minimum)",
        KernelError,
        "the number does not fit the type: use one that does, or a wider type",
    ),
    _rule(
        r"cannot be indexed with the|is \d+-dimensional",
        ShapeMismatch,
        "give one index for each dimension of the buffer",
    ),
    _rule(
        r"T\.reshape/view shape check failed",
        ShapeMismatch,
        "both shapes must cover the same number of bits",
    ),
    _rule(
        r"StructuralEqual check failed",
        ShapeMismatch,
        "whole buffers must have equal shapes: give a slice of the larger one",
    ),
    _rule(
        r"as a 2D or higher-order tensor",
        ShapeMismatch,
        "T.gemm multiplies matrices: operands have two dimensions or more",
    ),
    _rule(
        r"used outside its defining region|Immutable variable",
        KernelError,
        "a variable bound inside an if or a loop ends there: declare it before with T.alloc_var",
    ),
    _rule(
        r"Cannot find where to insert PrimFunc",
        KernelError,
        "a kernel has no `return`: put the rest under an if, or use T.thread_return()",
    ),
    _rule(
        r"bad operand type for|unsupported operand type",
        UnsupportedOp,
        "kernel values take T.abs, T.max, T.pow and the like, not Python's own; a slice needs both of its ends",
    ),
    _rule(
        r"Cannot use and / or / not operator to Expr",
        KernelError,
        "Python's `if`, `and`, `or` cannot ask about what is known at run time only: a symbolic size that they ask"
        " about has to be a number, and in the kernel T.if_then_else asks",
    ),
    _rule(
        r"Invalid buffer scopes",
        UnsupportedOp,
        "copy the tile into a fragment (T.alloc_fragment) and reduce that",
    ),
    _rule(
        r"Failed to get device properties",
        KernelError,
        "the kernel asks CUDA's driver about a device, and there is none here: pass the number of units in"
        " (core.chip(target).main_unit.count), so that the kernel can be compiled for any chip anywhere",
    ),
    # What lowering says.
    _rule(
        r"global tensor \w+ has a non-trivial layout",
        UnsupportedOp,
        "a bulk copy takes a tensor in the order of its indices: leave use_tma and T.tma_copy out for one that"
        " T.annotate_layout lays out",
    ),
    _rule(
        r"no available layout found|layout infer\w* conflict|Get different layout",
        UnsupportedOp,
        "two operations want different thread layouts for one fragment: copy it through a shared buffer between them",
    ),
    _rule(
        r"Fragment buffer access with non-zero index",
        UnsupportedOp,
        "a fragment is spread over threads: copy it to a shared buffer to read one element of it",
    ),
    _rule(
        r"must be a full region|Loop layout is not injective",
        UnsupportedOp,
        "TileLang finds no thread layout for a part of a fragment: give the part a fragment of its own",
        about="Gemm",
    ),
    _rule(
        r"InputDim\(\)",
        UnsupportedOp,
        "TileLang finds no thread layout for this shape of a fragment: drop its dimensions of extent 1",
    ),
    _rule(
        r"Unresolved call",
        UnsupportedOp,
        "this chip's code generator has no such function: spell it out with arithmetic",
    ),
    _rule(
        r"No valid warp partition|warp partition|m_warp|n_warp",
        ResourceExceeded,
        "use fewer threads or a larger tile: each warp needs at least one matrix-instruction tile of its own",
        about="Gemm",
    ),
    _rule(
        r"[MNK] must be divisible by|block_[MNK] \(\d+\) must be a multiple|must be a multiple of micro_size",
        UnsupportedOp,
        "make this side of the tile a multiple of what the matrix instruction takes, and let copies fill the tail",
        about="Gemm",
    ),
    _rule(
        r"Unsupported gemm combination",
        UnsupportedOp,
        "T.gemm reads shared buffers or fragments: copy the operands into T.alloc_shared first",
        about="Gemm",
    ),
    _rule(
        r"data_bits % 8|multiple of bytes",
        UnsupportedOp,
        "use one of the types of docs/program.md: this one is no whole number of bytes",
    ),
    _rule(
        r"K shape check failed|gemm.*shape|shape.*(mismatch|not match|inconsistent)|must have the same shape"
        r"|shapes? .*(equal|agree)|buffer sizes? .*(match|differ)",
        ShapeMismatch,
        "check the shapes of the operands on this line",
    ),
    _rule(
        r"reduce.*(dim|axis|shape)|dim\w* .*out of (range|bounds)|Invalid reduce (output )?shape",
        ShapeMismatch,
        "the dimension must exist in the source; the result of a reduction is the source without it",
    ),
    _rule(
        r"(index|slice|region|extent).*(out of (range|bounds)|exceed|beyond|larger than)|out of bounds",
        ShapeMismatch,
        "the region must lie inside its buffer",
    ),
    _rule(
        r"must be inside a VF block|outside a VF block|Cannot assign task because",
        UnsupportedOp,
        "this is TileLang's own Ascend dialect's rule; portable kernels go through target='ascend'",
    ),
    _rule(
        r"allowed dynamic shared memory|shared memory.*(exceed|too large|limit)",
        ResourceExceeded,
        "use a smaller tile or fewer stages",
    ),
    _rule(r"Thread .*(exceed|larger|limit)|threads.*must be", ResourceExceeded, "use a thread count the chip allows"),
    _rule(
        r"unsupported|not supported|does not support|doesn't support|unimplemented|not implemented|Cannot convert type",
        UnsupportedOp,
        "see `tilehal portability` for the targets that can express this line",
    ),
)

_NOISE = re.compile(r"^\s*(File \"|\[bt\]|Stack trace|\d+: |Traceback|-->|\d* *\|)|^\s*at /|InternalError:|^\s*\^+\s*$")
#: How the layout inference says that it has no layout for a reduction whose rows are no power of two.
_UNEVEN_ROWS = re.compile(
    r"no available layout found|XOR-butterfly AllReduce|Inconsistent layouts between src and dst in ReduceOp"
    r"|do not traverse full iter|not injective"
)
#: What TileLang's pipelining without bulk copies says of copies in flight whose number is no constant.
_UNEVEN_LOOP = re.compile(r"Downcast from tirx\.\w+ to ir\.IntImm failed")
#: How TVM says that a shape or an extent is no integer.
_NUMBER_FAULT = re.compile(
    r"cannot make const for type handle|a\.dtype\(\)\.is_int\(\)|domain of an IterVar must be an integer"
    r"|require a scalar integer as the loop_var|ir\.PrimExpr>?` but got `(ffi\.)?Array"
    r"|unsupported operand type\(s\) for .*NoneType|(divide|division|modulo) by zero|(0\.0|zero) .*negative power",
    re.IGNORECASE,
)
#: Where TileLang's diagnostics quote the source: ` --> file.py:12:1`.
_QUOTED = re.compile(r"-->\s*(?P<file>[^\n:]+):(?P<line>\d+)(?::\d+)?")
#: A tile size as TileLang's GEMM checks spell it.
_TILE_SIZE = re.compile(r"(?:block_)?(?P<side>[MNK])(?:\s*=\s*| \(| must be divisible by \d+, but got )(?P<size>\d+)")


def reason_of(error: BaseException) -> str:
    """The sentence of an exception that carries its reason: TVM's check text without the stack dump."""
    text = str(error).strip() or type(error).__name__
    check = re.search(r"Check failed:.*?(?:is false|\)): ?(.+)", text, re.DOTALL)
    if check:
        text = check.group(1)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _NOISE.search(line)]
    return " ".join(lines[:4])[:600] if lines else text[:600]


def translate(
    error: BaseException,
    *,
    fallback: type[TileHALError],
    stage: str,
    location: Location | None = None,
    view: View | None = None,
) -> TileHALError:
    """A typed error for `error`, which happened while `stage`; the caller raises it `from error`.

    Args:
        fallback: the type of an error whose text is not known.
        location: the kernel's own line, for what cannot be placed better.
        view: the kernel's statements; lowering forgets lines, and a text that is about one statement is placed by it.
    """
    reason = reason_of(error)
    text = str(error)
    rule = next((rule for rule in _RULES if rule.pattern.search(text)), None)
    where = user_location(error) or _quoted(text) or _placed(text, rule, view) or location
    details = {"stage": stage}
    if view is not None and _UNEVEN_ROWS.search(text):
        from core.program.rows import uneven_rows

        rows = next(uneven_rows(view), None)
        if rows is not None:
            place = rows.reduce.location or where
            return UnsupportedOp(f"{stage}: {rows.message} ({reason})", hint=rows.hint, location=place, details=details)
    if view is not None and _UNEVEN_LOOP.search(text):
        loop = _uneven_loop(view)
        if loop is not None:
            return UnsupportedOp(
                f"{stage}: {loop.num_stages} stages in a loop whose length differs from block to block: TileLang waits"
                f" for a constant number of copies at its end ({reason})",
                hint="use num_stages=1, or 2 where one product uses the loop's tiles; chips with bulk copies take more",
                location=loop.location or where,
                details=details,
            )
    wrong = _wrong_size(error, reason, where)
    if wrong is not None:
        return KernelError(f"{stage}: {wrong[0]}", hint=wrong[1], location=where, details=details)
    if rule is not None:
        return rule.error(f"{stage}: {reason}", hint=rule.hint, location=where, details=details)
    hint = _spelling(error, where) or "set TILEHAL_TRACEBACK=1 (or read __cause__) for the compiler's own message"
    if fallback is KernelError and isinstance(error, TypeError):
        hint = "check the arguments given to the kernel factory"
    return fallback(f"{stage}: {type(error).__name__}: {reason}", hint=hint, location=where, details=details)


def _wrong_size(error: BaseException, reason: str, where: Location | None) -> tuple[str, str] | None:
    """Message and hint of an error that an argument which is no size ends in; None for any other error."""
    text = str(error)
    if not _NUMBER_FAULT.search(text):
        return None
    arguments = _no_sizes(error, where)
    if not arguments and "IterVar" not in text:
        return None
    hint = "shapes and extents are ints, one for each; give 512, not 512.0, '512' or [512]"
    if _by_zero(text):
        hint = "the kernel divides by it: give 1 or more"
    return f"{' and '.join(arguments)}, where a kernel's size is wanted" if arguments else reason, hint


def _by_zero(text: str) -> bool:
    """Whether Python or TVM say that something was divided by zero, or zero raised to a negative power."""
    return re.search(r"by zero|negative power", text, re.IGNORECASE) is not None


def _uneven_loop(view: View) -> For | None:
    """The first pipelined loop whose number of rounds is no constant."""
    from core.program.expressions import constant_int
    from core.program.nodes import For
    from core.program.walk import statements

    loops = (stmt for stmt in statements(view) if isinstance(stmt, For) and stmt.num_stages > 1)
    return next((loop for loop in loops if constant_int(loop.extent) is None), None)


def _spelling(error: BaseException, where: Location | None) -> str:
    """What a wrong name may have meant; empty when the error is about no name."""
    dtype = re.search(r"unknown dtype `([^`]+)`", str(error))
    if dtype:
        named = [name for name, value in _arguments(error, where) if value == dtype[1]]
        return f"{named[0]}={dtype[1]!r}: {meant_dtype(dtype[1])}" if named else meant_dtype(dtype[1])
    if isinstance(error, NameError):
        return f"define {error.name} before the kernel, or pass it to the kernel's factory"
    if not isinstance(error, AttributeError) or error.name is None:
        return ""
    near = difflib.get_close_matches(error.name, dir(error.obj), 3)
    return f"did you mean {' or '.join(near)}?" if near else f"check the spelling of {error.name}"


def _arguments(error: BaseException, where: Location | None) -> Iterator[tuple[str, object]]:
    """The arguments of the user's functions that an error came through, by name, the outermost function's first."""
    traceback = error.__traceback__
    while traceback is not None:
        frame, traceback = traceback.tb_frame, traceback.tb_next
        code = frame.f_code
        if where is not None and code.co_filename == where.file:
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            yield from ((name, frame.f_locals[name]) for name in names if name in frame.f_locals)


def _no_sizes(error: BaseException, where: Location | None) -> list[str]:
    """Arguments of the user's functions that are no size where one may be wanted: no whole number (`M=512.0`), or 0."""
    text = str(error)
    found = {f"{name}={value!r}": value for name, value in _arguments(error, where)}
    if "handle" in text:  # what TVM makes of text
        return [one for one, value in found.items() if isinstance(value, str) and value not in (*DTYPES, *OTHER_NAMES)]
    if "NoneType" in text:
        return [one for one, value in found.items() if value is None]
    if _by_zero(text):
        return [one for one, value in found.items() if value == 0 and type(value) is int]
    if "Array" in text:
        return [one for one, value in found.items() if isinstance(value, (list, tuple))]
    if "T.bool(" in text or "dtype bool" in text:
        return [one for one, value in found.items() if isinstance(value, bool)]
    # A scale among the arguments is not taken for a size: TVM quotes the number, or it is a whole one.
    numbers = {one: value for one, value in found.items() if isinstance(value, float)}
    quoted = re.search(r"T\.float\d+\(([-\d.e+]+)\)", text)
    exact = [one for one, value in numbers.items() if quoted and value == float(quoted[1])]
    return exact or [one for one, value in numbers.items() if value.is_integer()]


def _quoted(text: str) -> Location | None:
    """The source line that a diagnostic of TileLang's quotes."""
    found = _QUOTED.search(text)
    if found is None or not Path(found["file"].strip()).is_file():
        return None
    return Location(found["file"].strip(), int(found["line"]))


def _placed(text: str, rule: _Rule | None, view: View | None) -> Location | None:
    """The line of the statement a text is about: the only one of its class, by its tile sizes, or by its buffers."""
    if view is None or rule is None:
        return None
    candidates = list(_about(text, rule, view))
    lines = {stmt.location for stmt in candidates if stmt.location is not None}
    return lines.pop() if len(lines) == 1 else None


def _about(text: str, rule: _Rule, view: View) -> Iterator[Stmt]:
    from core.program.effects import statement_effects
    from core.program.walk import children, statements

    sizes = [(found["side"].lower(), int(found["size"])) for found in _TILE_SIZE.finditer(text)]
    buffers = re.search(r"between (\w+) and (\w+)", text)
    for stmt in statements(view):
        if rule.about:
            if type(stmt).__name__ == rule.about and all(getattr(stmt, side, size) == size for side, size in sizes):
                yield stmt
        elif buffers and not children(stmt):
            reads, writes = statement_effects(stmt)
            if set(buffers.groups()) <= {buffer.name for buffer in (*reads, *writes)}:
                yield stmt
