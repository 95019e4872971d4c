"""What a measured time depends on besides the kernel and the chip: driver, compiler, TileLang and the plugins."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from core.errors import TileHALError

if TYPE_CHECKING:
    from core.hardware import Chip
    from core.plugins import Backend
    from core.target import Target

#: What stands for a device, a driver or a toolchain that this machine does not have.
NOT_HERE = "none here"


@dataclass(frozen=True, slots=True)
class Environment:
    """Where something was measured. Two that are equal give comparable times; nothing is said of two that differ.

    Attributes:
        device: what the vendor's detector found, and how many units of it may be used.
        driver: version of the device's driver; empty where it has none.
        toolchain: name and version of the native compiler.
        tilelang: version of tilelang.
        plugins: TileHAL, the backend and its extensions with their versions, in the order they are called.
    """

    device: str
    driver: str
    toolchain: str
    tilelang: str
    plugins: tuple[str, ...]

    @property
    def digest(self) -> str:
        """16 hexadecimal digits, the same for equal environments on every machine."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:16]

    def differences(self, other: Environment) -> dict[str, tuple[str, str]]:
        """What differs: by attribute, as it is here and as it is in `other`."""
        return {
            field.name: (_text(getattr(self, field.name)), _text(getattr(other, field.name)))
            for field in fields(self)
            if getattr(self, field.name) != getattr(other, field.name)
        }

    def to_json(self) -> dict[str, Any]:
        """As JSON-able data."""
        return {**asdict(self), "plugins": list(self.plugins)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Environment:
        """The inverse of :meth:`to_json`. Raises KeyError or TypeError for anything else."""
        names = ("device", "driver", "toolchain", "tilelang")
        values = {name: data[name] for name in names}
        plugins = data["plugins"]
        if not all(isinstance(text, str) for text in (*values.values(), *plugins)):
            raise TypeError("every part of an environment is text")
        return cls(**values, plugins=tuple(plugins))


def said(differences: Mapping[str, tuple[str, str]]) -> str:
    """Differences in words: `driver 570.1 there, 580.2 here`."""
    return "; ".join(
        f"{name} {there or 'none'} there, {here or 'none'} here" for name, (here, there) in differences.items()
    )


def current(target: Target, backend: Backend) -> Environment:
    """The environment of this process for a target. Asks detector and toolchain, which remember their answers."""
    import core
    from core._tilelang import tilelang_version

    device = target.find_device()
    chip = target.chip
    unit = next(iter(chip.units), None)
    count = f"; {unit.count} x {unit.kind}" if unit is not None and unit.count else ""
    plugins = (f"{package.distribution} {package.version}" for package in backend.packages(chip))
    return Environment(
        device=f"{device.evidence}{count}" if device is not None else NOT_HERE,
        driver=device.driver if device is not None else NOT_HERE,
        toolchain=_toolchain(backend, chip),
        tilelang=tilelang_version(),
        plugins=(f"tilehal {core.__version__}", *plugins),
    )


_environments: WeakKeyDictionary[Backend, dict[str, Environment]] = WeakKeyDictionary()


def environment_of(chip: Chip, backend: Backend) -> Environment:
    """The environment of this process for a chip of a backend, asked once."""
    from core.target import resolve

    known = _environments.setdefault(backend, {})
    if chip.target not in known:
        known[chip.target] = current(resolve(chip), backend)
    return known[chip.target]


def environment_here(chip: Chip) -> Environment:
    """The environment of whatever process runs this, for a chip: a task for another process too.

    Raises:
        TargetNotFound, BackendLoadError: no backend of the process knows the chip.
    """
    from core.plugins import manager

    return environment_of(chip, manager().backend(chip.vendor))


def _toolchain(backend: Backend, chip: Chip) -> str:
    if not backend.implements("tilehal_toolchain", chip):
        return NOT_HERE
    try:
        found = backend.call("tilehal_toolchain", chip)
    except TileHALError:  # which compiler is missing is said by whoever needs it
        return NOT_HERE
    return " ".join(f"{found.name} {found.version}".split())


def _text(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else ", ".join(value)
