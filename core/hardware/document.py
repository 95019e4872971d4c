"""The JSON form of a description, and its JSON Schema."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from core.hardware.model import Chip
from core.hardware.records import Model

FORMAT: Literal["tilehal.description/1"] = "tilehal.description/1"


class DescribedChip(Model):
    """A chip with the target string that names it and the fingerprint that goes into cache keys."""

    target: str
    fingerprint: str
    chip: Chip


class Description(Model):
    """What `describe --json` prints: one entry per chip asked for, in the order asked."""

    format: Literal["tilehal.description/1"] = FORMAT
    chips: tuple[DescribedChip, ...]


def description(chips: Iterable[Chip]) -> Description:
    """The document that describes `chips`."""
    return Description(
        chips=tuple(DescribedChip(target=chip.target, fingerprint=chip.fingerprint(), chip=chip) for chip in chips)
    )


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of `describe --json`. A figure that is null is unknown."""
    schema = Description.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
