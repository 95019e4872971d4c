"""The cost model's terms, each by a relation that physics gives; how good the sum is, `test_replay.py` says."""

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import core
from core.ops.conv2d import conv2d
from core.program import Program
from core.tiling.cost import demands, memory_bytes, predict
from core.tiling.cost.body import soft_maximum
from core.tiling.cost.machine import generic_figures, machine
from core.tiling.cost.memory import concurrent, sector_bytes, traffic
from core.tiling.cost.occupancy import residency
from core.tiling.cost.shared import added_bytes
from core.tiling.profile import LaunchProfile, Profile, profile
from tests.tiling.kernels import causal_scores, gemm
from tests.timing import median_s

H200 = core.chip("cuda:h200")


def profile_of(build: Any) -> Profile:
    return profile(Program(build))


def launch_of(build: Any) -> LaunchProfile:
    (launch,) = profile_of(build).launches
    return launch


def seconds(build: Any, chip: core.Chip = H200) -> float:
    return predict(profile_of(build), chip).seconds


# -- Figures ---------------------------------------------------------------------------------------------------------


def test_an_unknown_figure_is_an_assumption_that_is_named() -> None:
    found = predict(profile_of(gemm(1024, 1024, 1024)), core.chip("ascend:910b3"))
    assert "the bandwidth of global memory is unknown: taken as 1 TB/s" in found.assumptions
    known = predict(profile_of(gemm(1024, 1024, 1024)), core.chip("ascend:910b2"))
    assert not any("bandwidth of global memory" in sentence for sentence in known.assumptions)


def test_a_chip_without_a_published_matrix_rate_says_what_it_was_taken_from() -> None:
    found = predict(profile_of(gemm(1024, 1024, 1024)), core.chip("cuda:h20"))
    assert any(sentence.startswith("the matrix rate for float16 is unknown") for sentence in found.assumptions)


def test_assumptions_are_those_the_kernel_rests_on() -> None:
    found = predict(profile_of(gemm(1024, 1024, 1024)), core.chip("metax:c500"))
    assert not any("exponential" in sentence for sentence in found.assumptions)
    found = predict(profile_of(causal_scores(1024, 64, 64, 64)), core.chip("metax:c500"))
    assert any("exponential" in sentence for sentence in found.assumptions)


def test_what_a_chip_says_of_itself_goes_before_the_generic_figure() -> None:
    chip = H200.model_copy(update={"cost": {**H200.cost, "launch_s": 1.0}})
    assert machine(chip).cost["launch_s"] == 1.0
    assert predict(profile_of(gemm(64, 64, 64, 64, 64, 64)), chip).seconds > 1.0


def test_the_documentation_lists_every_figure_with_its_generic_value() -> None:
    text = (Path(__file__).parents[2] / "docs" / "cost-model.md").read_text(encoding="utf-8")
    for name, prose, value in generic_figures():
        assert f"| `cost.{name}` | {prose} | {value} |" in text


# -- What a block takes ----------------------------------------------------------------------------------------------


def test_a_compiler_that_copies_with_warps_of_its_own_leaves_room_for_one_block() -> None:
    held = residency(launch_of(gemm(4096, 4096, 4096)), machine(H200))
    assert (held.threads, held.launched, held.blocks) == (256, 384, 1)
    plain = residency(launch_of(gemm(4096, 4096, 4096, 64, 64, 64, 0, 128)), machine(H200))
    assert (plain.threads, plain.launched) == (128, 128)
    assert plain.blocks is not None
    assert plain.blocks > 1


def convolution(channels: int, filters: int = 64, tiles: tuple[int, ...] = (128, 64, 64, 3, 256)) -> LaunchProfile:
    """3 x 3 windows of 16 images of 56 x 56 pixels; copied whole where the depth of tiles divides the channels."""
    arguments = conv2d.arguments((16, 56, 56, channels, filters, 3), {"dtype": "float16", "padding": 1})
    traced = conv2d.trace(arguments, dict(zip(conv2d.parameters, tiles, strict=True)))
    (launch,) = profile(Program(traced.prim_func, traced.out_idx)).launches
    return launch


