"""`core.ops.conv2d.conv2d`: strides, padding, dilation, any number of channels; on the CPU and in both simulators."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import core
from core.ops.conv2d import conv2d
from tests.kernels.case import summed
from tests.ops import references
from tests.properties import compiling

TILES = {"block_M": 32, "block_N": 32, "block_K": 32, "num_stages": 2, "threads": 128}
#: Batch, height, width, channels, filters, size.
Shape = tuple[int, int, int, int, int, int]
CASES: list[tuple[Shape, dict[str, int]]] = [
    ((1, 8, 8, 32, 32, 3), {"padding": 1}),
    ((2, 9, 7, 16, 20, 3), {"stride": 2, "padding": 1}),
    ((1, 10, 10, 3, 16, 5), {"padding": 2, "dilation": 2}),
    ((1, 6, 6, 64, 40, 1), {}),
]


def run(target: str, shape: Shape, geometry: dict[str, int], **more: Any) -> None:
    batch, height, width, channels, filters, size = shape
    kernel = conv2d.compile(*shape, **geometry, target=target, **{**TILES, **more})
    device = "cuda" if target == "cuda" else "cpu"
    x = torch.randn(batch, height, width, channels).half()
    w = torch.randn(size, size, channels, filters).half()
    whole = {"stride": 1, "padding": 0, "dilation": 1, **geometry}
    expected = references.conv2d(x, w, **whole)
    poisoned = torch.full(expected.shape, float("nan"), dtype=torch.float16, device=device)
    kernel(x.to(device), w.to(device), poisoned)
    references.assert_near(poisoned.cpu(), expected, summed(size * size * channels, "float16"))


@pytest.mark.parametrize(("shape", "geometry"), CASES)
def test_on_the_cpu(shape, geometry):
    run("cpu", shape, geometry)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "geometry",
    [
        {},
        {"padding": 1},
        {"padding": 2},
        {"stride": 2},
        {"stride": 2, "padding": 1},
        {"stride": 3, "padding": 2},
        {"dilation": 2},
        {"dilation": 2, "padding": 2},
        {"dilation": 3, "stride": 2, "padding": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("block_K", [64, 48], ids=["rows copied whole", "element by element"])
def test_on_the_device(geometry, block_K):
    """Lines and images end inside of tiles; where tiles divide the channels, Hopper's copy engine makes the windows."""
    tiles = {"block_M": 64, "block_N": 64, "block_K": block_K}
    run("cuda", (3, 19, 23, 64, 72, 3), geometry, **tiles)


@pytest.mark.parametrize("target", ["metax:c500", "ascend:910b3"])
@pytest.mark.parametrize(("shape", "geometry"), [CASES[1]])
def test_in_the_simulators(target, shape, geometry):
    run(target, shape, geometry, simulate=True)


@given(
    height=st.integers(1, 12),
    width=st.integers(1, 12),
    channels=st.sampled_from([1, 5, 32]),
    size=st.integers(1, 4),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 2),
)
@compiling(3)
def test_any_geometry(height, width, channels, size, stride, padding, dilation):
    assume(min(height, width) + 2 * padding > dilation * (size - 1))
    run("cpu", (1, height, width, channels, 24, size), {"stride": stride, "padding": padding, "dilation": dilation})


def test_what_is_tiled_may_be_said_and_must_be_right():
    said = conv2d.rank(16, 56, 56, 64, 128, 3, padding=1, M=16 * 56 * 56, N=128, K=9 * 64, target="cuda:h200")
    assert all(c.tiles["block_N"] <= 128 for c in said.candidates)
    with pytest.raises(core.KernelError, match="there are 50176"):
        conv2d.compile(16, 56, 56, 64, 128, 3, padding=1, M=5, target="cpu", **TILES)


@pytest.mark.parametrize("shape", [(8, 56, 56, 64, 128, 3), (16, 112, 112, 64, 64, 3)])
def test_windows_are_copied_whole_where_they_can_be(shape: Shape):
    """What is gathered is ranked by its instructions, and refused before lowering where its stages have no room."""
    config = conv2d.compile(*shape, target="cuda:h200", build=False).config
    assert shape[3] % config.tiles["block_K"] == 0
    assert config.rejected == ()
    tiles = {"block_M": 256, "block_N": 128, "block_K": 128, "num_stages": 4, "threads": 256}
    (refused,) = conv2d.rank(*shape, target="cuda:h200", **tiles).refused
    assert refused.reason.startswith("394,240 bytes of shared memory, a block may have 232,448: x 4 x 65,536")


def test_what_is_ranked_lowers_where_every_candidate_is_gathered():
    shape = (16, 28, 28, 96, 128, 3)
    for verdict in conv2d.rank(*shape, padding=1, target="cuda:h200").candidates[:3]:
        kernel = conv2d.compile(*shape, padding=1, target="cuda:h200", build=False, **verdict.tiles)
        assert kernel.resources.predicted.memory_bytes["shared"] == verdict.prediction.memory_bytes["shared"]
        ahead = 2 if verdict.tiles["num_stages"] else 1
        assert kernel.resources.predicted.threads == ahead * verdict.tiles["threads"]


@pytest.mark.parametrize(
    ("shape", "first"),
    [
        ((16, 56, 56, 48, 64, 3), (64, 64, 64, 0, 128)),
        ((8, 224, 224, 3, 64, 7), (64, 64, 64, 0, 128)),
        ((16, 56, 56, 64, 64, 3), (256, 64, 64, 4, 256)),
    ],
)
def test_what_is_gathered_has_no_stages_and_what_is_copied_whole_has(shape: Shape, first: tuple[int, ...]):
    geometry = {"stride": 2, "padding": 3} if shape[-1] == 7 else {"padding": 1}
    ranking = conv2d.rank(*shape, **geometry, target="cuda:h200")
    assert tuple(ranking.candidates[0].tiles[name] for name in TILES) == first


@pytest.mark.parametrize("target", ["cuda:h200", "cuda:a100", "metax:c500"])
def test_any_number_of_pixels_has_blocks(target: str):
    """More than 65,535 of the largest tiles, and several columns of blocks for them."""
    shape = (2**14, 64, 64, 48, 600, 1)
    first = conv2d.rank(*shape, target=target).candidates[0]
    assert first.prediction.blocks >= 2**26 // 256 * 2
    source = conv2d.compile(*shape, target=target, build=False, **first.tiles).get_kernel_source()
    assert "blockIdx.y" not in source
