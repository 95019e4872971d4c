"""Pipelined loops that a compiler splits: threads that it adds copy ahead, those that the kernel asked for compute.

As TileLang 0.1.15 does for Hopper (`src/cuda/transform/producer_consumer_ws.cc`, confirmed by lowering): a loop with
stages is split where one of its copies is in bulk. The tiles that the added threads fill have as many versions as there
are stages, those that they fill element by element too. One warp issues bulk copies, and gets
`cost.copy_threads` to make a group; filling element by element takes as many threads as compute. They keep their
registers then, which otherwise go to those that compute.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from core.tiling.profile import GlobalAccess, LaunchProfile, OnChipBuffer

if TYPE_CHECKING:
    from core.hardware import Chip

#: Strides of a tensor that is copied in bulk are multiples of this, bytes.
BULK_BYTES = 16


def split_loops(launch: LaunchProfile, chip: Chip) -> frozenset[int]:
    """The loops that the compiler splits; none where the kernel gives threads different things to do itself.

    Tensors of symbolic strides count as copied in bulk, which they are where a caller promises that they can be.
    """
    if launch.copy_threads or not chip.cost.get("copy_threads", 0):
        return frozenset()
    return frozenset(access.loop for access in launch.accesses if _staged(launch, access) and _in_bulk(access))


def filled_by_threads(launch: LaunchProfile, chip: Chip) -> dict[str, int]:
    """By the name of each tile that added threads fill element by element, the loop in which they do."""
    return {name: access.loop for access in _element_by_element(launch, chip) for name in access.fills}


def added_threads(launch: LaunchProfile, chip: Chip) -> int:
    """Threads of a block beside those that the kernel asks for."""
    if not split_loops(launch, chip):
        return 0
    if any(_element_by_element(launch, chip)):
        return launch.threads or 0
    return int(chip.cost["copy_threads"])


def versioned(launch: LaunchProfile, chip: Chip) -> tuple[OnChipBuffer, ...]:
    """The block's buffers with the versions that lowering gives them."""
    filled = filled_by_threads(launch, chip)
    return tuple(
        replace(buffer, versions=max(buffer.versions, launch.loops[filled[buffer.name]].stages))
        if buffer.name in filled
        else buffer
        for buffer in launch.buffers
    )


def has_barriers(launch: LaunchProfile, chip: Chip) -> bool:
    """Whether copies complete at barriers: the kernel's own, those of a split loop, or one of images in bulk."""
    windows = chip.cost.get("copy_threads", 0) > 0 and any(access.window for access in launch.accesses)
    return launch.copy_threads > 0 or windows or bool(split_loops(launch, chip))


def _element_by_element(launch: LaunchProfile, chip: Chip) -> Iterator[GlobalAccess]:
    split = split_loops(launch, chip)
    return (access for access in launch.accesses if access.fills and access.loop in split)


def _staged(launch: LaunchProfile, access: GlobalAccess) -> bool:
    """Whether it is a copy to shared memory in a loop with stages."""
    return launch.loops[access.loop].stages >= 1 and access.mode == "read" and access.onchip.startswith("shared")


def _in_bulk(access: GlobalAccess) -> bool:
    return access.symbolic_rows or access.strides_in_wholes_of(BULK_BYTES)
