"""What the final module says about itself: kernel type, workspace, and the memory plan."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

#: The compiler's name of each on-chip space, and ours.
SPACES = {"ub": "ub", "cbuf": "l1", "cc": "l0c"}

_FUNCTION = re.compile(r"^  func\.func (?:\w+ )?@(\w+)\(")
_RETURN = re.compile(r"^    return %([\w#]+) : (?:index|i8|i64)", re.MULTILINE)
_CONSTANT = re.compile(r"%([\w]+) = (?:arith\.constant|llvm\.mlir\.constant\()\s*(-?\d+) : (?:i64|index|i8|i32)")
_POINTER = re.compile(r"hivm\.hir\.pointer_cast\(([^)]*)\).*?: memref<([^,>]+), #hivm\.address_space<(\w+)>>")
_UB_SIZE = re.compile(r"Allocated UB size = (\d+) bits")
_BITS = {"i1": 1, "bf16": 16, "index": 64}


@dataclass(frozen=True, slots=True)
class Plan:
    """Read from a final module.

    Attributes:
        kernel_type: `vector`, `cube` or `mix`.
        functions: names of the device functions.
        memory_bytes: bytes used of `ub`, `l1`, `l0c`, those the kernel uses.
        workspace_bytes_per_block: global scratch memory, None when the module does not say.
        task_type: the code the runtime is given (10 vector, 20 cube, 32 both), None when the module does not say.
        lock_count: synchronisation words, None when the module does not say.
    """

    kernel_type: str
    functions: tuple[str, ...]
    memory_bytes: dict[str, int]
    workspace_bytes_per_block: int | None
    task_type: int | None
    lock_count: int | None


def read_plan(module: str, entry: str, messages: str = "") -> Plan:
    """Reads the final module of `entry`; `messages` is what the compiler printed."""
    bodies = _functions(module)
    host = {
        name: _returned(bodies.get(f"{entry}_infer_{name}_function", ""))
        for name in ("workspace_shape", "task_type", "sync_block_lock_num")
    }
    device = [name for name in (entry, f"{entry}_mix_aic", f"{entry}_mix_aiv") if name in bodies]
    if len(device) > 1:
        kernel_type = "mix"
    else:
        head = bodies[device[0]].split("\n", 1)[0] if device else ""
        kernel_type = "cube" if "func_core_type<AIC>" in head else "vector"
    memory: dict[str, int] = {}
    for body in bodies.values():
        for space, size in _planned(body).items():
            memory[space] = max(memory.get(space, 0), size)
    printed = [int(bits) for bits in _UB_SIZE.findall(messages)]
    if printed:
        memory["ub"] = max(*printed, 0) // 8 if len(printed) > 1 else printed[0] // 8
    return Plan(
        kernel_type,
        tuple(device),
        {space: memory[space] for space in ("ub", "l1", "l0c") if memory.get(space)},
        host["workspace_shape"],
        host["task_type"],
        host["sync_block_lock_num"],
    )


def _functions(module: str) -> dict[str, str]:
    bodies: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in module.splitlines():
        match = _FUNCTION.match(line)
        if match is not None:
            current = bodies.setdefault(match[1], [])
        if current is not None:
            current.append(line)
        if line == "  }":
            current = None
    return {name: "\n".join(lines) for name, lines in bodies.items()}


def _constants(body: str) -> dict[str, int]:
    return {name: int(value) for name, value in _CONSTANT.findall(body)}


def _returned(body: str) -> int | None:
    match = _RETURN.search(body)
    return _constants(body).get(match[1]) if match else None


def _planned(body: str) -> dict[str, int]:
    """Bytes used of each space: the end of the highest buffer."""
    constants = _constants(body)
    used: dict[str, int] = {}
    for operands, shape, space in _POINTER.findall(body):
        if space not in SPACES:
            continue
        *extents, element = shape.split("x")
        if not all(extent.isdigit() for extent in extents):
            continue
        bits = _BITS.get(element) or int(re.sub(r"\D.*", "", element.lstrip("fiu")) or 8)
        size = (prod(map(int, extents)) * bits + 7) // 8
        for operand in operands.split(","):
            offset = constants.get(operand.strip().lstrip("%"))
            if offset is not None:
                used[SPACES[space]] = max(used.get(SPACES[space], 0), offset + size)
    return used
