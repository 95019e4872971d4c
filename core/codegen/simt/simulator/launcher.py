"""Running a lowered SIMT kernel on the CPU: arguments by pointer, launches as the host plan says, faults as errors."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.codegen.simt.plan import CTYPES, CompiledPlan, Launch, Value
from core.codegen.simt.simulator.abi import Fault, LaunchRequest, Part, Region
from core.codegen.simt.simulator.memory import Memory
from core.codegen.simt.simulator.report import launch_error
from core.codegen.simt.simulator.rewrite import SharedPart, lines_mentioning, shared_parts
from core.codegen.simt.simulator.source_lines import user_location
from core.errors import DeviceUnavailable, LaunchError, TileHALError

if TYPE_CHECKING:
    from core.compiler.artifacts import LoweredKernel
    from core.program import Program

#: More workers than this gain nothing: each holds the stacks of a whole block.
_MOST_WORKERS = 32
_MOST_THREADS = 1024
_MOST_PARTS = 64


class SimulatedKernel:
    """A simulated kernel, ready to run; a call returns when it has finished.

    Args:
        lowered: the kernel, with the plan of its launches in `metadata` (one launch of everything when there is none).
        library: from :func:`core.codegen.simt.simulator.build.build_library`.
        wave_lanes: of the chip.
        checked: whether the library watches every access.
        rewrites: rules applied to the source.
    """

    def __init__(
        self, lowered: LoweredKernel, library: Path, *, wave_lanes: int, checked: bool, rewrites: Sequence[str]
    ) -> None:
        self.rewrites = tuple(rewrites)
        self._lowered = lowered
        self._wave_lanes = wave_lanes
        self._checked = checked
        self._plan = CompiledPlan(lowered)
        try:
            self._library = ctypes.CDLL(str(library))
            self._launch = self._library.tilehal_sim_launch
            self._entries = {
                name: ctypes.cast(getattr(self._library, f"tilehal_sim_entry_{name}"), ctypes.c_void_p)
                for name in self._plan.functions
            }
        except (OSError, AttributeError) as error:
            raise DeviceUnavailable(
                f"{lowered.signature.name}: the simulator's library cannot be loaded: {error}",
                hint="it may have been built on another machine: remove it from the cache (`tilehal cache clear`)",
            ) from error
        self._lines = lowered.source.splitlines()

    def __call__(self, *arguments: Any, symbols: dict[str, int] | None = None, stream: int | None = None) -> None:
        names = self._plan.names(arguments, symbols)
        memory = Memory(self._lowered.signature, arguments, guarded=self._checked)
        workspaces = [memory.scratch(dtype, count) for dtype, count in self._plan.workspaces(names)]
        try:
            for launch in self._plan.launches(names):
                self._run(launch, memory, workspaces)
        finally:
            memory.write_back()

    def locate(self, error: TileHALError, program: Program) -> None:
        """Gives a fault the user's line, found when it is needed: a cached kernel's lines may have moved since."""
        line = error.details.get("generated_line")
        if line is not None and error.location is None:
            error.location = user_location(program.view, self._lowered.source, line)

    def _run(self, launch: Launch, memory: Memory, workspaces: Sequence[int]) -> None:
        block, dynamic = launch.block, launch.shared_bytes
        name = self._lowered.signature.name
        threads = block[0] * block[1] * block[2]
        if threads > _MOST_THREADS:
            raise LaunchError(
                f"{name}: a block of {threads} threads; the simulator runs at most {_MOST_THREADS}",
                hint="use fewer threads",
            )
        kept: list[Any] = []
        pointers = (ctypes.c_void_p * max(1, len(launch.arguments)))()
        for index, argument in enumerate(launch.arguments):
            kept.append(self._argument(argument, memory, workspaces))
            pointers[index] = ctypes.addressof(kept[-1])
        request = LaunchRequest()
        request.entry = self._entries[launch.function]
        request.arguments = ctypes.addressof(pointers)
        request.grid[:] = launch.grid
        request.block[:] = block
        request.wave_lanes = self._wave_lanes
        request.workers = min(_MOST_WORKERS, usable_cores())
        request.checked = int(self._checked)
        request.dynamic_shared_bytes = dynamic
        kept.append(self._name_buffers(request, memory))
        if self._checked:
            kept.append(self._watch(request, dynamic))
        fault = Fault()
        status = self._launch(ctypes.byref(request), ctypes.byref(fault))
        if status == 2:
            raise LaunchError(
                f"{name}: no memory for the simulated threads' stacks",
                hint="use fewer threads a block, or allow this process more memory",
            )
        if status == 1:
            raise launch_error(
                fault,
                kernel=name,
                target=self._lowered.target,
                source=self._lines,
                regions=memory.regions,
                block_extents=block,
                checked=self._checked,
            )

    def _argument(self, argument: Value, memory: Memory, workspaces: Sequence[int]) -> Any:
        if argument.kind == "tensor":
            return ctypes.c_void_p(memory.address(argument.value))
        if argument.kind == "workspace":
            return ctypes.c_void_p(workspaces[argument.value])
        if argument.dtype in ("float16", "bfloat16"):
            import torch

            number = torch.tensor([argument.value], dtype=getattr(torch, argument.dtype)).view(torch.uint16)
            return ctypes.c_uint16(int(number.item()))
        if argument.dtype not in CTYPES:
            raise LaunchError(
                f"{self._lowered.signature.name}: the simulator cannot pass a scalar of type {argument.dtype}"
            )
        return getattr(ctypes, CTYPES[argument.dtype])(argument.value)

    def _name_buffers(self, request: LaunchRequest, memory: Memory) -> Any:
        """Where global buffers are."""
        regions = (Region * max(1, len(memory.regions)))()
        for index, (label, begin, size) in enumerate(memory.regions):
            regions[index] = Region(label.encode(), begin, size)
        request.regions = regions
        request.region_count = len(memory.regions)
        return regions

    def _watch(self, request: LaunchRequest, dynamic: int) -> Any:
        """Parts of shared memory, and which line mentions which."""
        found = self._parts(dynamic)
        parts = (Part * max(1, len(found)))()
        for index, part in enumerate(found):
            parts[index] = Part(part.name.encode(), part.offset, part.bytes or 0)
        mentions = lines_mentioning(self._lowered.source, [part.name for part in found])
        bits = (ctypes.c_uint64 * max(1, len(mentions)))(*mentions)
        request.parts, request.part_count = parts, len(found)
        request.parts_of_line, request.line_count = bits, len(mentions)
        return parts, bits

    def _parts(self, dynamic: int) -> tuple[SharedPart, ...]:
        found = shared_parts(self._lowered.source, dynamic)
        if len(found) > _MOST_PARTS or len({part.name for part in found}) < len(found):
            # Several kernels in one file may use one name for different parts: bounds are then those of the whole.
            return ()
        return found


def usable_cores() -> int:
    """Cores this process may use."""
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:
        return os.cpu_count() or 1
