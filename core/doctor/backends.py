"""What each plugin does when it is really loaded and asked: one child process per vendor, with a time limit."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from core.doctor.codes import finding
from core.doctor.report import BackendReport
from core.errors import BackendHookError, BackendLoadError, TargetNotFound, TileHALError
from core.plugins import Backend, Entry, Finding, Manager, loading, manager
from core.plugins.isolation import DEFAULT_TIMEOUT_S, LOAD_TIMEOUT, load_timeout_s
from core.plugins.probe import Outcome, run_in_child
from core.target import resolve

_CHECK = "from core.doctor.backends import check_vendor; result = check_vendor(*arguments)"
_STAGE = "tilehal doctor stage: "


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """A plugin, or a hook of one, that cannot be used.

    Attributes:
        target: as the entry point names it.
        stage: where it failed: `versions`, `import`, `register`, `ownership`, `owner-hook`.
        traceback: of the exception that its code raised, from its own first line; empty where none did.
    """

    distribution: str
    target: str
    stage: str
    cause: str
    hint: str
    traceback: str


@dataclass(frozen=True, slots=True)
class Checked:
    """What became of a vendor: its backend's answers (None when it did not load), failures, and findings.

    `failures` has what each plugin that failed, or a hook of one, is called and why.
    """

    vendor: str
    backend: BackendReport | None
    failures: tuple[LoadFailure, ...]
    findings: tuple[Finding, ...]


def check_in_children(vendors: Iterable[str], target: str | None = None) -> tuple[Checked, ...]:
    """Checks every vendor, two at a time."""
    limit_s = (load_timeout_s() or DEFAULT_TIMEOUT_S) + 30

    def check(vendor: str) -> Checked:
        return _checked(vendor, run_in_child(_CHECK, arguments=[vendor, target], timeout_s=limit_s))

    with ThreadPoolExecutor(max_workers=2) as pool:
        return tuple(pool.map(check, vendors))


def _checked(vendor: str, outcome: Outcome) -> Checked:
    if outcome.status == "ok":
        data = outcome.value
        report = _backend_report(data["backend"]) if data["backend"] else None
        findings = tuple(Finding(**{**one, "blocks": tuple(one["blocks"])}) for one in data["findings"])
        return Checked(vendor, report, tuple(LoadFailure(**one) for one in data["failures"]), findings)
    stage = _last_stage(outcome.output)
    if outcome.status == "raised":
        doing = f"raised {outcome.value} in doctor itself"
    else:
        doing = str(outcome.value)
    died = finding(
        "plugin-check-died",
        f"{vendor}: {stage or 'starting the check'} {doing}",
        "the output is in --json; leave the package out with TILEHAL_LOAD_PLUGINS until it is repaired",
        vendor=vendor,
        stage=stage,
        output=outcome.output,
    )
    return Checked(vendor, None, (), (died,))


def _backend_report(data: dict[str, Any]) -> BackendReport:
    # JSON has lists where the record has tuples.
    sequences = {name: tuple(data[name]) for name in ("chips", "detector")}
    return BackendReport(**{**data, **sequences})


def _last_stage(output: str) -> str:
    stages = [line.removeprefix(_STAGE) for line in output.splitlines() if line.startswith(_STAGE)]
    return stages[-1] if stages else ""


def _stage(name: str) -> None:
    """Leaves a mark in the child's output, so that the parent knows what was going on when it died."""
    os.write(sys.stdout.fileno(), f"{_STAGE}{name}\n".encode())


