"""Latent-attention decoding by two warpgroups: simulated in many orders, as CUDA source, and on a device."""

import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.conformance.schedules import Deadlock, MissingFence, Race, RegistersInFlight, prepare, run_schedule
from core.errors import KernelError
from core.ops import mla_hopper
from core.ops._attention_steps import in_base_two
from core.ops._mla_launch import Shapes, decode
from core.ops.mla import mla_decode
from tests.conformance.schedules.mutants import first_fault, mutant
from tests.kernels.case import torch_dtype
from tests.ops import references

ROPE = 64
TILE = {"block_M": 64, "block_N": 64, "num_stages": 2, "threads": 256}
#: Heads, lengths of the sequences, rows of a cache, elements of its compressed part, shares of the keys.
Case = tuple[int, list[int], int, int, int]
CASES: list[Case] = [
    (64, [64, 300], 320, 128, 1),  # one tile, and an odd number of them
    (16, [1, 256], 256, 128, 1),  # a single key; fewer heads than rows
    (100, [129], 200, 256, 1),  # two blocks share a cache; the second tile of a pair is cut
    (70, [640, 129], 700, 128, 4),  # shares without keys
]


def attending(shapes: Shapes, make: Any = mla_hopper.two_groups, in_turn: bool = False) -> Any:
    """A PrimFunc of the first launch alone, ready to be simulated."""
    attend = make(shapes, base2=in_base_two(None, shapes.dim + shapes.rope), in_turn=in_turn)
    return prepare(decode(shapes, attend, combined=False))


def tensors(shapes: Shapes, lengths: list[int], device: str = "cpu") -> list[torch.Tensor]:
    """Random inputs, large numbers behind a sequence's end, and outputs of NaN."""
    batch, M, N, dim, rope, _, dtype = shapes
    kind = torch_dtype(dtype)
    sizes = [(batch, M, dim), (batch, M, rope), (batch, N, dim), (batch, N, rope)]
    given = [torch.randn(size, device=device).to(kind) for size in sizes]
    for b, length in enumerate(lengths):
        given[2][b, length:] = 1e4
        given[3][b, length:] = 1e4
    nan = {"fill_value": float("nan"), "device": device}
    outputs = [torch.full((batch, M, dim), dtype=kind, **nan), torch.full((*shapes.kept, dim), **nan)]
    return [*given, torch.tensor(lengths, dtype=torch.int32, device=device), *outputs, torch.full(shapes.kept, **nan)]


#: In base 2, how much above a tile's the scores of the next are: the maximum lags behind the first ones, by up to 8.
CLIMB = [1.0, 1.0, 1.0, 4.0, 2.0, 20.0, -40.0, 45.0, 0.0, 7.9, 0.2, 100.0]


def climb(shapes: Shapes, given: list[torch.Tensor], turns: int = 1) -> None:
    """Gives each tile of keys a level of scores of its own, by one element of the rotated parts."""
    levels = torch.tensor([0.0, *CLIMB * turns]).cumsum(0)
    levels = levels - levels.mean()
    by_key = levels.repeat_interleave(TILE["block_N"])[: shapes.N]
    given[1][:, :, 0] = 16
    given[3][:, : len(by_key), 0] = by_key / (16 * in_base_two(None, shapes.dim + shapes.rope))


def assert_right(shapes: Shapes, given: list[torch.Tensor]) -> None:
    *inputs, output, partial, lse = given
    if shapes.splits > 1:
        assert partial.isfinite().all()
        weights = torch.exp2(lse - lse.amax(0))
        output = (weights[..., None] * partial).sum(0) / weights.sum(0)[..., None]
    expected = references.mla_decode(*inputs)
    references.assert_near(output, expected, references.attention_tolerance(shapes.dtype))


def simulate(case: Case, in_turn: bool, seeds: range, dtype: str = "float16") -> None:
    M, lengths, N, dim, splits = case
    shapes = Shapes(len(lengths), M, N, dim, ROPE, splits, dtype)
    kernel = attending(shapes, in_turn=in_turn)
    for seed in seeds:
        given = tensors(shapes, lengths)
        run_schedule(kernel, given, seed=seed, fences="writers")
        assert_right(shapes, given)


