"""Nodes of the tile-level view: what a TileLang kernel means, with nothing of TVM in it.

`docs/program.md` defines the meaning of each node; this module is its vocabulary. Expressions and statements are
frozen dataclasses. A consumer dispatches on the node class; whatever the builder did not recognise arrives as
:class:`OpaqueExpr` or :class:`OpaqueStmt` with the user's line, and a consumer that needs its meaning must refuse it.

Conventions

* A dtype is TileLang's string: `float16`, `bfloat16`, `float8_e4m3fn`, `int8`, `uint8`, `bool`, `float32`, ...
* All shapes, strides, indices and extents are in elements. Index expressions are integers.
* `location` is the nearest line of the *user's* file (a macro of tilelang's own is walked out of).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from core.errors import Location

# --------------------------------------------------------------------------------------------------------------------
# Buffers
# --------------------------------------------------------------------------------------------------------------------


class Scope(Enum):
    """Where a buffer lives, in the kernel's own terms. What a chip makes of it is the backend's business."""

    GLOBAL = "global"
    SHARED = "shared"
    FRAGMENT = "fragment"
    LOCAL = "local"  # private to a thread; block-wide code that never reads a thread index sees one copy
    VAR = "var"  # `T.alloc_var`: one mutable scalar
    REDUCER = "reducer"
    BARRIER = "barrier"  # CUDA only; opaque to the tile-level view
    OTHER = "other"  # a scope only one dialect knows (`shared.l1`, tensor memory, ...)


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """The memory behind one or more buffers. Views made with `T.reshape`/`T.view` share a storage: they alias."""

    name: str
    scope: Scope
    tilelang_scope: str


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A typed, shaped view of a storage. Compared by identity.

    Attributes:
        name: unique in the program and a valid C identifier; close to the user's spelling.
        shape: one extent per dimension, elements.
        strides: elements per step; always present (row-major when the kernel did not say).
        is_packed: whether the strides are provably those of a row-major packed buffer.
        parameter: index of the kernel parameter this is, or None for an on-chip or workspace buffer.
        location: line of the allocation or of the parameter.
    """

    name: str
    dtype: str
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    storage: Storage
    is_packed: bool = True
    parameter: int | None = None
    location: Location | None = None

    @property
    def scope(self) -> Scope:
        return self.storage.scope

    @property
    def rank(self) -> int:
        return len(self.shape)


# --------------------------------------------------------------------------------------------------------------------
# Expressions
# --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)  # so that Var, below, compares by identity
class Expr:
    dtype: str


@dataclass(frozen=True, slots=True)
class Const(Expr):
    """A literal. `value` is a Python bool, int or float (inf and nan included)."""

    value: bool | int | float


class VarKind(Enum):
    BLOCK = "block"  # a grid axis
    THREAD = "thread"  # threadIdx: reading one makes a kernel per-thread code
    LOOP = "loop"  # serial, pipelined, unrolled, vectorised loop
    PARALLEL = "parallel"  # T.Parallel
    LET = "let"  # bound once by `Let`
    SCALAR = "scalar"  # a scalar parameter
    SYMBOL = "symbol"  # a symbolic dimension, solved from the arguments' shapes


@dataclass(frozen=True, slots=True, eq=False)
class Var(Expr):
    """A variable. Compared by identity: one object per variable. `name` is unique and a valid C identifier."""

    name: str
    kind: VarKind


