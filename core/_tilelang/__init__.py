"""Everything TileHAL needs from TileLang and its TVM beyond their public API, in one place.

Each function states what it assumes about the wheel; `tests/test_tilelang_assumptions.py` has a test per assumption, so
that a new tilelang release that breaks one says which. Nothing under `tilelang/` is written to, and no private global
is patched but one, while a kernel is traced (`rewriting`). Importing this package imports neither tilelang nor torch.
"""

from core._tilelang.hostplan import LaunchPlan, LaunchStep, UnreadableHost
from core._tilelang.importing import TvmImportOrderError, import_tilelang, tilelang_version
from core._tilelang.native import (
    DeviceFunction,
    NativeModules,
    device_include_paths,
    host_include_paths,
    known_pass_configs,
    load_native,
    lower_native,
    runtime_metadata,
)
from core._tilelang.simt import GemmEmitter, SimtModules, lower_simt, supported_wave_lanes
from core._tilelang.tracing import TracedKernel, is_prim_func, named, trace, user_location

__all__ = [
    "DeviceFunction",
    "GemmEmitter",
    "LaunchPlan",
    "LaunchStep",
    "NativeModules",
    "SimtModules",
    "TracedKernel",
    "TvmImportOrderError",
    "UnreadableHost",
    "device_include_paths",
    "host_include_paths",
    "import_tilelang",
    "is_prim_func",
    "known_pass_configs",
    "load_native",
    "lower_native",
    "lower_simt",
    "named",
    "runtime_metadata",
    "supported_wave_lanes",
    "tilelang_version",
    "trace",
    "user_location",
]
