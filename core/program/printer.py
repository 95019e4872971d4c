"""The view as text: for people, messages and tests. Not parsed by anything."""

from __future__ import annotations

from core.program.nodes import (
    Assert,
    AtomicElement,
    AtomicExpr,
    AtomicTile,
    Binary,
    BinaryOp,
    Break,
    Buffer,
    Cast,
    Choose,
    Compare,
    CompareOp,
    Const,
    Continue,
    Copy,
    Expr,
    Fill,
    For,
    Gemm,
    If,
    Im2Col,
    Launch,
    Let,
    Load,
    Logical,
    Math,
    Not,
    OpaqueExpr,
    OpaqueStmt,
    Parallel,
    Print,
    Reduce,
    ReducerFinalize,
    ReducerInit,
    ReducerUpdate,
    Region,
    Reinterpret,
    Scan,
    Stmt,
    Store,
    Sync,
    ThreadReturn,
    Transpose,
    Var,
    View,
    While,
)

_OPERATORS = {
    BinaryOp.ADD: "+",
    BinaryOp.SUB: "-",
    BinaryOp.MUL: "*",
    BinaryOp.DIV: "/",
    BinaryOp.FLOOR_DIV: "//",
    BinaryOp.FLOOR_MOD: "%",
    BinaryOp.BIT_AND: "&",
    BinaryOp.BIT_OR: "|",
    BinaryOp.BIT_XOR: "^",
    BinaryOp.SHIFT_LEFT: "<<",
    BinaryOp.SHIFT_RIGHT: ">>",
}
_COMPARISONS = {
    CompareOp.EQ: "==",
    CompareOp.NE: "!=",
    CompareOp.LT: "<",
    CompareOp.LE: "<=",
    CompareOp.GT: ">",
    CompareOp.GE: ">=",
}


def view_text(view: View) -> str:
    """A whole view, one statement a line."""
    parameters = ", ".join(f"{p.name}: {_declaration(p.buffer or p.scalar)}" for p in view.parameters)
    symbols = f" over {', '.join(symbol.name for symbol in view.symbols)}" if view.symbols else ""
    workspaces = "".join(f"; {b.name}: {b.scope.value} {_declaration(b)}" for b in view.workspaces)
    return "\n".join([f"{view.name}({parameters}){symbols}{workspaces}", *body_lines(view.body, 1)])


def _declaration(declared: Buffer | Var | None) -> str:
    if isinstance(declared, Buffer):
        return f"{declared.dtype}[{', '.join(map(expression_text, declared.shape))}]"
    return declared.dtype if declared is not None else "unknown"


def body_lines(body: tuple[Stmt, ...], depth: int = 0) -> list[str]:
    """Statements as indented lines."""
    lines: list[str] = []
    for stmt in body:
        head, *nested = statement_parts(stmt)
        lines.append("  " * depth + str(head))
        for part in nested:
            if isinstance(part, str):
                lines.append("  " * depth + part)
            else:
                lines += body_lines(part, depth + 1)
    return lines