@dataclass(frozen=True, slots=True)
class Load(Expr):
    """One element of a buffer.

    `guard` lists the dimensions whose index must be tested against the buffer's shape, both ends: an index outside
    makes the load yield `fill` (of the buffer's dtype). Dimensions proved in range, and loads from scopes TileLang does
    not guard, are absent from it.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    guard: tuple[int, ...] = ()
    fill: Expr | None = None


class BinaryOp(Enum):
    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"  # floats: IEEE division. Integers: truncating (`T.truncdiv`)
    MOD = "mod"  # integers: truncating (`T.truncmod`)
    FLOOR_DIV = "floor_div"
    FLOOR_MOD = "floor_mod"
    MIN = "min"
    MAX = "max"
    BIT_AND = "bit_and"
    BIT_OR = "bit_or"
    BIT_XOR = "bit_xor"
    SHIFT_LEFT = "shift_left"
    SHIFT_RIGHT = "shift_right"  # arithmetic on signed integers


@dataclass(frozen=True, slots=True)
class Binary(Expr):
    """`dtype` is the type of both operands and of the result; narrow integers wrap, 16-bit floats round each time."""

    op: BinaryOp
    a: Expr
    b: Expr


class CompareOp(Enum):
    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"


@dataclass(frozen=True, slots=True)
class Compare(Expr):
    """`dtype` is bool; both operands share theirs."""

    op: CompareOp
    a: Expr
    b: Expr


class LogicalOp(Enum):
    AND = "and"
    OR = "or"


@dataclass(frozen=True, slots=True)
class Logical(Expr):
    """Short-circuit and/or of two bools."""

    op: LogicalOp
    a: Expr
    b: Expr


@dataclass(frozen=True, slots=True)
class Not(Expr):
    """Logical not of a bool, bitwise not of an integer."""

    a: Expr


@dataclass(frozen=True, slots=True)
class Cast(Expr):
    """Conversion to `dtype`, rules in docs/program.md (round to nearest even; float to int truncates; ints wrap)."""

    a: Expr


@dataclass(frozen=True, slots=True)
class Reinterpret(Expr):
    """The same bits as `dtype` (`T.reinterpret`)."""

    a: Expr


@dataclass(frozen=True, slots=True)
class Choose(Expr):
    """`condition ? a : b`. When `lazy` (`T.if_then_else`), the side not taken is not evaluated."""

    condition: Expr
    a: Expr
    b: Expr
    lazy: bool = True


@dataclass(frozen=True, slots=True)
class Math(Expr):
    """A mathematical function of `args`, all of them of `dtype` unless docs/program.md says otherwise.

    `function` is one of :data:`MATH_FUNCTIONS`.
    """

    function: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class AtomicExpr(Expr):
    """An atomic read-modify-write that yields the old value. `kind`: add, max, min, or, load."""

    kind: str
    target: Load
    value: Expr | None
    order: int = 0


@dataclass(frozen=True, slots=True)
class OpaqueExpr(Expr):
    """An expression the view does not know. `operation` is TVM's name for it."""

    operation: str
    args: tuple[Expr | str, ...] = ()


#: Functions a `Math` node may carry, with their arity. docs/program.md defines each.
MATH_FUNCTIONS: Mapping[str, int] = {
    name: arity
    for arity, names in {
        1: "exp exp2 exp10 expm1 log log2 log10 log1p sqrt rsqrt tanh sigmoid erf sin cos tan sinh cosh asin acos atan "
        "asinh acosh atanh floor ceil trunc round nearbyint abs isnan isinf isfinite popcount clz rcp",
        2: "pow fmod copysign hypot atan2 ldexp nextafter",
        3: "fma clamp",
    }.items()
    for name in names.split()
}

