"""Dotted paths of a descriptor's figures: reading one, listing them all.

A path names the record by its key and then the field: `units.ai_core.count`, `units.sm.registers.per_unit`,
`memories.shared.capacity_bytes`, `matrix_instructions.<name>.m`, `rates.matrix.float16.ops_per_s`, `limits.grid_dim`.
A second rate for the same operands, into another accumulator, is `rates.matrix.float16>float16.ops_per_s`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from core.errors import DescriptorError

if TYPE_CHECKING:
    from core.hardware.model import Chip
    from core.hardware.records import Model

#: Sections whose records are found by key, in the order they are shown.
RECORD_SECTIONS = ("units", "memories", "paths", "matrix_instructions", "rates")


def records(chip: Chip, section: str) -> Mapping[str, Model]:
    """The records of a section by their key in paths."""
    if section == "units":
        return {unit.key: unit for unit in chip.units}
    if section == "memories":
        return {memory.name: memory for memory in chip.memories}
    if section == "paths":
        return {path.key: path for path in chip.paths}
    if section == "matrix_instructions":
        return {instruction.name: instruction for instruction in chip.matrix_instructions}
    found: dict[str, Model] = {}
    for rate in chip.rates:
        key = f"{rate.unit}.{rate.dtype}"
        found[f"{key}>{rate.accumulator_dtype}" if key in found else key] = rate
    return found


def figure(chip: Chip, path: str) -> Any:
    """The value at a path, None when unknown.

    Raises:
        DescriptorError: the path names nothing a descriptor can hold, or a record this chip does not have.
    """
    section, _, rest = path.partition(".")
    if section == "features" and rest:
        return rest in chip.features or None
    if section == "codegen" and rest:
        return chip.codegen.get(rest)
    if section == "cost" and rest:
        return chip.cost.get(rest)
    if section in RECORD_SECTIONS and rest:
        # Keys may hold dots themselves (PTX names do): the longest one that fits is meant.
        for key, record in sorted(records(chip, section).items(), key=lambda item: -len(item[0])):
            if rest == key:
                return record
            if rest.startswith(key + "."):
                return _field(chip, path, record, rest[len(key) + 1 :])
        known = ", ".join(records(chip, section)) or "none"
        raise DescriptorError(f"{chip.target}: {path}: no such record (described: {known})")
    return _field(chip, path, chip, path)


def _field(chip: Chip, path: str, record: Any, rest: str) -> Any:
    name, _, rest = rest.partition(".")
    fields = type(record).model_fields
    if name not in fields:
        raise DescriptorError(f"{chip.target}: {path}: no figure {name!r} (there are: {', '.join(fields)})")
    value = getattr(record, name)
    if not rest or value is None:
        return value
    return _field(chip, path, value, rest)


def numeric_figures(chip: Chip) -> Iterator[tuple[str, int | float | tuple[int, ...]]]:
    """Every known numeric figure with its path. Shapes of matrix instructions and layouts count as figures."""
    for section in RECORD_SECTIONS:
        for key, record in records(chip, section).items():
            yield from _numbers(f"{section}.{key}", record)
    yield from _numbers("limits", chip.limits)


def _numbers(path: str, record: Model) -> Iterator[tuple[str, int | float | tuple[int, ...]]]:
    for name in type(record).model_fields:
        value = getattr(record, name)
        if isinstance(value, bool) or value is None:
            continue
        is_tuple = isinstance(value, tuple) and bool(value) and all(isinstance(item, int) for item in value)
        if isinstance(value, (int, float)) or is_tuple:
            yield f"{path}.{name}", value
        elif hasattr(type(value), "model_fields"):
            yield from _numbers(f"{path}.{name}", value)
