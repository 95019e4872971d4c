"""Every chip that ships: each figure has a source, and figures that depend on each other agree."""

from __future__ import annotations

import pytest

from core.hardware import HardwareDescriptor, load_chips
from core.hardware.figures import numeric_figures

PACKAGES = {"cuda": "backends.cuda", "ascend": "backends.ascend", "metax": "backends.metax"}
CHIPS = [chip for package in PACKAGES.values() for chip in load_chips(package)]
BY_TARGET = {chip.target: chip for chip in CHIPS}

every_chip = pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.target)


@every_chip
def test_every_figure_has_a_source_that_resolves(chip):
    unsourced = [path for path, _ in numeric_figures(chip) if chip.source_of(path) is None]
    assert unsourced == []
    for feature in chip.features:
        assert chip.source_of(f"features.{feature}") is not None
    for path in chip.paths:
        assert chip.source_of(f"paths.{path.key}") is not None


@every_chip
def test_every_source_belongs_to_something_described(chip):
    for path in chip.sources:
        chip.figure(path)  # raises DescriptorError for a path that names nothing
    assert set(chip.sources.values()) == set(chip.references)


@every_chip
def test_a_chip_is_a_hardware_descriptor(chip):
    assert isinstance(chip, HardwareDescriptor)


@every_chip
def test_a_chip_says_what_its_compiler_needs(chip):
    assert chip.codegen["arch"]
    assert chip.tvm_target()["kind"] == chip.codegen["tvm_kind"]


def derived_peak(chip, rate):
    """Units times operations a cycle times clock; None where one of them is unknown."""
    clock = rate.clock_hz or (chip.main_unit.clock_hz if chip.vendor == "ascend" else None)
    if None in (rate.ops_per_cycle_per_unit, clock, chip.main_unit.count):
        return None
    return chip.main_unit.count * rate.ops_per_cycle_per_unit * clock


@every_chip
def test_peak_is_units_times_operations_times_clock_where_all_are_known(chip):
    """Within 2%: some peaks are printed with two digits. The two clocks of Hopper are 8% apart."""
    for rate in chip.rates:
        derived = derived_peak(chip, rate)
        if rate.ops_per_s is not None and derived is not None:
            assert rate.ops_per_s == pytest.approx(derived, rel=0.02), rate


@pytest.mark.parametrize(
    ("target", "dtype"), [("cuda:a100-40gb", "int8"), ("cuda:h200", "float8"), ("ascend:910b2", "int8")]
)
def test_the_check_of_peaks_covers_what_the_documents_cover(target, dtype):
    """Control of the test above: on these chips it does compare something."""
    rate = BY_TARGET[target].rate(dtype, "matrix")
    assert rate.ops_per_s is not None
    assert derived_peak(BY_TARGET[target], rate) is not None


@pytest.mark.parametrize("chip", [chip for chip in CHIPS if chip.vendor == "cuda"], ids=lambda chip: chip.target)
def test_cuda_shared_memory_adds_up(chip):
    shared = chip.memory("shared")
    assert shared.capacity_bytes == shared.per_block_bytes + shared.reserved_per_block_bytes
    assert shared.carveouts_bytes[-1] == shared.capacity_bytes
    assert chip.memory("l1").capacity_bytes > shared.capacity_bytes
    assert chip.main_unit.max_threads == chip.main_unit.max_waves * chip.main_unit.lanes_per_wave


@pytest.mark.parametrize("chip", [chip for chip in CHIPS if chip.vendor == "ascend"], ids=lambda chip: chip.target)
def test_ascend_has_one_cube_and_two_vector_cores_per_ai_core(chip):
    count = chip.unit("AI core").count
    assert (chip.unit("cube core").count, chip.unit("vector core").count) == (count, 2 * count)
    assert (chip.unit("cube core").per_main_unit, chip.unit("vector core").per_main_unit) == (1, 2)


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("sm_80", "a100-80gb"),
        ("sm_86", "a10"),
        ("sm_89", "rtx4090"),
        ("sm_90", "h200"),
        ("sm_90a", "h200"),
        ("sm_100a", "b200"),
        ("h100", "h100-sxm"),
        ("950pr", "950pr_9589"),
        ("910b", "910b3"),
        ("910c", "910_9392"),
        ("xcore1000", "c500"),
    ],
)
def test_documented_aliases(alias, name):
    assert [chip.name for chip in CHIPS if alias in chip.aliases] == [name]