def test_windows_are_gathered_by_as_many_threads_as_compute_which_keep_their_registers() -> None:
    m = machine(H200)
    copied, gathered = (residency(convolution(channels), m) for channels in (64, 48))
    assert (copied.threads, copied.launched, gathered.threads, gathered.launched) == (256, 384, 256, 512)
    # 256 x 128 sums are 128 registers of 256 threads: beside bulk copies there are more, beside 256 others just 128.
    wide = [residency(convolution(channels, 128, (256, 128, 64, 2, 256)), m).spilled for channels in (64, 48)]
    assert wide[0] == 0
    assert wide[1] > 0
    # Where no tensor's strides are a bulk copy's, nothing is split.
    uneven = residency(convolution(48, 20), m)
    assert (uneven.threads, uneven.launched) == (256, 256)


@pytest.mark.parametrize(
    ("filters", "tiles", "taken"),
    [(64, (64, 64, 64, 0, 128), 144), (64, (64, 64, 64, 0, 256), 92), (20, (64, 64, 64, 3, 256), 96)],
)
def test_elements_under_way_take_registers(filters: int, tiles: tuple[int, ...], taken: int) -> None:
    """Where threads gather before they multiply; `taken` is what ptxas gave (CUDA 13, sm_90a)."""
    assert residency(convolution(48, filters, tiles), machine(H200)).registers == pytest.approx(taken, rel=0.15)


def test_gathering_takes_the_issue_slots_of_its_instructions() -> None:
    m = machine(H200)
    found = predict(Profile("conv2d", (convolution(48),)), H200)
    rounds, blocks = 7, 16 * 56 * 56 / 128
    # 17 to 18 instructions an element and round were counted in what ptxas makes of it.
    least = 17 * m.cost["vector_cost_index"] * rounds * blocks * 128 * 64 / (m.units * m.vector_per_s)
    assert least < found.terms["vector"] < 1.2 * least
    assert found.seconds > 1.5 * least  # each round waits for its loads beside
    # As many windows of as many channels, copied whole.
    copied = predict(Profile("conv2d", (convolution(64),)), H200)
    assert found.seconds > 2 * copied.seconds


def test_what_fills_a_tile_needs_no_other_warps_to_issue_at_the_full_rate() -> None:
    """No element waits for another: half as many threads take as long."""
    chains = [
        predict(Profile("conv2d", (convolution(48, tiles=(128, 64, 64, 4, threads)),)), H200).terms["latency"]
        for threads in (128, 256)
    ]
    assert chains[0] == pytest.approx(chains[1], rel=0.06)  # 43.2 and 43.7 us were measured


def test_elements_that_there_are_no_registers_for_are_waited_for_in_turns() -> None:
    m = machine(H200)
    # 64 elements of three registers a thread: 256 threads beside as many have 128, 128 beside as many 255.
    short, enough = (convolution(48, tiles=(256, 64, 64, 4, 256)), convolution(48, tiles=(128, 64, 64, 4, 128)))
    assert residency(enough, m).waits == 0
    assert residency(enough, m).registers == 64 * 3 + m.cost["register_overhead"]
    assert residency(short, m).waits == pytest.approx((64 * 3 + m.cost["register_overhead"] - 128) / 3 / (128 / 32))
    held = [predict(Profile("conv2d", (one,)), H200).terms["latency"] for one in (short, enough)]
    assert held[0] > 2 * held[1]  # 103 and 43 us were measured


def test_windows_copied_without_stages_are_waited_for_before_what_they_are_multiplied_with() -> None:
    """On Hopper, whose bulk copy has a barrier; rows that threads gather are loaded together with the rest."""
    whole, gathered = (convolution(channels, tiles=(64, 64, 64, 0, 128)) for channels in (64, 48))
    for launch, waits in ((whole, 2), (gathered, 1)):
        found = [
            predict(Profile("conv2d", (launch,)), H200.model_copy(update={"cost": {**H200.cost, **latency}}))
            for latency in ({}, {"l2_latency_s": 1.4e-6, "memory_latency_s": 1.8e-6})
        ]
        rounds = launch.trips()[0][1] * (found[0].waves or 0)
        grown = found[1].terms["latency"] - found[0].terms["latency"]
        assert grown == pytest.approx(waits * rounds * 1e-6, rel=0.01)


