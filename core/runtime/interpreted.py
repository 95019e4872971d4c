"""A launch plan interpreted through the CUDA driver, step by step.

This is how an exported kernel runs without torch, and a kernel of this process where there is no C compiler for its
compiled launch (`core.codegen.launch` says the same steps in C). It imports neither torch nor tilelang.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from core.errors import DeviceUnavailable, LaunchError
from core.runtime.driver import Driver, LaunchAttribute, LaunchConfig, driver
from core.runtime.extents import Expression, Extent, check_grid
from core.runtime.plan import (
    LARGEST_INT32_SIZE,
    WORKSPACE_ALIGNMENT,
    Argument,
    DeviceLaunch,
    DriverPlan,
    TensorMap,
    passed_as_int32,
)
from core.runtime.refusals import NO_TENSOR_MAP_HINT
from core.runtime.signature import ScalarArgument, Signature, TensorArgument

_POINTER = ctypes.c_void_p
#: `CUdevice_attribute` and `CUfunction_attribute` of cuda.h.
_SHARED_OPT_IN = 97
_STATIC_SHARED, _DYNAMIC_SHARED, _ANY_CLUSTER = 1, 8, 14
_MAP_BYTES, _MAP_ALIGNMENT = 128, 128

#: How scalars are passed by value, by dtype. TVM hands a bool over in 32 bits, which serves a reader of one byte too.
_SCALARS: Mapping[str, Any] = {
    "bool": ctypes.c_int32,
    "int8": ctypes.c_int8,
    "int16": ctypes.c_int16,
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "uint8": ctypes.c_uint8,
    "uint16": ctypes.c_uint16,
    "uint32": ctypes.c_uint32,
    "uint64": ctypes.c_uint64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}


class PlannedKernel:
    """A binary and its plan: loaded on a device when it is first launched there.

    Args:
        image: the binary (cubin).
        limits: most blocks along each axis of a grid.
        required: oldest CUDA version the driver must support, as it counts.
        capability: compute capability the binary is for, times ten; `exact` when it runs on no other.
        made_by: the compiler that made it, for the error of a driver that cannot load it.

    Raises:
        DeviceUnavailable: no driver, or too old a one.
    """

    def __init__(
        self,
        signature: Signature,
        plan: DriverPlan,
        image: bytes,
        *,
        limits: Sequence[int],
        required: int,
        capability: int,
        exact: bool,
        made_by: str = "",
    ) -> None:
        self.name = signature.name
        self._made_by = made_by
        self._signature = signature
        self._image = image
        self._limits = tuple(limits)
        self._capability, self._exact = capability, exact
        self._driver = driver()
        if self._driver.version < required:
            have, need = (f"{v // 1000}.{v % 1000 // 10}" for v in (self._driver.version, required))
            raise DeviceUnavailable(
                f"{self.name} needs a driver for CUDA {need}, this one supports {have}", hint="update the NVIDIA driver"
            )
        self._launches = [_Launch(launch) for launch in plan.launches]
        self._aligned = [
            (index, argument.name, argument.alignment)
            for index, argument in enumerate(signature.arguments)
            if isinstance(argument, TensorArgument) and argument.alignment > 1
        ]
        self._counted = passed_as_int32(plan, signature.symbols)
        self._maps = [_Map(tensor_map, signature) for tensor_map in plan.maps]
        self._workspaces = [Extent(text) for text in plan.workspaces]
        self._pools: dict[int, ctypes.c_void_p] = {}
        self._loaded: dict[int, tuple[ctypes.c_void_p, list[ctypes.c_void_p]]] = {}
        self._lock = threading.Lock()

    def load(self, index: int) -> tuple[ctypes.c_void_p, list[ctypes.c_void_p]]:
        """Context and entry points on a device. Raises DeviceUnavailable when the binary is not for it."""
        with self._lock:
            if index not in self._loaded:
                self._loaded[index] = self._load(index)
            return self._loaded[index]

    def _load(self, index: int) -> tuple[ctypes.c_void_p, list[ctypes.c_void_p]]:
        found = self._driver.capability(index)
        fits = found[0] == self._capability // 10 and found[1] >= self._capability % 10
        if (found[0] * 10 + found[1] != self._capability) if self._exact else not fits:
            raise DeviceUnavailable(
                f"{self.name} was built for compute capability {self._capability // 10}.{self._capability % 10}"
                f"{' exactly' if self._exact else ''}, device {index} has {found[0]}.{found[1]}",
                hint="compile and export it for this chip",
            )
        context = self._driver.context(index)
        with self._driver.current(context), self._driver.relaxed_capture():
            module, functions = _POINTER(), []
            try:
                self._driver.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(self._image))
            except LaunchError as error:
                version = f"{self._driver.version // 1000}.{self._driver.version % 1000 // 10}"
                raise DeviceUnavailable(
                    f"the driver (for CUDA {version}) cannot load {self.name}"
                    f"{f', made by {self._made_by}' if self._made_by else ''}: {error.message}",
                    hint="a binary of a newer CUDA needs a newer driver; or compile it with this machine's CUDA",
                ) from error
            for launch in self._launches:
                function = _POINTER()
                self._driver.call("cuModuleGetFunction", ctypes.byref(function), module, launch.function.encode())
                self._prepare(index, function, launch)
                functions.append(function)
            if self._workspaces:
                self._pools[index] = self._driver.pool(index)
        return context, functions

    def _prepare(self, index: int, function: ctypes.c_void_p, launch: _Launch) -> None:
        shared = launch.constant_shared_bytes
        if shared is None:
            fixed = ctypes.c_int()
            self._driver.call("cuFuncGetAttribute", ctypes.byref(fixed), _STATIC_SHARED, function)
            shared = self._driver.attribute(index, _SHARED_OPT_IN) - fixed.value
        if shared > 0:
            self._driver.call("cuFuncSetAttribute", function, _DYNAMIC_SHARED, shared)
        if launch.cluster is not None:
            self._driver.call("cuFuncSetAttribute", function, _ANY_CLUSTER, 1)

    def __call__(self, index: int, stream: int, *values: Any) -> None:
        """Queues the launches.

        Args:
            index: of the device.
            stream: handle.
            values: a pointer or number per parameter, then the symbolic dimensions.

        Raises:
            ResourceExceeded: more blocks than the chip launches.
            LaunchError: data starts where the kernel cannot access it, or the driver refused.
        """
        for position, name, alignment in self._aligned:
            if values[position] % alignment:
                raise LaunchError(
                    f"{self.name}: {name} starts at {values[position]:#x}, its data must start at a multiple of"
                    f" {alignment} bytes",
                    hint="copy it to memory that starts there: the kernel moves that many bytes at once",
                )
        names = self._names(values)
        for symbol in self._counted:
            if names[symbol] > LARGEST_INT32_SIZE:
                raise LaunchError(
                    f"{self.name}: {symbol} is too large: the kernel counts it in 32 bits, up to {LARGEST_INT32_SIZE}",
                    hint=f'declare it T.dynamic("{symbol}", "int64")',
                )
        planned = [(position, launch.evaluate(names, self._limits)) for position, launch in enumerate(self._launches)]
        wanted = [(position, numbers) for position, numbers in planned if numbers is not None]
        if not wanted:
            return
        context, functions = self.load(index)
        with self._driver.current(context), ExitStack() as scratch:
            workspaces = self._allocate(scratch, index, stream, names)
            used = {i for position, _ in wanted for i in self._launches[position].maps}
            maps = {i: self._maps[i].encode(self._driver, values, workspaces, names) for i in sorted(used)}
            for position, numbers in wanted:
                taken = _Taken(values, workspaces, maps)
                self._launch(self._launches[position], functions[position], numbers, stream, taken, names)

    def _allocate(self, scratch: ExitStack, index: int, stream: int, names: Mapping[str, Any]) -> list[int]:
        """Addresses of the workspaces, in one allocation that `scratch` gives back."""
        if not self._workspaces:
            return []
        offsets = [0]
        for extent in self._workspaces:
            offsets.append(offsets[-1] + -(-extent(names) // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT)
        start = scratch.enter_context(self._driver.scratch(self._pools[index], offsets.pop(), stream))
        return [start + offset for offset in offsets]

    def _names(self, values: Sequence[Any]) -> dict[str, Any]:
        """What the plan's expressions may name: symbolic dimensions and scalar parameters."""
        arguments = self._signature.arguments
        names = dict(zip(self._signature.symbols, values[len(arguments) :], strict=True))
        names.update((a.name, values[i]) for i, a in enumerate(arguments) if isinstance(a, ScalarArgument))
        return names

    def _launch(
        self,
        launch: _Launch,
        function: ctypes.c_void_p,
        numbers: tuple[tuple[int, int, int], tuple[int, int, int], int],
        stream: int,
        taken: _Taken,
        names: Mapping[str, Any],
    ) -> None:
        kept = launch.arguments(taken, names)
        pointers = (_POINTER * max(1, len(kept)))(*(ctypes.addressof(item) for item in kept))
        grid, block, shared = numbers
        attributes = launch.attributes
        if not attributes:
            self._driver.call(
                "cuLaunchKernel", function, *grid, *block, shared, _POINTER(stream), pointers, None
            )  # fmt: skip
            return
        array = (LaunchAttribute * len(attributes))(*attributes)
        config = LaunchConfig(
            (ctypes.c_uint32 * 3)(*grid),
            (ctypes.c_uint32 * 3)(*block),
            shared,
            stream,
            ctypes.cast(array, ctypes.POINTER(LaunchAttribute)),
            len(attributes),
        )
        self._driver.call("cuLaunchKernelEx", ctypes.byref(config), function, pointers, None)


