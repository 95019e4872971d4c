"""Occupancy against NVIDIA's calculator, and against chips whose figures are only partly known."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import DescriptorError
from core.hardware import load_chips
from core.hardware.occupancy import clusters_at_once

KIB = 1024
CUDA = {chip.name: chip for chip in load_chips("backends.cuda")}

# What cuda_occupancy.h has as constants: per compute capability (shared per SM, opt-in, threads, blocks per SM).
CAPABILITIES = {
    "a100-80gb": (164 * KIB, 163 * KIB, 2048, 32),
    "a10": (100 * KIB, 99 * KIB, 1536, 16),
    "rtx4090": (100 * KIB, 99 * KIB, 1536, 24),
    "h200": (228 * KIB, 227 * KIB, 2048, 32),
    "b200": (228 * KIB, 227 * KIB, 2048, 32),
}


def nvidia_occupancy(name: str, threads: int, registers: int, static: int, dynamic: int) -> int:
    """cuda_occupancy.h (CUDA 13.0), compute capability 8 and later, dynamic limit raised as far as it goes."""
    shared_per_sm, optin, max_threads, max_blocks = CAPABILITIES[name]
    warps = ceil(threads / 32)
    if threads > 1024 or registers > 255:
        return 0
    limits = [max_blocks, (max_threads // 32) // warps]
    per_warp = -(-registers * 32 // 256) * 256
    if per_warp * (-(-warps // 4) * 4) > 65536:
        return 0
    if per_warp:
        limits.append(((65536 // 4) // per_warp) * 4 // warps)
    allocated = -(-(static + 1024 + dynamic) // 128) * 128
    if static > 48 * KIB or dynamic > optin or allocated > 1024 + optin:
        return 0
    limits.append(shared_per_sm // allocated)
    return min(limits)


@pytest.mark.parametrize(
    ("threads", "registers", "static", "dynamic", "blocks"),
    [
        (256, 64, 0, 0, 4),
        (128, 168, 0, 96 * KIB, 2),
        (256, 128, 0, 64 * KIB, 2),
        (384, 168, 0, 192 * KIB, 1),
        (128, 255, 0, 0, 2),
        (1024, 64, 0, 0, 1),
        (1024, 65, 0, 0, 0),
        (128, 32, 0, 232448, 1),
        (128, 32, 16, 232448, 0),
    ],
)
def test_examples_of_compute_capability_9(threads, registers, static, dynamic, blocks):
    assert CUDA["h200"].occupancy(threads, registers, static, dynamic).blocks == blocks


@given(
    name=st.sampled_from(sorted(CAPABILITIES)),
    threads=st.integers(1, 1100),
    registers=st.integers(0, 260),
    static=st.integers(0, 50 * KIB),
    dynamic=st.integers(0, 230 * KIB),
)
def test_agrees_with_nvidias_calculator(name, threads, registers, static, dynamic):
    found = CUDA[name].occupancy(threads, registers, static, dynamic)
    assert found.blocks == nvidia_occupancy(name, threads, registers, static, dynamic)
    assert found.unknown == ()


def test_says_what_limits_and_how_full_the_unit_is():
    found = CUDA["h200"].occupancy(256, 64)
    assert found.limited_by == ("registers",)
    assert found.limits == {"threads": 8, "registers": 4, "shared": 228, "blocks": 32}
    assert found.fraction == 0.5


def test_unknown_figures_give_a_bound_and_their_names():
    chip = load_chips("backends.metax")[0]
    found = chip.occupancy(256, 64, 0, 16 * KIB)
    assert found.blocks is None
    assert found.at_most == 4
    assert found.limited_by == ("shared",)
    assert "units.ap.registers.allocation_unit" in found.unknown
    assert "memories.shared.reserved_per_block_bytes" in found.unknown


def test_a_kernel_over_a_known_limit_cannot_launch_whatever_is_unknown():
    chip = load_chips("backends.metax")[0]
    assert chip.occupancy(256, 64, 0, 96 * KIB).blocks == 0
    assert chip.occupancy(2048, 16).blocks == 0


def test_a_chip_without_waves_refuses_the_question():
    with pytest.raises(DescriptorError, match="runs waves of threads"):
        load_chips("backends.ascend")[0].occupancy(256, 64)


def test_impossible_arguments_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        CUDA["h200"].occupancy(0, 32)


def ways(groups: int, per_group: int, units: int) -> list[tuple[int, ...]]:
    """Every way to spread units over groups in pairs."""
    if groups == 0:
        return [()] if units == 0 else []
    sizes = range(0, min(per_group, units) + 1, 2)
    return [(size, *rest) for size in sizes for rest in ways(groups - 1, per_group, units - size)]


@pytest.mark.parametrize("resident", [1, 2])
@pytest.mark.parametrize("blocks", [2, 3, 4, 5, 8])
def test_clusters_have_room_whichever_units_are_lacking(blocks: int, resident: int) -> None:
    fewest = min(sum(size * resident // blocks for size in sizes) for sizes in ways(4, 10, 34))
    assert clusters_at_once(34, 10, blocks, resident) == fewest


def test_clusters_of_two_use_every_unit_of_hopper_and_larger_ones_do_not() -> None:
    assert [CUDA["h200"].clusters_at_once(blocks) for blocks in (1, 2, 4, 8)] == [132, 66, 29, 13]
    # accel-sim/gpu-app-collection#87: 17 clusters of 8 blocks on an H100 ran on 120 of its units, at most 15 at once.
    assert (CUDA["h100-sxm"].clusters_at_once(8) or 0) <= 15


def test_without_groups_nothing_is_known_of_clusters() -> None:
    assert CUDA["a100-80gb"].clusters_at_once(2) is None