def test_the_default_is_the_first():
    assert [load_chips(package)[0].target for package in PACKAGES.values()] == [
        "cuda:h200",
        "ascend:910b3",
        "metax:c500",
    ]


def test_every_sku_of_the_reference_is_described():
    names = {chip.name for chip in CHIPS}
    assert {
        "a100-40gb",
        "a100-80gb",
        "h100-sxm",
        "h100-pcie",
        "h200",
        "b200",
        "l40s",
        "rtx4090",
        "l4",
        "a10",
        "h20",
    } <= names
    assert {"910b1", "910b2", "910b2c", "910b3", "910b4", "910b4-1"} <= names
    assert {f"910_{digits}" for digits in (9362, 9363, 9372, 9381, 9382, 9391, 9392)} <= names
    assert {"950pr_950z", "950pr_9579", "950pr_9589", "950pr_9599", "950dt_950x", "950dt_95a1"} <= names
    assert {"c500", "c550", "c600", "c600-u", "n260"} <= names


@pytest.mark.parametrize(
    ("target", "path", "value"),
    [
        ("cuda:h200", "memories.shared.per_block_bytes", 227 * 1024),
        ("cuda:h200", "units.sm.count", 132),
        ("cuda:rtx4090", "memories.shared.per_block_bytes", 99 * 1024),
        ("cuda:b200", "memories.tensor.capacity_bytes", 256 * 1024),
        ("cuda:b200", "codegen.arch", "sm_100a"),
        ("metax:c500", "units.ap.lanes_per_wave", 64),
        ("metax:c500", "memories.shared.per_block_bytes", 64 * 1024),
        ("ascend:910b3", "memories.ub.capacity_bytes", 1572864 // 8),
        ("ascend:950pr_9589", "memories.ub.capacity_bytes", 2031616 // 8),
        ("ascend:910b4-1", "codegen.target", "Ascend910B4-1"),
        # Nobody has published these, or sources contradict each other.
        ("ascend:910b3", "memories.global.bandwidth_bytes_per_s", None),
        ("cuda:b200", "memories.global.capacity_bytes", None),
        ("cuda:h20", "rates.matrix.float16.ops_per_s", None),
        ("cuda:l4", "units.sm.count", None),
        ("metax:c600", "units.ap.count", None),
        ("metax:n260", "units.ap.lanes_per_wave", None),
    ],
)
def test_known_figures_and_unknown_ones(target, path, value):
    assert BY_TARGET[target].figure(path) == value


def test_the_rate_of_both_float8_encodings_is_one():
    chip = BY_TARGET["cuda:h200"]
    assert chip.rate("float8_e4m3fn") is chip.rate("float8_e5m2") is chip.rate("float8")
    assert chip.rate("float64").unit == "matrix"
    assert chip.rate("float64", "vector").ops_per_s == 34e12
    assert chip.rate("int4") is None


def test_a_rate_into_another_accumulator():
    chip = BY_TARGET["cuda:rtx4090"]
    assert chip.rate("float16").ops_per_s == 165.2e12
    assert chip.rate("float16", accumulator="float16").ops_per_s == 330.3e12
    assert chip.figure("rates.matrix.float16>float16.ops_per_s") == 330.3e12


def test_fp8_has_no_matrix_instruction_where_it_would_only_be_emulated():
    def has_fp8(target):
        return any(one.a_dtype.startswith("float8") for one in BY_TARGET[target].matrix_instructions)

    assert all(has_fp8(target) for target in ("cuda:rtx4090", "cuda:h200", "cuda:b200", "metax:c600"))
    assert not any(has_fp8(target) for target in ("cuda:a100-80gb", "cuda:a10", "metax:c500", "metax:c550"))
    assert not any("mma.sync" in one.name for one in BY_TARGET["cuda:h200"].matrix_instructions if "e4m3" in one.name)


def test_scopes_find_their_memory():
    cuda, ascend = BY_TARGET["cuda:b200"], BY_TARGET["ascend:910b3"]
    assert cuda.memory_for_scope("shared.dyn").name == "shared"
    assert cuda.memory_for_scope("shared.barrier").name == "shared"
    assert cuda.memory_for_scope("shared.tmem").name == "tensor"
    assert cuda.memory_for_scope("local.fragment").name == "registers"
    assert [memory.name for memory in ascend.memories_for_scope("shared")] == ["ub", "l1"]
    assert [memory.name for memory in ascend.memories_for_scope("fragment")] == ["ub", "l0c"]
    assert BY_TARGET["cuda:h200"].memories_for_scope("shared.tmem") == ()
