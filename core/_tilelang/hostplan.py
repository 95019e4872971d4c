"""What a lowered host function does to launch its kernels, as data: read off the TIR instead of being compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class LaunchStep:
    """One launch, in order.

    Attributes:
        function: name of the entry point.
        arguments: one per parameter of the entry point: `tensor:<i>` (data pointer of parameter i of the kernel),
            `workspace:<i>`, or an expression over symbols and scalars.
        extents: the launch parameters in the order of the function's launch tags, as expressions.
        conditions: all must hold for the launch to happen.
    """

    function: str
    arguments: tuple[str, ...]
    extents: tuple[str, ...]
    conditions: tuple[str, ...] = ()


@dataclass(frozen=True)
class LaunchPlan:
    """The launches of a kernel and the global scratch memory they share.

    Attributes:
        steps: in order.
        workspaces: (dtype, number of elements as an expression) of each.
        scalars: position of each scalar parameter by the name that expressions use.
    """

    steps: tuple[LaunchStep, ...]
    workspaces: tuple[tuple[str, str], ...] = ()
    scalars: Mapping[str, int] = field(default_factory=dict)


class UnreadableHost(Exception):
    """The host function does something a plan cannot say; the message names it."""


def read_plan(host_module: Any, parameter_counts: Mapping[str, int]) -> LaunchPlan:
    """Reads the launches off a host module, before code generation.

    Args:
        parameter_counts: of each device function, by name.

    Assumes: the host function binds each argument with `tvm_struct_get(args, i, ...)`, tensors' data through their
    handle, and launches kernels inside an attribute named `compute_scope` with `call_packed(name, arguments...,
    extents...)`, one extent per launch tag of the device function.

    Raises:
        UnreadableHost: a statement or expression that is none of these.
    """
    (function,) = host_module.functions.values()
    return _Reader(parameter_counts).read(function.body)


class _Reader:
    def __init__(self, parameter_counts: Mapping[str, int]) -> None:
        self.parameter_counts = parameter_counts
        self.sources: dict[Any, tuple[str, int]] = {}
        self.workspaces: list[tuple[str, str]] = []
        self.buffers: dict[Any, int] = {}
        self.values: dict[Any, str] = {}
        self.steps: list[LaunchStep] = []
        self.scalars: dict[str, int] = {}
        self.inside = False

    def read(self, body: Any) -> LaunchPlan:
        self.statement(body, ())
        return LaunchPlan(tuple(self.steps), tuple(self.workspaces), self.scalars)

    def statement(self, stmt: Any, conditions: tuple[str, ...]) -> None:
        kind = type(stmt).__name__
        if kind == "SeqStmt":
            for item in stmt.seq:
                self.statement(item, conditions)
        elif kind == "AttrStmt":
            inside, self.inside = self.inside, self.inside or str(stmt.attr_key) == "compute_scope"
            self.statement(stmt.body, conditions)
            self.inside = inside
        elif kind == "Bind":
            self.bind(stmt)
        elif kind == "IfThenElse":
            condition = self.expression(stmt.condition)
            self.statement(stmt.then_case, (*conditions, condition))
            if stmt.else_case is not None:
                self.statement(stmt.else_case, (*conditions, f"not ({condition})"))
        elif kind == "AllocBuffer":
            self.allocate(stmt.buffer)
        elif kind == "Evaluate":
            self.evaluate(stmt.value, conditions)
        elif kind not in ("AssertStmt", "DeclBuffer"):
            raise UnreadableHost(f"{kind} on the host")
        elif kind == "DeclBuffer" and getattr(stmt, "body", None) is not None:
            self.statement(stmt.body, conditions)

    def bind(self, stmt: Any) -> None:
        """Notes where a variable comes from: an argument, or an expression."""
        if not self.inside:
            source = self.argument_of(stmt.value)
            if source is not None:
                self.sources[stmt.var] = source
                if source[0] == "value" and str(stmt.var.dtype) != "handle":
                    self.scalars[str(stmt.var.name)] = source[1]
            return
        self.values[stmt.var] = self.expression(stmt.value)

    def argument_of(self, value: Any) -> tuple[str, int] | None:
        """("handle"|"data"|"value", parameter position) when an expression is read from an argument."""
        found: list[tuple[str, int]] = []

        def visit(node: Any) -> None:
            if type(node).__name__ != "Call" or node.op.name != "tirx.tvm_struct_get":
                return
            base, index, kind = node.args[0], int(node.args[1]), int(node.args[2])
            if str(getattr(base, "name", "")) == "args" and kind == 15:
                found.append(("value", index))
            elif base in self.sources and kind == 1:
                found.append(("data", self.sources[base][1]))

        from tvm import tirx

        tirx.stmt_functor.post_order_visit(tirx.Evaluate(value), visit)
        return found[0] if found else None

    def allocate(self, buffer: Any) -> None:
        count = "1"
        for extent in buffer.shape:
            count = f"{count}*({self.expression(extent)})"
        self.buffers[buffer.data] = len(self.workspaces)
        self.workspaces.append((str(buffer.dtype), count))

    def evaluate(self, call: Any, conditions: tuple[str, ...]) -> None:
        if type(call).__name__ == "IntImm" or (type(call).__name__ == "Call" and call.op.name in _NO_LAUNCH):
            return
        if type(call).__name__ != "Call" or call.op.name != "tirx.tvm_call_packed":
            raise UnreadableHost(f"{call} on the host")
        name = str(call.args[0].value)
        if name in _RUNTIME_CALLS:
            return
        if name not in self.parameter_counts:
            raise UnreadableHost(f"a call of {name}, which is no kernel, on the host")
        count = 1 + self.parameter_counts[name]
        arguments = tuple(self.argument(a) for a in call.args[1:count])
        extents = tuple(self.expression(a) for a in call.args[count:])
        self.steps.append(LaunchStep(name, arguments, extents, conditions))

    def argument(self, value: Any) -> str:
        if type(value).__name__ == "Var":
            if value in self.buffers:
                return f"workspace:{self.buffers[value]}"
            source = self.sources.get(value)
            if source is not None and source[0] == "data":
                return f"tensor:{source[1]}"
        return self.expression(value)

    def expression(self, value: Any) -> str:
        """The expression in Python, over the names of symbols and scalars."""
        kind = type(value).__name__
        if kind == "Var":
            return self.values.get(value, str(value.name))
        if kind in ("IntImm", "FloatImm"):
            return repr(value.value)
        if kind == "Cast":
            return self.expression(value.value)
        if kind in _BINARY:
            return f"({self.expression(value.a)} {_BINARY[kind]} {self.expression(value.b)})"
        if kind in ("Min", "Max"):
            return f"{kind.lower()}({self.expression(value.a)}, {self.expression(value.b)})"
        if kind == "Not":
            return f"(not {self.expression(value.a)})"
        if kind == "Select":
            parts = (value.true_value, value.condition, value.false_value)
            yes, condition, no = (self.expression(part) for part in parts)
            return f"({yes} if {condition} else {no})"
        if kind == "Call" and value.op.name == "tirx.if_then_else":
            condition, yes, no = (self.expression(part) for part in value.args)
            return f"({yes} if {condition} else {no})"
        if kind == "Call" and value.op.name in _CALLS:
            left, right = (self.expression(part) for part in value.args)
            return f"({left} {_CALLS[value.op.name]} {right})"
        raise UnreadableHost(f"{value} on the host")


#: The end of the host function; a launch needs nothing of it.
_NO_LAUNCH = ("tirx.ret",)
#: Packed functions of TVM's runtime that whoever follows the plan does by itself.
_RUNTIME_CALLS = ("__tvm_set_device",)

#: Division: extents are not negative, where truncation and floor agree.
_BINARY = {
    "Add": "+",
    "Sub": "-",
    "Mul": "*",
    "FloorDiv": "//",
    "Div": "//",
    "FloorMod": "%",
    "Mod": "%",
    "EQ": "==",
    "NE": "!=",
    "LT": "<",
    "LE": "<=",
    "GT": ">",
    "GE": ">=",
    "And": "and",
    "Or": "or",
}
_CALLS = {
    "tirx.shift_left": "<<",
    "tirx.shift_right": ">>",
    "tirx.bitwise_and": "&",
    "tirx.bitwise_or": "|",
    "tirx.bitwise_xor": "^",
}