def test_windows_that_overlap_are_read_once() -> None:
    """Images that do not stay in the cache from one wave of blocks to the next: a block reads its own nine times."""
    arguments = conv2d.arguments((16, 112, 112, 64, 64, 3), {"dtype": "float16", "padding": 1})
    for tiles in ((256, 64, 64, 4, 256), (64, 64, 48, 0, 128)):  # copied whole, gathered
        traced = conv2d.trace(arguments, dict(zip(conv2d.parameters, tiles, strict=True)))
        (launch,) = profile(Program(traced.prim_func, traced.out_idx)).launches
        (trips,) = set(launch.trips())
        images, filters = 16 * 112 * 112 * 64 * 2, 9 * 64 * 64 * 2
        moved = traffic(launch, trips, 132, machine(H200)).memory_bytes
        assert moved == pytest.approx(2 * images + filters, rel=0.02), tiles


def test_gathering_goes_on_beside_the_products_where_threads_are_added_for_it() -> None:
    def term(launch: LaunchProfile) -> float:
        return predict(Profile("conv2d", (launch,)), H200).terms["latency"]

    alone, two, four = (convolution(48, 128, (128, 128, 64, stages, 256)) for stages in (1, 2, 4))
    # The gathering threads are what is waited for, however long products take.
    assert term(two) == term(four) == pytest.approx(term(replace(two, products=())), rel=0.01)
    assert term(alone) > 1.2 * term(two)


def test_registers_are_those_of_the_fragments_and_some_more_and_what_does_not_fit_is_spilled() -> None:
    m = machine(H200)
    small = residency(launch_of(gemm(4096, 4096, 4096, 128, 128, 64, 2, 256)), m)
    assert small.registers == 128 * 128 // 256 + m.cost["register_overhead"]
    assert small.spilled == 0
    # 256 x 256 sums of 4 bytes over 256 threads are more than the 255 registers a thread may have.
    large = residency(launch_of(gemm(4096, 4096, 4096, 256, 256, 64, 2, 256)), m)
    assert large.registers >= 256
    assert large.spilled > 0
    # Larger tiles read less from shared memory for each operation, were it not for the spills.
    shared = [predict(profile_of(gemm(4096, 4096, 4096, 256, n, 64, 2, 256)), H200).terms["shared"] for n in (256, 128)]
    assert shared[0] > shared[1]


#: What ptxas gave blocks of `direct` for sm_90a (`scripts/compare_registers.py`): module, operator, columns, rows,
#: threads, dtype, registers.
TAKEN = [
    ("softmax", "softmax", 4096, 1, 128, "float16", 46),
    ("softmax", "softmax", 1024, 4, 128, "float16", 56),
    ("softmax", "softmax", 4096, 1, 256, "float32", 32),
    ("layernorm", "layernorm", 4096, 2, 256, "float16", 72),
    ("layernorm", "layernorm", 8192, 1, 256, "float16", 104),
    ("rmsnorm", "rmsnorm", 4096, 1, 256, "float16", 40),
    ("rmsnorm", "add_rmsnorm", 4096, 1, 256, "float16", 45),
]


@pytest.mark.parametrize(("module", "name", "columns", "rows", "threads", "dtype", "taken"), TAKEN)
def test_registers_of_rows_that_stay_in_them_are_about_what_the_compiler_takes(
    module: str, name: str, columns: int, rows: int, threads: int, dtype: str, taken: int
) -> None:
    factory = getattr(importlib.import_module(f"core.ops.{module}"), name)
    tiles = {"block_M": rows, "block_N": columns, "threads": threads, "variant": "direct", "workers": 0}
    traced = factory.trace({"M": 4096, "N": columns, "dtype": dtype}, {**tiles, "buffers": 1, "resident": 0})
    (launch,) = profile(Program(traced.prim_func, traced.out_idx)).launches
    assert residency(launch, machine(H200)).registers == pytest.approx(taken, rel=0.15)


