"""The stream a launch goes to: torch_npu's current one, asked at each launch, never a default one in silence."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from core.errors import DeviceUnavailable, LaunchError


def current_stream(device: int) -> int:
    """The handle of torch_npu's current stream of a device.

    Asked through the getter that first drains torch_npu's task queue: operators that torch has queued and not yet
    handed to the runtime would otherwise run after the kernel. (`_npu_getCurrentRawStreamNoWait` does not drain it.)

    Raises:
        DeviceUnavailable: torch_npu is not installed.
        LaunchError: it names no stream.
    """
    stream = int(_getter()(device) or 0)
    if stream == 0:
        raise LaunchError(
            f"torch_npu names no current stream for npu:{device}",
            hint="pass stream=, the handle of the stream to launch on; stream=0 asks for the runtime's default stream",
        )
    return stream


def _getter() -> Any:
    try:
        torch_npu: Any = import_module("torch_npu")
    except ImportError as error:
        raise DeviceUnavailable(
            f"torch_npu is needed to launch on an Ascend device: {error}",
            hint="install the torch_npu release that matches torch and CANN, or pass stream= yourself",
        ) from error
    found = getattr(torch_npu._C, "_npu_getCurrentRawStream", None)
    if found is not None:
        return found
    return lambda device: torch_npu.npu.current_stream(device).npu_stream
