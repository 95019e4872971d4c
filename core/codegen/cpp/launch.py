"""One launch: the function of a block, and the function that runs the grid."""

from __future__ import annotations

from collections.abc import Sequence

from core.codegen.cpp.block import BlockWriter
from core.codegen.cpp.expressions import Expressions
from core.codegen.cpp.memory import bytes_expression, write_workspace
from core.codegen.cpp.names import Names
from core.codegen.cpp.ranges import Ranges
from core.codegen.cpp.tiles import gemm_accumulator
from core.codegen.cpp.types import cpp_type
from core.codegen.cpp.usage import Usage, byte_span, element_span
from core.codegen.cpp.writer import Writer, short
from core.errors import UnsupportedOp
from core.program import walk
from core.program.nodes import (
    Buffer,
    Const,
    Gemm,
    Launch,
    Scope,
    Var,
)

#: Alignment of every on-chip buffer: a cache line, and the widest vector.
ALIGNMENT_BYTES = 64


class LaunchWriter:
    """Writes the functions of one launch into a shared source file."""

    def __init__(
        self,
        writer: Writer,
        names: Names,
        launch: Launch,
        name: str,
        parameters: Sequence[Buffer],
        *,
        wide_indices: bool,
    ) -> None:
        if launch.uses_threads:
            from core.portability.hints import thread_index_hint

            raise UnsupportedOp(
                "the kernel reads a thread index: per-thread code has no meaning where a block is one thread",
                hint=thread_index_hint(launch),
                location=launch.location,
            )
        self.out = writer
        self.names = names
        self.launch = launch
        self.usage = Usage.of(launch)
        self.block_name = names.fresh(f"{name}_block")
        self.launch_name = names.fresh(f"{name}_launch")
        self.ranges = Ranges()
        self.expressions = Expressions(names, self.ranges, wide_indices=wide_indices)
        self.expressions.location = launch.location
        self._aliases: dict[int, list[Buffer]] = {}
        used = {id(buffer.storage) for buffer in self.usage.buffers}
        known = {id(buffer) for buffer in self.usage.buffers}
        # A launch may use a parameter through a view only.
        self.usage.buffers += [b for b in parameters if id(b.storage) in used and id(b) not in known]
        for buffer in self.usage.buffers:
            self._aliases.setdefault(id(buffer.storage), []).append(buffer)
        self._refuse_unknown_scopes()
        self.expressions.scalars = self._scalars()
        self._arguments = {id(buffer) for buffer in parameters}
        self.products = [stmt for stmt in walk.statements(launch) if isinstance(stmt, Gemm)]

    # ------------------------------------------------------------------------------------------------ buffers

    def _refuse_unknown_scopes(self) -> None:
        for buffer in self.usage.buffers:
            cpp_type(buffer.dtype, buffer.location)
            if buffer.scope in (Scope.BARRIER, Scope.OTHER):
                raise UnsupportedOp(
                    f"{buffer.name} lives in {buffer.storage.tilelang_scope}, which only one dialect knows",
                    hint="use shared, fragment, local or global memory",
                    location=buffer.location,
                )

    def _scalars(self) -> set[int]:
        """`T.alloc_var`s that nothing else is a view of: plain C++ variables."""
        used_as_region: set[int] = set()
        for stmt in walk.statements(self.launch):
            used_as_region |= {id(region.buffer) for region in walk.regions(stmt)}
        return {
            id(buffer)
            for buffer in self.usage.buffers
            if buffer.scope is Scope.VAR
            and len(self._aliases[id(buffer.storage)]) == 1
            and element_span(buffer) == 1
            and not (buffer.dtype == "bool" and id(buffer) in used_as_region)
        }

    @property
    def tensors(self) -> list[Buffer]:
        """Buffers in memory that outlives a block: parameters, workspaces and views of them."""
        found = [buffer for buffer in self.usage.buffers if buffer.scope is Scope.GLOBAL]
        return sorted(found, key=lambda b: len(self._arguments) if b.parameter is None else b.parameter)

    @property
    def tiles(self) -> list[Buffer]:
        """On-chip buffers that are arrays."""
        return [
            buffer
            for buffer in self.usage.buffers
            if buffer.scope is not Scope.GLOBAL and id(buffer) not in self.expressions.scalars
        ]

    @property
    def parameters(self) -> list[Buffer]:
        """The tensors the launch function takes: one per storage, the kernel's own parameter where it has one."""
        return [buffer for buffer in self.tensors if id(buffer) in self._arguments]

    def _tensor_groups(self) -> list[list[Buffer]]:
        """Tensors by storage, the parameter itself first."""
        groups = []
        for buffers in self._aliases.values():
            if buffers[0].scope is Scope.GLOBAL:
                groups.append(sorted(buffers, key=lambda buffer: id(buffer) not in self._arguments))
        return groups

    def pointer_type(self, buffer: Buffer) -> str:
        """`const float16*`; `__restrict` for a tile that nothing else is a view of.

        Tensors are left to the compiler's own checks, which cost nothing measurable: a caller may pass one as input and
        output.
        """
        element = cpp_type(buffer.dtype, buffer.location).element
        in_memory = buffer.scope is Scope.GLOBAL
        constant = in_memory and id(buffer.storage) not in self.usage.written
        alone = not in_memory and len(self._aliases[id(buffer.storage)]) == 1
        return f"{'const ' if constant else ''}{element}*{' __restrict' if alone else ''}"

    def variable_type(self, var: Var) -> str:
        return self.expressions.index_type(var.dtype)

    # ------------------------------------------------------------------------------------------------ the block

    def write_block(self) -> None:
        """The function that computes one block."""
        launch = self.launch
        parameters = [f"{self.pointer_type(buffer)} {self.names.of(buffer)}" for buffer in self.tensors]
        parameters += [f"{self.variable_type(var)} {self.names.of(var)}" for var in self.usage.variables]
        parameters += [f"{self.variable_type(var)} {self.names.of(var)}" for var, _ in launch.grid]
        parameters += [f"{self.pointer_type(buffer)} {self.names.of(buffer)}" for buffer in self.tiles]
        if self.products:
            parameters.append("char* panels")
        parameters.append("[[maybe_unused]] tile::Status& status")
        where = f" ({short(launch.location)})" if launch.location else ""
        self.out.line(f"// One block of the launch{where}.")
        if self.tiles:
            for buffer in self.tiles:
                self.out.line(f"//   {self._tile_note(buffer)}")
        self.out.line(f"static void {self.block_name}({', '.join(parameters)}) {{")
        with self.out.indented():
            for buffer in self.usage.buffers:
                if id(buffer) in self.expressions.scalars:
                    spelled = cpp_type(buffer.dtype, buffer.location)
                    initial = "false" if buffer.dtype == "bool" else f"{spelled.value}(0)"
                    self.out.line(f"{spelled.value} {self.names.of(buffer)} = {initial};")
            for var, extent in launch.grid:
                self.ranges.enter_loop(var, Const(var.dtype, 0), extent)
            block = BlockWriter(self.out, self.expressions, "status.fail({0}); return;")
            block.shared_storages = {key for key, buffers in self._aliases.items() if len(buffers) > 1}
            block.body(launch.body)
        self.out.line("}")
        self.out.line()

    def _tile_note(self, buffer: Buffer) -> str:
        shape = " x ".join(self.expressions.index(extent) for extent in buffer.shape)
        return f"{self.names.of(buffer)}: {buffer.scope.value} {buffer.dtype} {shape}"

    # ------------------------------------------------------------------------------------------------ the grid

    def write_launch(self) -> None:
        """The function that runs the block function over the grid."""
        launch = self.launch
        parameters = [f"{self.pointer_type(buffer)} {self.names.of(buffer)}" for buffer in self.parameters]
        parameters += [f"{self.variable_type(var)} {self.names.of(var)}" for var in self.usage.variables]
        parameters.append("tile::Status& status")
        self.out.line(f"static void {self.launch_name}({', '.join(parameters)}) {{")
        with self.out.indented():
            self._write_views()
            axes = []
            for axis, (_, extent) in zip("xyz", launch.grid, strict=False):
                self.out.line(f"const int64_t grid_{axis} = {self.expressions.index(extent)};")
                axes.append(f"grid_{axis}")
            for axis, (_, extent) in zip(axes, launch.grid, strict=True):
                if not isinstance(extent, Const):
                    self.out.line(f"if ({axis} <= 0) return;")
            offsets = self._write_layout()
            total = " * ".join(axes) or "1"
            head = f"tile::for_each_block({total}, scratch_bytes, status, [&](int64_t block, char* scratch) {{"
            self.out.line(head)
            with self.out.indented():
                self._write_call(axes, offsets)
            self.out.line("});")
        self.out.line("}")
        self.out.line()

    def _write_views(self) -> None:
        """Workspaces of the launch's own are allocated; other views of a memory are its address as another type."""
        for group in self._tensor_groups():
            first = group[0]
            if id(first) not in self._arguments:
                write_workspace(self.out, self.expressions, group, "return status.fail({0});")
            for view in group[1:]:
                kind = self.pointer_type(view)
                self.out.line(f"{kind} {self.names.of(view)} = reinterpret_cast<{kind}>({self.names.of(first)});")

    def _write_layout(self) -> dict[int, str]:
        """Places the tiles one after the other in the memory of a thread; returns each storage's offset."""
        offsets: dict[int, str] = {}
        position = 0
        base = ""
        for key, buffers in self._aliases.items():
            if buffers[0].scope is Scope.GLOBAL or id(buffers[0]) in self.expressions.scalars:
                continue
            static = [byte_span(buffer) for buffer in buffers]
            offsets[key] = f"{base}{position}" if position or not base else base.removesuffix(" + ")
            if all(size is not None for size in static):
                position += -(-max(size or 0 for size in static) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
            else:
                end = self.names.fresh(f"after_{buffers[0].name}")
                size = bytes_expression(self.expressions, buffers)
                self.out.line(f"const int64_t {end} = {offsets[key]} + ({size} + 63) / 64 * 64;")
                base, position = f"{end} + ", 0
        panels = [
            f"tile::gemm_scratch_bytes<{kind}>({m}, {n}, {k})"
            for kind, m, n, k in dict.fromkeys((gemm_accumulator(p), p.m, p.n, p.k) for p in self.products)
        ]
        end = f"{base}{position}"
        if panels:
            self.out.line(f"const int64_t panels_at = {end};")
            largest = panels[0]
            for other in panels[1:]:
                largest = f"tile::larger({largest}, {other})"
            end = f"panels_at + {largest}"
        self.out.line(f"const int64_t scratch_bytes = {end};")
        return offsets

    def _write_call(self, axes: Sequence[str], offsets: dict[int, str]) -> None:
        """Unpacks the linear block number (x runs fastest) and calls the block."""
        launch = self.launch
        divisor = ""
        for position, ((var, _), axis) in enumerate(zip(launch.grid, axes, strict=True)):
            kind = self.variable_type(var)
            quotient = f"block / ({divisor})" if " * " in divisor else f"block / {divisor}" if divisor else "block"
            last = position == len(axes) - 1
            value = quotient if last else f"{quotient} % {axis}"
            self.out.line(f"const {kind} {self.names.of(var)} = {kind}({value});")
            divisor = f"{divisor} * {axis}" if divisor else axis
        arguments = [self.names.of(buffer) for buffer in self.tensors]
        arguments += [self.names.of(var) for var in self.usage.variables]
        arguments += [self.names.of(var) for var, _ in launch.grid]
        for buffer in self.tiles:
            element = cpp_type(buffer.dtype, buffer.location).element
            offset = offsets[id(buffer.storage)]
            at = "scratch" if offset == "0" else f"scratch + {offset}"
            arguments.append(f"reinterpret_cast<{element}*>({at})")
        if self.products:
            arguments.append("scratch + panels_at")
        self.out.line(f"{self.block_name}({', '.join([*arguments, 'status'])});")

    @property
    def static_scratch_bytes(self) -> int | None:
        """Bytes of on-chip buffers per block, each rounded up to the alignment; None when symbolic."""
        total = 0
        for buffers in self._aliases.values():
            if buffers[0].scope is Scope.GLOBAL:
                continue
            sizes = [byte_span(buffer) for buffer in buffers]
            if any(size is None for size in sizes):
                return None
            total += -(-max(size or 0 for size in sizes) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        return total
