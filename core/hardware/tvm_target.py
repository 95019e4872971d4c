"""A descriptor as a TVM target config: a plain dict that `tvm.target.Target` accepts. TVM itself is never imported.

The backend says which TVM kind its chips are (`codegen.tvm_kind`), because TVM knows few: `cuda` for NVIDIA's; for a
chip TVM has no kind for, a neutral one whose attributes say the right limits (`opencl` for wave machines) or nothing at
all (`ext_dev`). The vendor and the chip are always in `keys` and `model`, so schedules can tell chips apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.errors import DescriptorError

if TYPE_CHECKING:
    from core.hardware.model import Chip

#: Kinds of TVM that take limits per block and a wave width.
_WAVE_KINDS = frozenset({"cuda", "rocm", "opencl", "vulkan", "metal", "webgpu"})


def tvm_target(chip: Chip) -> dict[str, Any]:
    """See :meth:`core.Chip.tvm_target`. A figure nobody has published is left out, so TVM's default applies."""
    kind = chip.codegen.get("tvm_kind")
    if not isinstance(kind, str):
        raise DescriptorError(
            f"{chip.target}: the descriptor names no TVM target kind",
            hint="the backend's chips.toml says it as codegen.tvm_kind",
        )
    general = {"cuda": "gpu", "rocm": "gpu", "opencl": "gpu", "llvm": "cpu", "c": "cpu"}.get(kind)
    target: dict[str, Any] = {
        "kind": kind,
        "keys": list(dict.fromkeys(filter(None, (chip.vendor, kind, general)))),
        "model": "+".join((chip.name, *chip.modified)),
    }
    if kind in _WAVE_KINDS:
        shared = chip.memories_for_scope("shared")
        target |= {
            "max_threads_per_block": chip.limits.threads_per_block,
            "max_num_threads": chip.limits.threads_per_block,
            "thread_warp_size": chip.main_unit.lanes_per_wave,
            "max_shared_memory_per_block": shared[0].block_limit_bytes if shared else None,
        }
    if kind == "cuda":
        registers = chip.main_unit.registers
        target |= {
            "arch": chip.codegen.get("arch"),
            "registers_per_block": registers.per_block if registers else None,
            "l2_cache_size_bytes": next((m.capacity_bytes for m in chip.memories if m.name == "l2"), None),
        }
    if kind == "llvm":
        target |= {
            "mtriple": chip.codegen.get("triple"),
            "num-cores": chip.main_unit.count,
            "mattr": [f"+{name}" for name in chip.features] or None,
        }
    return {key: value for key, value in target.items() if value is not None}
