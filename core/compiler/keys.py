"""Cache keys: what a kernel's code depends on, as one SHA-256 over canonical JSON.

Two rules keep the cache honest. Everything that can change the code is in the key: the normalised program, every
figure of the chip, name, version *and source text* of the backend, of each extension and of the core, the TileLang
version, every compile option, and for binaries the toolchain and the machine's features. And nothing is in the key by
accident: an object without a stable form is refused with a typed error instead of being keyed by its `repr`, which may
hold an address, or leave out what matters.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import json
import math
import numbers
import os
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from core.errors import KernelError

if TYPE_CHECKING:
    from core.compiler.artifacts import CompileOptions, Toolchain
    from core.hardware.model import Chip

#: Changes when the meaning of a key changes, so that old entries are never found again.
KEY_SCHEMA = 1


def compile_key(
    program_fingerprint: str,
    chip: Chip,
    *,
    backend_name: str,
    backend_version: str,
    backend_code_hash: str,
    options: CompileOptions,
    tilelang_version: str,
    extensions: Iterable[tuple[str, str, str]] = (),
    core_code_hash: str | None = None,
) -> str:
    """The key of a lowered kernel: 64 hexadecimal digits, the same in every process on every machine.

    Args:
        program_fingerprint: digest of the normalised program, with symbolic dimensions as symbols.
        chip: the chip it is for; every figure that can change code or tile choice counts, prose does not.
        backend_name: distribution that owns the chip's vendor.
        backend_version: its version.
        backend_code_hash: digest of its package's files: an edited editable install is another backend.
        options: every field that can change the code.
        tilelang_version: version of the installed tilelang.
        extensions: (name, version, code hash) of each extension called for this chip, in the order they are called.
        core_code_hash: of TileHAL itself; the running one when None.

    Raises:
        KernelError: an option holds an object without a stable form.
    """
    return _sha256(
        {
            "key": ["lowered", KEY_SCHEMA],
            "program": program_fingerprint,
            "chip": chip.model_dump_for_fingerprint(),
            "backend": [backend_name, backend_version, backend_code_hash],
            "extensions": [list(extension) for extension in extensions],
            "core": core_code_hash if core_code_hash is not None else own_code_hash(),
            "tilelang": tilelang_version,
            "options": _options(options),
        }
    )


def build_key(
    lowered_key: str,
    toolchain: Toolchain | str,
    *,
    cpu_features: Sequence[str] = (),
    extra: Mapping[str, Any] | None = None,
) -> str:
    """The key of a built kernel.

    Args:
        lowered_key: key of what is built; the compile options are in it.
        toolchain: name, version and path of the native compiler, or any text that tells two of them apart.
        cpu_features: what `-march=native` means here, when the binary depends on the machine; order does not count.
        extra: whatever else the binary depends on, e.g. environment variables the compiler reads.

    Raises:
        KernelError: `extra` holds an object without a stable form.
    """
    identity = toolchain if isinstance(toolchain, str) else [toolchain.name, toolchain.version, toolchain.path]
    return _sha256(
        {
            "key": ["built", KEY_SCHEMA],
            "lowered": lowered_key,
            "toolchain": identity,
            "cpu_features": sorted(set(cpu_features)),
            "extra": _plain(extra or {}, "extra", ()),
        }
    )


def digest(value: Any) -> str:
    """SHA-256 of :func:`canonical` JSON, in hexadecimal."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def _sha256(plain: dict[str, Any]) -> str:
    return hashlib.sha256(_json(plain).encode()).hexdigest()


def _json(plain: Any) -> str:
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical(value: Any) -> str:
    """`value` as JSON text that depends on its meaning and on nothing else.

    Mappings are sorted, `1`, `1.0`, `True` and `"1"` stay apart, and lists and tuples are the same thing. Floats are
    exact, infinities and NaN included; enums, paths, bytes, sets, dataclasses and pydantic models are tagged with what
    they are, so that no two of them can be confused with each other or with a plain value that looks like the tag.

    Raises:
        KernelError: naming the place of an object that has no stable form, or of a value that contains itself.
    """
    return _json(_plain(value, "value", ()))


def _options(options: CompileOptions) -> dict[str, Any]:
    # By field, so that an option added later is in the key without anybody remembering to put it there.
    return {
        field.name: _plain(getattr(options, field.name), f"options.{field.name}", ())
        for field in dataclasses.fields(options)
        if field.compare
    }


def _plain(value: Any, place: str, parents: tuple[int, ...]) -> Any:
    if isinstance(value, enum.Enum):
        kind = type(value)
        return {"$enum": [f"{kind.__module__}.{kind.__qualname__}", value.name]}
    # Exact type: a subclass of str may carry meaning that its characters do not show.
    if value is None or type(value) in (bool, str):
        return value
    if isinstance(value, numbers.Integral):  # numpy's integers too
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": str(float(value))}
    if isinstance(value, PurePath):
        return {"$path": value.as_posix()}
    if isinstance(value, (bytes, bytearray)):
        return {"$bytes": value.hex()}
    if id(value) in parents:
        raise KernelError(f"{place} contains itself", hint="pass plain values as options")
    inside = (*parents, id(value))
    if isinstance(value, Mapping):
        return _mapping(value, place, inside)
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{place}[{index}]", inside) for index, item in enumerate(value)]
    if isinstance(value, AbstractSet):
        items = [_plain(item, f"{place}{{...}}", inside) for item in value]
        return {"$set": sorted(items, key=_json)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {
            "$dataclass": [
                _type_name(value),
                {name: _plain(getattr(value, name), f"{place}.{name}", inside) for name in names},
            ]
        }
    if hasattr(type(value), "model_fields") and hasattr(value, "model_dump"):  # pydantic, without importing it
        return {"$model": [_type_name(value), _plain(value.model_dump(mode="json"), place, inside)]}
    raise KernelError(
        f"{place} is a {_type_name(value)}, which has no stable form to key the cache by",
        hint="pass numbers, strings, bools, enums, paths, or lists and dicts of them",
        details={"place": place, "type": _type_name(value)},
    )


def _mapping(value: Mapping[Any, Any], place: str, parents: tuple[int, ...]) -> Any:
    plain: dict[str, Any] = {}
    for key, item in value.items():
        # tilelang's PassConfigKey is a string enum: its member and its value name one option.
        name = key.value if isinstance(key, enum.Enum) and isinstance(key, str) else key
        if not isinstance(name, str):
            raise KernelError(
                f"{place} has the key {key!r}, a {_type_name(key)}; only strings name an option",
                hint="use strings as keys",
                details={"place": place, "type": _type_name(key)},
            )
        # A user's own "$path" key must not read as our tag.
        name = f"${name}" if name.startswith("$") else str(name)
        if name in plain:
            raise KernelError(f"{place} names {name!r} twice", hint="give each option once")
        plain[name] = _plain(item, f"{place}[{name!r}]", parents)
    return plain


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


@functools.cache
def own_code_hash() -> str:
    """SHA-256 over names and contents of TileHAL's own files, as they were when this process first compiled something.

    An edited checkout is another TileHAL, whatever its version says.
    """
    root = Path(__file__).resolve().parents[1]
    hasher = hashlib.sha256()
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            path = Path(folder, name)
            # Byte code follows from the source; hidden files are an editor's.
            if name.endswith((".pyc", "~")) or name.startswith("."):
                continue
            content = path.read_bytes()
            hasher.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
            hasher.update(content)
    return hasher.hexdigest()