@pytest.mark.parametrize("target", ["cuda:h200", "ascend:910b3", "metax:c500", "cpu"])
def test_memory_is_counted_as_the_footprint_counts_it(target: str) -> None:
    from core.program.capacity import memory_demands

    chip = core.chip(target)
    program = Program(gemm(4096, 4096, 4096))
    (own,) = program.footprint().launches
    expected = {demand.memory.name: demand.needed_bytes for demand in memory_demands(own, chip)}
    (launch,) = profile(program).launches
    if target == "cuda:h200":  # and what lowering adds for the barriers of a pipeline
        expected["shared"] = (expected["shared"] or 0) + added_bytes(launch, chip)
    assert memory_bytes(launch, chip) == expected
    assert predict(profile(program), chip).memory_bytes == expected
    assert {memory.name for memory, _ in demands(launch, chip)} == set(expected)


# -- Bytes -----------------------------------------------------------------------------------------------------------


def test_short_pieces_move_whole_sectors() -> None:
    m = machine(H200)
    (a, *_) = launch_of(gemm(4096, 4096, 4096, 64, 64, 8)).accesses  # pieces of 16 bytes, half a sector
    assert sector_bytes(a, m) == 2 * a.bytes
    (a, *_) = launch_of(gemm(4096, 4096, 4096, 64, 64, 64)).accesses
    assert sector_bytes(a, m) == a.bytes


def test_blocks_that_run_together_fetch_a_shared_tile_once() -> None:
    launch = launch_of(gemm(4096, 4096, 4096, 128, 256, 64, panel=0))
    assert concurrent(launch, 132) == (16.0, 132 / 16)
    panels = launch_of(gemm(4096, 4096, 4096, 128, 256, 64, panel=4))
    assert concurrent(panels, 64) == (16.0, 4.0)
    assert concurrent(panels, 32) == (8.0, 4.0)


def test_panels_save_traffic_where_a_wave_does_not_fit_the_cache() -> None:
    m = machine(H200)
    rows, panels = (launch_of(gemm(16384, 16384, 16384, 128, 256, 64, panel=p)) for p in (0, 8))
    assert traffic(panels, (1.0, 256.0), 132, m).memory_bytes < 0.7 * traffic(rows, (1.0, 256.0), 132, m).memory_bytes
    small = launch_of(gemm(2048, 2048, 2048, 128, 256, 64, panel=0))
    assert traffic(small, (1.0, 32.0), 132, m).memory_bytes == 3 * 2048 * 2048 * 2


def test_a_copy_for_a_cluster_leaves_the_cache_once() -> None:
    m = machine(H200)
    launch = launch_of(gemm(4096, 4096, 4096))
    shared = replace(launch, accesses=tuple(replace(a, receivers=2) for a in launch.accesses))
    assert traffic(shared, (1.0, 64.0), 132, m).cache_bytes * 2 == traffic(launch, (1.0, 64.0), 132, m).cache_bytes
    assert traffic(shared, (1.0, 64.0), 132, m).unit_bytes == traffic(launch, (1.0, 64.0), 132, m).unit_bytes


# -- Time ------------------------------------------------------------------------------------------------------------


def test_one_block_more_than_a_wave_costs_nearly_a_wave() -> None:
    one, more = seconds(gemm(132 * 128, 256, 4096)), seconds(gemm(133 * 128, 256, 4096))
    assert 1.5 < more / one < 2.1
    found = predict(profile_of(gemm(133 * 128, 256, 4096)), H200)
    assert (found.blocks, found.blocks_per_unit, found.waves) == (133, 1, 2)


def test_clusters_without_room_in_a_group_take_another_wave() -> None:
    m = machine(H200)
    assert [m.slots(1, cluster) for cluster in (1, 2, 4, 8)] == [132, 132, 116, 104]
    assert machine(core.chip("cuda:a100")).slots(1, 4) == 108


