"""The TOML format: what it means, and what it refuses, with file, line, key and reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tilelang.language as T

from core.errors import DescriptorError
from core.hardware import load_chips, parse_chips
from core.hardware.vocabulary import CODEGEN_KEYS, DTYPES, RATE_DTYPES, SCOPES
from core.program.nodes import Scope

ROOT = Path(__file__).parents[2]
FILE = """\
vendor = "acme"
default = "big"

[references]
DS = { title = "data sheet", trust = "vendor" }
DEV = { title = "asked of a device", trust = "measured" }

[layouts]
row = { elements_per_lane = 4, row = "lane % 4", column = "lane // 4 * 4 + i", source = "DS" }

[families.base.units.core]
source = "DS"
count = 4
lanes_per_wave = 32

[families.base.memories.shared]
owner = "block"
unit = "core"
scopes = ["shared"]
capacity_bytes = { value = "64 KiB", source = "DEV", note = "read at run time" }

[families.base.features]
async_copy = "DS"
fp8_matrix = "DEV"

[families.base.paths]
"shared -> shared via mover" = { asynchronous = true, source = "DS" }

[families.base.matrix_instructions.mma]
source = "DS"
unit = "core"
shape = [4, 4, 4]
layouts = { a = "row" }
variants = [{ name = "mma.f16", types = ["float16", "float16", "float32"] }]

[chips.small]
inherits = "base"
title = "ACME small"
notes = ["cut down"]
features = { fp8_matrix = false }

[chips.small.rates.matrix]
source = "DS"
float16 = "1.5 TFLOP/s"

