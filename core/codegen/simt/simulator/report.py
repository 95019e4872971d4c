"""From a fault of the simulated machine to the error a person reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.codegen.simt.simulator.abi import Fault, FaultKind
from core.codegen.simt.simulator.rewrite import accessed_names, local_arrays
from core.errors import LaunchError

_HINTS = {
    FaultKind.OUT_OF_BOUNDS: "check the index against the buffer's shape; tails need a bound check",
    FaultKind.RACE: "a barrier is missing between the two accesses, or two threads were given one place",
    FaultKind.UNINITIALISED: "write the element (T.clear, T.fill, a copy) before it is read",
    FaultKind.DIVERGENT_BARRIER: "every thread of a block must reach the same barrier: move it out of the branch",
    FaultKind.MASK: "masks have a bit for every lane of the wave: a wave of 64 lanes needs a 64-bit mask",
    FaultKind.INACTIVE_LANE: "all lanes that are read must take part: move the shuffle out of the branch",
    FaultKind.PARTIAL_WAVE: "a matrix instruction needs every lane of its wave: use whole waves, outside of branches",
    FaultKind.MISALIGNED: "a vector access needs an address that is a multiple of its size",
    FaultKind.STACK: "use smaller fragments or more threads",
    FaultKind.ADDRESS: "run it with the option simulator='checked': it names the access and the line",
    FaultKind.TRAP: "the kernel's own assertion failed",
}


def launch_error(
    fault: Fault,
    *,
    kernel: str,
    target: str,
    source: Sequence[str],
    regions: Sequence[tuple[str, int, int]],
    block_extents: Sequence[int],
    checked: bool,
) -> LaunchError:
    """The error for a fault: buffer, thread, block, the generated line, and what to do.

    Args:
        source: lines of the generated source.
        regions: name, address and bytes of each global buffer.
        block_extents: threads of a block along x, y and z.
    """
    kind = FaultKind(fault.kind)
    line = int(fault.line)
    statement = source[line - 1].strip() if 0 < line <= len(source) else ""
    if fault.is_local:
        fault.buffer = " or ".join(
            accessed_names(statement, local_arrays(source), writes=bool(fault.is_write))
        ).encode()
    elif fault.buffer and not fault.is_shared:
        _name_mentioned(fault, statement, regions)
    thread = _index(fault.thread, block_extents)
    block = tuple(fault.block)
    buffer = fault.buffer.decode(errors="replace")
    detail = fault.detail.decode(errors="replace")
    where = f"thread {thread} of block {block}"
    other = f"thread {_index(fault.other_thread, block_extents)}" if fault.other_thread >= 0 else detail or "another"
    space = "local" if fault.is_local else "shared" if fault.is_shared else "global"
    access = "writes" if fault.is_write else "reads"
    place = (
        f"{fault.size} bytes of {space} array {buffer or 'whose name the line does not tell'}"
        if fault.is_local
        else f"{fault.size} bytes at byte {fault.offset} of {space} buffer {buffer} ({fault.buffer_bytes} bytes)"
    )
    match kind:
        case FaultKind.OUT_OF_BOUNDS:
            text = f"out of bounds: {where} {access} {place}"
        case FaultKind.ADDRESS:
            text = f"out of bounds: {where} uses "
            text += f"an address that is nobody's; the nearest buffer is {buffer}" if buffer else detail or "its stack"
        case FaultKind.RACE:
            earlier = "wrote" if fault.other_is_write else "read"
            text = f"race: {where} {access} {place}, which {other} {earlier} with no barrier in between"
        case FaultKind.UNINITIALISED:
            text = f"uninitialised read: {where} reads {place}, which no thread of the block has written"
        case FaultKind.DIVERGENT_BARRIER:
            if fault.other_line:
                text = (
                    f"divergent barrier: {where} waits at the barrier of line {fault.line}, {other} at that of line "
                    f"{fault.other_line}"
                )
            else:
                text = (
                    f"divergent barrier: {where} waits at a barrier that {fault.missing} thread(s) of the block never "
                    f"reach: {other} has left the kernel"
                )
        case FaultKind.MISALIGNED:
            text = f"misaligned: {where} {access} {place}"
        case _:
            text = f"{detail} ({where})"
    lines = [f"{kernel} on the simulator of {target}: {text}"]
    if statement:
        lines.append(f"    generated line {line}: {statement[:160]}")
    if not checked:
        lines.append("    the plain simulator does not know the line: run with the option simulator='checked'")
    return LaunchError(
        "\n".join(lines),
        hint=_HINTS.get(kind, "run the kernel with fewer threads to narrow it down"),
        details=_details(fault, kind, buffer, thread, block),
    )


def _name_mentioned(fault: Fault, statement: str, regions: Sequence[tuple[str, int, int]]) -> None:
    """Names the global buffer that the statement mentions, where the nearest to the address is another.

    An index that is far off leads to a neighbour.
    """
    places = {name: (begin, size) for name, begin, size in regions}
    nearest = fault.buffer.decode(errors="replace")
    mentioned = accessed_names(statement, places, writes=bool(fault.is_write))
    if nearest not in places or not mentioned or nearest in mentioned:
        return
    address = places[nearest][0] + fault.offset
    chosen = min(mentioned, key=lambda name: abs(address - places[name][0]))
    begin, size = places[chosen]
    fault.buffer, fault.offset, fault.buffer_bytes = chosen.encode(), address - begin, size


def _details(fault: Fault, kind: FaultKind, buffer: str, thread: Any, block: Any) -> dict[str, Any]:
    return {
        "fault": kind.name.lower().replace("_", "-"),
        "buffer": buffer or None,
        "offset_bytes": fault.offset if buffer and not fault.is_local else None,
        "access": "write" if fault.is_write else "read",
        "access_bytes": fault.size,
        "thread": thread,
        "block": list(block),
        "generated_line": int(fault.line) or None,
        "other_generated_line": int(fault.other_line) or None,
    }


def _index(linear: int, extents: Sequence[int]) -> tuple[int, int, int]:
    x, y = extents[0], extents[1]
    return linear % x, linear // x % y, linear // (x * y)
