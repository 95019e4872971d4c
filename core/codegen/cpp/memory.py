"""How many bytes buffers take, as C++, and the global scratch memory that the generated code allocates itself."""

from __future__ import annotations

from collections.abc import Sequence

from core.codegen.cpp.expressions import Expressions
from core.codegen.cpp.types import cpp_type
from core.codegen.cpp.usage import byte_span
from core.codegen.cpp.writer import Writer, string_literal
from core.program.nodes import Buffer


def bytes_expression(expressions: Expressions, buffers: Sequence[Buffer]) -> str:
    """A C++ expression for the bytes of a memory that all of `buffers` are views of."""
    sizes = [byte_span(buffer) for buffer in buffers]
    known = max((size for size in sizes if size is not None), default=None)
    unknown = [_symbolic_bytes(expressions, b) for b, size in zip(buffers, sizes, strict=True) if size is None]
    if not unknown:
        return f"int64_t({known})"
    text = unknown[0] if known is None else f"tile::larger({known}, {unknown[0]})"
    for other in unknown[1:]:
        text = f"tile::larger({text}, {other})"
    return text


def _symbolic_bytes(expressions: Expressions, buffer: Buffer) -> str:
    size = cpp_type(buffer.dtype, buffer.location).size_bytes
    terms = [
        f"(int64_t({expressions.index(extent)}) - 1) * ({expressions.index(stride)})"
        for extent, stride in zip(buffer.shape, buffer.strides, strict=True)
    ]
    return f"({' + '.join(terms)} + 1) * {size}"


def write_workspace(out: Writer, expressions: Expressions, buffers: Sequence[Buffer], fail: str) -> None:
    """Global scratch memory under the name of the first of `buffers`, freed where the C++ block ends.

    Args:
        out: where the declarations are written.
        expressions: for sizes and names.
        buffers: views of the memory.
        fail: the statement for a failed allocation, `{0}` in the place of the message.
    """
    first = buffers[0]
    name = expressions.names.of(first)
    memory = expressions.names.fresh(f"{name}_memory")
    kind = cpp_type(first.dtype, first.location).element
    message = string_literal(f"no memory for the workspace {first.name}")
    out.line(f"const tile::Workspace {memory}({bytes_expression(expressions, buffers)});")
    out.line(f"if ({memory}.data == nullptr) {fail.format(message)}")
    out.line(f"{kind}* const {name} = static_cast<{kind}*>({memory}.data);")