[chips.big]
inherits = "base"
title = "ACME big"
aliases = ["b"]
units.core.count = { value = 8, source = "DEV" }
memories.shared.capacity_bytes = "unknown"
"""


def test_families_are_written_once_and_overridden_figure_by_figure():
    big, small = parse_chips(FILE)
    assert (big.name, small.name) == ("big", "small")
    assert (big.main_unit.count, small.main_unit.count) == (8, 4)
    assert big.main_unit.lanes_per_wave == small.main_unit.lanes_per_wave == 32
    assert big.source_key_of("units.core.count") == "DEV"
    assert small.source_key_of("units.core.count") == "DS"


def test_units_of_measure_sources_and_remarks():
    small = parse_chips(FILE)[1]
    assert small.memory("shared").capacity_bytes == 65536
    assert small.rate("float16").ops_per_s == 1.5e12
    assert small.source_of("memories.shared.capacity_bytes").title == "asked of a device"
    assert small.figure_notes["memories.shared.capacity_bytes"] == "read at run time"
    assert small.source_key_of("paths.shared -> shared via mover") == "DS"


def test_inherited_figures_and_features_can_be_taken_back():
    big, small = parse_chips(FILE)
    assert big.memory("shared").capacity_bytes is None
    assert big.features == ("async_copy", "fp8_matrix")
    assert small.features == ("async_copy",)


def test_only_references_in_use_are_kept():
    assert set(parse_chips(FILE)[1].references) == {"DS", "DEV"}
    assert list(parse_chips(FILE)[0].references) == ["DS", "DEV"]


def test_a_layout_is_shared_by_name():
    instruction = parse_chips(FILE)[0].matrix_instructions[0]
    assert instruction.a_layout.element(5, 2) == (1, 6)
    assert instruction.c_layout is None


#: (what to replace, with what, the key at fault, the reason, the line).
FAULTS = [
    (
        "lanes_per_wave = 32",
        "lanes_per_wav = 32",
        "families.base.units.core.lanes_per_wav",
        "did you mean 'lanes_per_wave'",
        14,
    ),
    ('"64 KiB"', '"64 KiBs"', "families.base.memories.shared.capacity_bytes", "unknown unit 'KiBs'", 20),
    ('"1.5 TFLOP/s"', '"1.5 TB/s"', "chips.small.rates.matrix.float16", "unknown unit 'TB/s'", 44),
    ('source = "DS"\nfloat16', "float16", "chips.small.rates.matrix.float16", "no source", 43),
    ('8, source = "DEV"', '8, source = "XX"', "chips.big.units.core.count.source", "no reference 'XX'", 50),
    ('8, source = "DEV"', '8, sauce = "DEV"', "chips.big.units.core.count.sauce", "did you mean 'source'", 50),
    ("value = 8,", "value = 8.5,", "chips.big.units.core.count", "valid integer", 50),
    ('{ a = "row" }', '{ a = "rows" }', "families.base.matrix_instructions.mma.layouts.a", "no layout 'rows'", 33),
    ('row = "lane % 4"', 'row = "lane ** 4"', "layouts.row.row", "understood", 9),
    ('unit = "core"\nscopes', 'unit = "SM"\nscopes', "chips.small", "belongs to unit 'SM'", 36),
    ('aliases = ["b"]', 'aliases = ["small"]', "chips.big", "already names chip", 46),
    ('default = "big"', 'default = "huge"', "default", "none of small, big", 2),
    (
        'fp8_matrix = "DEV"',
        'fp8_matrix = "NOBODY"',
        "families.base.features.fp8_matrix.source",
        "no reference 'NOBODY'",
        24,
    ),
    (
        'fp8_matrix = "DEV"',
        'fp8_matrx = "DEV"',
        "families.base.features.fp8_matrx",
        "unknown feature 'fp8_matrx' .did you mean 'fp8_matrix'",
        24,
    ),
    (
        "float16 = ",
        "float61 = ",
        "chips.small.rates.matrix",
        "did you mean 'float6' or 'float64' or 'float16'",
        44,
    ),
    ("float16 = ", '"float16>float23" = ', "chips.small.rates.matrix", "unknown dtype 'float23'", 44),
    (
        'types = ["float16", "float16"',
        'types = ["float16", "bfloat61"',
        "families.base.matrix_instructions.mma.variants",
        "did you mean 'bfloat16'",
        34,
    ),
    (
        'types = ["float16", "float16", "float32"]',
        "types = [16, 16, 32]",
        "families.base.matrix_instructions.mma",
        "a variant is",
        29,
    ),
    (
        'scopes = ["shared"]',
        'scopes = ["shraed"]',
        "families.base.memories.shared.scopes",
        "unknown scope 'shraed' .did you mean 'shared'",
        19,
    ),
    (
        'title = "ACME big"\n',
        'title = "ACME big"\ncost = { launch_us = { value = 2, source = "DS" } }\n',
        "chips.big.cost.launch_us",
        "did you mean 'launch_s'",
        49,
    ),
    (
        'title = "ACME big"\n',
        'title = "ACME big"\ncodegen = { tvm_knid = "hip", own_flag = 1, source = "DS" }\n',
        "chips.big.codegen.tvm_knid",
        "did you mean 'tvm_kind'",
        49,
    ),
    ('vendor = "acme"', 'vendor = "acme"\n[vendor_features]\ntma = "own"', "vendor_features.tma", "known already", 3),
    ("asynchronous = true, ", "asynchronous = true, speed = 9, ", "speed", "unknown key", 27),
    ("shared -> shared via mover", "shared to shared", "families.base.paths.shared to shared", "a path is written", 27),
    ('title = "ACME big"\n', "", "chips.big", "has a title", 46),
    ('inherits = "base"\ntitle = "ACME big"', 'inherits = "bass"', "chips.big.inherits", "no family 'bass'", 47),
    ('trust = "vendor"', 'trust = "hearsay"', "references.DS.trust", "vendor-quoted", 5),
    ('vendor = "acme"', "vendor = ", "file", "not a TOML file", 1),
    ('vendor = "acme"', 'vendor = "acme"\nchip = 3', "chip", "did you mean 'chips'", 2),
]


@pytest.mark.parametrize(
    ("old", "new", "key", "reason", "line"), FAULTS, ids=[f"{key}: {reason}" for *_, key, reason, _ in FAULTS]
)
def test_faults_are_reported_with_file_line_key_and_reason(old, new, key, reason, line):
    assert FILE.count(old) == 1
    with pytest.raises(DescriptorError, match=reason) as caught:
        parse_chips(FILE.replace(old, new), file="acme/chips.toml")
    error = caught.value
    assert (error.location.file, error.location.line) == ("acme/chips.toml", line)
    assert key in error.message.replace('"', "")


def test_a_feature_only_this_vendor_has_is_declared_in_the_file():
    declared = '[vendor_features]\nturbo = "runs at twice its clock for a while"\n\n[references]'
    text = FILE.replace("[references]", declared).replace('async_copy = "DS"', 'async_copy = "DS"\nturbo = "DS"')
    assert "turbo" in parse_chips(text)[0].features
    with pytest.raises(DescriptorError, match="unknown feature 'turbo'") as caught:
        parse_chips(text.replace(declared, "[references]"))
    assert "[vendor_features]" in caught.value.hint


def test_a_wrong_unit_is_answered_with_the_units_there_are():
    with pytest.raises(DescriptorError, match="unknown unit 'KiBs'") as caught:
        parse_chips(FILE.replace('"64 KiB"', '"64 KiBs"'))
    assert "KiB" in caught.value.hint.split(", ")


def test_the_figures_of_the_cost_model_are_those_a_file_may_give():
    from core.hardware.vocabulary import COST_FIGURES
    from core.tiling.cost.machine import generic_figures

    assert set(COST_FIGURES) == {name for name, *_ in generic_figures()} | {"shared_granule_bytes"}


def test_the_dtypes_of_a_file_are_those_that_tilelang_names():
    """What a chip computes with must be sayable; an integer of 4 bits TileLang has with a sign alone."""
    named = {name for name in dir(T) if re.fullmatch(r"t?b?float\d+(_e\dm\d\w*)?|u?int\d+|bool", name)}
    named = {name for name in named if not re.search(r"x\d+$|_unpacked$", name)}
    assert set(DTYPES) == named | {"uint4"}
    assert set(RATE_DTYPES) - set(DTYPES) == {name.partition("_")[0] for name in named if "_e" in name}


def test_the_scopes_of_a_file_are_those_of_a_program():
    """But barriers, which are no memory to plan, and what only one dialect knows."""
    assert set(SCOPES) == {scope.value for scope in Scope} - {Scope.BARRIER.value, Scope.OTHER.value}


def test_the_codegen_keys_of_ours_are_those_that_the_core_reads():
    read = {
        key
        for path in (ROOT / "core").glob("**/*.py")
        for key in re.findall(r"codegen(?:\.get\(|\[)\"(\w+)\"", path.read_text(encoding="utf-8"))
    }
    assert set(CODEGEN_KEYS) == read
    page = (ROOT / "docs" / "hardware.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"TileHAL reads (.*?) there", page, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", listed)) == read


@pytest.mark.parametrize("key", CODEGEN_KEYS)
def test_a_codegen_key_of_ours_is_taken_and_refused_with_its_last_letters_changed_about(key):
    def codegen(spelt):
        own = f'codegen = {{ {spelt} = "x", source = "DS" }}\n'
        return parse_chips(FILE.replace('title = "ACME big"\n', f'title = "ACME big"\n{own}'))[0].codegen

    assert codegen(key) == {key: "x"}
    misspelt = key[:-2] + key[:-3:-1]
    if len(key) > 6:
        with pytest.raises(DescriptorError, match=f"did you mean '{key}'"):
            codegen(misspelt)
    else:  # of so few letters it may well be a backend's own
        assert codegen(misspelt) == {misspelt: "x"}


def test_a_file_without_chips_is_refused():
    with pytest.raises(DescriptorError, match="no chip is described"):
        parse_chips('vendor = "acme"\ndefault = "x"\n')


def test_families_cannot_go_round_in_a_circle():
    text = FILE + '\n[families.loop]\ninherits = "loop"\n[chips.round]\ninherits = "loop"\ntitle = "round"\n'
    with pytest.raises(DescriptorError, match="goes round in a circle"):
        parse_chips(text)


def test_a_package_without_the_file_says_so():
    with pytest.raises(DescriptorError, match=r"core\.hardware has no absent\.toml") as caught:
        load_chips("core.hardware", "absent.toml")
    assert "package-data" in caught.value.hint


def test_a_file_is_read_once_per_process():
    assert load_chips("backends.metax") is load_chips("backends.metax")


def test_the_example_of_the_documentation_is_read():
    page = (ROOT / "docs" / "hardware.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    [chip] = parse_chips(example)
    assert (chip.target, chip.main_unit.count, chip.rate("float16").ops_per_s) == ("acme:a1", 104, 280e12)
    assert chip.tvm_target()["thread_warp_size"] == 64