# --------------------------------------------------------------------------------------------------------------------
# Statements
# --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Region:
    """A box of a buffer: `mins[d] <= index < mins[d] + extents[d]`. Mins are arbitrary, extents may be symbolic."""

    buffer: Buffer
    mins: tuple[Expr, ...]
    extents: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stmt:
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class Copy(Stmt):
    """Element-wise copy with conversion over `extents`.

    `src_dims`/`dst_dims` name, for each axis of `extents`, the dimension of the source and destination buffer it walks
    (unit dimensions of either side are dropped; order is kept). `src_guard`/`dst_guard` list the *buffer* dimensions to
    test against the buffer's shape: a source element outside yields `fill` (already of the destination's dtype),
    a destination element outside is not written.
    """

    src: Region
    dst: Region
    extents: tuple[Expr, ...]
    src_dims: tuple[int, ...]
    dst_dims: tuple[int, ...]
    src_guard: tuple[int, ...]
    dst_guard: tuple[int, ...]
    fill: Expr
    asynchronous: bool = False
    annotations: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fill(Stmt):
    """Sets every element of a region; `value` is already of the buffer's dtype. `guard`: as in `Copy.dst_guard`."""

    dst: Region
    value: Expr
    guard: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Gemm(Stmt):
    """`C = (clear ? 0 : C) + op(A) @ op(B)`, accumulated in C's dtype.

    A is (m, k), or (k, m) when `transpose_a`; B is (k, n), or (n, k) when `transpose_b`; C is (m, n). The regions may
    have leading unit dimensions; the matrix is their last two. `policy`: 0 square, 1 full row, 2 full column
    (scheduling only).
    """

    a: Region
    b: Region
    c: Region
    m: int
    n: int
    k: int
    transpose_a: bool
    transpose_b: bool
    clear: Expr
    policy: int = 0
    annotations: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reduce(Stmt):
    """Reduction of the *region* `src` over dimension `dim` into `dst`.

    `kind`: sum, abssum, max, absmax, min, bitand, bitor, bitxor. Each element is first cast to dst's dtype, in which
    the reduction is computed. `clear` starts from the identity, else from dst's old value. `nan_propagate`: max/min
    yield NaN when any element is NaN; otherwise NaN elements are ignored.
    """

    src: Region
    dst: Region
    kind: str
    dim: int
    clear: bool
    nan_propagate: bool = False


@dataclass(frozen=True, slots=True)
class Scan(Stmt):
    """Inclusive prefix scan along `dim`. `kind`: sum, max. `reverse` scans from the end."""

    src: Region
    dst: Region
    kind: str
    dim: int
    reverse: bool


@dataclass(frozen=True, slots=True)
class Transpose(Stmt):
    """dst[..., j, i] = src[..., i, j]."""

    src: Region
    dst: Region


@dataclass(frozen=True, slots=True)
class Im2Col(Stmt):
    """A (m, k) tile of the im2col matrix of an NHWC tensor; k = (kh * kernel + kw) * C + c, zero padding."""

    src: Region
    dst: Region
    m_step: Expr
    k_step: Expr
    kernel: int
    stride: int
    dilation: int
    padding: int


@dataclass(frozen=True, slots=True)
class ReducerInit(Stmt):
    """Sets a reducer buffer to its operator's identity, combined with `value` once if given."""

    dst: Region
    kind: str
    value: Expr | None = None


@dataclass(frozen=True, slots=True)
class ReducerUpdate(Stmt):
    """Combines `value` into one element of a reducer, once per logical iteration."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    kind: str
    value: Expr


@dataclass(frozen=True, slots=True)
class ReducerFinalize(Stmt):
    """Makes the total visible in `dst` (same region as `src` for the legacy form: nothing to do serially)."""

    src: Region
    dst: Region
    kind: str


@dataclass(frozen=True, slots=True)
class AtomicTile(Stmt):
    """Element-wise atomic `kind` (add, max, min) of the region or scalar `value` into `dst`.

    Walks like `Copy`. An element outside on either side (`guard` for dst's dimensions, `value_guard` for those of
    `value`) is skipped. `value` may have another dtype than dst: each element is converted.
    """

    kind: str
    value: Region | Expr
    dst: Region
    extents: tuple[Expr, ...]
    value_dims: tuple[int, ...]
    dst_dims: tuple[int, ...]
    guard: tuple[int, ...] = ()
    value_guard: tuple[int, ...] = ()
    order: int = 0


@dataclass(frozen=True, slots=True)
class AtomicElement(Stmt):
    """Atomic `kind` (add, max, min, or, store) of a scalar into one element; skipped when a guarded index is out."""

    kind: str
    target: Load
    value: Expr
    order: int = 0


@dataclass(frozen=True, slots=True)
class Store(Stmt):
    """One element. Skipped when an index named by `guard` is outside the buffer. `value` has the buffer's dtype."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    guard: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Parallel(Stmt):
    """`T.Parallel`: iterations in no order, statements in order within one. Vector slices arrive in this form too."""

    vars: tuple[Var, ...]
    extents: tuple[Expr, ...]
    body: tuple[Stmt, ...]
    annotations: Mapping[str, Any] = field(default_factory=dict)


