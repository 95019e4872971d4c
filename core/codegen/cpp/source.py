"""A whole source file: preamble, launches, the host function, the TVM-FFI entry."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from core.codegen.cpp.block import BlockWriter
from core.codegen.cpp.expressions import Expressions
from core.codegen.cpp.launch import LaunchWriter
from core.codegen.cpp.memory import write_workspace
from core.codegen.cpp.names import Names
from core.codegen.cpp.preamble import preamble
from core.codegen.cpp.ranges import Ranges
from core.codegen.cpp.types import PREAMBLE_TYPES, cpp_type, is_narrow_float
from core.codegen.cpp.usage import element_span, mentioned_buffers
from core.codegen.cpp.writer import Writer, string_literal
from core.program import walk
from core.program.nodes import Buffer, If, Launch, Parameter, Stmt, Var, View
from core.runtime.plan import LARGEST_INT32_SIZE


@dataclass(frozen=True, slots=True)
class CppSource:
    """Generated C++.

    Attributes:
        text: the file.
        function: name of the TVM-FFI function in the library.
        launches: names of the launch functions, in source order.
        scratch_bytes: per launch, bytes of on-chip buffers of one block; None when symbolic.
        call: name of the C function that runs the whole kernel.
        call_types: dtype of each of its arguments, `handle` for a pointer; parameters, then symbolic dimensions.
    """

    text: str
    function: str
    launches: tuple[str, ...]
    scratch_bytes: tuple[int | None, ...]
    call: str
    call_types: tuple[str, ...]


def generate(view: View, *, title: str) -> CppSource:
    """C++ for a program.

    Args:
        view: the program.
        title: first line of the file.

    Raises:
        UnsupportedOp: per-thread code, opaque nodes, dtypes without a C++ type; with the user's line.
    """
    return _SourceWriter(view).write(title)


class _SourceWriter:
    def __init__(self, view: View) -> None:
        self.view = view
        self.out = Writer()
        self.names = Names()
        self.wide = _needs_wide_indices(view)
        self.ranges = Ranges()
        self.expressions = Expressions(self.names, self.ranges, wide_indices=self.wide)
        self.launches: dict[int, LaunchWriter] = {}

    def write(self, title: str) -> CppSource:
        # Names of parameters first: they keep their spelling.
        for parameter in self.view.parameters:
            self.names.of(_item(parameter))
        tensors = [p.buffer for p in self.view.parameters if p.buffer is not None]
        tensors += self.view.workspaces
        name = self.view.name
        launches = self.view.launches
        for number, launch in enumerate(launches):
            suffix = f"_{number}" if len(launches) > 1 else ""
            writer = LaunchWriter(
                self.out, self.names, launch, f"{name}{suffix}", tensors, wide_indices=self.wide
            )  # fmt: skip
            self.launches[id(launch)] = writer
            writer.write_block()
            writer.write_launch()
        host = self._write_host()
        self._write_entry(host)
        body = self.out.text()
        dtypes = self._dtypes()
        used = [name for name in PREAMBLE_TYPES if re.search(rf"\b{name}\b", body)]
        head = preamble(body, narrow_floats=any(map(is_narrow_float, dtypes)))
        using = "".join(f"using tile::{name};\n" for name in used) + ("\n" if used else "")
        ruler = f"// {'-' * 113}\n\n"
        intro = f"// {title}\n// The kernel starts at line {{}}; before it, what it is built on.\n\n{head}\n{ruler}"
        return CppSource(
            text=intro.replace("{}", str(intro.count("\n") + 1), 1) + using + body,
            function=name,
            launches=tuple(self.launches[id(launch)].launch_name for launch in launches),
            scratch_bytes=tuple(self.launches[id(launch)].static_scratch_bytes for launch in launches),
            call=host,
            call_types=self._host_types(),
        )

    def _dtypes(self) -> set[str]:
        """Every dtype the program computes with or keeps."""
        dtypes = {p.buffer.dtype if p.buffer is not None else _item(p).dtype for p in self.view.parameters}
        dtypes |= {workspace.dtype for workspace in self.view.workspaces}
        for stmt in walk.statements(self.view):
            dtypes |= {buffer.dtype for buffer in mentioned_buffers(stmt)}
            dtypes |= {expr.dtype for expr in walk.expressions(stmt)}
            if isinstance(stmt, Launch):
                dtypes |= {buffer.dtype for buffer in stmt.buffers}
        return {dtype for dtype in dtypes if dtype not in ("", "void", "handle")}

    # ------------------------------------------------------------------------------------------------ host

    def _write_host(self) -> str:
        name = self.names.fresh(f"{self.view.name}_call")
        self.out.line("// The whole kernel, for C++ callers: returns null, or what went wrong.")
        self.out.line(f"TILE_EXPORT const char* {name}({', '.join(self._host_parameters())}) {{")
        with self.out.indented():
            self.out.line("tile::Status status;")
            for var, given in self._counted.items():
                self.out.line(f"if ({given} > {LARGEST_INT32_SIZE}) return {string_literal(_too_large(var))};")
                self.out.line(f"const int32_t {self.names.of(var)} = int32_t({given});")
            for workspace in self.view.workspaces:
                write_workspace(self.out, self.expressions, [workspace], "return {0};")
            self._host_body(self.view.body)
            self.out.line("return status.message;")
        self.out.line("}")
        self.out.line()
        return name

    def _host_parameters(self) -> list[str]:
        parameters = []
        for parameter in self.view.parameters:
            name = self.names.of(_item(parameter))
            parameters.append(f"{self._parameter_type(parameter)} {name}")
        return parameters + [
            f"int64_t {self._counted[var]}"
            if var in self._counted
            else f"{self.expressions.index_type(var.dtype)} {self.names.of(var)}"
            for var in self.view.symbols
        ]

    @cached_property
    def _counted(self) -> dict[Var, str]:
        """Symbolic dimensions that are counted in 32 bits, and under which name they arrive, in 64."""
        return {
            var: self.names.fresh(f"{self.names.of(var)}_given")
            for var in self.view.symbols
            if self.expressions.index_type(var.dtype) == "int32_t"
        }

    def _host_types(self) -> tuple[str, ...]:
        """Dtypes of the host function's arguments, as they are passed."""
        types = ["handle" if p.buffer is not None else self._passed(_item(p).dtype) for p in self.view.parameters]
        return (*types, *("int64" if v in self._counted else self._passed(v.dtype) for v in self.view.symbols))

    def _passed(self, dtype: str) -> str:
        return "int64" if self.expressions.index_type(dtype) == "int64_t" else dtype

    def _parameter_type(self, parameter: Parameter) -> str:
        if parameter.buffer is None:
            return self.expressions.index_type(_item(parameter).dtype)
        element = cpp_type(parameter.buffer.dtype, parameter.buffer.location).element
        storage = id(parameter.buffer.storage)
        written = any(storage in writer.usage.written for writer in self.launches.values())
        return f"{element}*" if written else f"const {element}*"

    def _host_body(self, statements: Sequence[Stmt]) -> None:
        """Host statements: bindings, branches, assertions and launches."""
        block = BlockWriter(self.out, self.expressions, "return {0};")
        for stmt in statements:
            with block.located(stmt.location):
                if isinstance(stmt, Launch):
                    writer = self.launches[id(stmt)]
                    arguments = [self.names.of(buffer) for buffer in writer.parameters]
                    arguments += [self.names.of(var) for var in writer.usage.variables]
                    self.out.line(f"{writer.launch_name}({', '.join([*arguments, 'status'])});")
                    if stmt is not self.view.body[-1]:
                        self.out.line("if (status.failed()) return status.message;")
                elif isinstance(stmt, If):
                    tail = "} else {" if stmt.otherwise else "}"
                    with self.out.block(f"if ({self.expressions.value(stmt.condition)})", tail):
                        self._host_body(stmt.then)
                    if stmt.otherwise:
                        with self.out.indented():
                            self._host_body(stmt.otherwise)
                        self.out.line("}")
                else:
                    block.statement(stmt)

    # ------------------------------------------------------------------------------------------------ entry

    def _write_entry(self, host: str) -> None:
        """The packed function TVM-FFI calls: checks the kinds of its arguments and takes pointers out of tensors."""
        name = self.view.name
        count = len(self.view.parameters) + len(self.view.symbols)
        self.out.line(
            f"TILE_EXPORT int __tvm_ffi_{name}(void*, const TVMFFIAny* arguments, int32_t count, TVMFFIAny* result) {{"
        )
        with self.out.indented():
            message = string_literal(f"{name} takes {count} arguments: every parameter, then every symbolic dimension")
            self.out.line(f'if (count != {count}) return tile::raise_error("TypeError", {message});')
            values = []
            for position, parameter in enumerate(self.view.parameters):
                kind = self._parameter_type(parameter)
                if parameter.buffer is not None:
                    test, noun = "is_tensor", "tensor"
                else:
                    test, noun = f"is_number<{kind}>", f"number that fits {_item(parameter).dtype}"
                wrong = string_literal(f"{name}: argument {position} ({parameter.name}) must be a {noun}")
                self.out.line(
                    f'if (!tile::{test}(arguments[{position}])) return tile::raise_error("TypeError", {wrong});'
                )
                read = f"data_of<{kind.removesuffix('*')}>" if parameter.buffer is not None else f"number_of<{kind}>"
                values.append(f"tile::{read}(arguments[{position}])")
            for position, var in enumerate(self.view.symbols, len(self.view.parameters)):
                kind = "int64_t" if var in self._counted else self.expressions.index_type(var.dtype)
                values.append(f"tile::number_of<{kind}>(arguments[{position}])")
            self.out.line(f"const char* failed = {host}({', '.join(values)});")
            self.out.line('if (failed != nullptr) return tile::raise_error("RuntimeError", failed);')
            self.out.line("*result = TVMFFIAny{};")
            self.out.line("return 0;")
        self.out.line("}")


def _item(parameter: Parameter) -> Buffer | Var:
    item = parameter.buffer if parameter.buffer is not None else parameter.scalar
    assert item is not None
    return item


def _too_large(var: Var) -> str:
    return (
        f"{var.name} is too large: the kernel counts it in 32 bits, up to {LARGEST_INT32_SIZE}; "
        f'declare it T.dynamic("{var.name}", "int64")'
    )


def _needs_wide_indices(view: View) -> bool:
    """Whether a buffer has so many elements that 32-bit counters could overflow on the way to an index."""
    for stmt in walk.statements(view):
        buffers = [*mentioned_buffers(stmt), *(stmt.buffers if isinstance(stmt, Launch) else ())]
        for buffer in buffers:
            span = element_span(buffer)
            if span is not None and span > 2**31 - 1:
                return True
    return False
