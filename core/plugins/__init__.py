"""Plugins: what a vendor's package implements, and how it is found, loaded, routed to and kept from hurting others.

A vendor needs `hookimpl` and the records; docs/plugins.md is the guide. Everything is imported on first use: a package
that registers itself must not pay for the machinery that loads it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.plugins.backend import Backend, Package
    from core.plugins.entries import Entry, discover, local_entry
    from core.plugins.hookspecs import HOOK_NAMES, hookspec
    from core.plugins.loading import hookimpl
    from core.plugins.records import (
        Answer,
        BuildRequest,
        DetectedDevice,
        Detection,
        Finding,
        FusionRule,
        Severity,
        Stage,
    )
    from core.plugins.registry import Failure, Manager, manager, use_manager

__all__ = [
    "HOOK_NAMES",
    "Answer",
    "Backend",
    "BuildRequest",
    "DetectedDevice",
    "Detection",
    "Entry",
    "Failure",
    "Finding",
    "FusionRule",
    "Manager",
    "Package",
    "Severity",
    "Stage",
    "discover",
    "hookimpl",
    "hookspec",
    "local_entry",
    "manager",
    "use_manager",
]

_HOME = {
    "backend": ("Backend", "Package"),
    "entries": ("Entry", "discover", "local_entry"),
    "hookspecs": ("HOOK_NAMES", "hookspec"),
    "loading": ("hookimpl",),
    "registry": ("Failure", "Manager", "manager", "use_manager"),
    "records": ("Answer", "BuildRequest", "DetectedDevice", "Detection", "Finding", "FusionRule", "Severity", "Stage"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
