"""What `torch`, `tilelang`, `tvm` and `tvm_ffi` would be, tried out in child processes.

A wrong apache-tvm-ffi aborts the process that imports tilelang, so no import happens in this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from core.doctor.codes import finding
from core.doctor.distributions import Installed
from core.doctor.report import ImportReport, ImportStatus
from core.plugins.entries import normalized
from core.plugins.fingerprint import locate
from core.plugins.probe import Outcome, run_in_child
from core.plugins.records import Finding

#: Import package -> the distribution it should come from.
EXPECTED = {"torch": "torch", "tvm_ffi": "apache-tvm-ffi", "tilelang": "tilelang"}

IMPORT_TIMEOUT_S = 120.0

_IMPORT = """
import importlib
module = importlib.import_module(arguments)
result = {"file": getattr(module, "__file__", None), "version": str(getattr(module, "__version__", ""))}
if arguments == "tilelang":
    result["tvm"] = module.tvm.__file__
"""

_FIND_TVM = """
import importlib.util
spec = importlib.util.find_spec("tvm")
result = spec.origin if spec else None
"""

_TVM_FIRST = "import tvm\nimport tilelang\n"

_DEATHS: dict[str, tuple[ImportStatus, str]] = {
    "raised": ("failed", "import-failed"),
    "died": ("died", "import-died"),
    "timeout": ("timeout", "import-timeout"),
}


@dataclass(frozen=True, slots=True)
class Imports:
    """The reports, and what is wrong about them."""

    reports: tuple[ImportReport, ...]
    findings: tuple[Finding, ...]


def examine_imports(distributions: tuple[Installed, ...], timeout_s: float = IMPORT_TIMEOUT_S) -> Imports:
    """Imports each package in a child of its own and says whose file it was."""
    present = [module for module in EXPECTED if locate(module)]
    # Two at a time: each takes seconds, mostly waiting for the disk, and memory is not ours alone.
    with ThreadPoolExecutor(max_workers=2) as pool:
        outcomes = dict(
            zip(
                present,
                pool.map(lambda module: run_in_child(_IMPORT, arguments=module, timeout_s=timeout_s), present),
                strict=True,
            )
        )
    reports: list[ImportReport] = []
    findings: list[Finding] = []
    for module, expected in EXPECTED.items():
        report, found = _examine(module, expected, outcomes.get(module), distributions)
        reports.append(report)
        findings += found
    report, found = _examine_tvm(outcomes.get("tilelang"), distributions, timeout_s)
    return Imports((*reports, report), (*findings, *found))


def _examine(
    module: str, expected: str, outcome: Outcome | None, distributions: tuple[Installed, ...]
) -> tuple[ImportReport, list[Finding]]:
    if outcome is None:
        message = f"{module} is not installed: chips can be described and compared, and nothing can be compiled"
        return ImportReport(module, "missing"), [finding("import-missing", message, f"pip install {expected}")]
    file = _file_of(module, outcome)
    owner = _owner(file, distributions)
    findings = list(_ownership(module, expected, file, owner, distributions))
    if outcome.status == "ok":
        package = owner.package if owner else ""
        return ImportReport(module, "ok", str(file), package, outcome.value["version"]), findings
    status, code = _DEATHS[outcome.status]
    detail = f"import {module} {'raised ' if outcome.status == 'raised' else ''}{outcome.value}"
    findings.append(
        finding(
            code,
            f"{detail} ({file})",
            "the output is in --json; the findings about versions and files say what may be behind it",
            module=module,
            output=outcome.output,
        )
    )
    return ImportReport(module, status, str(file), owner.package if owner else "", detail), findings


def _file_of(module: str, outcome: Outcome) -> Path | None:
    if outcome.status == "ok" and outcome.value["file"]:
        return Path(outcome.value["file"])
    specs = locate(module)
    origin = specs[-1].origin if specs else None
    return Path(origin) if origin else None


def _owner(file: Path | None, distributions: tuple[Installed, ...]) -> Installed | None:
    return next((one for one in distributions if file is not None and one.owns(file)), None)


def _ownership(
    module: str, expected: str, file: Path | None, owner: Installed | None, distributions: tuple[Installed, ...]
) -> Iterator[Finding]:
    shippers = {
        one.name: one
        for one in distributions
        if any(recorded.path.startswith(f"{module}/") for recorded in one.files)
        and (normalized(one.name) == expected or not one.is_plugin)
    }
    if len(shippers) > 1:
        packages = " and ".join(sorted(one.package for one in shippers.values()))
        yield finding(
            "import-two-owners",
            f"{packages} both ship the import package {module!r}: one has overwritten files of the other",
            f"uninstall both, then install the one you need; TileHAL needs {expected}",
            module=module,
            distributions=sorted(shippers),
        )
    if owner is None:
        yield finding(
            "import-unowned",
            f"{module} is imported from {file}, which belongs to no installed distribution",
            "leftovers of an uninstalled package, or a folder on PYTHONPATH: remove it",
            module=module,
            file=str(file),
        )
    elif normalized(owner.name) != expected:
        yield finding(
            "import-fork",
            f"{module} comes from {owner.package}, not from {expected}",
            f"TileHAL is tested with {expected}: uninstall {owner.name} and install that",
            module=module,
            distribution=owner.name,
        )
    elif owner.origin:
        message = f"{owner.package} was installed from {owner.origin}, not from a release"
        yield finding("import-from-source", message, module=module, origin=owner.origin)


def _examine_tvm(
    tilelang: Outcome | None, distributions: tuple[Installed, ...], timeout_s: float
) -> tuple[ImportReport, list[Finding]]:
    findings: list[Finding] = []
    foreign = _foreign_tvm(timeout_s)
    if tilelang is None or tilelang.status != "ok":
        report = ImportReport("tvm", "missing" if foreign is None else "ok", str(foreign or ""), detail="no tilelang")
    else:
        used = Path(tilelang.value["tvm"])
        shipped = Path(tilelang.value["file"]).parent
        report = ImportReport("tvm", "ok", str(used), "", "shipped inside tilelang")
        if not used.is_relative_to(shipped):
            owner = _owner(used, distributions)
            report = ImportReport("tvm", "ok", str(used), owner.package if owner else "", "not tilelang's own")
            findings.append(
                finding(
                    "tvm-inside-tilelang",
                    f"tilelang uses the TVM at {used}, not the one it ships",
                    "unset TVM_IMPORT_PYTHON_PATH and TVM_LIBRARY_PATH, or remove the other tvm",
                    file=str(used),
                )
            )
    if foreign is not None:
        findings.append(_beside(foreign, _owner(foreign, distributions), tilelang, timeout_s))
    return report, findings


def _foreign_tvm(timeout_s: float) -> Path | None:
    """The `tvm` that a fresh process would import: in this one it is tilelang's, once tilelang is imported."""
    outcome = run_in_child(_FIND_TVM, timeout_s=timeout_s)
    return Path(outcome.value) if outcome.status == "ok" and outcome.value else None


def _beside(foreign: Path, owner: Installed | None, tilelang: Outcome | None, timeout_s: float) -> Finding:
    message = f"another tvm is installed: {owner.package if owner else 'of no distribution'} ({foreign})"
    if tilelang is not None and tilelang.status == "ok":
        outcome = run_in_child(_TVM_FIRST, timeout_s=timeout_s)
        last = str(outcome.value).strip().splitlines()
        works = "works" if outcome.status == "ok" else f"fails: {last[-1] if last else outcome.status}"
        message += f". `import tvm` before `import tilelang` {works}"
    hint = "import tilelang, or call a TileHAL function that compiles, before tvm; nothing else of TileHAL imports it"
    return finding("tvm-beside-tilelang", message, hint, file=str(foreign))
