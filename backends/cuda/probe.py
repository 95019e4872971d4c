"""Asks the CUDA driver what devices there are and prints the answers as JSON. Run as a script, in a process of its own.

A process of its own, because `cuInit` makes a process unable to use CUDA in children it forks later, and a broken
driver can abort whoever calls it. No context is created: attributes and memory sizes need none.
"""

import ctypes
import json
import sys
from typing import Any

#: CUdevice_attribute (CUDA 13.0 cuda.h) of each figure we read.
ATTRIBUTES = {
    "threads_per_block": 1,
    "block_dim_x": 2,
    "block_dim_y": 3,
    "block_dim_z": 4,
    "grid_dim_x": 5,
    "grid_dim_y": 6,
    "grid_dim_z": 7,
    "shared_per_block": 8,
    "warp_size": 10,
    "registers_per_block": 12,
    "clock_khz": 13,
    "sm_count": 16,
    "bus_width_bits": 37,
    "l2_bytes": 38,
    "threads_per_sm": 39,
    "compute_capability_major": 75,
    "compute_capability_minor": 76,
    "shared_per_sm": 81,
    "registers_per_sm": 82,
    "shared_per_block_optin": 97,
    "blocks_per_sm": 106,
    "shared_reserved_per_block": 111,
}


def devices(library: str) -> list[dict[str, Any]]:
    """Name, memory and attributes of every visible device, in the driver's order; `library` is the driver's.

    Raises:
        OSError: no driver library; RuntimeError: the driver refused.
    """
    driver = ctypes.CDLL(library)

    def check(status: int, what: str) -> None:
        if status != 0:
            text = ctypes.c_char_p()
            driver.cuGetErrorName(status, ctypes.byref(text))
            raise RuntimeError(f"{what}: {(text.value or b'?').decode()} ({status})")

    check(driver.cuInit(0), "cuInit")
    version = ctypes.c_int()
    check(driver.cuDriverGetVersion(ctypes.byref(version)), "cuDriverGetVersion")
    count = ctypes.c_int()
    check(driver.cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
    found = []
    for index in range(count.value):
        device = ctypes.c_int()
        check(driver.cuDeviceGet(ctypes.byref(device), index), "cuDeviceGet")
        name = ctypes.create_string_buffer(256)
        check(driver.cuDeviceGetName(name, 256, device), "cuDeviceGetName")
        memory = ctypes.c_size_t()
        check(driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device), "cuDeviceTotalMem")
        facts: dict[str, Any] = {
            "name": name.value.decode(errors="replace"),
            "memory_bytes": memory.value,
            "cuda_version": version.value,
        }
        for key, attribute in ATTRIBUTES.items():
            value = ctypes.c_int()
            # An old driver does not know the newest attributes: that figure is then simply not answered.
            if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) == 0:
                facts[key] = value.value
        found.append(facts)
    return found


if __name__ == "__main__":
    try:
        json.dump(devices(sys.argv[1]), sys.stdout)
    except (OSError, RuntimeError) as error:
        sys.exit(str(error))
