"""What a lowered host function does to launch its kernels, as data: read off the TIR instead of being compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core._tilelang.windows import Windows
from core.runtime.plan import TensorMap


@dataclass(frozen=True)
class LaunchStep:
    """One launch, in order.

    Attributes:
        function: name of the entry point.
        arguments: one per parameter of the entry point: `tensor:<i>` (data pointer of parameter i of the kernel),
            `workspace:<i>`, `map:<i>` (a TMA descriptor), or an expression over symbols and scalars.
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
        maps: the tensor maps that `map:<i>` arguments stand for.
    """

    steps: tuple[LaunchStep, ...]
    workspaces: tuple[tuple[str, str], ...] = ()
    scalars: Mapping[str, int] = field(default_factory=dict)
    maps: tuple[TensorMap, ...] = ()


class UnreadableHost(Exception):
    """The host function does something a plan cannot say; the message names it."""


def read_plan(host_module: Any, parameter_counts: Mapping[str, int], windows: Windows | None = None) -> LaunchPlan:
    """Reads the launches off a host module, before code generation.

    Args:
        parameter_counts: of each device function, by name.
        windows: of the kernel's im2col copies, which the host module has wrong.

    Assumes: the host function binds each argument with `tvm_struct_get(args, i, ...)`, tensors' data through their
    handle, and launches kernels inside an attribute named `compute_scope` with `call_packed(name, arguments...,
    extents...)`, one extent per launch tag of the device function. Tensor maps are variables bound to a
    `tvm_stack_alloca` and filled by `__tvm_tensormap_create_tiled` or `..._im2col`, whose arguments are those of the
    driver's encoders with the strides' first entry, the element size, in front.

    Raises:
        UnreadableHost: a statement or expression that is none of these.
    """
    (function,) = host_module.functions.values()
    return _Reader(parameter_counts, windows or {}).read(function.body)


class _Reader:
    def __init__(self, parameter_counts: Mapping[str, int], windows: Windows) -> None:
        self.parameter_counts = parameter_counts
        self.windows = windows
        self.sources: dict[Any, tuple[str, int]] = {}
        self.workspaces: list[tuple[str, str]] = []
        self.buffers: dict[Any, int] = {}
        self.values: dict[Any, str] = {}
        self.steps: list[LaunchStep] = []
        self.scalars: dict[str, int] = {}
        self.named: dict[str, Any] = {}
        self.allocated: set[Any] = set()
        self.maps: dict[Any, int] = {}
        self.map_list: list[TensorMap] = []
        self.inside = False

    def read(self, body: Any) -> LaunchPlan:
        self.statement(body, ())
        return LaunchPlan(tuple(self.steps), tuple(self.workspaces), self.scalars, tuple(self.map_list))

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
        if type(stmt.value).__name__ == "Call" and stmt.value.op.name == "tirx.tvm_stack_alloca":
            self.allocated.add(stmt.var)
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
        if name in _TENSOR_MAPS:
            self.tensor_map(name, call.args[1:], conditions)
            return
        if name not in self.parameter_counts:
            raise UnreadableHost(f"a call of {name}, which is no kernel, on the host")
        count = 1 + self.parameter_counts[name]
        arguments = tuple(self.argument(a) for a in call.args[1:count])
        extents = tuple(self.expression(a) for a in call.args[count:])
        self.steps.append(LaunchStep(name, arguments, extents, conditions))

    def tensor_map(self, name: str, arguments: Any, conditions: tuple[str, ...]) -> None:
        """Notes the recipe of a TMA descriptor: destination, data type, rank, data, then the encoder's numbers."""
        variable, data_type, rank, data = arguments[0], int(arguments[1]), int(arguments[2]), arguments[3]
        source = self.sources.get(data) if type(data).__name__ == "Var" else None
        if source is None and type(data).__name__ == "Var" and data in self.buffers:
            source = ("workspace", self.buffers[data])
        known = source is not None and source[0] in ("data", "workspace")
        if variable not in self.allocated or variable in self.maps or source is None or not known:
            raise UnreadableHost(f"{name} of {data} into {variable} on the host")
        if conditions:
            raise UnreadableHost(f"{name} under a condition on the host")
        texts = [self.expression(value) for value in arguments[4:]]

        def take(count: int) -> tuple[str, ...]:
            taken = tuple(texts[:count])
            del texts[:count]
            return taken

        def numbers(count: int) -> tuple[int, ...]:
            try:
                return tuple(int(text) for text in take(count))
            except ValueError as error:
                raise UnreadableHost(f"{name} with a number known at run time only: {error}") from error

        dims, strides = take(rank), take(rank)[1:]
        box = take(rank) if _TENSOR_MAPS[name] == "tiled" else ()
        steps = take(rank)
        window: dict[str, Any] = {}
        if _TENSOR_MAPS[name] == "im2col":
            window = {"lower": numbers(rank - 2), "upper": numbers(rank - 2)}
            window["pixels"], window["channels"] = numbers(2)
            if source[0] == "data":
                window["upper"] = self.last_offsets(source[1], window, steps)
        interleave, swizzle, l2_promotion, out_of_bounds = numbers(4)
        if texts:
            raise UnreadableHost(f"{name} with {len(texts)} arguments more than the driver's encoder")
        self.maps[variable] = len(self.map_list)
        self.map_list.append(
            TensorMap(
                tensor=source[1],
                data_type=data_type,
                dims=dims,
                strides=strides,
                box=box,
                element_strides=steps,
                interleave=interleave,
                swizzle=swizzle,
                l2_promotion=l2_promotion,
                out_of_bounds=out_of_bounds,
                of_workspace=source[0] == "workspace",
                **window,
            )
        )

    def last_offsets(self, tensor: int, window: Mapping[str, Any], steps: Sequence[str]) -> tuple[int, ...]:
        """Where a window may begin at the ends of an image, by the kernel's own im2col copies."""
        padding, stride = -window["lower"][0], steps[1]
        known = self.windows.get((tensor, padding, int(stride)), frozenset()) if stride.isdigit() else frozenset()
        if len(known) > 1:
            raise UnreadableHost("windows of several sizes over one image with the same padding and stride")
        return tuple(known) * len(window["lower"]) if known else window["upper"]

    def argument(self, value: Any) -> str:
        if type(value).__name__ == "Var":
            if value in self.maps:
                return f"map:{self.maps[value]}"
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
            if value in self.values:
                return self.values[value]
            name = str(value.name)
            if not self.named.setdefault(name, value).same_as(value):
                raise UnreadableHost(f"two variables named {name} on the host")
            return name
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
#: Packed functions that encode a TMA descriptor.
_TENSOR_MAPS = {"__tvm_tensormap_create_tiled": "tiled", "__tvm_tensormap_create_im2col": "im2col"}

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
