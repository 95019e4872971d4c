"""The interpreter: memory, expressions, statements of one program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from typing import Any

import numpy as np

from core.conformance.interpreter import values
from core.conformance.interpreter.operators import OPERATORS
from core.conformance.interpreter.values import Scalar
from core.errors import LaunchError, UnsupportedOp
from core.program.nodes import (
    Assert,
    AtomicElement,
    AtomicExpr,
    Binary,
    Break,
    Buffer,
    Cast,
    Choose,
    Compare,
    Const,
    Continue,
    Expr,
    For,
    If,
    Launch,
    Let,
    Load,
    Logical,
    LogicalOp,
    Math,
    Not,
    Parallel,
    Print,
    Reinterpret,
    Scope,
    Stmt,
    Storage,
    Store,
    Sync,
    ThreadReturn,
    Var,
    View,
    While,
)


class _Break(Exception):  # control flow, not an error
    pass


class _Continue(Exception):
    pass


class _Return(Exception):
    pass


def interpret(
    view: View, arguments: Sequence[Any], symbols: Mapping[str, int] | None = None, *, backwards: bool = False
) -> list[str]:
    """Runs a program on NumPy arrays, in place.

    Args:
        view: the program.
        arguments: one entry per parameter: an array of the parameter's shape and dtype (`ml_dtypes` for the types NumPy
            lacks), C-contiguous where the parameter is packed, or a Python number.
        symbols: values of the symbolic dimensions; read off the arrays' shapes where a dimension is just a symbol.
        backwards: run blocks and parallel iterations from last to first. A kernel without races gives the same.

    Returns:
        What the program printed, line by line.

    Raises:
        UnsupportedOp: the program has something opaque or reads a thread index.
        LaunchError: an assertion of the program failed.
        IndexError: it reads or writes outside an on-chip buffer.
    """
    machine = Machine(backwards)
    for parameter, argument in zip(view.parameters, arguments, strict=True):
        if parameter.buffer is None:
            assert parameter.scalar is not None
            dtype = parameter.scalar.dtype
            given = np.array(argument, values.numpy_dtype(dtype))[()]
            machine.variables[parameter.scalar] = values.from_numpy(given, dtype)
            continue
        if parameter.buffer.is_packed:
            machine.memory[parameter.buffer.storage] = argument.reshape(-1).view(np.uint8)
        else:
            machine.strided[parameter.buffer] = argument
        for extent, size in zip(parameter.buffer.shape, argument.shape, strict=True):
            if isinstance(extent, Var) and extent not in machine.variables:
                machine.variables[extent] = int(size)
    for symbol in view.symbols:
        if symbols and symbol.name in symbols:
            machine.variables[symbol] = symbols[symbol.name]
    machine.allocate(view.workspaces)
    machine.run(view.body)
    return machine.printed


class Machine:
    """State of a run: variables, memory, output."""

    def __init__(self, backwards: bool) -> None:
        self.backwards = backwards
        self.variables: dict[Var, Scalar] = {}
        self.memory: dict[Storage, np.ndarray[Any, Any]] = {}
        self.strided: dict[Buffer, np.ndarray[Any, Any]] = {}  # parameters that are not packed
        self.printed: list[str] = []

    # -- memory ------------------------------------------------------------------------------------------------------

    def array(self, buffer: Buffer) -> np.ndarray[Any, Any]:
        """A buffer's elements as an array that shares its memory."""
        if buffer in self.strided:
            return self.strided[buffer]
        kind = values.numpy_dtype(buffer.dtype)
        raw = self.memory[buffer.storage]
        shape = tuple(int(self.value(extent)) for extent in buffer.shape)
        strides = tuple(int(self.value(stride)) * kind.itemsize for stride in buffer.strides)
        return np.ndarray(shape, kind, raw, strides=strides)

    def allocate(self, buffers: Sequence[Buffer]) -> None:
        """Memory for buffers, poisoned: views of one storage share it."""
        sizes: dict[Storage, int] = {}
        for buffer in buffers:
            elements = int(np.prod([int(self.value(extent)) for extent in buffer.shape], dtype=np.int64))
            size = elements * values.numpy_dtype(buffer.dtype).itemsize
            sizes[buffer.storage] = max(sizes.get(buffer.storage, 0), size)
        for storage, size in sizes.items():
            self.memory[storage] = np.full(size, 0xFF, np.uint8)  # NaN in every float type, -1 in every integer

    def read(self, load: Load) -> Scalar:
        """One element, or the fill where a guarded index is outside."""
        array = self.array(load.buffer)
        index = tuple(int(self.value(i)) for i in load.indices)
        if any(not 0 <= index[dim] < array.shape[dim] for dim in load.guard):
            assert load.fill is not None
            return self.value(load.fill)
        self._check(load.buffer, index, array.shape)
        return values.from_numpy(array[index], load.dtype)

    def write(self, buffer: Buffer, indices: tuple[Expr, ...], guard: tuple[int, ...], value: Scalar) -> None:
        """Sets one element, unless a guarded index is outside."""
        array = self.array(buffer)
        index = tuple(int(self.value(i)) for i in indices)
        if all(0 <= index[dim] < array.shape[dim] for dim in guard):
            self._check(buffer, index, array.shape)
            array[index] = value

    @staticmethod
    def _check(buffer: Buffer, index: tuple[int, ...], shape: tuple[int, ...]) -> None:
        if any(not 0 <= i < size for i, size in zip(index, shape, strict=True)):
            raise IndexError(f"{buffer.name}{list(index)} is outside {list(shape)}")

    # -- expressions -------------------------------------------------------------------------------------------------

    def value(self, expr: Expr) -> Scalar:
        """The value of an expression."""
        match expr:
            case Const(dtype=dtype, value=value):
                return (
                    value
                    if isinstance(value, int) and not dtype.startswith(("float", "bf"))
                    else values.rounded(value, dtype)
                )
            case Var():
                if expr not in self.variables:
                    raise UnsupportedOp(f"no value for the variable {expr.name}", hint="per-thread code has none")
                return self.variables[expr]
            case Load():
                return self.read(expr)
            case Binary(op=op, a=a, b=b):
                return values.binary(op, self.value(a), self.value(b), expr.dtype)
            case Compare(op=comparison, a=a, b=b):
                return values.compare(comparison, self.value(a), self.value(b))
            case Logical(op=logical, a=a, b=b):
                first = bool(self.value(a))
                decided = first if logical is LogicalOp.OR else not first
                return first if decided else bool(self.value(b))
            case Not(a=a):
                return not self.value(a) if expr.dtype == "bool" else values.wrap(~int(self.value(a)), expr.dtype)
            case Cast(a=a):
                return values.cast(self.value(a), a.dtype, expr.dtype)
            case Reinterpret(a=a):
                return values.reinterpret(self.value(a), a.dtype, expr.dtype)
            case Choose(condition=condition, a=a, b=b):
                return self.value(a) if self.value(condition) else self.value(b)
            case Math(function=function, args=args):
                given = tuple(self.value(arg) for arg in args)
                return values.math_function(function, given, args[0].dtype, expr.dtype)
            case AtomicExpr(kind=kind, target=target, value=operand):
                old = self.read(target)
                if operand is not None:
                    self.combine_element(kind, target, self.value(operand))
                return old
        raise UnsupportedOp(f"the interpreter does not know {type(expr).__name__} {getattr(expr, 'operation', '')}")

    def combine_element(self, kind: str, target: Load, value: Scalar) -> None:
        """An atomic update of one element."""
        if kind != "store":
            old = self.read(Load(target.dtype, target.buffer, target.indices, target.guard, Const(target.dtype, 0)))
            value = values.combine(kind, old, value, target.dtype)
        self.write(target.buffer, target.indices, target.guard, value)

    # -- statements --------------------------------------------------------------------------------------------------

    def run(self, body: Sequence[Stmt]) -> None:
        """Runs statements in order."""
        for stmt in body:
            self._step(stmt)

    def _step(self, stmt: Stmt) -> None:
        operator = OPERATORS.get(type(stmt))
        if operator is not None:
            operator(self, stmt)
            return
        match stmt:
            case Launch():
                self._launch(stmt)
            case Let(var=var, value=value):
                self.variables[var] = self.value(value)
            case Store(buffer=buffer, indices=indices, value=value, guard=guard):
                self.write(buffer, indices, guard, self.value(value))
            case AtomicElement(kind=kind, target=target, value=value):
                self.combine_element(kind, target, self.value(value))
            case Parallel(vars=variables, extents=extents, body=body):
                for point in self.points([int(self.value(extent)) for extent in extents]):
                    self.variables.update(zip(variables, point, strict=True))
                    self.run(body)
            case For(var=var, start=start, extent=extent, body=body):
                first = int(self.value(start))
                for index in range(first, first + int(self.value(extent))):
                    self.variables[var] = index
                    if not self._iterate(body):
                        break
            case While(condition=condition, body=body):
                while self.value(condition) and self._iterate(body):
                    pass
            case If(condition=condition, then=then, otherwise=otherwise):
                self.run(then if self.value(condition) else otherwise)
            case Assert(condition=condition, message=message):
                if not self.value(condition):
                    raise LaunchError(f"assertion failed: {message}", location=stmt.location)
            case Print(message=message, args=args):
                self.printed.append(" ".join([message, *(str(self.value(arg)) for arg in args)]))
            case Sync():
                pass
            case Break():
                raise _Break
            case Continue():
                raise _Continue
            case ThreadReturn():
                raise _Return
            case _:
                raise UnsupportedOp(
                    f"the interpreter does not know {type(stmt).__name__} {getattr(stmt, 'operation', '')}",
                    location=stmt.location,
                )

    def _iterate(self, body: Sequence[Stmt]) -> bool:
        """One iteration; whether the loop goes on."""
        try:
            self.run(body)
        except _Continue:
            pass
        except _Break:
            return False
        return True

    def _launch(self, launch: Launch) -> None:
        if launch.uses_threads:
            raise UnsupportedOp("the interpreter runs block-wide code only", location=launch.location)
        self.allocate([buffer for buffer in launch.buffers if buffer.scope is Scope.GLOBAL])
        on_chip = [buffer for buffer in launch.buffers if buffer.scope is not Scope.GLOBAL]
        for point in self.points([int(self.value(extent)) for _, extent in launch.grid]):
            self.variables.update(zip((var for var, _ in launch.grid), point, strict=True))
            self.allocate(on_chip)
            with suppress(_Return):
                self.run(launch.body)

    def points(self, extents: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Every index of a box, first to last, or last to first."""
        ranges = [range(extent) for extent in extents]
        return product(*(reversed(r) for r in ranges)) if self.backwards else product(*ranges)
