"""The whole examination, put together."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator
from pathlib import Path

from core.doctor.backends import Checked, LoadFailure, check_in_children
from core.doctor.codes import finding
from core.doctor.distributions import Installed, in_use, installed
from core.doctor.files import file_findings
from core.doctor.imports import examine_imports
from core.doctor.paths import path_findings
from core.doctor.report import PluginReport, PluginStatus, Report
from core.errors import TargetNotFound, TileHALError
from core.plugins import Entry, Finding, Manager
from core.plugins.entries import GROUPS, LOAD_PLUGINS, Role, normalized, selection_from_environment
from core.plugins.fingerprint import code_root

#: What becomes of a plugin that failed at a stage, and the code of that; of any other stage: failed, `plugin-failed`.
_STATUS: dict[str, PluginStatus] = {"versions": "incompatible", "owner-hook": "partly loaded"}
_CODES = {
    "versions": "plugin-incompatible",
    "ownership": "plugin-two-owners",
    "owner-hook": "plugin-speaks-for-owner",
}
_SEVERITY_ORDER = {"error": 0, "warning": 1, "info": 2}


def examine(target: str | None = None, *, current_folder: Path | None = None) -> Report:
    """Examines this installation.

    Args:
        target: examine this chip of its vendor instead of the detected or default one, and no other vendor.
        current_folder: where to look for folders that would shadow ours; the working directory by default.
    """
    everything = installed()
    distributions = tuple(in_use(everything).values())
    plugins = Manager()
    vendors = list(plugins.vendors())
    findings: list[Finding] = []
    if target is not None:
        vendors, wrong = _vendors_of(target, plugins)
        findings += wrong
        if target.strip().casefold() == "auto":
            # Every vendor is examined, each as if it were alone.
            target = None
    checked = check_in_children(vendors, target)
    reports = [_plugin_report(entry, plugins, checked) for entry in plugins.entries()]
    imports = examine_imports(distributions)
    findings += path_findings(current_folder or Path.cwd())
    findings += _selection_findings(plugins)
    findings += _failure_findings(plugins, checked)
    findings += [one for vendor in checked for one in vendor.findings]
    findings += _shadowed_findings(everything)
    findings += imports.findings
    findings += _requirement_findings(distributions)
    findings += file_findings(distributions)
    return Report(
        host=_host(distributions),
        plugins=(*reports, *_shadowed_plugins(everything)),
        backends=tuple(vendor.backend for vendor in checked if vendor.backend is not None),
        imports=imports.reports,
        findings=tuple(sorted(findings, key=lambda one: _SEVERITY_ORDER[one.severity])),
    )


def _vendors_of(target: str, plugins: Manager) -> tuple[list[str], list[Finding]]:
    """The vendor a target names. Nothing is loaded: what the target means is found out in the child."""
    vendor = target.strip().casefold().removeprefix("tilehal:").split("+")[0].split(":")[0].strip()
    if vendor == "auto":
        return list(plugins.vendors()), []
    if vendor in plugins.vendors():
        return [vendor], []
    error: TileHALError = plugins.unknown_vendor(vendor)
    assert isinstance(error, TargetNotFound)
    return [], [finding("target-unknown", error.message, error.hint, target=target)]


def _host(distributions: Iterable[Installed]) -> dict[str, str]:
    versions = {normalized(one.name): one.version for one in distributions}
    return {
        "tilehal": versions.get("tilehal", "not installed"),
        "tilelang": versions.get("tilelang", "not installed"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        LOAD_PLUGINS: os.environ.get(LOAD_PLUGINS, "not set"),
    }


def _plugin_report(entry: Entry, plugins: Manager, checked: Iterable[Checked]) -> PluginReport:
    status: PluginStatus = "loaded"
    cause = ""
    vendor = next((one for one in checked if one.vendor == entry.vendor), None)
    if entry not in plugins.selected_entries():
        status, cause = "left out", f"{LOAD_PLUGINS} does not name it"
    elif vendor is None:
        status = "not checked"
    else:
        own = (one for one in vendor.failures if (one.distribution, one.target) == (entry.distribution, entry.name))
        failed = next(own, None)
        if failed is not None:
            status, cause = _STATUS.get(failed.stage, "failed"), failed.cause
        elif vendor.backend is None and entry.role == "owner":
            status, cause = "failed", "; ".join(one.message for one in vendor.findings)
        elif vendor.backend is None:
            status, cause = "not checked", f"the owner of {entry.vendor} did not load"
    location = code_root(entry.module)
    return PluginReport(entry.package, entry.role, entry.name, entry.value, str(location or "not found"), status, cause)


def _failure_findings(plugins: Manager, checked: Iterable[Checked]) -> Iterator[Finding]:
    seen: set[str] = set()
    for vendor in checked:
        for failure in vendor.failures:
            if failure.cause in seen:
                continue
            seen.add(failure.cause)
            details = {"distribution": failure.distribution, "target": failure.target, "stage": failure.stage}
            if failure.traceback:
                details["traceback"] = failure.traceback
            yield finding(_CODES.get(failure.stage, "plugin-failed"), failure.cause, _hint(failure), **details)
    owned = {entry.vendor for entry in plugins.entries() if entry.role == "owner"}
    for entry in plugins.selected_entries():
        if entry.role == "extension" and entry.vendor not in owned:
            message = f"{entry.package} extends {entry.name!r}, and nobody owns the vendor {entry.vendor!r}"
            yield finding("plugin-extends-nobody", message, f"install the package of {entry.vendor}")


def _hint(failure: LoadFailure) -> str:
    if failure.stage == "ownership":
        return f"uninstall all but one, or name the ones to use in {LOAD_PLUGINS}"
    return failure.hint if failure.stage == "owner-hook" else f"repair or uninstall {failure.distribution}"


def _selection_findings(plugins: Manager) -> Iterator[Finding]:
    if not plugins.vendors():
        yield finding("plugin-none", "no backend is usable: no target exists", "install one, for example tilehal-cpu")
    selected = plugins.selected_entries()
    for entry in plugins.entries():
        if entry not in selected:
            yield finding("plugin-left-out", f"{entry.package} ({entry.name}) is left out by {LOAD_PLUGINS}")
    known = {normalized(name) for entry in plugins.entries() for name in (entry.distribution, entry.vendor)}
    for name in selection_from_environment() or ():
        if normalized(name) not in known:
            hint = f"installed are {', '.join(sorted({entry.distribution for entry in plugins.entries()})) or 'none'}"
            yield finding("plugin-selection-unknown", f"{LOAD_PLUGINS} names {name!r}, which is not installed", hint)


def _shadowed(everything: Iterable[Installed]) -> Iterator[tuple[Installed, Installed]]:
    """Copies of plugin packages that are not used, each with the copy that is."""
    first: dict[str, Installed] = {}
    for one in everything:
        used = first.setdefault(normalized(one.name), one)
        # One metadata folder can be reached through two spellings of a path entry; that is one copy.
        if used is not one and used.folder.resolve() != one.folder.resolve() and one.is_plugin:
            yield one, used


def _shadowed_findings(everything: Iterable[Installed]) -> Iterator[Finding]:
    for one, used in _shadowed(everything):
        yield finding(
            "plugin-shadowed",
            f"{one.package} in {one.folder} is not used: {used.package} in {used.folder} comes first on the path",
            "uninstall the copy you do not mean",
            distribution=one.name,
        )


def _shadowed_plugins(everything: Iterable[Installed]) -> Iterator[PluginReport]:
    roles: dict[str, Role] = {group: role for role, group in GROUPS.items()}
    for one, used in _shadowed(everything):
        for point in one.distribution.entry_points:
            if point.group in roles:
                yield PluginReport(
                    one.package,
                    roles[point.group],
                    point.name,
                    point.value,
                    str(one.folder),
                    "shadowed",
                    f"{used.package} comes first on the path",
                )


def _requirement_findings(distributions: tuple[Installed, ...]) -> Iterator[Finding]:
    """Declared ranges that the installed versions break: of TileLang, of TileHAL and of every plugin."""
    from packaging.requirements import InvalidRequirement, Requirement

    versions = {normalized(one.name): one.version for one in distributions}
    for one in distributions:
        if normalized(one.name) not in ("tilehal", "tilelang") and not one.is_plugin:
            continue
        for text in one.distribution.requires or ():
            try:
                requirement = Requirement(text)
                if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
                    continue
                version = versions.get(normalized(requirement.name))
                if version is None or requirement.specifier.contains(version, prereleases=True):
                    continue
            except InvalidRequirement:
                continue
            yield finding(
                "requirement-unmet",
                f"{one.package} requires {requirement.name}{requirement.specifier}, and {version} is installed",
                f'pip install "{requirement.name}{requirement.specifier}"',
                distribution=one.name,
                requirement=text,
                installed=version,
            )