class _Taken(NamedTuple):
    """What the arguments of entry points refer to: the call's values, addresses of workspaces, encoded tensor maps."""

    values: Sequence[Any]
    workspaces: Sequence[int]
    maps: Mapping[int, Any]


class _Launch:
    """One launch with its expressions compiled."""

    def __init__(self, launch: DeviceLaunch) -> None:
        self.function = launch.function
        self.cluster = launch.cluster
        self.maps = tuple(a.index for a in launch.arguments if a.kind == "map")
        self._arguments = [(a, Expression(a.value) if a.kind == "scalar" else None) for a in launch.arguments]
        self._grid = [Extent(text) for text in launch.grid]
        self._block = [Extent(text) for text in launch.block]
        self._shared = Extent(launch.shared_bytes)
        self._conditions = [Expression(text) for text in launch.conditions]
        self.attributes = [
            LaunchAttribute(which, 0, (ctypes.c_uint32 * 16)(*value)) for which, value in launch.attributes
        ]

    @property
    def constant_shared_bytes(self) -> int | None:
        """Dynamic shared memory; None when it depends on the call."""
        return self._shared({}) if self._shared.is_constant else None

    def evaluate(
        self, names: Mapping[str, Any], limits: Sequence[int]
    ) -> tuple[tuple[int, int, int], tuple[int, int, int], int] | None:
        """Grid, block and shared memory of a call; None when nothing is launched."""
        if not all(condition(names) for condition in self._conditions):
            return None
        x, y, z = (extent(names) for extent in self._grid)
        if min(x, y, z) <= 0:
            return None
        check_grid(self.function, (x, y, z), limits)
        threads = tuple(extent(names) for extent in self._block)
        return (x, y, z), (threads[0], threads[1], threads[2]), self._shared(names)

    def arguments(self, taken: _Taken, names: Mapping[str, Any]) -> list[Any]:
        """The values the entry point reads, as ctypes objects."""
        return [self._argument(a, expression, taken, names) for a, expression in self._arguments]

    def _argument(
        self, argument: Argument, expression: Expression | None, taken: _Taken, names: Mapping[str, Any]
    ) -> Any:
        if argument.kind == "map":
            return taken.maps[argument.index]
        if expression is None:
            addresses = taken.workspaces if argument.kind == "workspace" else taken.values
            return _POINTER(addresses[argument.index])
        value = expression(names)
        if argument.dtype == "int32" and not -(2**31) <= value < 2**31:
            raise LaunchError(
                f"{self.function}: {argument.value} = {value} is too large: the kernel counts it in 32 bits",
                hint="launch the kernel on a part of the data at a time",
            )
        return _SCALARS[argument.dtype](value)


