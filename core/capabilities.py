"""What each known target can do on this machine, and why not: compile, build, run, simulate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from core.errors import TileHALError
from core.plugins.registry import manager as process_manager

if TYPE_CHECKING:
    from core.hardware import Chip
    from core.plugins import Backend, DetectedDevice, Finding, Manager, Stage


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a stage is possible here; `reason` says what is missing or, when it is possible, what does it."""

    possible: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.possible


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """A known target and what can be done with it on this machine.

    Attributes:
        target: as `target=` takes it; the vendor alone when its backend could not be loaded.
        title: the chip's product name.
        backend: the package that owns it, with its version.
        default: whether the vendor alone means this chip where no device is found.
        compile: native source can be generated.
        build: that source can be compiled by the vendor's toolchain.
        run: the kernel can be launched: it builds, and the device is here.
        simulate: the generated source can run on this machine's CPU.
    """

    target: str
    title: str
    backend: str
    default: bool
    compile: Verdict
    build: Verdict
    run: Verdict
    simulate: Verdict

    def to_json(self) -> dict[str, Any]:
        """As JSON-able data; a stage is `{"possible": bool, "reason": str}`."""
        stages = {"compile": self.compile, "build": self.build, "run": self.run, "simulate": self.simulate}
        return {
            "target": self.target,
            "title": self.title,
            "backend": self.backend,
            "default": self.default,
            **{stage: {"possible": verdict.possible, "reason": verdict.reason} for stage, verdict in stages.items()},
        }


def targets(*, manager: Manager | None = None) -> list[TargetInfo]:
    """Every chip of every installed backend, and what can be done with it here.

    A backend that cannot be used has one entry, with its failure as the reason. Loads every backend, runs detectors and
    asks for toolchains; does not import torch or tilelang.
    """
    plugins = manager or process_manager()
    found: list[TargetInfo] = []
    for vendor in plugins.vendors():
        try:
            backend = plugins.backend(vendor)
            chips = backend.chips()
        except TileHALError as error:
            owners = [one.package for one in plugins.selected_entries() if (one.role, one.vendor) == ("owner", vendor)]
            no = Verdict(False, error.message)
            found.append(TargetInfo(vendor, "", " and ".join(owners), False, no, no, no, no))
            continue
        found.extend(describe_target(backend, chip, default=chip is chips[0]) for chip in chips)
    return found


def describe_target(backend: Backend, chip: Chip, *, default: bool = False) -> TargetInfo:
    """What can be done with one chip here."""
    try:
        blocked = _blocked(
            backend.call("tilehal_diagnose", chip) if backend.implements("tilehal_diagnose", chip) else ()
        )
        compiles = _compiles(backend, chip, blocked)
        builds = _builds(backend, chip, blocked, compiles)
        runs = _runs(backend, chip, blocked, builds)
        simulates = _simulates(backend, chip, blocked, compiles)
    except TileHALError as error:
        # What cannot be asked cannot be promised; the reason is the hook's own error.
        compiles = builds = runs = simulates = Verdict(False, error.message)
    return TargetInfo(chip.target, chip.title, backend.package, default, compiles, builds, runs, simulates)


def _blocked(findings: Sequence[Finding]) -> Mapping[Stage, str]:
    blocked: dict[Stage, str] = {}
    for finding in findings:
        for stage in finding.blocks:
            blocked.setdefault(stage, finding.message)
    return blocked


def _unable(backend: Backend, chip: Chip, hook: str, after: Verdict | None = None) -> Verdict | None:
    """Why a stage is out of the question: the stage `after` which it comes is, or nobody implements its hook."""
    if after is not None and not after.possible:
        return after
    if backend.implements(hook, chip):
        return None
    return Verdict(False, f"{backend.package} does not implement {hook}")


def _compiles(backend: Backend, chip: Chip, blocked: Mapping[Stage, str]) -> Verdict:
    unable = _unable(backend, chip, "tilehal_lower")
    if unable is not None:
        return unable
    if find_spec("tilelang") is None:
        return Verdict(False, "tilelang is not installed")
    return Verdict("compile" not in blocked, blocked.get("compile", ""))


def _builds(backend: Backend, chip: Chip, blocked: Mapping[Stage, str], compiles: Verdict) -> Verdict:
    unable = _unable(backend, chip, "tilehal_build", after=compiles)
    if unable is not None:
        return unable
    if "build" in blocked:
        return Verdict(False, blocked["build"])
    if not backend.implements("tilehal_toolchain", chip):
        return Verdict(True)
    try:
        toolchain = backend.call("tilehal_toolchain", chip)
    except TileHALError as error:
        return Verdict(False, error.message)
    return Verdict(True, f"{toolchain.name} {toolchain.version}".strip())


def _runs(backend: Backend, chip: Chip, blocked: Mapping[Stage, str], builds: Verdict) -> Verdict:
    unable = _unable(backend, chip, "tilehal_launcher", after=builds)
    if unable is not None:
        return unable
    if "run" in blocked:
        return Verdict(False, blocked["run"])
    device = _device(backend, chip)
    return Verdict(True, device.evidence) if device else Verdict(False, f"no {chip.title} was detected on this machine")


def _simulates(backend: Backend, chip: Chip, blocked: Mapping[Stage, str], compiles: Verdict) -> Verdict:
    unable = _unable(backend, chip, "tilehal_simulator", after=compiles)
    if unable is not None:
        return unable
    return Verdict("simulate" not in blocked, blocked.get("simulate", ""))


def _device(backend: Backend, chip: Chip) -> DetectedDevice | None:
    if not backend.implements("tilehal_detect"):
        return None
    names = {name.casefold() for name in (chip.name, *chip.aliases)}
    return next((device for device in backend.detect() if device.chip.casefold() in names), None)