@pytest.mark.parametrize("in_turn", [False, True], ids=["free", "in turn"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_right_in_every_order_tried(case, in_turn):
    simulate(case, in_turn, range(3))


def test_the_cache_of_deepseek_in_bfloat16():
    simulate((64, [200], 256, 512, 1), True, range(1), "bfloat16")


@given(
    M=st.integers(1, 130),
    lengths=st.lists(st.integers(1, 400), min_size=1, max_size=2),
    splits=st.integers(1, 5),
    in_turn=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=5, deadline=None)
def test_any_lengths_in_any_order(M, lengths, splits, in_turn, seed):
    simulate((M, lengths, max(lengths), 128, splits), in_turn, range(seed, seed + 1))


@pytest.mark.parametrize("in_turn", [False, True], ids=["free", "in turn"])
@pytest.mark.parametrize("splits", [1, 2])
def test_scores_that_grow_from_tile_to_tile(in_turn, splits):
    keys = TILE["block_N"] * (len(CLIMB) + 1)
    shapes = Shapes(2, 64, keys, 128, ROPE, splits, "float16")
    given = tensors(shapes, [keys, keys - 100])
    climb(shapes, given)
    run_schedule(attending(shapes, in_turn=in_turn), given, seed=1, fences="writers")
    assert_right(shapes, given)


HOPPER = [
    ("do.release(s.left_empty, 0)", "pass", Deadlock),
    # Its place is given back before it has been read, and with it, in time, that of the first tile's weights.
    (
        "        do.wait_for_output(own)\n        do.release(s.right_empty, 0)\n",
        "        do.release(s.right_empty, 0)\n        do.wait_for_output(own)\n",
        Race,
    ),
    ("T.named_barrier_arrive(_SECOND_FULL, 2 * GROUP)", "pass", Deadlock),
    ("T.sync_threads(_FIRST_FULL, 2 * GROUP)", "pass", Race),
    ("do.wait_for_scores(own, 1)", "do.wait_for_scores(own, 2)", RegistersInFlight),
    # The next second tile is waited for before the place of this one is given back.
    (
        "            do.release(s.right_empty, 1)\n",
        "            do.issue_scores(s, own, 1, p & 1, zero)\n            do.release(s.right_empty, 1)\n",
        Deadlock,
    ),
    ("_SECOND_FULL, _TURN = 12, 13, 14", "_SECOND_FULL, _TURN = 12, 12, 14", (Deadlock, Race)),
    ("T.alloc_barrier([2 * GROUP])", "T.alloc_barrier([GROUP])", Race),
]
STEPS = [
    ("T.mbarrier_wait_parity(empty[stage], parity)", "pass", Race),
    ("T.mbarrier_wait_parity(s.right_full[stage], parity)", "pass", Race),
    ("T.wait_wgmma(products_behind)", "pass", RegistersInFlight),
    ("T.fence_proxy_async()", "pass", MissingFence),
    ("T.mbarrier_wait_parity(s.done[0], 0)", "pass", Race),
]


@pytest.mark.parametrize(("old", "new", "kind"), HOPPER, ids=lambda value: str(value).strip()[:50])
def test_what_the_schedule_lacks_is_missed(tmp_path, old, new, kind):
    changed = mutant("core.ops.mla_hopper", tmp_path, old, new)
    shapes = Shapes(1, 16, 320, 128, ROPE, 1, "float16")
    kernel = attending(shapes, changed.two_groups)
    assert isinstance(first_fault(kernel, lambda: tensors(shapes, [250]), seeds=40, fences="writers"), kind)


@pytest.mark.parametrize(("old", "new", "kind"), STEPS, ids=lambda value: str(value)[:50])
def test_what_a_step_lacks_is_missed(tmp_path, monkeypatch, old, new, kind):
    monkeypatch.setattr(mla_hopper, "steps", mutant("core.ops._mla_steps", tmp_path, old, new).steps)
    shapes = Shapes(1, 16, 320, 128, ROPE, 1, "float16")
    kernel = attending(shapes)
    assert isinstance(first_fault(kernel, lambda: tensors(shapes, [320]), fences="writers"), kind)


@pytest.mark.parametrize(
    ("shape", "changed", "what"),
    [
        ((1, 64, 128), {"block_N": 32}, "tiles of 32 keys"),
        ((1, 64, 128), {"num_stages": 3}, "3 stages"),
        ((1, 64, 128), {"block_M": 32}, "32 heads"),
        ((1, 64, 128, 192), {}, "keys of 192"),
        ((1, 64, 128, 512, 32), {}, "32 rotated elements"),
    ],
)
def test_what_the_schedule_is_not_for_is_refused(shape, changed, what):
    with pytest.raises(KernelError, match=what):
        mla_decode.compile(*shape, target="cuda:h200", variant="two_groups", splits=1, **{**TILE, **changed})


@pytest.fixture(scope="module")
def by_rule():
    """One kernel for what is looked at in its source: TileLang takes a quarter of a minute over it."""
    return mla_decode.compile(2, 16, 640, target="cuda:h200", splits=2, build=False)


def test_who_names_no_tiles_gets_it_in_turn(by_rule):
    config = by_rule.config
    assert (config["variant"].requested, config["variant"].chosen_by) == (
        "two_groups_in_turn",
        "rule:cuda.attention-tile",
    )
    assert config.choice.place == 1
    plain = mla_decode.compile(2, 16, 640, target="cuda:h200", variant="pipelined", build=False).config
    assert plain["variant"].chosen_by == "user"


def test_its_products_are_whole_and_its_buffers_lie_apart(by_rule):
    source = by_rule.get_kernel_source()
    source = source[: source.rindex("__global__")]  # without the launch that combines
    shapes = re.findall(r"tl::wgmma_(ss|rs)<[^>]*?kFloat32, (\d+), (\d+), (\d+),", source)
    assert set(shapes) == {("ss", "64", "64", "16"), ("rs", "64", "64", "16")} | {
        ("ss", "64", "256", "16"),
        ("rs", "64", "256", "16"),
    }
    # What the simulator takes for granted: no memory of one buffer is another's.
    offsets = [int(offset) for offset in re.findall(r"buf_dyn_shmem \+ (\d+)\)", source)]
    sizes = [2 * 64 * 256 * 2] * 3 + [2 * 64 * 64 * 2] + [64 * 64 * 2] * 2 + [4 * 64 * 4]
    assert sorted(offsets) == sorted(sum(sizes[:i]) for i in range(len(sizes)))
    assert by_rule.resources.predicted.dynamic_shared_bytes == sum(sizes)


@pytest.mark.gpu
@pytest.mark.parametrize("variant", ["two_groups", "two_groups_in_turn"])
@pytest.mark.parametrize(
    ("M", "lengths", "N", "splits", "dtype"),
    [
        (64, [64, 65, 128, 1000, 1], 1000, 1, "float16"),
        (128, [4096, 3000], 4096, 1, "bfloat16"),
        (16, [2048, 1, 700], 2048, 8, "float16"),
        (100, [500, 129], 512, 3, "bfloat16"),
        (1, [64 * 40], 64 * 40, 1, "float16"),
        (64, [64 * i + 7 for i in range(1, 140)], 64 * 140, 1, "float16"),
        (64, [65536], 65536, 132, "float16"),
    ],
    ids=str,
)
def test_on_a_device(variant, M, lengths, N, splits, dtype):
    shapes = Shapes(len(lengths), M, N, 512, ROPE, splits, dtype)
    kernel = mla_decode.compile(
        shapes.batch, M, N, dtype=dtype, target="cuda", variant=variant, splits=splits, **{**TILE}
    )
    for _ in range(3):
        given = tensors(shapes, lengths, "cuda")
        kernel(*given)
        expected = references.mla_decode(*given[:5])
        references.assert_near(given[5], expected, references.attention_tolerance(dtype))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_scores_that_grow_from_tile_to_tile_on_a_device(dtype):
    keys = TILE["block_N"] * (2 * len(CLIMB) + 1)
    shapes = Shapes(3, 64, keys, 512, ROPE, 1, dtype)
    tiles = {**TILE, "variant": "two_groups_in_turn", "splits": shapes.splits}
    kernel = mla_decode.compile(3, 64, keys, dtype=dtype, target="cuda", **tiles)
    given = tensors(shapes, [keys, keys - 100, 700], "cuda")
    climb(shapes, given, 2)
    kernel(*given)
    assert_right(shapes, given)
