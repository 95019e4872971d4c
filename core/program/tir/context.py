"""What the builder knows while it walks a PrimFunc: variables, buffers, proofs, the current line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from core.errors import Location, UnsupportedOp
from core.program.layouts import GlobalLayout
from core.program.nodes import Buffer, Expr, OpaqueExpr, OpaqueStmt, Scope, Storage, Var, VarKind
from core.program.tir import spans
from core.program.tir.names import Names
from core.program.tir.prover import Prover
from core.program.walk import subexpressions

_SCOPES = {
    "": Scope.GLOBAL,
    "global": Scope.GLOBAL,
    "shared": Scope.SHARED,
    "shared.dyn": Scope.SHARED,
    "local": Scope.LOCAL,
    "local.fragment": Scope.FRAGMENT,
    "local.var": Scope.VAR,
    "local.reducer": Scope.REDUCER,
    "shared.barrier": Scope.BARRIER,
    "shared.cluster_barrier": Scope.BARRIER,
}

#: Scopes whose buffers only one dialect knows: what touches them is opaque.
DIALECT_SCOPES = frozenset({Scope.OTHER, Scope.BARRIER})


class LaunchState:
    """What the statements of one launch say about the launch itself."""

    def __init__(self) -> None:
        self.threads: tuple[int, int, int] | None = None
        self.thread_loops: dict[int, int] = {}  # by axis, extents of threadIdx loops
        self.thread_variables: dict[int, Any] = {}
        self.reads_thread_index = False
        self.buffers: list[Buffer] = []
        self.annotations: dict[str, Any] = {}
        self.layouts: dict[Storage, GlobalLayout] = {}


class Context:
    """State of one build. Keys that are TVM objects compare by identity (of the underlying C++ object)."""

    def __init__(self) -> None:
        self.prover = Prover()
        self.names = Names()
        self.variables: dict[Any, Var] = {}
        self.inlined: dict[Any, Any] = {}  # variables that stand for a TIR expression (let expressions)
        self.buffers: dict[Any, Buffer] = {}
        self.storages: dict[Any, Storage] = {}  # by data variable
        self.safe_values: dict[Any, Any] = {}  # by data variable, TIR expressions
        self.reducers: dict[Any, str] = {}  # by data variable, the operator
        self.symbols: list[Var] = []
        self.workspaces: list[Buffer] = []
        self.layouts: dict[int, dict[Storage, GlobalLayout]] = {}  # of each launch, in order
        self.in_parameters = False
        self.opaque: list[OpaqueStmt | OpaqueExpr] = []
        self.location: Location | None = None
        self.lane: Any = None  # the variable that walks the lanes of a vector access being turned into a loop
        self.launch: LaunchState | None = None
        self.pending: list[tuple[Any, Any, Location | None]] = []  # bindings that wait for a loop variable

    @property
    def current_launch(self) -> LaunchState:
        """The launch being built.

        Raises:
            UnsupportedOp: the statement at hand is outside every `T.Kernel`.
        """
        if self.launch is None:
            raise UnsupportedOp(
                "a statement outside `with T.Kernel(...)` can only bind a scalar, branch or assert",
                hint="move it into a T.Kernel block",
                location=self.location,
            )
        return self.launch

    # -- variables ---------------------------------------------------------------------------------------------------

    def declare(self, variable: Any, kind: VarKind, fallback: str = "v") -> Var:
        """Introduces a TIR variable."""
        var = Var(str(variable.dtype), self.names.unique(variable.name, fallback), kind)
        self.variables[variable] = var
        return var

    def variable(self, variable: Any) -> Var:
        """The view's variable for a TIR one. In the shape of a parameter, one never bound is a symbolic dimension.

        Raises:
            UnsupportedOp: the variable has no value: a `T.dynamic` that no parameter's shape determines.
        """
        var = self.variables.get(variable)
        if var is None:
            if not self.in_parameters:
                raise UnsupportedOp(
                    f"{variable.name} has no value: it is neither a parameter nor in the shape of one",
                    hint="use it in the shape of a tensor parameter, or pass it as a scalar",
                    location=self.location,
                )
            var = self.declare(variable, VarKind.SYMBOL, "n")
            self.symbols.append(var)
            self.prover.nonnegative(variable)
        if var.kind is VarKind.THREAD:
            self.current_launch.reads_thread_index = True
        return var

    # -- buffers -----------------------------------------------------------------------------------------------------

    def buffer(self, buffer: Any) -> Buffer:
        """The view's buffer for a TIR one, made at first sight: aliases are never declared."""
        known = self.buffers.get(buffer)
        if known is None:
            known = self.add_buffer(buffer)
            outlives = known.parameter is not None or any(known.storage is one.storage for one in self.workspaces)
            if self.launch is not None and not outlives:
                self.launch.buffers.append(known)
        return known

    def add_workspace(self, buffer: Any) -> None:
        """Introduces global scratch memory that outlives a launch.

        Raises:
            UnsupportedOp: a buffer on the chip, or one whose size is not of symbols and scalar parameters alone.
        """
        location = self.user_line(spans.buffer_location(buffer))
        if _SCOPES.get(buffer.scope()) is not Scope.GLOBAL:
            raise UnsupportedOp(
                f"{buffer.name} is allocated outside `with T.Kernel(...)`, in memory of a block ({buffer.scope()})",
                hint="allocate it inside the T.Kernel block; T.alloc_global hands values from one T.Kernel to the next",
                location=location,
            )
        made = self.add_buffer(buffer)
        for extent in (*made.shape, *made.strides):
            if any(isinstance(item, Var) and item.kind is VarKind.LET for item in subexpressions(extent)):
                raise UnsupportedOp(
                    f"the size of {made.name} depends on a variable that is computed outside `with T.Kernel(...)`",
                    hint="write the size with the kernel's symbolic sizes and scalar parameters",
                    location=location,
                )
        self.workspaces.append(made)

    def add_buffer(self, buffer: Any, parameter: int | None = None) -> Buffer:
        """Introduces a buffer: a parameter, an allocation, or a view of one of these."""
        from core.program.tir import expressions

        data = buffer.data
        storage = self.storages.get(data)
        name = self.names.unique(buffer.name, "buffer")
        if storage is None:
            scope = buffer.scope()
            storage = Storage(name, _SCOPES.get(scope, Scope.OTHER), scope)
            self.storages[data] = storage
        elif parameter is None:
            parameter = next((b.parameter for b in self.buffers.values() if b.storage is storage), None)
        shape = tuple(expressions.convert(self, extent) for extent in buffer.shape)
        packed = row_major_strides(shape)
        strides: tuple[Expr, ...] = packed
        is_packed = True
        if len(buffer.strides) and not self.prover.is_row_major(buffer):
            strides = tuple(expressions.convert(self, stride) for stride in buffer.strides)
            is_packed = False
        made = Buffer(
            name=name,
            dtype=str(buffer.dtype),
            shape=shape,
            strides=strides,
            storage=storage,
            is_packed=is_packed,
            parameter=parameter,
            location=self.user_line(spans.buffer_location(buffer)),
        )
        self.buffers[buffer] = made
        return made

    # -- lines -------------------------------------------------------------------------------------------------------

    def user_line(self, location: Location | None) -> Location | None:
        """`location` if it is the user's, else the line being worked on."""
        return location if spans.is_user_location(location) else self.location

    @contextmanager
    def at(self, location: Location | None) -> Iterator[None]:
        """Works on one statement."""
        outer = self.location
        if location is not None:
            self.location = location
        try:
            yield
        finally:
            self.location = outer

    # -- what is opaque ----------------------------------------------------------------------------------------------

    def opaque_expr(self, dtype: str, operation: str, args: tuple[Expr | str, ...] = ()) -> OpaqueExpr:
        node = OpaqueExpr(dtype, operation, args)
        self.opaque.append(node)
        return node

    def opaque_stmt(self, operation: str, text: str) -> OpaqueStmt:
        node = OpaqueStmt(operation, text, location=self.location)
        self.opaque.append(node)
        return node

    @contextmanager
    def assuming(self, condition: Any, *, negated: bool = False) -> Iterator[None]:
        """Lets the prover use a condition that holds where the body runs."""
        with ExitStack() as stack:
            self.prover.assume(stack, condition, negated)
            yield


def row_major_strides(shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Strides of a packed buffer, in elements, the last dimension fastest."""
    from core.program.expressions import constant, multiply

    strides: list[Expr] = []
    step: Expr = constant(1)
    for extent in reversed(shape):
        strides.append(step)
        step = multiply(extent, step)
    return tuple(reversed(strides))
