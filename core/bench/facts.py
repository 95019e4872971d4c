"""What a benchmark's figures belong to: the machine and the versions of what takes part."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from core.errors import summary

#: What takes part: the distribution and the module it brings.
_LIBRARIES = {"tilelang": "tilelang", "triton": "triton", "flash-mla": "flash_mla"}


def describe(target: str) -> dict[str, Any]:
    """Host, device, driver, compilers and library versions; the device's identifier for its own tools."""
    import torch

    from core.target import resolve
    from core.tuning.baseline.environment import describe_host, describe_target

    device = torch.device(resolve(target).require_torch_device())
    found: dict[str, Any] = {
        "host": describe_host(),
        "target": {"name": resolve(target).chip.target, **describe_target(target)},
        "libraries": {name: present(name, module) for name, module in _LIBRARIES.items()},
        "device_type": device.type,
    }
    if device.type == "cuda":
        found["libraries"]["cuda of torch"] = str(torch.version.cuda)
        cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        found["libraries"]["cudnn"] = str(cudnn)
        identifier = getattr(torch.cuda.get_device_properties(device), "uuid", None)
        found["uuid"] = f"GPU-{identifier}" if identifier is not None else None
    return found


def installed(name: str) -> str | None:
    """Version of a distribution of this environment; None where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def present(name: str, module: str) -> str:
    """Version of a distribution; of the module, where that stands alone on the path; in words where it cannot be used.

    Imports the module only when there is no distribution.
    """
    found = installed(name)
    if found is not None:
        return found
    try:
        return str(getattr(import_module(module), "__version__", "of an unknown version"))
    except ModuleNotFoundError as error:
        return "not installed" if error.name == module else f"cannot be imported ({error})"
    except Exception as error:  # whatever a library of another device or compiler raises when it is loaded
        return f"cannot be imported ({summary(error)})"