class _Map:
    """A tensor map with its expressions compiled."""

    def __init__(self, recipe: TensorMap, signature: Signature) -> None:
        self.recipe = recipe
        self.name = "scratch memory" if recipe.of_workspace else signature.arguments[recipe.tensor].name
        self._dims = [Extent(text) for text in recipe.dims]
        self._strides = [Extent(text) for text in recipe.strides]
        self._box = [Extent(text) for text in recipe.box]
        self._steps = [Extent(text) for text in recipe.element_strides]

    def encode(self, driver: Driver, values: Sequence[Any], workspaces: Sequence[int], names: Mapping[str, Any]) -> Any:
        """The descriptor for one call. Raises LaunchError when the data cannot be described."""
        recipe, rank = self.recipe, self.recipe.rank
        memory = (ctypes.c_ubyte * (_MAP_BYTES + _MAP_ALIGNMENT))()
        start = ctypes.addressof(memory)
        aligned = start + -start % _MAP_ALIGNMENT
        result = (ctypes.c_ubyte * _MAP_BYTES).from_buffer(memory, aligned - start)
        address = (workspaces if recipe.of_workspace else values)[recipe.tensor]
        dims = [extent(names) for extent in self._dims]
        strides = [extent(names) for extent in self._strides]
        head = (
            ctypes.byref(result),
            recipe.data_type,
            ctypes.c_uint32(rank),
            _POINTER(address),
            (ctypes.c_uint64 * rank)(*dims),
            (ctypes.c_uint64 * max(1, rank - 1))(*strides),
        )
        tail = (
            (ctypes.c_uint32 * rank)(*(extent(names) for extent in self._steps)),
            recipe.interleave,
            recipe.swizzle,
            recipe.l2_promotion,
            recipe.out_of_bounds,
        )
        try:
            if recipe.lower is None or recipe.upper is None:
                box = (ctypes.c_uint32 * rank)(*(extent(names) for extent in self._box))
                driver.call("cuTensorMapEncodeTiled", *head, box, *tail)
            else:
                lower = (ctypes.c_int * len(recipe.lower))(*recipe.lower)
                upper = (ctypes.c_int * len(recipe.upper))(*recipe.upper)
                window = (ctypes.c_uint32(recipe.channels or 0), ctypes.c_uint32(recipe.pixels or 0))
                driver.call("cuTensorMapEncodeIm2col", *head, lower, upper, *window, *tail)
        except LaunchError as error:
            raise LaunchError(
                f"no bulk tensor copy (TMA) can describe {self.name} at {address:#x}{_why(address, dims, strides)}: "
                f"{error.message}",
                hint=NO_TENSOR_MAP_HINT,
            ) from error
        return result


def _why(address: int, dims: Sequence[int], strides: Sequence[int]) -> str:
    if address % 16:
        return "; its data must start at a multiple of 16 bytes"
    if any(stride % 16 for stride in strides):
        return "; strides must be multiples of 16 bytes"
    return "; an axis is empty" if 0 in dims else ""
