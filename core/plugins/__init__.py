"""Plugins: what a vendor's package implements, and how it is found, loaded, routed to and kept from hurting others.

A vendor needs `hookimpl` and the records; docs/plugins.md is the guide. Everything is imported on first use: a package
that registers itself must not pay for the machinery that loads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core._lazy import lazy_names

if TYPE_CHECKING:
    from core.plugins.backend import Backend as Backend
    from core.plugins.backend import Package as Package
    from core.plugins.entries import Entry as Entry
    from core.plugins.entries import discover as discover
    from core.plugins.entries import local_entry as local_entry
    from core.plugins.hookspecs import HOOK_NAMES as HOOK_NAMES
    from core.plugins.hookspecs import hookspec as hookspec
    from core.plugins.loading import hookimpl as hookimpl
    from core.plugins.records import Answer as Answer
    from core.plugins.records import BuildRequest as BuildRequest
    from core.plugins.records import DetectedDevice as DetectedDevice
    from core.plugins.records import Detection as Detection
    from core.plugins.records import Finding as Finding
    from core.plugins.records import FusionRule as FusionRule
    from core.plugins.records import Severity as Severity
    from core.plugins.records import Stage as Stage
    from core.plugins.registry import Failure as Failure
    from core.plugins.registry import Manager as Manager
    from core.plugins.registry import manager as manager
    from core.plugins.registry import use_manager as use_manager

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "backend": ("Backend", "Package"),
        "entries": ("Entry", "discover", "local_entry"),
        "hookspecs": ("HOOK_NAMES", "hookspec"),
        "loading": ("hookimpl",),
        "records": (
            "Answer",
            "BuildRequest",
            "DetectedDevice",
            "Detection",
            "Finding",
            "FusionRule",
            "Severity",
            "Stage",
        ),
        "registry": ("Failure", "Manager", "manager", "use_manager"),
    },
)
