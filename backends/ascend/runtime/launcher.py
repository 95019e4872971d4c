"""Launching a built kernel on an Ascend device."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backends.ascend.runtime.acl import MAGIC_AI_CORE, MAGIC_VECTOR, Acl
from backends.ascend.runtime.arguments import (
    LaunchPlan,
    call_values,
    check_assertions,
    host_assertions,
    launch_plans,
)
from backends.ascend.runtime.host import Needs, launch_needs
from backends.ascend.runtime.packing import Packer
from backends.ascend.runtime.stream import current_stream
from backends.ascend.toolchain import is_a5
from core.errors import LaunchError, ToolchainNotFound

if TYPE_CHECKING:
    import torch

    from core.compiler import BuiltKernel
    from core.hardware import Chip


@dataclass(slots=True)
class _Launch:
    """One launch, with what it is given each time."""

    plan: LaunchPlan
    packer: Packer
    image: bytes
    magic: int
    needs: Needs
    cores: int
    #: Address of what the locks are set to, in pinned host memory; 0 before the first launch.
    lock_source: int = 0

    @property
    def lock_bytes(self) -> int:
        return 8 * self.needs.lock_count


class AscendLauncher:
    """A built kernel, ready to run. A call returns when the launches are in the stream.

    Args:
        chip: whose kernel it is.
        built: with the device objects that CANN's `hivmc` makes.
        acl: the runtime; found and loaded when None.

    Raises:
        ToolchainNotFound: no CANN: neither a runtime, nor a `hivmc` that would have made a device object.
    """

    def __init__(self, chip: Chip, built: BuiltKernel, acl: Acl | None = None) -> None:
        self._acl = Acl() if acl is None else acl
        self._lowered = built.lowered
        self._name = built.lowered.signature.name
        self._blocking = os.environ.get("TILEHAL_LAUNCH_BLOCKING") == "1"
        self._takes_sync_address = not is_a5(chip)
        self._launches = [_launch(chip, built, number, plan) for number, plan in enumerate(launch_plans(built.lowered))]
        self._assertions = host_assertions(built.lowered)
        self._functions: dict[tuple[int, int], int] = {}
        #: By device, stream, number of the launch (None: all launches share it) and name.
        self._scratch: dict[tuple[int, int, int | None, str], torch.Tensor] = {}
        #: Scratch memory that grew: earlier launches of the stream may still use the smaller one.
        self._outgrown: list[torch.Tensor] = []
        self._lock = threading.Lock()

    def __call__(self, *arguments: Any, symbols: dict[str, int] | None = None, stream: int | None = None) -> None:
        tensor = next((a for a in arguments if hasattr(a, "data_ptr")), None)
        if tensor is None:
            raise LaunchError(f"{self._name} has no tensor argument, so a device cannot be chosen for it")
        values = call_values(self._lowered, arguments, symbols)
        check_assertions(self._name, self._assertions, values)
        device = tensor.device.index or 0
        before = self._acl.get_device()
        if before != device:
            self._acl.set_device(device)
        try:
            queue = current_stream(device) if stream is None else stream
            for number, launch in enumerate(self._launches):
                self._run(number, launch, arguments, values, tensor, device, queue, foreign=stream is not None)
            if self._blocking:
                self._acl.synchronize(queue, self._name)
        finally:
            if before is not None and before != device:
                self._acl.set_device(before)

    def _run(
        self,
        number: int,
        launch: _Launch,
        arguments: Sequence[Any],
        values: Mapping[str, Any],
        tensor: torch.Tensor,
        device: int,
        stream: int,
        *,
        foreign: bool,
    ) -> None:
        grid = launch.plan.blocks(values, launch.cores)
        blocks = grid[0] * grid[1] * grid[2]
        if blocks == 0:
            return
        function = self._function(number, launch, device)
        own = {"workspace": launch.needs.workspace_bytes_per_block * blocks, "lock": launch.lock_bytes}
        shared = {}
        for slot in launch.plan.memory_slots:
            if slot.role in ("scratch", "buffer"):
                (shared if slot.role == "scratch" else own)[slot.name] = slot.buffer_bytes(values)
        addresses = {
            name: self._memory((device, stream, launch_number, name), size, tensor, foreign)
            for launch_number, wanted in ((number, own), (None, shared))
            for name, size in wanted.items()
        }
        if addresses["lock"]:
            self._acl.copy_to_device(addresses["lock"], self._lock_source(launch), launch.lock_bytes, stream)
        sync_address = self._acl.sync_address() if self._takes_sync_address else 0
        block = launch.packer.pack(arguments, values, grid, addresses, sync_address)
        self._acl.launch(function, blocks, stream, block, launch.plan.entry)

    def _function(self, number: int, launch: _Launch, device: int) -> int:
        """The kernel's handle on a device, loaded at its first launch there."""
        with self._lock:
            if (number, device) not in self._functions:
                binary = self._acl.load_binary(launch.image, launch.magic)
                self._functions[number, device] = self._acl.get_function(binary, launch.plan.entry)
            return self._functions[number, device]

    def _lock_source(self, launch: _Launch) -> int:
        with self._lock:
            if not launch.lock_source:
                value = launch.needs.lock_value.to_bytes(8, "little", signed=True)
                launch.lock_source = self._acl.pinned_copy(value * launch.needs.lock_count)
            return launch.lock_source

    def _memory(self, key: tuple[int, int, int | None, str], size: int, tensor: torch.Tensor, foreign: bool) -> int:
        """Address of scratch memory of at least `size` bytes, 0 for none.

        It belongs to the stream: launches of one stream run one after the other, so they can share it, whereas memory
        given back to torch's allocator could be used by another stream while the kernel still runs.
        """
        if size == 0:
            return 0
        with self._lock:
            found = self._scratch.get(key)
            if found is None or found.numel() < size:
                import torch

                if found is not None:
                    self._outgrown.append(found)
                    size = max(size, 2 * found.numel())
                found = self._scratch[key] = torch.empty(size, dtype=torch.uint8, device=tensor.device)
                if foreign:
                    # torch gives out memory that its current stream may still be using; this stream would not wait.
                    torch.get_device_module(tensor.device).synchronize()
            return int(found.data_ptr())


def _launch(chip: Chip, built: BuiltKernel, number: int, plan: LaunchPlan) -> _Launch:
    role = f"binary_{number}" if number else "binary"
    if role not in built.files:
        raise ToolchainNotFound(
            f"{plan.kernel}: {built.toolchain.name} compiled the module, but CANN's hivmc, which makes the device"
            " object from it, was not found",
            hint="install the CANN toolkit and `source <cann>/set_env.sh`; or run the kernel with simulate=True "
            "(`tilehal compile`: --run --simulate)",
        )
    needs = launch_needs(built, number)
    uses_cubes = bool(built.lowered.metadata["launches"][number]["matmuls"])
    return _Launch(
        plan,
        Packer(plan, sync_address=not is_a5(chip)),
        built.path(role).read_bytes(),
        MAGIC_AI_CORE if uses_cubes else MAGIC_VECTOR,
        needs,
        core_count(chip, "cube core" if uses_cubes else "vector core"),
    )


def core_count(chip: Chip, kind: str) -> int:
    """Cores of a kind: what a kernel that loops over its blocks is launched on."""
    return next((unit.count for unit in chip.units if unit.kind == kind and unit.count is not None), 1)
