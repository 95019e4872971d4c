"""`LoweredKernel` and `BuiltKernel` as JSON and raw files, and back: what the cache and exported artifacts hold.

A lowered kernel becomes `kernel.json`, its source as a file an editor opens (`source.cu`), and `attachments/`. A built
kernel adds `built.json` to the folder its toolchain filled. Every record carries a schema number; a reader that does
not know the number says so with :class:`UnknownSchema`, which the cache takes as a miss.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.compiler.artifacts import BuiltKernel, LoweredKernel, Resources, Toolchain
from core.errors import BackendHookError
from core.runtime.signature import Signature

#: Changes with any change to what the records hold.
SCHEMA = 1

LOWERED_FILE = "kernel.json"
BUILT_FILE = "built.json"

#: Stands for the folder in a recorded command; no argument of a real command can hold a NUL.
_HERE = "\0folder\0"

_SUFFIXES = {"cuda": ".cu", "c++": ".cpp", "mlir": ".mlir", "maca": ".maca"}


class UnknownSchema(Exception):
    """The record was written by a version of TileHAL that knew another schema. Never leaves the cache."""


# --------------------------------------------------------------------------------------------------------------------
# Lowered kernels
# --------------------------------------------------------------------------------------------------------------------


def source_file_name(lowered: LoweredKernel) -> str:
    """Name of the source file, with the suffix its language's tools expect."""
    return "source" + _SUFFIXES.get(lowered.language, ".txt")


def lowered_to_json(lowered: LoweredKernel) -> dict[str, Any]:
    """The kernel without its source text and attachments, as JSON-able data.

    Raises:
        BackendHookError: a field holds something JSON cannot, so that another process could not read it back.
    """
    what = "LoweredKernel"
    return {
        "schema": SCHEMA,
        "target": lowered.target,
        "route": lowered.route,
        "language": lowered.language,
        "entry_points": list(lowered.entry_points),
        "signature": lowered.signature.to_json(),
        "grid": [list(extents) for extents in lowered.grid],
        "block": [list(threads) for threads in lowered.block],
        "resources": _resources_to_json(lowered.resources, f"{what}.resources"),
        "rewrites": list(lowered.rewrites),
        "metadata": _json_able(lowered.metadata, f"{what}.metadata"),
        "evidence": lowered.evidence,
        "source_file": source_file_name(lowered),
        "attachments": list(lowered.attachments),
    }


def write_lowered(lowered: LoweredKernel, folder: Path) -> None:
    """Writes `kernel.json`, the source and the attachments into an existing, empty folder.

    Raises:
        BackendHookError: as :func:`lowered_to_json`.
        OSError: the folder cannot be written.
    """
    data = lowered_to_json(lowered)
    (folder / data["source_file"]).write_bytes(lowered.source.encode("utf-8", "surrogatepass"))
    if lowered.attachments:
        (folder / "attachments").mkdir()
    # Numbered, because a name is the backend's and may hold anything.
    for index, content in enumerate(lowered.attachments.values()):
        (folder / "attachments" / str(index)).write_bytes(content)
    _write_json(folder / LOWERED_FILE, data)


def read_lowered(files: Mapping[str, bytes]) -> LoweredKernel:
    """The kernel from the contents of its files, by name relative to its folder.

    Raises:
        UnknownSchema: written by another version.
        KeyError, ValueError, TypeError: the record is damaged.
    """
    data = _record(files[LOWERED_FILE])
    return LoweredKernel(
        target=data["target"],
        route=data["route"],
        language=data["language"],
        source=files[data["source_file"]].decode("utf-8", "surrogatepass"),
        entry_points=tuple(data["entry_points"]),
        signature=Signature.from_json(data["signature"]),
        grid=tuple(tuple(extents) for extents in data["grid"]),
        block=tuple((x, y, z) for x, y, z in data["block"]),
        resources=Resources(**data["resources"]),
        rewrites=tuple(data["rewrites"]),
        attachments={name: files[f"attachments/{index}"] for index, name in enumerate(data["attachments"])},
        metadata=data["metadata"],
        evidence=data["evidence"],
    )


def normalised(lowered: LoweredKernel) -> LoweredKernel:
    """The kernel as it will come back from the cache: a first compilation must not differ from a later one.

    Raises:
        BackendHookError: as :func:`lowered_to_json`.
    """
    resources = Resources(**_resources_to_json(lowered.resources, "LoweredKernel.resources"))
    metadata = _json_able(lowered.metadata, "LoweredKernel.metadata")
    return dataclasses.replace(lowered, resources=resources, metadata=metadata)