def test_stages_hide_latency_until_there_are_enough() -> None:
    times = [seconds(gemm(128, 4096, 8192, 64, 64, 64, stages)) for stages in (1, 2, 3, 4)]
    assert times == sorted(times, reverse=True)
    assert times[0] > 1.5 * times[2]


def test_a_tile_of_fewer_rows_than_a_group_has_runs_at_the_rate_of_single_waves() -> None:
    share = machine(H200).cost["wave_matrix_share"]
    groups = predict(profile_of(gemm(4096, 4096, 4096, 64, 128, 64, 3, 128)), H200).terms["matrix"]
    waves = predict(profile_of(gemm(4096, 4096, 4096, 32, 128, 64, 3, 128)), H200).terms["matrix"]
    assert waves == pytest.approx(groups / share)


def test_the_diagonal_halves_the_work() -> None:
    length = 132 * 128  # a block for each unit
    found = predict(profile_of(causal_scores(length, 128, 128, 128)), H200)
    rate = machine(H200).matrix_per_s("float16", "float32")[0] * 132 * machine(H200).cost["matrix_share"]
    assert found.terms["matrix"] == pytest.approx(2 * length * length * 128 / 2 / rate, rel=0.05)


def test_a_bandwidth_bound_kernel_takes_the_time_of_its_bytes() -> None:
    found = predict(profile_of(gemm(64, 16384, 16384, 64, 128, 128, 4, 128)), H200)
    least = 16384 * 16384 * 2 / 4.8e12
    assert least < found.seconds < 2 * least


def test_cores_without_a_path_between_them_meet_in_global_memory() -> None:
    # 910B: cube and vector cores; 950: the same with a path from l0c to ub.
    assert machine(core.chip("ascend:910b3")).exchanges_in_memory
    assert not machine(core.chip("ascend:950pr")).exchanges_in_memory
    assert not machine(H200).exchanges_in_memory
    mixed = causal_scores(4096, 128, 128, 128)
    chip = core.chip("ascend:910b3")
    joined = chip.model_copy(update={"paths": (*chip.paths, *core.chip("ascend:950pr").paths[-2:])})
    assert not machine(joined).exchanges_in_memory
    assert seconds(mixed, joined) < 0.9 * seconds(mixed, chip)
    assert seconds(gemm(1024, 1024, 1024), joined) == seconds(gemm(1024, 1024, 1024), chip)


def test_a_soft_maximum_is_a_maximum_and_a_little_more() -> None:
    assert soft_maximum((1.0, 0.0, 0.01)) == pytest.approx(1.0)
    assert soft_maximum((1.0, 1.0)) == pytest.approx(2 ** (1 / 8))
    assert soft_maximum(()) == 0.0


@pytest.mark.parametrize(
    "target", ["cuda:h200", "cuda:a100", "cuda:h20", "metax:c500", "metax:c600", "ascend:910b3", "ascend:950pr", "cpu"]
)
def test_every_chip_gets_a_prediction(target: str) -> None:
    chip = core.chip(target)
    for build in (gemm(1024, 1024, 1024), causal_scores(1024, 64, 64, 64)):
        found = predict(profile_of(build), chip)
        assert 1e-7 < found.seconds < 10
        assert found.bound in found.terms
        assert all(value >= 0 for value in found.terms.values())
        assert found.seconds >= max(found.terms[name] for name in ("matrix", "vector", "shared", "memory", "launch"))


def test_a_faster_chip_is_predicted_faster() -> None:
    large = gemm(8192, 8192, 8192)
    assert seconds(large, core.chip("cuda:h200")) < seconds(large, core.chip("cuda:a100"))
    assert seconds(large, core.chip("ascend:910b1")) < seconds(large, core.chip("ascend:910b4"))
    half = core.chip("cuda:h200+sm=66")
    assert 1.7 < seconds(large, half) / seconds(large) < 2.3


def test_a_prediction_takes_well_under_a_millisecond() -> None:
    found = profile_of(gemm(4096, 4096, 4096))
    predict(found, H200)
    assert median_s(lambda: predict(found, H200), 50) < 1e-3
