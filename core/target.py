"""Targets: what a user names with `target=`, and the chip (and device) that it means.

A target is `"<vendor>"` or `"<vendor>:<chip>"`, in any case, with the chip's name or an alias, optionally followed by
what-if changes: `cuda`, `cuda:h200`, `metax:c500+shared=128KiB`. `auto` is the best device found. A leading `tilehal:`
is dropped, so that names TileLang owns too can be written as `tilehal:cuda`.

Nothing is ever chosen behind the user's back: what cannot be resolved is an error that says what there is.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.capabilities import TargetInfo, Verdict, targets
from core.errors import DeviceUnavailable, TargetNotFound, TileHALError
from core.plugins.registry import manager as process_manager

if TYPE_CHECKING:
    from core.hardware import Chip
    from core.plugins import Backend, DetectedDevice, Manager

__all__ = ["Target", "TargetInfo", "TargetTypeError", "Verdict", "chip", "resolve", "targets"]

SYNTAX = 'a target is "<vendor>", "<vendor>:<chip>" or "auto", for example "cpu" or "cuda:h200"'

#: Target names of TileLang that no TileHAL vendor has; here only to explain, never to translate.
_TILELANG_ONLY = frozenset({"c", "llvm", "hip", "rocm", "metal", "webgpu", "cutedsl"})

#: What people call a vendor's hardware or software: only hints use it. The first word of a chip's title counts too, so
#: a vendor that is not listed here is found under its maker's name all the same.
_TRADE_NAMES: dict[str, tuple[str, ...]] = {
    "nvidia": ("cuda",),
    "geforce": ("cuda",),
    "gpu": ("cuda", "metax"),
    "gpgpu": ("cuda", "metax"),
    "maca": ("metax",),
    "mxmaca": ("metax",),
    "huawei": ("ascend",),
    "cann": ("ascend",),
    "npu": ("ascend",),
    "host": ("cpu",),
    "x86": ("cpu",),
    "x86_64": ("cpu",),
    "aarch64": ("cpu",),
}


class TargetTypeError(TargetNotFound, TypeError):
    """What was given as a target is no string, `Target` or `Chip`."""

    code = "target-type"


@dataclass(frozen=True, slots=True)
class Target:
    """A resolved target.

    Attributes:
        vendor: the backend's vendor, in lower case.
        chip: the chip, what-if changes applied.
        device: the detected device that decided, when the vendor alone or `auto` was asked for and one was found.
        requested: the target as it was given.
        reason: why this chip: what was named, detected or taken as the default.
    """

    vendor: str
    chip: Chip
    device: DetectedDevice | None
    requested: str
    reason: str

    def __str__(self) -> str:
        return self.chip.target

    def find_device(self, *, manager: Manager | None = None) -> DetectedDevice | None:
        """The device on this machine that is this chip, or None. Asks the vendor's detector if nobody has yet.

        A what-if chip is nobody's device. Raises what the detector raises.
        """
        if self.device is not None or self.chip.modified:
            return self.device
        backend = (manager or process_manager()).backend(self.vendor)
        names = _names(self.chip)
        return next((device for device in _detect(backend) if device.chip.casefold() in names), None)

    def require_device(self, *, manager: Manager | None = None) -> DetectedDevice:
        """The device on this machine that is this chip. Raises DeviceUnavailable saying what the detector found."""
        device = self.find_device(manager=manager)
        if device is not None:
            return device
        backend = (manager or process_manager()).backend(self.vendor)
        found = ", ".join(f"{one.chip} ({one.evidence})" for one in _detect(backend)) or "no device"
        found += _why_not(backend, self.chip)
        what_if = f"; {self.chip.target} is a what-if chip, which no device is" if self.chip.modified else ""
        raise DeviceUnavailable(
            f"{self.chip.target} is not on this machine: the detector of {backend.package} found {found}{what_if}",
            hint="compiling needs no device, and where the backend has a simulator simulate=True (`tilehal compile`: "
            "--run --simulate) runs the kernel on the CPU; `tilehal doctor` shows what each detector looked at",
            details={"target": self.chip.target, "distribution": backend.distribution},
        )

    def require_torch_device(self, *, manager: Manager | None = None) -> str:
        """The torch device that addresses this chip here: `cuda:0`, `npu:1`, `cpu`.

        Raises:
            DeviceUnavailable: the chip is not on this machine, or it is and this torch cannot address it.
        """
        device = self.require_device(manager=manager)
        if device.torch_device is None:
            raise DeviceUnavailable(
                f"this torch cannot address {self.chip.target} ({device.evidence})",
                hint="install the vendor's build of torch",
                details={"target": self.chip.target},
            )
        return device.torch_device


def chip(target: str | Target | Chip = "auto", *, manager: Manager | None = None) -> Chip:
    """The hardware descriptor of a target: `chip("metax:c500")`, `chip("metax:c500+shared=128KiB")`.

    Raises as :func:`resolve`.
    """
    return resolve(target, manager=manager).chip


def resolve(target: str | Target | Chip, *, manager: Manager | None = None) -> Target:
    """Finds out what a target means.

    A vendor alone means its first detected device, else its default chip. A chip that is named is not looked for on
    this machine. `auto` means the detected device that claims the highest priority.

    Raises:
        TargetTypeError: not a string, `Target` or `Chip`.
        TargetNotFound: no installed backend knows it, or `auto` is claimed twice; lists what there is.
        BackendLoadError: the vendor's package is installed and cannot be used; the cause is chained.
        DescriptorError: a what-if change names no figure of the chip.
    """
    if isinstance(target, Target):
        return target
    plugins = manager or process_manager()
    if not isinstance(target, str):
        return _resolve_chip(target, plugins)
    head, *changes = target.strip().split("+")
    name = re.sub(r"^\s*tilehal\s*:", "", head, flags=re.IGNORECASE).strip()
    vendor, _, chip_name = (part.strip().casefold() for part in name.partition(":"))
    if not vendor:
        raise TargetNotFound(f"{target!r} names no vendor", hint=SYNTAX)
    if vendor == "auto":
        if chip_name:
            raise TargetNotFound(f"{target!r} names a chip for 'auto'", hint=SYNTAX)
        found = _resolve_auto(plugins, target)
    elif vendor not in plugins.vendors():
        raise _unknown(vendor, name, plugins)
    else:
        found = _resolve_vendor(plugins.backend(vendor), chip_name, target, has_colon=":" in name)
    if not changes:
        return found
    return Target(
        vendor=found.vendor,
        chip=found.chip.with_changes(*(change.strip() for change in changes)),
        device=None,
        requested=target,
        reason=f"{found.reason}, with {', '.join(changes)}",
    )


def _resolve_chip(target: object, plugins: Manager) -> Target:
    from core.hardware import Chip

    if not isinstance(target, Chip):
        raise TargetTypeError(
            f"a target is a string, not {type(target).__qualname__} {target!r}",
            hint=f"{SYNTAX}; a torch device says where tensors are, not what to compile for"
            if type(target).__module__.partition(".")[0] == "torch"
            else SYNTAX,
        )
    backend = plugins.backend(target.vendor)
    return Target(backend.vendor, target, None, target.target, "the chip was given")


def _resolve_vendor(backend: Backend, chip_name: str, requested: str, *, has_colon: bool) -> Target:
    if has_colon:
        return Target(backend.vendor, _find_chip(backend, chip_name, requested), None, requested, "the chip was named")
    devices = _detect(backend)
    if devices:
        return _from_device(backend, devices[0], requested, f"detected: {devices[0].evidence}")
    default = backend.chips()[0]
    reason = f"the default of {backend.package}: no device of {backend.vendor} was detected"
    return Target(backend.vendor, default, None, requested, reason)


def _resolve_auto(plugins: Manager, requested: str) -> Target:
    claims: list[tuple[int, Backend, DetectedDevice]] = []
    answers: list[str] = []
    failed: list[str] = []
    for vendor in plugins.vendors():
        try:
            backend = plugins.backend(vendor)
            devices = _detect(backend)
        except TileHALError as error:
            failed.append(f"{vendor}: {error.message}")
            continue
        if devices:
            claims.append((devices[0].priority, backend, devices[0]))
        answers.append(f"{vendor}: {devices[0].chip} ({devices[0].evidence})" if devices else f"{vendor}: no device")
    if not claims:
        # Only now: asking why runs tools, and nobody wants to know where there is a device.
        answers = [f"{one.vendor}: no device{_why_not(one, one.chips()[0])}" for one in plugins.load_all()]
    answers += failed
    if not claims:
        raise TargetNotFound(
            "'auto' found nothing to run on. " + ("; ".join(answers) or "No backend is installed"),
            hint="name the chip to compile for, which needs no device here; `tilehal targets` lists them",
            details={"answers": answers},
        )
    priority = max(claim[0] for claim in claims)
    best = [(backend, device) for claimed, backend, device in claims if claimed == priority]
    if len(best) > 1:
        raise TargetNotFound(
            "'auto' is claimed twice, by "
            + " and by ".join(f"{backend.package} ({device.evidence})" for backend, device in best),
            hint="say which: " + " or ".join(f"target={backend.vendor!r}" for backend, _ in best),
            details={"answers": answers},
        )
    backend, device = best[0]
    found = _from_device(backend, device, requested, f"auto: {'; '.join(answers)}")
    if failed and priority <= 0:
        # Whoever has an accelerator and a broken backend must not find out from the run time.
        warnings.warn(
            f"target 'auto' is {found}; these backends could not be asked: {'; '.join(failed)}",
            RuntimeWarning,
            stacklevel=3,
        )
    return found


def _from_device(backend: Backend, device: DetectedDevice, requested: str, reason: str) -> Target:
    found = next((one for one in backend.chips() if device.chip.casefold() in _names(one)), None)
    if found is None:
        raise TargetNotFound(
            f"{backend.package} detected {device.chip!r} ({device.evidence}), which it does not describe",
            hint=f"name the chip that comes nearest: {_listed(backend)}",
        )
    return Target(backend.vendor, found, device, requested, reason)


def _detect(backend: Backend) -> tuple[DetectedDevice, ...]:
    return backend.detect() if backend.implements("tilehal_detect") else ()


def _why_not(backend: Backend, chip: Chip) -> str:
    """What the backend itself says makes running impossible here, in parentheses; empty when it says nothing."""
    try:
        findings = backend.call("tilehal_diagnose", chip) if backend.implements("tilehal_diagnose", chip) else ()
    except TileHALError as error:
        return f" ({error.message})"
    reasons = [finding.message for finding in findings if "run" in finding.blocks]
    return f" ({'; '.join(reasons)})" if reasons else ""


def _names(one: Chip) -> set[str]:
    return {name.casefold() for name in (one.name, *one.aliases)}


def _listed(backend: Backend) -> str:
    return ", ".join(one.target for one in backend.chips())


def _find_chip(backend: Backend, chip_name: str, requested: str) -> Chip:
    for one in backend.chips():
        if chip_name in _names(one):
            return one
    known = {name: one.target for one in backend.chips() for name in _names(one)}
    near = list(dict.fromkeys(known[name] for name in difflib.get_close_matches(chip_name, known, n=5, cutoff=0.5)))[:3]
    if chip_name.isdecimal():
        hint = (
            f"a number after the colon is a torch device; a target names a chip. {backend.vendor!r} alone is the "
            "device of this machine"
        )
    elif near:
        hint = f"did you mean {' or '.join(near)}?"
    else:
        hint = f"{backend.vendor!r} alone is the detected device, else {backend.chips()[0].target}"
    raise TargetNotFound(
        f"{backend.package} knows no chip {chip_name!r} (target {requested!r}); it knows {_listed(backend)}",
        hint=hint,
        details={"target": requested, "chips": [one.target for one in backend.chips()], "near": near},
    )


def _unknown(vendor: str, name: str, plugins: Manager) -> TileHALError:
    """The error for a vendor that nobody owns. Loads every backend: their chips and failures are what helps here."""
    if vendor in plugins.left_out_vendors():
        return plugins.unknown_vendor(vendor)
    known: dict[str, str] = {one: one for one in plugins.vendors()}
    chips: list[Chip] = []
    for backend in plugins.load_all():
        try:
            chips += backend.chips()
        except TileHALError:
            # Listed below with the other failures.
            continue
    for one in chips:
        known.update(dict.fromkeys(_names(one), one.target))
    failures = plugins.failures()
    arch = re.search(r"-arch=(\S+)", name)
    meant = () if vendor in known else _vendors_called(vendor, chips)
    if meant:
        near = _completed(meant, name.partition(":")[2].strip().casefold(), chips, plugins.vendors())
    else:
        near = [known[one] for one in difflib.get_close_matches(vendor, known, n=5, cutoff=0.6)]
    lines = [
        f"no installed backend owns the vendor {vendor!r}",
        f"  installed: {', '.join(plugins.vendors()) or 'none'}",
    ]
    lines += [f"  failed: {failure.vendor}: {failure.error.message}" for failure in failures]
    if arch:
        hint = f'write the chip after a colon: "{vendor.split()[0]}:{arch.group(1)}"'
    elif near:
        hint = f"did you mean {' or '.join(dict.fromkeys(near))}?"
    elif meant:
        hint = f"install the package of the vendor {meant[0]!r}, or choose one of those installed; {SYNTAX}"
    elif vendor in _TILELANG_ONLY:
        hint = f"{vendor!r} is a target of TileLang itself, which tilelang.compile takes; {SYNTAX}"
    else:
        hint = f"install the package of that vendor, or choose one of those installed; {SYNTAX}"
    return TargetNotFound(
        "\n".join(lines),
        hint=hint,
        details={
            "target": name,
            "vendors": list(plugins.vendors()),
            "near": list(dict.fromkeys(near)),
            "failed": {failure.vendor: failure.error.message for failure in failures},
        },
    )


def _vendors_called(name: str, chips: Iterable[Chip]) -> tuple[str, ...]:
    """Vendors, installed or not, that people call by `name`; empty when nobody does."""
    if name in _TRADE_NAMES:
        return _TRADE_NAMES[name]
    # A CPU's title begins with its maker, whose accelerators are no target of the vendor "cpu".
    called = (one.vendor for one in chips if one.vendor != "cpu" and one.title.casefold().split()[:1] == [name])
    return tuple(dict.fromkeys(called))


def _completed(vendors: Iterable[str], chip_name: str, chips: Iterable[Chip], installed: Iterable[str]) -> list[str]:
    """The installed ones of `vendors` as targets, with the chip where `chip_name` is one of theirs."""
    own = {(one.vendor, name): one.target for one in chips for name in _names(one)}
    return [own.get((vendor, chip_name), vendor) for vendor in vendors if vendor in installed]
