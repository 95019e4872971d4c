"""What-if chips: a descriptor with some figures changed, as in `metax:c500+shared=128KiB`.

What may be changed is any number of the descriptor, known or not, by its dotted path, and by short names:

* a memory's name (`shared=128KiB`): what one block may use there. The capacity follows, so that what the runtime keeps
  for itself stays the same, and so does the static limit when it was the whole.
* a unit's kind (`sm=66`, `vector_core=24`): how many there are.
* `clock=1.5GHz` of the main unit, `bandwidth=2TB/s` of global memory, `threads=512` per block.

Peak rates follow a changed count or clock of the main unit in proportion; a cache does not follow anything.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError

from core.errors import DescriptorError
from core.hardware import units as quantities
from core.hardware.figures import figure, records
from core.hardware.records import MemorySpace, Source, slug

if TYPE_CHECKING:
    from core.hardware.model import Chip

#: Key in `Chip.references` under which changed figures are listed.
SOURCE_KEY = "IF"


def with_changes(chip: Chip, changes: Sequence[str]) -> Chip:
    """Applies changes from left to right; see :meth:`core.Chip.with_changes`."""
    for change in changes:
        chip = _with_change(chip, change)
    return chip


def _with_change(chip: Chip, change: str) -> Chip:
    name, equals, text = (part.strip() for part in change.partition("="))
    if not equals or not name or not text:
        raise DescriptorError(
            f"{chip.target}: {change!r} is not a change",
            hint="write figure=value, e.g. shared=128KiB; several are joined with +",
        )
    shorthands = _shorthands(chip)
    path = shorthands.get(name) or shorthands.get(slug(name)) or name
    updates: dict[str, Any] = {}
    value = _value(chip, change, path, text)
    updates[path] = value
    if path.startswith("memories.") and name in {memory.name for memory in chip.memories}:
        updates |= _capacities(chip.memory(name), int(cast(int, value)))
    updates |= _rates(chip, path, value)
    return _apply(chip, change, updates)


def _shorthands(chip: Chip) -> dict[str, str]:
    """Short name -> dotted path, for what this chip has."""
    names = {unit.key: f"units.{unit.key}.count" for unit in chip.units}
    if chip.units:
        names["clock"] = f"units.{chip.main_unit.key}.clock_hz"
    names["threads"] = "limits.threads_per_block"
    for memory in chip.memories:
        if "global" in memory.scopes:
            names.setdefault("bandwidth", f"memories.{memory.name}.bandwidth_bytes_per_s")
        field = "per_block_bytes" if memory.per_block_bytes is not None else "capacity_bytes"
        names[memory.name] = f"memories.{memory.name}.{field}"
    return names


def changeable(chip: Chip) -> tuple[str, ...]:
    """Every path a change may name: the numbers of units, memories, rates and limits."""
    from core.hardware.records import ExecutionLimits, RegisterFile

    paths: list[str] = []
    for section in ("units", "memories", "rates"):
        for key, record in records(chip, section).items():
            for name, field in type(record).model_fields.items():
                annotation = str(field.annotation)
                if name == "registers":
                    paths += [f"{section}.{key}.{name}.{inner}" for inner in RegisterFile.model_fields]
                elif ("int" in annotation or "float" in annotation) and "tuple" not in annotation:
                    paths.append(f"{section}.{key}.{name}")
    paths += [
        f"limits.{name}" for name, field in ExecutionLimits.model_fields.items() if "tuple" not in str(field.annotation)
    ]
    return tuple(paths)


def _value(chip: Chip, change: str, path: str, text: str) -> int | float:
    allowed = changeable(chip)
    if path not in allowed:
        shorthands = _shorthands(chip)
        close = difflib.get_close_matches(path, [*shorthands, *allowed], n=3, cutoff=0.6)
        raise DescriptorError(
            f"{chip.target}: {change!r} changes nothing this chip describes"
            + (f" (did you mean {' or '.join(close)}?)" if close else ""),
            hint=f"what may be changed: {', '.join(sorted(shorthands))}; or any number by its path, for example "
            f"{', '.join(_path_examples(chip))}",
            details={"target": chip.target, "shorthands": shorthands, "paths": list(allowed)},
        )
    dimension = quantities.dimension_of(path.rpartition(".")[2])
    try:
        if dimension is not None:
            value = quantities.parse(text, dimension)
        else:
            value = int(text)
        if value < 0 or (value == 0 and dimension is not None):
            raise ValueError(f"{text!r} is not positive")
    except ValueError as error:
        raise DescriptorError(
            f"{chip.target}: {change!r}: {error}", hint=f"{path} takes e.g. {_example(path)}"
        ) from error
    return value


def _path_examples(chip: Chip) -> list[str]:
    paths = ["limits.threads_per_block"]
    if chip.units:
        paths.append(f"units.{chip.main_unit.key}.max_threads")
    paths += [f"memories.{memory.name}.bandwidth_bytes_per_s" for memory in chip.memories[:1]]
    paths += [f"rates.{key}.ops_per_s" for key in list(records(chip, "rates"))[:1]]
    return paths


def _example(path: str) -> str:
    dimension = quantities.dimension_of(path.rpartition(".")[2])
    examples = {"bytes": "128KiB", "bytes_per_s": "2TB/s", "hz": "1.5GHz", "ops_per_s": "300TFLOP/s"}
    return f"{path}={examples[dimension] if dimension else '64'}"


def _capacities(memory: MemorySpace, value: int) -> dict[str, Any]:
    """What follows when the share of one block (or the capacity, where the two are one) becomes `value`."""
    path = f"memories.{memory.name}"
    updates: dict[str, Any] = {}
    if memory.per_block_bytes is None:
        return updates
    if memory.capacity_bytes is not None:
        updates[f"{path}.capacity_bytes"] = capacity = value + memory.capacity_bytes - memory.per_block_bytes
        if memory.carveouts_bytes is not None:
            smaller = (size for size in memory.carveouts_bytes if size < capacity)
            updates[f"{path}.carveouts_bytes"] = (*smaller, capacity)
    if memory.static_per_block_bytes is not None:
        whole = memory.static_per_block_bytes == memory.per_block_bytes
        updates[f"{path}.static_per_block_bytes"] = value if whole else min(memory.static_per_block_bytes, value)
    return updates


def _rates(chip: Chip, path: str, value: int | float) -> dict[str, Any]:
    """Peak rates in proportion to a changed count or clock of the main unit."""
    main = chip.units[0] if chip.units else None
    if main is None or path not in (f"units.{main.key}.count", f"units.{main.key}.clock_hz"):
        return {}
    before = figure(chip, path)
    updates: dict[str, Any] = {}
    if before:
        for key in records(chip, "rates"):
            for name in ("ops_per_s", "clock_hz") if path.endswith("clock_hz") else ("ops_per_s",):
                old = figure(chip, f"rates.{key}.{name}")
                if old is not None:
                    updates[f"rates.{key}.{name}"] = old * value / before
    if path.endswith("count"):
        # The ratio between kinds of units (one cube core to two vector cores) is a fact of the chip's construction.
        for unit in chip.units[1:]:
            if unit.per_main_unit is not None:
                updates[f"units.{unit.key}.count"] = int(value) * unit.per_main_unit
    return updates


def _apply(chip: Chip, change: str, updates: dict[str, Any]) -> Chip:
    data = chip.model_dump()
    for path, value in updates.items():
        _set(chip, data, path, value)
        data["figure_notes"].pop(path, None)
        data["sources"][path] = SOURCE_KEY
    data["references"][SOURCE_KEY] = Source(
        title="Changed by whoever wrote the target; no such chip exists", trust="what-if"
    ).model_dump()
    data["modified"] = (*chip.modified, change.replace(" ", ""))
    try:
        return type(chip).model_validate(data)
    except ValidationError as error:
        raise DescriptorError(f"{chip.target}: {change!r}: {error.errors()[0]['msg']}") from error


def _set(chip: Chip, data: dict[str, Any], path: str, value: Any) -> None:
    section, _, rest = path.partition(".")
    target = data[section]
    if section != "limits":
        for index, key in enumerate(records(chip, section)):
            if rest.startswith(key + "."):
                target, rest = data[section][index], rest[len(key) + 1 :]
                break
    *parents, name = rest.split(".")
    for parent in parents:
        target[parent] = target[parent] or {}
        target = target[parent]
    target[name] = value