def statement_parts(stmt: Stmt) -> tuple[str | tuple[Stmt, ...], ...]:
    """The line of a statement, then its bodies (and the words between them)."""
    e, r = expression_text, region_text
    match stmt:
        case Launch():
            grid = ", ".join(f"{var.name} < {e(extent)}" for var, extent in stmt.grid)
            buffers = "".join(f"; {b.name}: {b.scope.value} {_declaration(b)}" for b in stmt.buffers)
            per_thread = " per thread" if stmt.uses_threads else ""
            return (f"launch {grid} threads {stmt.threads}{per_thread}{buffers}", stmt.body)
        case Copy():
            guards = _guards(("src", stmt.src_guard), ("dst", stmt.dst_guard))
            fill = f" else {e(stmt.fill)}" if stmt.src_guard else ""
            word = "async copy" if stmt.asynchronous else "copy"
            return (f"{word} {r(stmt.src)} -> {r(stmt.dst)}{guards}{fill}",)
        case Fill():
            return (f"fill {r(stmt.dst)} = {e(stmt.value)}{_guards(('dst', stmt.guard))}",)
        case Gemm():
            a = r(stmt.a) + (".T" if stmt.transpose_a else "")
            b = r(stmt.b) + (".T" if stmt.transpose_b else "")
            return (f"gemm {r(stmt.c)} += {a} @ {b} ({stmt.m}x{stmt.n}x{stmt.k}) clear {e(stmt.clear)}",)
        case Reduce():
            old = "" if stmt.clear else " with old"
            nan = " nan" if stmt.nan_propagate else ""
            return (f"reduce {stmt.kind}{nan} {r(stmt.src)} dim {stmt.dim} -> {r(stmt.dst)}{old}",)
        case Scan():
            direction = " reverse" if stmt.reverse else ""
            return (f"scan {stmt.kind}{direction} {r(stmt.src)} dim {stmt.dim} -> {r(stmt.dst)}",)
        case Transpose():
            return (f"transpose {r(stmt.src)} -> {r(stmt.dst)}",)
        case Im2Col():
            numbers = f"kernel {stmt.kernel} stride {stmt.stride} dilation {stmt.dilation} padding {stmt.padding}"
            return (f"im2col {r(stmt.src)} -> {r(stmt.dst)} m {e(stmt.m_step)} k {e(stmt.k_step)} {numbers}",)
        case ReducerInit():
            start = f" with {e(stmt.value)}" if stmt.value is not None else ""
            return (f"reducer {stmt.kind} init {r(stmt.dst)}{start}",)
        case ReducerUpdate():
            return (f"reducer {stmt.kind} update {element_text(stmt.buffer, stmt.indices)} with {e(stmt.value)}",)
        case ReducerFinalize():
            return (f"reducer {stmt.kind} finalize {r(stmt.src)} -> {r(stmt.dst)}",)
        case AtomicTile():
            value = r(stmt.value) if isinstance(stmt.value, Region) else e(stmt.value)
            guards = _guards(("value", stmt.value_guard), ("dst", stmt.guard))
            return (f"atomic {stmt.kind} {value} -> {r(stmt.dst)}{guards}",)
        case AtomicElement():
            return (f"atomic {stmt.kind} {e(stmt.value)} -> {e(stmt.target)}",)
        case Store():
            guards = _guards(("", stmt.guard))
            return (f"{element_text(stmt.buffer, stmt.indices)} = {e(stmt.value)}{guards}",)
        case Parallel():
            loops = ", ".join(f"{v.name} < {e(x)}" for v, x in zip(stmt.vars, stmt.extents, strict=True))
            return (f"parallel {loops}", stmt.body)
        case For():
            kind = stmt.kind.value + (f" stages {stmt.num_stages}" if stmt.num_stages else "")
            return (f"for {stmt.var.name} from {e(stmt.start)} times {e(stmt.extent)} {kind}", stmt.body)
        case While():
            return (f"while {e(stmt.condition)}", stmt.body)
        case If():
            if not stmt.otherwise:
                return (f"if {e(stmt.condition)}", stmt.then)
            return (f"if {e(stmt.condition)}", stmt.then, "else", stmt.otherwise)
        case Let():
            return (f"let {stmt.var.name}: {stmt.var.dtype} = {e(stmt.value)}",)
        case Break():
            return ("break",)
        case Continue():
            return ("continue",)
        case ThreadReturn():
            return ("return",)
        case Assert():
            return (f"assert {'on device ' if stmt.on_device else ''}{e(stmt.condition)}: {stmt.message}",)
        case Print():
            return (f"print {stmt.message!r} {', '.join(map(e, stmt.args))}".rstrip(),)
        case Sync():
            return ("sync",)
        case OpaqueStmt():
            return (f"opaque {stmt.operation}",)
    return (type(stmt).__name__,)


def _guards(*sides: tuple[str, tuple[int, ...]]) -> str:
    return "".join(f" guard {name}{list(dims)}" for name, dims in sides if dims)


def region_text(region: Region) -> str:
    """`A[m:+32, 0:+64]`; a dimension of extent 1 is its index alone."""
    parts = []
    for start, extent in zip(region.mins, region.extents, strict=True):
        text = expression_text(start)
        parts.append(text if isinstance(extent, Const) and extent.value == 1 else f"{text}:+{expression_text(extent)}")
    return f"{region.buffer.name}[{', '.join(parts)}]"


def element_text(buffer: Buffer, indices: tuple[Expr, ...]) -> str:
    return f"{buffer.name}[{', '.join(map(expression_text, indices))}]"


def expression_text(expr: Expr) -> str:
    """An expression in Python's notation, fully parenthesised below the top."""
    text = _text(expr)
    return text[1:-1] if isinstance(expr, Binary | Compare | Logical) and text.startswith("(") else text


def _text(expr: Expr) -> str:
    match expr:
        case Const(value=value):
            return str(value)
        case Var(name=name):
            return name
        case Load():
            guard = f"?{list(expr.guard)}" if expr.guard else ""
            fill = f"|{_text(expr.fill)}" if expr.fill is not None and expr.fill != Const(expr.dtype, 0) else ""
            return element_text(expr.buffer, expr.indices) + guard + fill
        case Binary(op=op, a=a, b=b) if op in _OPERATORS:
            return f"({_text(a)} {_OPERATORS[op]} {_text(b)})"
        case Binary(op=op, a=a, b=b):
            return f"{op.value}({expression_text(a)}, {expression_text(b)})"
        case Compare(op=comparison, a=a, b=b):
            return f"({_text(a)} {_COMPARISONS[comparison]} {_text(b)})"
        case Logical(op=logical, a=a, b=b):
            return f"({_text(a)} {logical.value} {_text(b)})"
        case Not(a=a):
            return f"not {_text(a)}" if expr.dtype == "bool" else f"~{_text(a)}"
        case Cast(a=a):
            return f"{expr.dtype}({expression_text(a)})"
        case Reinterpret(a=a):
            return f"reinterpret_{expr.dtype}({expression_text(a)})"
        case Choose(condition=condition, a=a, b=b, lazy=lazy):
            word = "choose" if lazy else "select"
            return f"{word}({expression_text(condition)}, {expression_text(a)}, {expression_text(b)})"
        case Math(function=function, args=args):
            return f"{function}({', '.join(map(expression_text, args))})"
        case AtomicExpr(kind=kind, target=target, value=value):
            given = f", {expression_text(value)}" if value is not None else ""
            return f"atomic_{kind}({_text(target)}{given})"
        case OpaqueExpr(operation=operation):
            return f"opaque<{operation}>"
    return type(expr).__name__
