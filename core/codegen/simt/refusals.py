"""What no chip of this family can be given, refused at the line that asks for it before anything is lowered."""

from __future__ import annotations

import linecache
import re
from typing import TYPE_CHECKING, Any

from core.codegen.simt.locate import user_line
from core.codegen.simt.translate import Foreign
from core.errors import Location, UnsupportedOp

if TYPE_CHECKING:
    from core.hardware import Chip
    from core.program import Program

#: Annotation of the block in which `T.import_source` was called.
_IMPORTED = "pragma_import_c"
_IMPORT_CALL = re.compile(r"\bimport_source\s*\(")
#: Lines of a kernel that are searched for the call.
_KERNEL_LINES = 1000
#: How the stock pipeline says that it does not know an operation; it prints the whole object, or the whole target.
_UNRESOLVED = re.compile(
    r'Unresolved call ir\.Op\(.*?\bname="(?P<name>[\w.]+)"'
    r"|(?P<tile>tl\.\w+) requires a target-specific implementation",
    re.DOTALL,
)
#: Operations that stand for instructions of NVIDIA's.
_NVIDIA = re.compile(r"ptx|mma|tma|mbarrier|tcgen05|cluster|max_nreg|warpgroup|named_barrier")


def check(program: Program, chip: Chip) -> None:
    """Refuses source code for another language, and elements of less than a byte.

    Raises:
        UnsupportedOp: with the line.
    """
    if _imports_source(program):
        raise UnsupportedOp(
            f"{program.name}: T.import_source is CUDA source, which cannot be used on {chip.target}",
            hint="write what it does in TileLang, as a T.macro for example",
            location=_import_line(program),
        )
    view = program.view
    tensors = [parameter.buffer for parameter in view.parameters if parameter.buffer is not None]
    inside = [buffer for launch in view.launches for buffer in launch.buffers]
    for buffer in (*tensors, *view.workspaces, *inside):
        bits = re.fullmatch(r"u?int(\d+)|float(\d+)_\w+", buffer.dtype)
        if bits is not None and int(bits[1] or bits[2]) < 8:
            raise UnsupportedOp(
                f"{program.name}: {buffer.name} has elements of {buffer.dtype}, and {chip.target} none of less than a"
                " byte here",
                hint="keep them packed in int8 or uint8, and take them apart with shifts and masks",
                location=buffer.location or program.location,
            )


def unresolved(program: Program, chip: Chip, error: BaseException) -> UnsupportedOp | None:
    """The refusal of an operation that the stock code generator does not know; None where `error` is about else."""
    found = _UNRESOLVED.search(str(error))
    if found is None:
        return None
    name = found["name"] or found["tile"]
    short = name.rpartition(".")[2]
    return UnsupportedOp(
        f"{program.name} calls {name}, which {chip.target} has no equivalent of",
        hint="it is an instruction of NVIDIA's: write T.gemm and T.copy, which use the chip's own"
        if _NVIDIA.search(short)
        else "spell it out with arithmetic",
        location=user_line(program, Foreign(short, 0, frozenset())),
        details={"names": [name]},
    )


def _imports_source(program: Program) -> bool:
    from tvm import tirx

    found: list[Any] = []

    def visit(node: Any) -> None:
        if _IMPORTED in (getattr(node, "annotations", None) or {}) or getattr(node, "attr_key", "") == _IMPORTED:
            found.append(node)

    tirx.stmt_functor.post_order_visit(program.prim_func.body, visit)
    return bool(found)


def _import_line(program: Program) -> Location | None:
    """The call leaves no statement behind, so it is looked for in the kernel's text."""
    start = program.location
    if start is None:
        return None
    for line in range(start.line, start.line + _KERNEL_LINES):
        if _IMPORT_CALL.search(linecache.getline(start.file, line)):
            return Location(start.file, line)
    return start
