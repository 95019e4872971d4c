"""What to do with code that a chip which runs a block as a whole refuses: which installed targets would take it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.program.nodes import Launch, Scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from core.hardware import Chip


def thread_index_hint(launch: Launch) -> str:
    """For a launch that reads a thread index."""
    if any(buffer.scope is Scope.BARRIER for buffer in launch.buffers):
        # Warps with work of their own, which hand tiles to each other: no one loop of it is at fault.
        return (
            "say what the block does, as one T.Pipelined loop of T.copy and T.gemm, without warps' own branches and"
            f" barriers: the chip's compiler overlaps it; or compile it for {_one_of(_is_native)}"
        )
    return f"write the loop as T.Parallel over the tile, or compile it for a target with threads{_listed(_has_threads)}"


def opaque_hint() -> str:
    """For a construct that the tile-level view does not know, which TileLang's own lowering is handed as it is."""
    return f"write it with portable tile operations, or compile it for {_one_of(_is_native)}"


def _has_threads(chip: Chip) -> bool:
    from core.portability.rules import runs_threads

    return runs_threads(chip)


def _is_native(chip: Chip) -> bool:
    return chip.codegen.get("tvm_kind") == "cuda"


def _one_of(test: Callable[[Chip], bool]) -> str:
    return f"a target that TileLang itself lowers{_listed(test)}"


def _listed(test: Callable[[Chip], bool]) -> str:
    """The vendors with a chip that passes, in brackets; nothing where no such backend is installed."""
    from core.plugins.registry import manager

    vendors = [backend.vendor for backend in manager().load_all() if any(map(test, backend.chips()))]
    return f" ({', '.join(sorted(vendors))})" if vendors else ""
