"""Looking figures up, and what a chip refuses to be."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from core.errors import DescriptorError
from core.hardware import Chip, ComputeUnit, MemorySpace, Source, load_chips
from core.hardware.figures import numeric_figures

H200 = load_chips("backends.cuda")[0]
C500 = load_chips("backends.metax")[0]


def test_require_gives_the_figure_or_names_the_unknown_one():
    assert H200.require("memories.shared.capacity_bytes") == 228 * 1024
    with pytest.raises(DescriptorError, match=r"metax:c500: memories\.l2\.bandwidth_bytes_per_s is unknown") as caught:
        C500.require("memories.l2.bandwidth_bytes_per_s")
    assert caught.value.details["figure"] == "memories.l2.bandwidth_bytes_per_s"
    assert "core.describe --target metax:c500" in caught.value.hint


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("units.sm.cores", "no figure 'cores'"),
        ("memories.ub.capacity_bytes", "no such record"),
        ("colour", "no figure 'colour'"),
        ("rates.matrix.int4.ops_per_s", "no such record"),
    ],
)
def test_a_path_that_names_nothing_is_an_error(path, reason):
    with pytest.raises(DescriptorError, match=reason):
        H200.figure(path)


def test_keys_with_dots_are_found():
    name = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    assert H200.figure(f"matrix_instructions.{name}.k") == 16
    assert H200.source_key_of(f"matrix_instructions.{name}.k") == "PTX"
    assert H200.source_key_of(f"matrix_instructions.{name}.c_layout.elements_per_lane") == "PTX"


def test_units_are_found_in_either_spelling():
    ascend = load_chips("backends.ascend")[0]
    assert ascend.unit("cube core") is ascend.unit("cube_core")
    assert ascend.main_unit.kind == "AI core"
    with pytest.raises(DescriptorError, match="no compute unit 'SM'"):
        ascend.unit("SM")
    with pytest.raises(DescriptorError, match="no memory 'smem'"):
        ascend.memory("smem")
    with pytest.raises(DescriptorError, match=r"no memory serves the scope 'shared\.tmem'"):
        ascend.memory_for_scope("shared.tmem")


def test_a_source_is_that_of_the_figure_else_of_its_record():
    assert H200.source_of("memories.shared.banks").trust == "vendor"
    assert H200.source_of("memories.shared.bank_width_bytes").trust == "vendor-quoted"
    assert H200.source_of("process") is None


def test_the_fingerprint_ignores_prose_and_sees_every_figure():
    retitled = H200.model_copy(update={"title": "other", "notes": ("new",), "aliases": ()})
    assert retitled.fingerprint() == H200.fingerprint()
    renamed = H200.model_copy(update={"name": "h201"})
    assert renamed.fingerprint() != H200.fingerprint()
    assert H200.model_copy(update={"features": ()}).fingerprint() != H200.fingerprint()
    assert len(H200.fingerprint()) == 64


def test_a_chip_survives_json():
    assert Chip.model_validate_json(H200.model_dump_json()) == H200


def test_chips_are_immutable_and_strict():
    with pytest.raises(ValidationError):
        H200.name = "other"
    with pytest.raises(ValidationError, match="colour"):
        Chip(vendor="x", name="y", title="z", colour="red")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"memories": (MemorySpace(name="s", owner="unit", unit="SM"),)}, "belongs to unit 'SM'"),
        ({"units": (ComputeUnit(kind="SM"), ComputeUnit(kind="sm"))}, "two records for one unit"),
        ({"sources": {"units.sm.count": "X"}}, "in no reference list"),
        ({"paths": ({"source": "global", "destination": "shared"},)}, "not a described memory"),
    ],
)
def test_a_chip_cannot_contradict_itself(fields, reason):
    with pytest.raises(ValidationError, match=reason):
        Chip(vendor="x", name="y", title="z", **fields)


def test_numeric_figures_are_the_known_ones():
    chip = Chip(
        vendor="x",
        name="y",
        title="z",
        units=(ComputeUnit(kind="core", count=4),),
        sources={"units.core.count": "S"},
        references={"S": Source(title="a page", trust="vendor")},
    )
    assert dict(numeric_figures(chip)) == {"units.core.count": 4}