def lowered_digest(lowered: LoweredKernel) -> str:
    """SHA-256 over everything in a lowered kernel, in hexadecimal: ties a binary to the very source it came from."""
    hasher = hashlib.sha256(json.dumps(lowered_to_json(lowered), sort_keys=True).encode())
    for content in (lowered.source.encode("utf-8", "surrogatepass"), *lowered.attachments.values()):
        hasher.update(f"\0{len(content)}\0".encode())
        hasher.update(content)
    return hasher.hexdigest()


# --------------------------------------------------------------------------------------------------------------------
# Built kernels
# --------------------------------------------------------------------------------------------------------------------


def built_to_json(built: BuiltKernel) -> dict[str, Any]:
    """The built kernel without the lowered one, its folder and its files' contents, as JSON-able data.

    Raises:
        BackendHookError: a field holds something JSON cannot.
    """
    return {
        "schema": SCHEMA,
        "lowered_digest": lowered_digest(built.lowered),
        "toolchain": dataclasses.asdict(built.toolchain),
        "files": dict(built.files),
        "resources": _resources_to_json(built.resources, "BuiltKernel.resources"),
        "metadata": _json_able(built.metadata, "BuiltKernel.metadata"),
    }


def write_built(built: BuiltKernel, folder: Path) -> None:
    """Writes `built.json` into the folder the build filled.

    The folder will move. Where the toolchain's command names it, the command read back names its new place, so that it
    can be run again.

    Raises:
        BackendHookError: as :func:`built_to_json`, or a file named in `files` is not in the folder.
        OSError: the folder cannot be written.
    """
    for role, name in built.files.items():
        if not (folder / name).is_file() or not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise BackendHookError(
                f"the build hook for {built.lowered.target} names {name!r} as its {role}, but left no such file in the "
                "folder it was given",
                hint="tilehal_build must write into request.directory and name files relative to it",
            )
    data = built_to_json(built)
    data["toolchain"]["command"] = [word.replace(str(folder), _HERE) for word in built.toolchain.command]
    _write_json(folder / BUILT_FILE, data)


def read_built(record: bytes, lowered: LoweredKernel, folder: Path) -> BuiltKernel | None:
    """The built kernel whose `built.json` is `record`, lying in `folder`; None when it was built from other source.

    Raises:
        UnknownSchema: written by another version.
        KeyError, ValueError, TypeError: the record is damaged.
    """
    data = _record(record)
    if data["lowered_digest"] != lowered_digest(lowered):
        return None
    toolchain = data["toolchain"]
    return BuiltKernel(
        lowered=lowered,
        toolchain=Toolchain(
            **{**toolchain, "command": tuple(word.replace(_HERE, str(folder)) for word in toolchain["command"])}
        ),
        files=data["files"],
        directory=folder,
        resources=Resources(**data["resources"]),
        metadata=data["metadata"],
    )


# --------------------------------------------------------------------------------------------------------------------
# JSON
# --------------------------------------------------------------------------------------------------------------------


def _write_json(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=1), encoding="utf-8")


def _record(content: bytes) -> dict[str, Any]:
    data = json.loads(content)
    if not isinstance(data, dict):
        raise ValueError("the record is not a JSON object")
    if data.get("schema") != SCHEMA:
        raise UnknownSchema(f"schema {data.get('schema')!r}; this version reads {SCHEMA}")
    return data


def _resources_to_json(resources: Resources, place: str) -> dict[str, Any]:
    return {
        field.name: _json_able(getattr(resources, field.name), f"{place}.{field.name}")
        for field in dataclasses.fields(resources)
    }


def _json_able(value: Any, place: str) -> Any:
    """A copy of `value` made of what JSON gives back unchanged: tuples become lists, any mapping becomes a dict."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Mapping):
        for key in value:
            if type(key) is not str:
                raise _not_json_able(place, f"the key {key!r}, a {type(key).__qualname__}")
        return {key: _json_able(item, f"{place}[{key!r}]") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_able(item, f"{place}[{index}]") for index, item in enumerate(value)]
    raise _not_json_able(place, f"a {type(value).__module__}.{type(value).__qualname__}")


def _not_json_able(place: str, what: str) -> BackendHookError:
    return BackendHookError(
        f"{place} holds {what}, which cannot be written to the cache and read back by another process",
        hint="keep to None, bools, ints, floats, strings, and lists and dicts (with string keys) of them",
        details={"place": place},
    )