def check_vendor(vendor: str, target: str | None) -> dict[str, Any]:
    """Runs in the child: loads a vendor and its extensions, and asks everything there is to ask. JSON-able."""
    # An import that hangs or exits is told from a hook that does: it goes through a trial import of its own first.
    os.environ.setdefault(LOAD_TIMEOUT, f"{DEFAULT_TIMEOUT_S:g}")
    plugins = manager()
    findings: list[Finding] = []
    _stage("loading it")
    try:
        backend = plugins.backend(vendor)
    except BackendLoadError:
        return _result(plugins, None, findings)
    _stage("tilehal_chips")
    try:
        chips = backend.chips()
    except TileHALError as error:
        findings.append(_hook_failed(error))
        return _result(plugins, None, findings)
    _stage("loading its extensions")
    for chip in chips:
        # What fails is in plugins.failures(), with its cause.
        with contextlib.suppress(BackendLoadError):
            backend.packages(chip)
    findings += _unmatched(plugins.selected_entries(), vendor, {n for c in chips for n in (c.name, *c.aliases)})
    _stage("tilehal_detect")
    detector = _ask_detector(backend, findings)
    examined, toolchain = "", ""
    try:
        chip = resolve(target or vendor).chip
        examined = chip.target
        _stage("tilehal_toolchain")
        toolchain = _ask_toolchain(backend, chip, findings)
        _stage("tilehal_diagnose")
        if backend.implements("tilehal_diagnose", chip):
            findings += backend.call("tilehal_diagnose", chip)
    except BackendHookError as error:
        # The detector's failure is there already, under its own name.
        if error.details.get("hook") != "tilehal_detect":
            findings.append(_hook_failed(error))
    except BackendLoadError:
        pass  # An extension of the chip, in plugins.failures().
    except TargetNotFound as error:
        findings.append(finding("target-unknown", error.message, error.hint, **error.details))
    except TileHALError as error:
        findings.append(_hook_failed(error))
    report = BackendReport(vendor, backend.package, tuple(chip.target for chip in chips), detector, examined, toolchain)
    return _result(plugins, report, findings)


def _ask_detector(backend: Backend, findings: list[Finding]) -> tuple[str, ...]:
    if not backend.implements("tilehal_detect"):
        return ("it has no detector",)
    try:
        devices = backend.detect()
    except TileHALError as error:
        findings.append(_hook_failed(error))
        return (f"failed: {error.message}",)
    return tuple(f"{device.chip} #{device.index}: {device.evidence}" for device in devices) or ("no device",)


def _ask_toolchain(backend: Backend, chip: Any, findings: list[Finding]) -> str:
    if not backend.implements("tilehal_toolchain", chip):
        return "it builds nothing"
    try:
        found = backend.call("tilehal_toolchain", chip)
    except BackendLoadError:
        raise
    except TileHALError as error:
        return error.message
    return f"{found.name} {found.version} {found.path}".strip()


def _unmatched(entries: Iterable[Entry], vendor: str, names: set[str]) -> list[Finding]:
    known = {name.casefold() for name in names}
    return [
        finding(
            "plugin-extends-nobody",
            f"{entry.package} extends {entry.name!r}, a chip {vendor} does not have",
            "it is never called; see `tilehal targets` for the chips there are",
            distribution=entry.distribution,
        )
        for entry in entries
        if entry.role == "extension" and entry.vendor == vendor and entry.chip and entry.chip not in known
    ]


def _hook_failed(error: TileHALError) -> Finding:
    details = dict(error.details)
    text = _traceback(error)
    if text:
        details["traceback"] = text
    return finding("plugin-hook-failed", error.message, error.hint, **details)


def _traceback(error: TileHALError) -> str:
    """Python's traceback of what a plugin's code raised, without the frames that called it; empty for no cause."""
    cause = error.__cause__
    if cause is None:
        return ""
    frame = cause.__traceback__
    while frame is not None and frame.tb_next is not None and _is_caller(frame.tb_frame.f_code.co_filename):
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(cause), cause, frame))


def _is_caller(file: str) -> bool:
    return file in (loading.__file__, importlib.__file__) or file.startswith("<frozen importlib")


def _result(plugins: Manager, report: BackendReport | None, findings: list[Finding]) -> dict[str, Any]:
    failures = [
        LoadFailure(
            entry.distribution,
            entry.name,
            failure.error.details.get("stage", ""),
            failure.error.message,
            failure.error.hint,
            _traceback(failure.error),
        )
        for failure in plugins.failures()
        for entry in failure.entries
    ]
    return {
        "backend": asdict(report) if report else None,
        "failures": [asdict(one) for one in failures],
        "findings": [{**asdict(one), "details": dict(one.details)} for one in findings],
    }
