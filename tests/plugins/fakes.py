"""Installs made-up plugin packages: real modules and real package metadata in a folder, as pip would leave them."""

from __future__ import annotations

import base64
import hashlib
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from core.plugins import DetectedDevice, Manager, discover, hookimpl

#: A backend that describes two chips and detects nothing. `{vendor}` is filled in.
DESCRIBES = """
from core.hardware import Chip
from core.plugins import hookimpl

@hookimpl
def tilehal_chips():
    return [
        Chip(vendor="{vendor}", name="one", title="{vendor} One", aliases=("first",)),
        Chip(vendor="{vendor}", name="two", title="{vendor} Two"),
    ]
"""


def write_distribution(
    folder: Path,
    name: str,
    *,
    version: str = "1.2.3",
    files: Mapping[str, str],
    backends: Mapping[str, str] | None = None,
    extensions: Mapping[str, str] | None = None,
    requires: Sequence[str] = (),
) -> Path:
    """Writes a package and its dist-info, RECORD with hashes included; returns the dist-info folder."""
    folder.mkdir(parents=True, exist_ok=True)
    record = []
    for path, source in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(source), encoding="utf-8")
        digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{file.stat().st_size}")
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    requirements = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requirements}")
    sections = {"tilehal.backends": backends or {}, "tilehal.extensions": extensions or {}}
    (info / "entry_points.txt").write_text(
        "\n".join(
            f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in points.items())
            for group, points in sections.items()
            if points
        )
    )
    record += [f"{info.name}/{file}," + "," for file in ("METADATA", "entry_points.txt", "RECORD")]
    (info / "RECORD").write_text("\n".join(record) + "\n")
    return info


def write_backend(
    folder: Path, vendor: str, source: str = DESCRIBES, *, module: str = "", requires=(), **options
) -> str:
    """Writes `tilehal-<vendor>` with one module that owns the vendor; returns the module's name."""
    module = module or f"fake_{folder.name.replace('-', '_')}_{vendor}"
    write_distribution(
        folder,
        f"tilehal-{vendor}",
        files={f"{module}.py": source.replace("{vendor}", vendor)},
        backends={vendor: module},
        requires=requires,
        **options,
    )
    return module


def manager_of(*folders: Path, selection=None) -> Manager:
    """A manager that sees the packages of these folders only."""
    return Manager(discover([str(folder) for folder in folders]), selection=selection)


class FakeVendor:
    """A backend in memory: chips by name (the first is the default), devices, and what else a test sets on it."""

    def __init__(self, vendor: str, *chips: str, devices: Sequence[DetectedDevice] = (), aliases=()) -> None:
        self.vendor, self.names, self.devices, self.aliases = vendor, chips or ("one",), devices, tuple(aliases)
        self.detections = 0

    @hookimpl
    def tilehal_chips(self):
        from core.hardware import Chip

        return [
            Chip(vendor=self.vendor, name=name, title=name.upper(), aliases=self.aliases if index == 0 else ())
            for index, name in enumerate(self.names)
        ]

    @hookimpl
    def tilehal_detect(self):
        self.detections += 1
        return self.devices