class LoopKind(Enum):
    SERIAL = "serial"
    PIPELINED = "pipelined"  # serial in meaning; `num_stages` is a schedule
    UNROLLED = "unrolled"
    VECTORIZED = "vectorized"


@dataclass(frozen=True, slots=True)
class For(Stmt):
    """`for var in range(start, start + extent)`."""

    kind: LoopKind
    var: Var
    start: Expr
    extent: Expr
    body: tuple[Stmt, ...]
    num_stages: int = 0
    annotations: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class While(Stmt):
    condition: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class If(Stmt):
    condition: Expr
    then: tuple[Stmt, ...]
    otherwise: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class Let(Stmt):
    """Binds a variable to a value captured here (loads included); visible in the statements after it."""

    var: Var
    value: Expr


@dataclass(frozen=True, slots=True)
class Break(Stmt):
    pass


@dataclass(frozen=True, slots=True)
class Continue(Stmt):
    pass


@dataclass(frozen=True, slots=True)
class ThreadReturn(Stmt):
    """Ends the block (block-wide code) or the thread (per-thread code)."""


@dataclass(frozen=True, slots=True)
class Assert(Stmt):
    """`on_device`: T.device_assert; otherwise checked on the host before the launch."""

    condition: Expr
    message: str
    on_device: bool = False


@dataclass(frozen=True, slots=True)
class Print(Stmt):
    message: str
    args: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Sync(Stmt):
    """A block-wide barrier the user wrote. Statement order already holds in the view: a no-op to its consumers."""


@dataclass(frozen=True, slots=True)
class OpaqueStmt(Stmt):
    """A statement the view does not know. `operation` is TVM's name for it, `text` its printed form."""

    operation: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Launch(Stmt):
    """One `T.Kernel`.

    Attributes:
        grid: (variable, extent) per axis, x first. Blocks run in any order, concurrently.
        threads: (x, y, z) the user asked for, or None when the backend chooses.
        buffers: every on-chip buffer and every workspace of the launch's own, each one buffer for the whole launch
            however deep it was declared.
        uses_threads: the body reads a thread index: per-thread code, which block-wide families must refuse.
    """

    grid: tuple[tuple[Var, Expr], ...]
    threads: tuple[int, int, int] | None
    buffers: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
    uses_threads: bool = False
    annotations: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A kernel parameter, in order: a tensor (its buffer) or a scalar (its variable)."""

    name: str
    buffer: Buffer | None = None
    scalar: Var | None = None
    is_output: bool = False
    reads: bool = True
    writes: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """The whole program: parameters, symbolic dimensions to be solved from shapes, and host-level statements.

    Attributes:
        body: `Launch`es and what surrounds them (`Let`, `If`, `Assert`).
        workspaces: global scratch memory allocated outside every launch (`T.alloc_global`): one memory for the whole
            call, through which launches hand values to later ones. Views of it are in no list.
    """

    name: str
    parameters: tuple[Parameter, ...]
    symbols: tuple[Var, ...]
    body: tuple[Stmt, ...]
    location: Location | None = None
    opaque: tuple[Stmt | Expr, ...] = ()
    workspaces: tuple[Buffer, ...] = ()

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Every `T.Kernel` of the program in source order."""
        found: list[Launch] = []

        def walk(statements: tuple[Stmt, ...]) -> None:
            for stmt in statements:
                if isinstance(stmt, Launch):
                    found.append(stmt)
                elif isinstance(stmt, If):
                    walk(stmt.then)
                    walk(stmt.otherwise)

        walk(self.body)
        return tuple(found)
