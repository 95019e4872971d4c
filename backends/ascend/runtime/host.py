"""What a launch needs besides the kernel: workspace per block and synchronisation words, as the toolchain says."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.errors import DeviceUnavailable

if TYPE_CHECKING:
    from core.compiler import BuiltKernel


@dataclass(frozen=True, slots=True)
class Needs:
    """Of one launch.

    Attributes:
        workspace_bytes_per_block: scratch memory in global memory, uninitialised.
        lock_count: 8-byte synchronisation words. lock_value: what each holds before a launch.
    """

    workspace_bytes_per_block: int = 0
    lock_count: int = 0
    lock_value: int = 0


def launch_needs(built: BuiltKernel, number: int) -> Needs:
    """Asks the host callbacks of launch `number`; without them the compiled module's own constants count.

    Raises:
        DeviceUnavailable: the callbacks cannot be loaded, or the kernel locks and nobody says how locks start.
    """
    record: Mapping[str, Any] = built.metadata["launches"][number]
    role = f"host_{number}" if number else "host"
    entry = record["entry"]
    if role in built.files:
        try:
            library = ctypes.CDLL(str(built.path(role)))
        except OSError as error:
            raise DeviceUnavailable(
                f"{entry}: the host callbacks of the build cannot be loaded: {error}",
                hint="they may come from another machine: remove them from the cache (`tilehal cache clear`)",
            ) from error
        return Needs(
            _ask(library, f"{entry}_infer_workspace_shape_function"),
            _ask(library, f"{entry}_infer_sync_block_lock_num_function"),
            _ask(library, f"{entry}_infer_sync_block_lock_init_function"),
        )
    if record["lock_count"]:
        raise DeviceUnavailable(
            f"{entry} uses {record['lock_count']} locks, and the build has no host callbacks that say how they start",
            hint="build it with CANN's hivmc, which makes them",
        )
    return Needs(record["workspace_bytes_per_block"] or 0)


def _ask(library: ctypes.CDLL, name: str) -> int:
    """A callback's answer; one that a build leaves out stands for nothing needed."""
    try:
        function = getattr(library, name)
    except AttributeError:
        return 0
    function.argtypes, function.restype = (), ctypes.c_int64
    return max(0, int(function())) if "lock_init" not in name else int(function())
