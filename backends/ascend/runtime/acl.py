"""The calls of CANN's runtime (ACL) that a launch needs, typed; a failed call raises, and says which.

Arguments go to `aclrtLaunchKernelWithHostArgs`, which takes the packed block exactly as the kernel reads it. Its
neighbour `aclrtLaunchKernelWithConfig` would lay the block out itself, and takes a call per argument and no more than
128 of them; `aclrtLaunchKernel` wants the block in device memory already.
"""

from __future__ import annotations

import ctypes
from typing import Any

from backends.ascend.runtime.library import describe, load_library
from core.errors import DeviceUnavailable, LaunchError, TileHALError

_OPTION_LAZY_LOAD = 1
_OPTION_MAGIC = 2
#: What kind of core a binary is for: vector cores alone, or AI cores (cube, with or without vector).
MAGIC_VECTOR = 0x41415246
MAGIC_AI_CORE = 0x43554245
_HOST_TO_DEVICE = 1


class _LoadOption(ctypes.Structure):
    """An option's type, and a 16-byte union that all numbers start at the beginning of."""

    _fields_ = (("type", ctypes.c_uint32), ("value", ctypes.c_uint32 * 4))


class _LoadOptions(ctypes.Structure):
    _fields_ = (("options", ctypes.POINTER(_LoadOption)), ("count", ctypes.c_size_t))


_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "aclrtGetDevice": (ctypes.POINTER(ctypes.c_int32),),
    "aclrtSetDevice": (ctypes.c_int32,),
    "aclrtBinaryLoadFromData": (
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.POINTER(_LoadOptions),
        ctypes.POINTER(ctypes.c_void_p),
    ),
    "aclrtBinaryGetFunction": (ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)),
    "aclrtGetHardwareSyncAddr": (ctypes.POINTER(ctypes.c_void_p),),
    "aclrtMallocHost": (ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t),
    "aclrtMemcpyAsync": (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int32,
        ctypes.c_void_p,
    ),
    "aclrtLaunchKernelWithHostArgs": (
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_void_p,
        ctypes.c_size_t,
    ),
    "aclrtSynchronizeStream": (ctypes.c_void_p,),
}


class Acl:
    """The runtime's calls.

    Args:
        library: `libascendcl.so`; found and loaded when None.

    Raises:
        ToolchainNotFound, DeviceUnavailable: no CANN here, or one without these calls.
    """

    def __init__(self, library: ctypes.CDLL | None = None) -> None:
        library = load_library() if library is None else library
        self._calls: dict[str, Any] = {}
        missing = []
        for name, arguments in _PROTOTYPES.items():
            try:
                call = getattr(library, name)
            except AttributeError:
                missing.append(name)
                continue
            call.argtypes, call.restype = arguments, ctypes.c_int
            self._calls[name] = call
        if missing:
            raise DeviceUnavailable(
                f"{library._name} has no {', '.join(missing)}: this CANN is too old to launch kernels through ACL",
                hint="install CANN 8.5 or later and source its set_env.sh",
                details={"missing": missing},
            )
        self._message: Any = getattr(library, "aclGetRecentErrMsg", None)
        if self._message is not None:
            self._message.argtypes, self._message.restype = (), ctypes.c_char_p

    def get_device(self) -> int | None:
        """The calling thread's device; None when it has none yet."""
        device = ctypes.c_int32(-1)
        return device.value if self._calls["aclrtGetDevice"](ctypes.byref(device)) == 0 else None

    def set_device(self, device: int) -> None:
        """Makes `device` the calling thread's. Raises DeviceUnavailable."""
        self._check("aclrtSetDevice", device, error=DeviceUnavailable, about=f"device {device}")

    def load_binary(self, image: bytes, magic: int) -> int:
        """Loads a device image for the current device; its handle. Raises DeviceUnavailable."""
        options = (_LoadOption * 2)()
        options[0].type, options[0].value[0] = _OPTION_LAZY_LOAD, 0
        options[1].type, options[1].value[0] = _OPTION_MAGIC, magic
        handle = ctypes.c_void_p()
        self._check(
            "aclrtBinaryLoadFromData",
            image,
            len(image),
            ctypes.byref(_LoadOptions(options, 2)),
            ctypes.byref(handle),
            error=DeviceUnavailable,
            about=f"an image of {len(image):,} bytes",
        )
        return handle.value or 0

    def get_function(self, binary: int, name: str) -> int:
        """The handle of a kernel in a loaded image. Raises DeviceUnavailable."""
        handle = ctypes.c_void_p()
        self._check(
            "aclrtBinaryGetFunction", binary, name.encode(), ctypes.byref(handle), error=DeviceUnavailable, about=name
        )
        return handle.value or 0

    def sync_address(self) -> int:
        """Where cube and vector cores synchronise (ffts); the first argument of every kernel on 910B and 910C."""
        address = ctypes.c_void_p()
        self._check("aclrtGetHardwareSyncAddr", ctypes.byref(address))
        return address.value or 0

    def pinned_copy(self, data: bytes) -> int:
        """Address of host memory that the device can copy from at any time, holding `data`; it is never freed."""
        address = ctypes.c_void_p()
        self._check("aclrtMallocHost", ctypes.byref(address), len(data))
        ctypes.memmove(address, data, len(data))
        return address.value or 0

    def copy_to_device(self, target: int, source: int, size: int, stream: int) -> None:
        """Copies from pinned host memory, in the stream's order."""
        self._check("aclrtMemcpyAsync", target, size, source, size, _HOST_TO_DEVICE, stream)

    def launch(self, function: int, blocks: int, stream: int, arguments: bytes, kernel: str) -> None:
        """Launches `blocks` blocks. The runtime copies the arguments before it returns."""
        self._check(
            "aclrtLaunchKernelWithHostArgs",
            function,
            blocks,
            stream,
            None,
            arguments,
            len(arguments),
            None,
            0,
            about=f"{kernel}, {blocks} blocks, {len(arguments)} bytes of arguments",
        )

    def synchronize(self, stream: int, kernel: str) -> None:
        """Waits for the stream; a fault of a kernel surfaces here."""
        self._check("aclrtSynchronizeStream", stream, about=kernel)

    def _check(self, name: str, *arguments: Any, error: type[TileHALError] = LaunchError, about: str = "") -> None:
        code = self._calls[name](*arguments)
        if code == 0:
            return
        said = (self._message() or b"").decode(errors="replace").strip() if self._message is not None else ""
        raise error(
            f"{name} failed with {describe(code)}"
            + (f" for {about}" if about else "")
            + (f"; CANN says: {said}" if said else ""),
            hint="CANN's log (~/ascend/log) has the details; a fault of an earlier launch can surface here: run with"
            " TILEHAL_LAUNCH_BLOCKING=1 to find it",
            details={"call": name, "code": code},
        )
