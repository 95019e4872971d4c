"""Comparing a descriptor with what the device, its driver or its toolchain answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from core.errors import DescriptorError
from core.hardware.figures import numeric_figures

if TYPE_CHECKING:
    from core.hardware.model import Chip

Verdict = Literal["same", "differs", "undescribed", "not asked"]

#: Rates, clocks and bandwidths are printed with three or four digits; capacities and counts must agree exactly.
RELATIVE_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Check:
    """One figure compared.

    Attributes:
        path: dotted path of the figure.
        described: what the descriptor says, None when it is unknown there.
        found: what the device or toolchain says, None when it was not asked or cannot be.
        verdict: `same`, `differs`, `undescribed` (only the device knows) or `not asked` (only the descriptor says).
    """

    path: str
    described: Any
    found: Any
    verdict: Verdict


def verify(chip: Chip, facts: Mapping[str, Any]) -> tuple[Check, ...]:
    """Compares every fact with the descriptor, then lists the figures nothing was asked about.

    Args:
        chip: the descriptor.
        facts: what the device answered, by dotted path (`core.plugins.DetectedDevice.facts`).
    """
    checks = [_check(chip, path, found) for path, found in facts.items()]
    asked = set(facts)
    checks += [
        Check(path, value, None, "not asked")
        for path, value in numeric_figures(chip)
        if path not in asked and not path.startswith("matrix_instructions.")
    ]
    return tuple(checks)


def _check(chip: Chip, path: str, found: Any) -> Check:
    try:
        described = chip.figure(path)
    except DescriptorError:
        described = None
    if described is None:
        return Check(path, None, found, "undescribed")
    return Check(path, described, found, "same" if _agrees(described, found) else "differs")


def _agrees(described: Any, found: Any) -> bool:
    if isinstance(described, float) or isinstance(found, float):
        return abs(float(described) - float(found)) <= RELATIVE_TOLERANCE * abs(float(found))
    if isinstance(described, Sequence) and not isinstance(described, str):
        return tuple(described) == tuple(found)
    return bool(described == found)
