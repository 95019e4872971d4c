"""The CUDA driver through `ctypes`: its errors, devices and contexts, and what describes a launch.

Nothing but `libcuda` is needed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from core.errors import DeviceUnavailable, LaunchError

_LIBRARIES = ("libcuda.so.1", "libcuda.so")
#: `CUdevice_attribute` and `CUstreamCaptureMode` of cuda.h.
_MAJOR, _MINOR = 75, 76
_RELAXED = 2
#: `CUmemAllocationType`, `CUmemLocationType` and `CUmemPool_attribute` of cuda.h.
_PINNED, _ON_DEVICE, _RELEASE_THRESHOLD = 1, 1, 4


class LaunchAttribute(ctypes.Structure):
    """`CUlaunchAttribute` of cuda.h."""

    _fields_ = (("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_uint32 * 16))


class LaunchConfig(ctypes.Structure):
    """`CUlaunchConfig` of cuda.h."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("count", ctypes.c_uint32),
    )


class PoolProperties(ctypes.Structure):
    """`CUmemPoolProps` of cuda.h."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("place_type", ctypes.c_int),
        ("place", ctypes.c_int),
        ("security", ctypes.c_void_p),
        ("largest", ctypes.c_size_t),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
    )


class Driver:
    """The CUDA driver of this machine.

    Raises:
        DeviceUnavailable: there is none, or it finds no device.
    """

    def __init__(self, names: Sequence[str] = _LIBRARIES) -> None:
        self._library = self._open(names)
        self.check(self._library.cuInit(0), "cuInit", DeviceUnavailable)
        version = ctypes.c_int()
        self.check(self._library.cuDriverGetVersion(ctypes.byref(version)), "cuDriverGetVersion")
        #: CUDA version the driver supports, as it counts: 12040 is 12.4.
        self.version = version.value

    @staticmethod
    def _open(names: Sequence[str]) -> ctypes.CDLL:
        reasons = []
        for name in names:
            try:
                return ctypes.CDLL(name)
            except OSError as error:
                reasons.append(str(error))
        raise DeviceUnavailable(
            f"the CUDA driver cannot be loaded: {'; '.join(reasons)}",
            hint="install the NVIDIA driver; in a container, start it with the GPUs (`--gpus all`)",
        )

    def check(self, code: int, doing: str, kind: type[DeviceUnavailable | LaunchError] = LaunchError) -> None:
        """Raises `kind` with the driver's name and description of a code that is not success."""
        if code == 0:
            return
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        self._library.cuGetErrorName(code, ctypes.byref(name))
        self._library.cuGetErrorString(code, ctypes.byref(text))
        raise kind(
            f"{doing}: {(name.value or b'unknown error').decode()} ({code}): {(text.value or b'').decode()}",
            hint="a fault of an earlier launch can surface here: run with TILEHAL_LAUNCH_BLOCKING=1 to find it",
            details={"code": code},
        )

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function of the driver. Raises LaunchError."""
        self.check(self._function(name)(*arguments), name)

    def _function(self, name: str) -> Callable[..., int]:
        try:
            function: Callable[..., int] = getattr(self._library, name)
        except AttributeError:
            raise DeviceUnavailable(
                f"the CUDA driver (for CUDA {self.version // 1000}.{self.version % 1000 // 10}) has no {name}",
                hint="update the NVIDIA driver",
            ) from None
        return function

    def capability(self, index: int) -> tuple[int, int]:
        """Compute capability of a device."""
        device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        self.check(self._library.cuDeviceGet(ctypes.byref(device), index), "cuDeviceGet", DeviceUnavailable)
        self.call("cuDeviceGetAttribute", ctypes.byref(major), _MAJOR, device)
        self.call("cuDeviceGetAttribute", ctypes.byref(minor), _MINOR, device)
        return major.value, minor.value

    def attribute(self, index: int, attribute: int) -> int:
        """One `CUdevice_attribute` of a device."""
        device, value = ctypes.c_int(), ctypes.c_int()
        self.check(self._library.cuDeviceGet(ctypes.byref(device), index), "cuDeviceGet", DeviceUnavailable)
        self.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
        return value.value

    def context(self, index: int) -> ctypes.c_void_p:
        """The primary context of a device, which torch and the CUDA runtime use too."""
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.check(self._library.cuDeviceGet(ctypes.byref(device), index), "cuDeviceGet", DeviceUnavailable)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        return context

    def pool(self, index: int) -> ctypes.c_void_p:
        """A pool of device memory that keeps what it is given back. The device's context is current."""
        device, pool = ctypes.c_int(), ctypes.c_void_p()
        self.check(self._library.cuDeviceGet(ctypes.byref(device), index), "cuDeviceGet", DeviceUnavailable)
        wanted = PoolProperties(type=_PINNED, place_type=_ON_DEVICE, place=device.value)
        self.call("cuMemPoolCreate", ctypes.byref(pool), ctypes.byref(wanted))
        kept = ctypes.c_uint64(2**64 - 1)
        self.call("cuMemPoolSetAttribute", pool, _RELEASE_THRESHOLD, ctypes.byref(kept))
        return pool

    @contextmanager
    def scratch(self, pool: ctypes.c_void_p, size: int, stream: int) -> Iterator[int]:
        """Address of `size` bytes for what is queued on `stream` inside the block; 0 for none."""
        if size <= 0:
            yield 0
            return
        address = ctypes.c_uint64()
        self.call(
            "cuMemAllocFromPoolAsync", ctypes.byref(address), ctypes.c_size_t(size), pool, ctypes.c_void_p(stream)
        )
        try:
            yield address.value
        finally:
            self.call("cuMemFreeAsync", address, ctypes.c_void_p(stream))

    @contextmanager
    def current(self, context: ctypes.c_void_p) -> Iterator[None]:
        """The context is current on this thread inside the block, and what was before it afterwards."""
        self.call("cuCtxPushCurrent_v2", context)
        try:
            yield
        finally:
            self._library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    @contextmanager
    def relaxed_capture(self) -> Iterator[None]:
        """Inside, what may not be captured may be called while some stream is captured: loading is no work on it."""
        mode = ctypes.c_int(_RELAXED)
        self.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            yield
        finally:
            self._library.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))


@lru_cache(maxsize=1)
def driver() -> Driver:
    """The driver of this process. Raises DeviceUnavailable."""
    return Driver()
