"""How many clusters of blocks run at once on a device, as its CUDA driver counts them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

from core.runtime.driver import Driver, LaunchAttribute, LaunchConfig
from core.runtime.driver import driver as driver_of_process
from core.runtime.plan import CLUSTER_DIMENSION

#: A kernel that does nothing: what counts is the launch it is asked for with.
_PROBE = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry probe()\n{\nret;\n}\n\0"
#: `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES` of cuda.h.
_DYNAMIC_SHARED = 8
#: Clusters asked about: more than any device has room for.
_ASKED = 256


def active_clusters(
    index: int, sizes: Iterable[int], *, threads: int, shared_bytes: int, driver: Driver | None = None
) -> dict[int, int]:
    """Clusters that run at once, by blocks of a cluster; `Chip.clusters_at_once` is what any chip of the kind promises.

    Args:
        index: of the device, of compute capability 9.0 or above.
        sizes: blocks of a cluster, at most 8.
        threads, shared_bytes: of a block. Blocks that leave no room for a second on a unit count units.
        driver: this process's when None.

    Raises:
        DeviceUnavailable: no driver or device.
        LaunchError: the driver refuses: the device has no clusters, or none of that size, or no such block.
    """
    library = driver or driver_of_process()
    found = {}
    with library.current(library.context(index)):
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        library.call("cuModuleLoadData", ctypes.byref(module), _PROBE)
        try:
            library.call("cuModuleGetFunction", ctypes.byref(function), module, b"probe")
            library.call("cuFuncSetAttribute", function, _DYNAMIC_SHARED, shared_bytes)
            for size in sizes:
                attribute = LaunchAttribute(CLUSTER_DIMENSION, 0, (ctypes.c_uint32 * 16)(size, 1, 1))
                config = LaunchConfig(
                    (ctypes.c_uint32 * 3)(size * _ASKED, 1, 1),
                    (ctypes.c_uint32 * 3)(threads, 1, 1),
                    shared_bytes,
                    None,
                    ctypes.pointer(attribute),
                    1,
                )
                number = ctypes.c_int()
                library.call("cuOccupancyMaxActiveClusters", ctypes.byref(number), function, ctypes.byref(config))
                found[size] = number.value
        finally:
            library.call("cuModuleUnload", module)
    return found
