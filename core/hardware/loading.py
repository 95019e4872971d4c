"""Reads chips from a backend's `chips.toml`. docs/hardware.md describes the format.

The file is strict: an unknown key, a figure without a source, a unit that does not fit or a chip that contradicts
itself is a `DescriptorError` that names the file, the line, the key and the reason.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from core.errors import DescriptorError
from core.hardware import units as quantities
from core.hardware.model import Chip
from core.hardware.records import (
    ComputeUnit,
    ExecutionLimits,
    LaneLayout,
    MatrixInstruction,
    MemoryPath,
    MemorySpace,
    Model,
    PeakRate,
    RegisterFile,
    Source,
)
from core.hardware.toml_tree import CLAIM, Leaf, TomlFile, Tree, Where, place
from core.hardware.vocabulary import CODEGEN_KEYS, COST_FIGURES, DTYPES, FEATURES, RATE_DTYPES, SCOPES

M = TypeVar("M", bound=Model)

#: A figure may be written as this to take back what a family says.
UNKNOWN = "unknown"
_OWN_KEYS = ("inherits", "title", "aliases", "device_names", "notes")
_SOURCED_STRINGS = ("architecture", "process")
_SECTIONS = ("codegen", "units", "memories", "paths", "matrix_instructions", "limits", "rates", "features", "cost")
_NAME = re.compile(r"[a-z0-9][a-z0-9_.\-]*")


@lru_cache(maxsize=64)
def load_chips(package: str, resource: str = "chips.toml") -> tuple[Chip, ...]:
    """The chips described in a package's TOML file, default chip first. Read once per process.

    Raises:
        DescriptorError: the file is missing or malformed.
    """
    file = resources.files(package) / resource
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise DescriptorError(
            f"{package} has no {resource}: {error}", hint="list it under package-data in the backend's pyproject.toml"
        ) from error
    return parse_chips(text, file=str(file))


def parse_chips(text: str, file: str | Path = "chips.toml") -> tuple[Chip, ...]:
    """The chips described in a TOML text, default chip first; `file` is for messages.

    Raises:
        DescriptorError: the text is malformed; `location` is the line.
    """
    return _Reader(text, str(file)).chips()


@dataclass
class _Provenance:
    """Collects, while one chip is built, where its figures come from."""

    sources: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def add(self, path: str, leaf: Leaf) -> None:
        if leaf.source:
            self.sources[path] = leaf.source
        if leaf.note:
            self.notes[path] = leaf.note


class _Reader(TomlFile):
    """Turns one file into chips."""

    # -- The file ----------------------------------------------------------------------------------------------------

    def chips(self) -> tuple[Chip, ...]:
        document = self.document
        known = ("vendor", "default", "references", "vendor_features", "layouts", "families", "chips")
        for key in document:
            if key not in known:
                self.unknown_key((key,), known)
        self.vendor = document.get("vendor")
        if not isinstance(self.vendor, str) or not _NAME.fullmatch(self.vendor):
            self.fail(("vendor",), 'a file says whose chips it describes: vendor = "name"')
        self.references = {
            key: self.model(Source, self.table(("references", key), value), ("references", key))
            for key, value in self.section("references").items()
        }
        self.known_features = self.read_features()
        self.layouts = self.read_layouts()
        described = self.section("chips")
        if not described:
            self.fail(("chips",), "no chip is described")
        chips = {name: self.chip(name) for name in described}
        self.check_names(chips)
        default = document.get("default")
        if default not in chips:
            self.fail(("default",), f"names the default chip; {default!r} is none of {', '.join(chips)}")
        return (chips[default], *(chip for name, chip in chips.items() if name != default))

    def check_names(self, chips: Mapping[str, Chip]) -> None:
        owner: dict[str, str] = {}
        for name, chip in chips.items():
            for spelling in (name, *chip.aliases):
                if not _NAME.fullmatch(spelling):
                    self.fail(("chips", name), f"{spelling!r} is no chip name: lower case, digits, and _ . - inside")
                if spelling in owner:
                    self.fail(("chips", name), f"{spelling!r} already names chip {owner[spelling]!r}")
                owner[spelling] = name

    def read_features(self) -> tuple[str, ...]:
        """Every feature a chip of this file may have: the common ones, and those that the file declares."""
        declared = self.section("vendor_features")
        for name, meaning in declared.items():
            if name in FEATURES:
                self.fail(("vendor_features", name), f"is known already: {FEATURES[name]}", hint="leave it out here")
            if not isinstance(meaning, str) or not meaning:
                self.fail(("vendor_features", name), 'a feature is declared name = "what a chip with it can do"')
        return (*FEATURES, *declared)

    def read_layouts(self) -> dict[str, tuple[LaneLayout, str]]:
        layouts = {}
        for name, value in self.section("layouts").items():
            where = ("layouts", name)
            table = dict(self.table(where, value))
            source = self.source(table.pop("source", None), where)
            if source is None:
                self.fail(where, "a lane layout needs a source")
            layouts[name] = (self.model(LaneLayout, table, where), source)
        return layouts

    # -- One chip ----------------------------------------------------------------------------------------------------

    def chip(self, name: str) -> Chip:
        where = ("chips", name)
        tree = self.inherited(where, (*_OWN_KEYS, *_SOURCED_STRINGS, *_SECTIONS))
        provenance = _Provenance()
        data: dict[str, Any] = {"vendor": self.vendor, "name": name, "notes": tree["notes"]}
        for key in ("title", "aliases", "device_names"):
            if key in tree:
                data[key] = tree[key].value
        if "title" not in data:
            self.fail(where, "a chip has a title: the product's name as people write it")
        for key in _SOURCED_STRINGS:
            if key in tree:
                data[key] = self.value(tree[key], key, key, provenance, needs_source=True)
        data["codegen"] = self.codegen(tree, provenance)
        data["cost"] = self.cost(tree, provenance)
        data["units"] = [
            self.record(ComputeUnit, {"kind": Leaf(key, None, "", where)} | node, f"units.{key}", where, provenance)
            for key, node in self.tables(tree, "units")
        ]
        data["memories"] = [self.memory(key, node, where, provenance) for key, node in self.tables(tree, "memories")]
        data["paths"] = [self.path(key, node, where, provenance) for key, node in self.tables(tree, "paths")]
        data["matrix_instructions"] = [
            instruction
            for key, node in self.tables(tree, "matrix_instructions")
            for instruction in self.instructions(node, (*where, "matrix_instructions", key), provenance)
        ]
        data["limits"] = self.record(ExecutionLimits, tree.get("limits", {}), "limits", where, provenance)
        data["rates"] = self.rates(tree, where, provenance)
        data["features"] = self.features(tree, provenance)
        data["sources"] = provenance.sources
        data["figure_notes"] = provenance.notes
        used = set(provenance.sources.values())
        data["references"] = {key: source for key, source in self.references.items() if key in used}
        return self.model(Chip, data, where)

    def tables(self, tree: Tree, name: str) -> Iterator[tuple[str, Tree]]:
        for key, node in tree.get(name, {}).items():
            if isinstance(node, Leaf):
                self.fail(node.where, "a table is expected here")
            yield key, node

    def record(self, cls: type[M], tree: Tree, path: str, where: Where, provenance: _Provenance) -> M:
        fields: dict[str, Any] = {}
        for name, node in tree.items():
            if name not in cls.model_fields:
                self.unknown_key(place(node, (*where, *path.split("."), name)), list(cls.model_fields))
            if isinstance(node, dict):
                if cls is not ComputeUnit or name != "registers":
                    self.fail(place(node, where), "a value is expected here, not a table")
                fields[name] = self.record(RegisterFile, node, f"{path}.{name}", where, provenance)
                continue
            fields[name] = self.value(node, name, f"{path}.{name}", provenance)
        return self.model(cls, fields, place(tree, where), tree)

    def value(self, leaf: Leaf, name: str, path: str, provenance: _Provenance, needs_source: bool = False) -> Any:
        """A leaf's value in base units, with its source recorded; None when it is said to be unknown."""
        value = leaf.value
        if value == UNKNOWN:
            return None
        dimension = quantities.dimension_of(name)
        if dimension is not None:
            value = self.quantities(value, dimension, leaf.where)
        is_number = dimension is not None or (
            isinstance(value, (int, float, list)) and not isinstance(value, bool) and not _is_strings(value)
        )
        if (is_number or needs_source) and leaf.source is None:
            self.fail(
                leaf.where,
                "no source",
                hint='write { value = ..., source = "KEY" }, or source = "KEY" in the table for all of its figures',
            )
        provenance.add(path, leaf)
        return value

    def quantities(self, value: Any, dimension: quantities.Dimension, where: Where) -> Any:
        if isinstance(value, list):
            return [self.quantities(item, dimension, where) for item in value]
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            self.fail(where, f"{value!r} is not a quantity")
        if isinstance(value, str):
            try:
                value = quantities.parse(value, dimension)
            except ValueError as error:
                self.fail(where, str(error), hint=f"units here: {', '.join(quantities.spellings(dimension))}")
        if value < 0:
            self.fail(where, f"{value!r} is negative")
        return value

    def codegen(self, tree: Tree, provenance: _Provenance) -> dict[str, Any]:
        """What the backend's compiler is told. A key may be the backend's own; one that is nearly ours is a mistake."""
        found = {}
        for key, leaf in tree.get("codegen", {}).items():
            if key not in CODEGEN_KEYS and difflib.get_close_matches(key, CODEGEN_KEYS, 1, cutoff=0.85):
                self.unknown_key(place(leaf, ("codegen", key)), CODEGEN_KEYS)
            found[key] = self.value(leaf, key, f"codegen.{key}", provenance)
        return found

    def cost(self, tree: Tree, provenance: _Provenance) -> dict[str, Any]:
        """The figures under `cost`, by name."""
        found = {}
        for name, leaf in tree.get("cost", {}).items():
            if name not in COST_FIGURES:
                self.unknown_key(place(leaf, ("cost", name)), COST_FIGURES)
            found[name] = self.value(leaf, name, f"cost.{name}", provenance)
        return found

    def memory(self, key: str, node: Tree, where: Where, provenance: _Provenance) -> MemorySpace:
        space = self.record(
            MemorySpace, {"name": Leaf(key, None, "", where)} | node, f"memories.{key}", where, provenance
        )
        for scope in space.scopes:
            self.require_known("scope", scope.partition(".")[0], SCOPES, node["scopes"].where)
        return space

    def path(self, key: str, node: Tree, where: Where, provenance: _Provenance) -> MemoryPath:
        match = re.fullmatch(r"(\S+) -> (\S+)(?: via (.+))?", key)
        if not match:
            self.fail(
                place(node, where), 'a path is written "source -> destination" or "source -> destination via engine"'
            )
        source, destination, engine = match.groups()
        ends: dict[str, str | None] = {"source": source, "destination": destination, "engine": engine}
        leaves: Tree = {name: Leaf(text, None, "", where) for name, text in ends.items() if text is not None}
        claim = node.get(CLAIM)
        if claim is None or claim.source is None:
            self.fail(place(node, where), "a path needs a source")
        provenance.sources[f"paths.{key}"] = claim.source
        fields = {name: leaf for name, leaf in node.items() if name != CLAIM}
        return self.record(MemoryPath, leaves | fields, f"paths.{key}", where, provenance)

    def instructions(self, node: Tree, where: Where, provenance: _Provenance) -> Iterator[MatrixInstruction]:
        """One table describes a shape and its layouts; each of its `variants` is an instruction with its own types."""
        known = ("unit", "shape", "issued_by", "n_choices", "layouts", "variants", "note")
        for key in node:
            if key not in known:
                self.unknown_key((*where, key), known)
        shape, variants = self.plain(node, "shape", where), self.plain(node, "variants", where)
        if not isinstance(shape, list) or len(shape) != 3:
            self.fail(place(node, where), "shape = [m, n, k] is missing")
        source = node["shape"].source
        if source is None:
            self.fail(place(node, where), "a matrix instruction needs a source")
        common: dict[str, Any] = {
            "unit": self.plain(node, "unit", where),
            "m": shape[0],
            "n": shape[1],
            "k": shape[2],
            **{key: self.plain(node, key, where) for key in ("issued_by", "n_choices") if key in node},
        }
        layouts: dict[str, tuple[LaneLayout, str]] = {}
        for operand, leaf in node.get("layouts", {}).items():
            if operand not in ("a", "b", "c"):
                self.unknown_key(leaf.where, ("a", "b", "c"))
            if leaf.value not in self.layouts:
                self.fail(leaf.where, f"no layout {leaf.value!r} (there are: {', '.join(self.layouts) or 'none'})")
            layouts[f"{operand}_layout"] = self.layouts[leaf.value]
        for variant in variants or ():
            if (
                not isinstance(variant, dict)
                or set(variant) - {"note"} != {"name", "types"}
                or not _is_strings(variant["types"])
                or len(variant["types"]) != 3
            ):
                self.fail(place(node, where), 'a variant is { name = "...", types = [a, b, accumulator] }')
            a_dtype, b_dtype, accumulator = variant["types"]
            for dtype in variant["types"]:
                self.require_known("dtype", dtype, DTYPES, node["variants"].where)
            name = variant["name"]
            provenance.sources[f"matrix_instructions.{name}"] = source
            for operand, (_, layout_source) in layouts.items():
                provenance.sources[f"matrix_instructions.{name}.{operand}"] = layout_source
            note = variant.get("note") or self.plain(node, "note", where) or ""
            fields = {"a_dtype": a_dtype, "b_dtype": b_dtype, "accumulator_dtype": accumulator, "note": note}
            records = {operand: layout for operand, (layout, _) in layouts.items()}
            yield self.model(MatrixInstruction, {"name": name, **common, **fields, **records}, where)

    def rates(self, tree: Tree, where: Where, provenance: _Provenance) -> list[PeakRate]:
        found = []
        for unit, rates in self.tables(tree, "rates"):
            seen: set[str] = set()
            for key, node in rates.items():
                # `float16 = "312 TFLOP/s"` is short for `float16 = { ops_per_s = "312 TFLOP/s" }`.
                fields = {"ops_per_s": node} if isinstance(node, Leaf) else node
                dtype, _, accumulator = key.partition(">")
                for name in filter(None, (dtype, accumulator)):
                    self.require_known("dtype", name, RATE_DTYPES, place(node, (*where, "rates", unit)))
                leaves = {"unit": unit, "dtype": dtype} | ({"accumulator_dtype": accumulator} if accumulator else {})
                own = {name: Leaf(text, None, "", where) for name, text in leaves.items()}
                path = f"rates.{unit}.{dtype}" + (f">{accumulator}" if dtype in seen and accumulator else "")
                if accumulator and dtype not in seen:
                    self.fail(place(node, where), f"list {dtype!r} before its rate into another accumulator")
                seen.add(dtype)
                found.append(self.record(PeakRate, own | fields, path, where, provenance))
        return found

    def features(self, tree: Tree, provenance: _Provenance) -> list[str]:
        """`name = "SOURCE"` says the chip has a feature and who says so; `name = false` takes an inherited one back."""
        found = []
        for name, leaf in tree.get("features", {}).items():
            if not isinstance(leaf, Leaf):
                self.fail(place(leaf, ("features", name)), 'a feature is written name = "SOURCE"')
            further = "; one that only this vendor has is declared under [vendor_features]"
            self.require_known("feature", name, self.known_features, leaf.where, further)
            if leaf.value is False:
                continue
            provenance.sources[f"features.{name}"] = str(self.source(leaf.value, leaf.where))
            found.append(name)
        return found

    # -- Helpers -----------------------------------------------------------------------------------------------------

    def plain(self, node: Tree, key: str, where: Where) -> Any:
        leaf = node.get(key)
        if leaf is not None and not isinstance(leaf, Leaf):
            self.fail((*where, key), "a value is expected here, not a table")
        return leaf.value if leaf else None

    def model(self, cls: type[M], fields: Mapping[str, Any], where: Where, tree: Tree | None = None) -> M:
        """The record of these fields; a fault is reported at the field's leaf in `tree`, else under `where`."""
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            first = error.errors()[0]
            at = tuple(str(part) for part in first["loc"])
            if first["type"] == "extra_forbidden":
                self.unknown_key((*where, *at), list(cls.model_fields))
            leaf = (tree or {}).get(at[0]) if at else None
            spot = leaf.where if isinstance(leaf, Leaf) else (*where, *at)
            self.fail(spot, first["msg"].removeprefix("Value error, "))


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
