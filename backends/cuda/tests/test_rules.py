"""Tile rules: what is considered for which operator, and what no kernel on the chip may have."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pytest

import core
from backends.cuda.rules import pipelines, tile_rules
from backends.cuda.rules.instructions import instruction_width, refused, shares
from core.ops.attention import attention
from core.ops.conv2d import conv2d
from core.ops.gemm import gemm
from core.ops.mla import mla_decode
from core.tiling import Candidate, KernelShape, MatrixProduct, TileParameter, Tiles, Verdict, candidates

import tilelang.language as T  # isort: skip

GEMM = {
    "block_M": TileParameter("tile", "M", 16, 16),
    "block_N": TileParameter("tile", "N", 8, 8),
    "block_K": TileParameter("tile", "K", 16, 16),
    "stages": TileParameter("stages"),
    "threads": TileParameter("threads"),
}
ROWS = {
    "block_M": TileParameter("tile", "M"),
    "block_N": TileParameter("tile", "N"),
    "threads": TileParameter("threads"),
}
ROWS_IN_VARIANTS = {
    **ROWS,
    "variant": TileParameter("choice", "variant", choices=("staged", "direct", "bulk")),
    "workers": TileParameter("workers", minimum=0),
    "buffers": TileParameter("buffers", minimum=1),
}
LARGE = {"M": 8192, "N": 8192, "K": 8192}
H200 = core.chip("cuda:h200")


def found(
    operator: str,
    dimensions: Mapping[str, int],
    overrides: Mapping[str, Any] | None = None,
    target: str = "cuda:h200",
    dtype: str = "float16",
    parameters: Mapping[str, TileParameter] | None = None,
) -> tuple[list[Candidate], list[Verdict]]:
    shape = KernelShape("kernel", operator, dimensions, (dtype, dtype), parameters or GEMM)
    return candidates(shape, tile_rules(core.chip(target), shape), overrides or {})


def values(name: str, accepted: list[Candidate]) -> set[Any]:
    return {candidate.tiles[name] for candidate in accepted}


def test_a_large_product_has_a_rich_set_and_it_is_named_who_proposed_it() -> None:
    accepted, refusals = found("gemm", LARGE)
    assert 80 <= len(accepted) <= 200
    assert len(accepted) + len(refusals) <= 400
    assert {128 * 256, 128 * 128} <= {c.tiles["block_M"] * c.tiles["block_N"] for c in accepted}
    assert set(accepted[0].chosen_by.values()) == {"rule:cuda.matrix-tile"}


def test_a_small_grid_gets_smaller_tiles_and_a_few_rows_small_ones() -> None:
    assert min(values("block_M", found("gemm", LARGE)[0])) == 64
    assert max(values("block_M", found("gemm", {"M": 512, "N": 512, "K": 512})[0])) == 128
    assert min(values("block_N", found("gemm", {"M": 512, "N": 512, "K": 512})[0])) == 32
    assert values("block_M", found("gemm", {"M": 1, "N": 4096, "K": 4096})[0]) == {16}


@pytest.mark.parametrize(("dtype", "depths"), [("float16", {64, 128}), ("float8_e4m3fn", {128, 256})])
def test_the_depth_follows_the_bytes_of_the_operands(dtype: str, depths: set[int]) -> None:
    assert values("block_K", found("gemm", LARGE, dtype=dtype)[0]) == depths


def test_a_long_reduction_with_few_tiles_may_be_split() -> None:
    parameters = {**GEMM, "parts": TileParameter("split", "K", 1, 1)}
    assert values("parts", found("gemm", {"M": 512, "N": 512, "K": 16384}, parameters=parameters)[0]) == {1, 2, 4, 8}
    assert values("parts", found("gemm", LARGE, parameters=parameters)[0]) == {1}


@pytest.mark.parametrize(
    ("shape", "first"),
    [
        # 22.9 us on an H200, where the best plain tile takes 28.8.
        ((512, 512, 16384), {"block_M": 128, "block_N": 128, "block_K": 64, "num_stages": 6, "splits": 6}),
        # 7.9 us, where the best plain tile takes 15.3.
        ((256, 256, 8192), {"block_M": 64, "block_N": 64, "block_K": 128, "num_stages": 6, "splits": 6}),
    ],
)
def test_a_long_k_of_few_tiles_is_shared_within_clusters(shape: tuple[int, int, int], first: Tiles) -> None:
    (best, *_) = gemm.rank(*shape, target="cuda:h200").candidates
    assert {"variant": "split", **first}.items() <= best.tiles.items()


@pytest.mark.parametrize("shape", [(1024, 1024, 8192), (256, 4096, 4096), (64, 512, 16384), (512, 512, 4096)])
def test_other_products_share_nothing(shape: tuple[int, int, int]) -> None:
    assert {one.tiles["splits"] for one in gemm.rank(*shape, target="cuda:h200").candidates} == {1}


@pytest.mark.parametrize("shape", [(512, 512, 16384), (256, 256, 8192), (256, 512, 8192)])
def test_clusters_that_share_k_have_room_at_once_on_more_than_half_of_the_chip(shape: tuple[int, int, int]) -> None:
    ranked = gemm.rank(*shape, target="cuda:h200", variant="split").candidates
    assert ranked
    for one in ranked:
        clusters, splits = (shape[0] // one.tiles["block_M"]) * (shape[1] // one.tiles["block_N"]), one.tiles["splits"]
        assert one.tiles["threads"] == 2 * one.tiles["block_N"]
        assert 2 * clusters * splits > 132
        # Of 6 blocks the driver of an H200 counts 17, of 8 it counts 15.
        assert clusters <= {1: 132, 2: 66, 4: 29, 6: 17, 8: 13}[splits]
        assert one.prediction is not None
        assert one.prediction.waves == 1


def test_shares_of_k_that_are_left_out_have_their_reason() -> None:
    shape = KernelShape("gemm", "gemm", {"M": 512, "N": 512, "K": 16384}, ("float16", "float16"), gemm.parameters)

    def reasons(chip: core.Chip, **wanted: int) -> set[str]:
        tiles = {"cluster": 1, "block_M": 128, "block_N": 128, "threads": 256, **wanted}
        _, refused = candidates(shape, tile_rules(chip, shape), {"variant": "split"})
        found = [verdict.reason for verdict in refused if tiles.items() <= verdict.tiles.items()]
        return {reason.removeprefix("cuda.variant: left out: ") for reason in found}

    assert reasons(H200, splits=8) == {"16 clusters of 8 do not all run at once: there is room for 12"}
    assert reasons(H200, splits=2) == {"16 clusters of 2 leave half of the 132 units idle"}
    assert reasons(H200, splits=6, threads=128) == {"this variant takes 256 threads, two for each of 128 columns"}
    # A group of 4 units has no room for a cluster of 6, which is not the same as not to know.
    small = core.chip("cuda:h200+units.sm.per_group=4")
    assert reasons(small, splits=6) == {"16 clusters of 6 do not all run at once: there is room for 0"}


def test_more_clusters_than_have_room_take_two_waves() -> None:
    tiles = {"block_M": 128, "block_N": 128, "block_K": 64, "num_stages": 4, "threads": 256, "cluster": 1, "workers": 0}
    times = {}
    for splits in (6, 8):
        given = {**tiles, "splits": splits}
        one = gemm.rank(512, 512, 16384, target="cuda:h200", variant="split", **given).candidates[0]
        assert one.prediction is not None
        times[splits] = one.prediction.waves, one.seconds
    assert [times[6][0], times[8][0]] == [1, 2]
    # Measured on an H200 with 8 shares, where each is shorter: 33.5 us.
    assert times[6][1] < 0.7 * times[8][1]
    assert abs(times[8][1] / 33.5e-6 - 1) < 0.15


@pytest.mark.parametrize(
    "given",
    [
        {"M": 512, "N": 512, "K": 4096},  # not long
        {"M": 1024, "N": 1024, "K": 16384},  # tiles enough
        {"M": 512, "N": 512, "K": 16384, "batch": 16},
        {"M": 16, "N": 4096, "K": 16384},  # lives on the bandwidth of B
    ],
)
def test_k_has_no_shares_worth_trying_elsewhere(given: dict[str, int]) -> None:
    shape = KernelShape("gemm", "gemm", given, ("float16", "float16"), gemm.parameters)
    accepted, _ = candidates(shape, tile_rules(H200, shape), {"variant": "split"})
    assert values("splits", accepted) <= {1}


def test_sums_that_would_not_stay_in_registers_are_left_out_and_can_be_asked_for() -> None:
    tiles = {"block_M": 128, "block_N": 256, "threads": 128}
    accepted, refusals = found("gemm", LARGE)
    assert not any(tiles.items() <= candidate.tiles.items() for candidate in accepted)
    reasons = {v.reason for v in refusals if tiles.items() <= v.tiles.items()}
    assert reasons == {"cuda.matrix-tile: left out: 128 x 256 sums are 256 registers a thread"}
    assert found("gemm", LARGE, tiles)[0]


@pytest.mark.parametrize("threads", [33, 48, 2048])
def test_threads_are_whole_warps_within_the_limit(threads: int) -> None:
    accepted, refusals = found("gemm", {"M": 512, "N": 512, "K": 512}, {"threads": threads})
    assert accepted == []
    assert {verdict.reason.partition(":")[0] for verdict in refusals} == {"cuda.launch"}


def test_threads_that_only_copy_count_towards_the_limit_where_the_compiler_adds_some() -> None:
    reasons = {v.reason for v in found("gemm", LARGE, {"threads": 1024})[1]}
    assert "cuda.launch: 1024 threads and 128 that copy, the chip allows 1024 a block" in reasons
    assert not any("copy" in v.reason for v in found("gemm", LARGE, {"threads": 1024}, "cuda:a100")[1])
    assert not any("copy" in v.reason for v in found("gemm", LARGE, {"threads": 1024, "stages": 0})[1])


def test_an_n_tile_of_8_modulo_16_is_never_chosen_beside_64_rows() -> None:
    accepted, refusals = found("gemm", {"M": 512, "N": 512, "K": 512}, {"block_N": 72, "threads": 32})
    assert values("block_M", accepted) == {32}
    assert any("8 modulo 16" in verdict.reason for verdict in refusals)
    without_warpgroups, _ = found("gemm", {"M": 512, "N": 512, "K": 512}, {"block_N": 72, "threads": 32}, "cuda:a100")
    assert max(values("block_M", without_warpgroups)) >= 64


@pytest.mark.parametrize("operator", ["gemm", "attention", "reduction", "elementwise"])
@pytest.mark.parametrize("target", ["cuda:h200", "cuda:a100", "cuda:rtx4090"])
def test_every_operator_has_a_candidate_for_odd_extents(operator: str, target: str) -> None:
    tiles = found(operator, {"M": 100, "N": 40, "K": 70}, target=target)[0][0].tiles
    assert tiles["block_M"] <= 128
    assert tiles["block_N"] <= 64


@pytest.mark.parametrize(
    ("rows", "length"), [(4096, 4096), (16384, 1024), (4096, 8192), (65536, 512), (1024, 32768), (32768, 256)]
)
def test_rows_give_every_thread_a_few_vectors(rows: int, length: int) -> None:
    accepted, _ = found("reduction", {"M": rows, "N": length}, parameters=ROWS)
    assert 12 <= len(accepted) <= 32
    assert length in values("block_N", accepted)
    for candidate in accepted:
        held = candidate.tiles["block_M"] * candidate.tiles["block_N"] / candidate.tiles["threads"]
        assert held >= 2


def test_whole_rows_stay_in_registers_and_parts_go_through_shared_memory() -> None:
    accepted, _ = found("reduction", {"M": 1024, "N": 32768}, parameters=ROWS_IN_VARIANTS)
    assert {(c.tiles["variant"], c.tiles["block_N"] >= 32768) for c in accepted} == {
        ("direct", True),
        ("staged", False),
    }
    assert values("workers", accepted) == {0}
    assert values("buffers", accepted) == {1}


def test_blocks_that_stay_are_for_who_asks_for_them() -> None:
    accepted, _ = found("reduction", {"M": 4096, "N": 4096}, {"variant": "bulk"}, parameters=ROWS_IN_VARIANTS)
    assert values("workers", accepted) == {132 * 2, 132 * 4, 132 * 8}
    assert values("buffers", accepted) == {2, 3}
    staged, _ = found("reduction", {"M": 4096, "N": 4096}, {"variant": "staged"}, parameters=ROWS_IN_VARIANTS)
    assert values("workers", staged) == {0}


def test_elements_are_at_least_a_vector_for_every_thread() -> None:
    accepted, refusals = found("elementwise", {"M": 4096, "N": 4096}, parameters=ROWS)
    for candidate in accepted:
        assert candidate.tiles["block_M"] * candidate.tiles["block_N"] >= 8 * candidate.tiles["threads"]
    assert any("less than an access of 16 bytes" in verdict.reason for verdict in refusals)
    wide, _ = found("elementwise", {"M": 4096, "N": 4096}, dtype="float32", parameters=ROWS)
    assert len(wide) > len(accepted)


# -- How warps share a product -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("m", "n", "warps", "warpgroups", "policy", "expected"),
    [
        (128, 256, 8, True, 1, (8, 1)),
        (128, 256, 8, True, 0, (4, 2)),
        (64, 256, 8, True, 1, (4, 2)),
        (64, 256, 8, True, 2, (4, 2)),
        (96, 128, 4, True, 1, None),
        (192, 128, 12, True, 1, (12, 1)),
        (128, 128, 12, True, 1, None),
        (96, 128, 4, False, 0, (2, 2)),
        (16, 32, 4, False, 0, (1, 4)),
        (16, 16, 4, False, 0, None),
        (16, 8, 2, False, 2, None),
        (128, 128, 4, False, 0, (2, 2)),
    ],
)
def test_warps_share_a_tile_in_whole_instructions_or_not_at_all(
    m: int, n: int, warps: int, warpgroups: bool, policy: int, expected: tuple[int, int] | None
) -> None:
    assert shares(m, n, warps, warpgroups, policy) == expected


@pytest.mark.parametrize(("columns", "width"), [(256, 256), (160, 160), (320, 160), (96, 96), (24, 8), (40, 8), (8, 8)])
def test_the_width_of_a_warpgroup_instruction(columns: int, width: int) -> None:
    assert instruction_width(columns) == width


def product(m: int, n: int, k: int = 64, dtype: str = "float16", **changes: Any) -> MatrixProduct:
    given: dict[str, Any] = {
        "a_dtype": dtype,
        "b_dtype": dtype,
        "accumulator_dtype": "int32" if dtype == "int8" else "float32",
        "a_scope": "shared",
        "b_scope": "shared",
        "transpose_a": False,
        "transpose_b": False,
        "policy": 1,
        "a_buffer": "a",
        "b_buffer": "b",
        "in_flight": False,
        "loop": 1,
    }
    return MatrixProduct(m, n, k, **{**given, **changes})


@pytest.mark.parametrize(
    ("one", "threads", "launched", "reason"),
    [
        (product(128, 256), 256, 384, None),
        (product(96, 256), 128, 256, "1 warpgroups cannot share a 96 x 256 tile"),
        (product(128, 96, policy=0), 512, 640, "need instructions 8 columns wide"),
        (product(128, 96, policy=0, transpose_b=True), 512, 640, None),
        (product(192, 256), 384, 512, "an instruction 64 x 256 needs 154 registers a thread, 512 threads leave 128"),
        (product(256, 160), 512, 640, "needs 106 registers a thread, 640 threads leave 96"),
        (product(256, 128), 512, 640, None),
        (product(192, 256, accumulator_dtype="float16"), 384, 512, None),
        # Of the operands of warpgroup instructions only 16-bit ones may lie across the reduction.
        (product(96, 256, dtype="int8"), 128, 256, None),
        (product(96, 256, dtype="int8", transpose_b=True), 128, 256, "1 warpgroups cannot share"),
        (product(32, 64, k=48, dtype="int8"), 128, 256, "a product 48 deep, the instruction takes 32 at a time"),
        (product(50, 70, dtype="float32"), 96, 96, None),  # no matrix instruction: loops
    ],
)
def test_products_that_cannot_be_compiled(one: MatrixProduct, threads: int, launched: int, reason: str | None) -> None:
    answer = refused(H200, one, threads, launched)
    assert answer is None if reason is None else reason in str(answer)


def test_a_product_left_in_flight_needs_warpgroup_instructions() -> None:
    across = product(128, 128, dtype="int8", in_flight=True)
    assert "must lie along the reduction (transpose_B)" in str(refused(H200, across, 256, 384))
    along = product(128, 128, dtype="int8", in_flight=True, transpose_b=True)
    assert refused(H200, along, 256, 384) is None
    assert "64 rows" in str(refused(H200, product(32, 128, in_flight=True), 256, 384))


def test_an_operand_that_another_product_made_is_split_along_rows_only() -> None:
    weights = product(64, 128, a_scope="local.fragment")
    assert refused(H200, weights, 128, 256, chained=True) is None
    assert refused(H200, weights, 256, 384) is None
    answer = refused(H200, weights, 256, 384, chained=True)
    assert answer == (
        "8 warps share a 64 x 128 tile along its columns too, and one operand is another product's result, which stays"
        " where its rows are"
    )


# -- Loops and launches ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "causal", "stages", "dim", "refusal"),
    [
        ("cuda:a100", True, 2, 64, "2 stages of copies that are not in bulk, in a loop whose length is no constant"),
        ("cuda:a100", True, 1, 64, None),
        ("cuda:a100", False, 3, 64, None),
        ("cuda:h200", True, 2, 64, None),
        # Rows of 40 bytes, of which 256 are a multiple of 16.
        ("cuda:h200", True, 2, 20, "2 stages of copies that are not in bulk, in a loop whose length is no constant"),
        ("cuda:h200", True, 1, 20, None),
    ],
)
def test_a_pipeline_of_uneven_length_needs_bulk_copies(
    target: str, causal: bool, stages: int, dim: int, refusal: str | None
) -> None:
    """Such a candidate is refused exactly when TileLang refuses the kernel."""
    arguments = {"batch": 1, "heads": 2, "kv_heads": 2, "M": 256, "N": 256, "dim": dim, "causal": causal}
    given = {"block_M": 64, "block_N": 64, "num_stages": stages, "threads": 128}
    ranking = attention.rank(**arguments, **given, target=target)
    if refusal is None:
        assert ranking.candidates
        assert attention.compile(**arguments, **given, target=target, build=False).config.tiles["num_stages"] == stages
        return
    assert not ranking.candidates
    assert any(refusal in verdict.reason for verdict in ranking.refused)
    prim_func = attention(**arguments, **given, variant="pipelined", workers=0)
    with pytest.raises(core.UnsupportedOp, match=refusal) as caught:
        core.compile(prim_func, target=target, build=False)
    assert "num_stages=1" in caught.value.hint
    location = caught.value.location
    assert location is not None
    assert "T.Pipelined" in Path(location.file).read_text().splitlines()[location.line - 1]


@pytest.mark.parametrize(("target", "keys"), [("cuda:a100", 90), ("cuda:h200", "N")])
def test_latent_attention_without_bulk_copies_has_one_stage(target: str, keys: int | str) -> None:
    """Its loop is as long as a sequence, so that nothing else lowers: neither where all fits into shared memory."""
    extent = T.dynamic(keys) if isinstance(keys, str) else keys
    ranking = mla_decode.rank(2, 16, extent, 64, 16, target=target)
    assert {verdict.tiles["num_stages"] for verdict in ranking.candidates} == {1}
    assert mla_decode.compile(2, 16, extent, 64, 16, target=target, build=False).config.tiles["num_stages"] == 1


def symbols(names: str) -> dict[str, Any]:
    return {name: T.dynamic(name) if name in names else 1024 for name in "MNK"}


@pytest.mark.parametrize(
    ("target", "symbolic", "options", "deep"),
    [
        ("cuda:h200", "MNK", {}, False),
        ("cuda:h200", "NK", {}, False),
        ("cuda:h200", "K", {}, True),  # B is copied in bulk, and that is enough
        ("cuda:h200", "MN", {}, True),
        ("cuda:h200", "MNK", {"aligned_rows": True}, True),
        ("cuda:a100", "K", {}, False),
        ("cuda:a100", "MN", {}, True),
    ],
)
def test_products_along_a_symbolic_k_have_the_stages_that_lower(
    target: str, symbolic: str, options: dict[str, bool], deep: bool
) -> None:
    ranking = gemm.rank(**symbols(symbolic), target=target, options=options)
    ranked = [verdict.tiles["num_stages"] for verdict in ranking.candidates]
    assert max(ranked) > 2 if deep else set(ranked) == {2}


def test_strides_that_no_bulk_copy_takes_leave_two_stages() -> None:
    ranking = gemm.rank(M=1024, N=1001, K=T.dynamic("K"), target="cuda:h200")
    assert {verdict.tiles["num_stages"] for verdict in ranking.candidates} == {2}


def test_stages_that_would_not_lower_are_refused_before_lowering(monkeypatch: pytest.MonkeyPatch) -> None:
    tiles = {"block_M": 64, "block_N": 64, "block_K": 32, "threads": 128, "panel": 0, "policy": 0}
    extents = {**symbols("K"), "trans_b": True}
    fixed = {**tiles, "variant": "tiled", "cluster": 1, "workers": 0, "splits": 1}
    deep, deeper = (gemm(**extents, **fixed, num_stages=stages) for stages in (3, 4))
    monkeypatch.setattr("core.codegen.native.lower", None)
    with pytest.raises(core.UnsupportedOp, match="a loop whose length is no constant") as caught:
        core.compile(deep, target="cuda:h200", build=False)
    monkeypatch.undo()
    assert "T.Pipelined" in Path(caught.value.location.file).read_text().splitlines()[caught.value.location.line - 1]
    assert "options={'aligned_rows': True}" in caught.value.hint
    monkeypatch.setattr(pipelines, "check", lambda *_: None)
    with pytest.raises(core.UnsupportedOp, match="waits for a constant number"):  # what TileLang makes of it
        core.compile(deeper, target="cuda:h200", build=False)
    monkeypatch.undo()
    promised = core.compile(deep, target="cuda:h200", build=False, options={"aligned_rows": True})
    assert "tma_load" in promised.get_kernel_source()
    assert core.compile(gemm(**extents, **fixed, num_stages=2), target="cuda:h200", build=False)


def test_stages_of_a_loop_that_copies_nothing_to_shared_memory_may_be_any_number() -> None:
    rows = T.dynamic("rows")

    @T.prim_func
    def main(A: T.Tensor((rows, 64), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            x = T.alloc_fragment((64,), "float32")
            total = T.alloc_fragment((64,), "float32")
            T.clear(total)
            for row in T.Pipelined(rows, num_stages=3):
                T.copy(A[row, 0], x)
                for i in T.Parallel(64):
                    total[i] += x[i]
            T.copy(total, B)

    assert "cp_async" not in core.compile(main, target="cuda:a100", build=False).get_kernel_source()


#: Microseconds of a call on an H200 by batch, heads and keys; the first choice first, by variant, block_N, threads and
#: splits.
#: `scripts/explore_mla.py`, medians of 142 to 194 samples taken in turn with cold caches.
LATENT: dict[tuple[int, int, int], dict[tuple[str, int, int, int], float]] = {
    (64, 16, 8192): {
        ("two_groups_in_turn", 64, 256, 2): 142.73,
        ("two_groups", 64, 256, 2): 142.76,
        ("two_groups_in_turn", 64, 256, 4): 148.41,
        ("two_groups", 64, 256, 4): 148.86,
        ("pipelined", 64, 64, 2): 160.57,
        ("pipelined", 32, 128, 2): 196.57,
    },
    (128, 64, 4096): {
        ("two_groups_in_turn", 64, 256, 1): 148.90,
        ("two_groups", 64, 256, 1): 148.57,
        ("two_groups_in_turn", 64, 256, 2): 173.11,
        ("two_groups", 64, 256, 2): 173.17,
        ("pipelined", 64, 256, 1): 207.35,
        ("pipelined", 32, 256, 1): 305.16,
    },
    (128, 128, 4096): {
        ("two_groups_in_turn", 64, 256, 1): 254.64,
        ("two_groups", 64, 256, 1): 254.97,
        ("two_groups_in_turn", 64, 256, 2): 296.29,
        ("two_groups", 64, 256, 2): 297.52,
        ("pipelined", 64, 256, 1): 390.55,
        ("pipelined", 32, 256, 1): 579.94,
    },
    (1, 64, 65536): {
        ("two_groups_in_turn", 64, 256, 132): 35.48,
        ("two_groups", 64, 256, 132): 35.45,
        ("pipelined", 64, 256, 132): 37.25,
    },
    (8, 64, 8192): {
        ("two_groups_in_turn", 64, 256, 16): 33.25,
        ("two_groups", 64, 256, 16): 33.24,
        ("pipelined", 64, 256, 16): 34.99,
    },
}
#: Times that differ by less are as good as each other, and their order says nothing.
AS_FAST = 1.003


def latent(shape: tuple[int, int, int]) -> dict[tuple[Any, ...], Verdict]:
    """What is ranked with two stages, the first choice first, by what the measured table goes by."""
    names = ("variant", "block_N", "threads", "splits")
    ranked = mla_decode.rank(*shape, target="cuda:h200").candidates
    assert ranked[0].tiles["num_stages"] == 2
    return {tuple(one.tiles[name] for name in names): one for one in ranked if one.tiles["num_stages"] == 2}


@pytest.mark.parametrize("shape", LATENT)
def test_latent_attention_is_ranked_as_it_was_measured(shape: tuple[int, int, int]) -> None:
    ranked, measured = latent(shape), LATENT[shape]
    assert next(iter(ranked)) == next(iter(measured))
    assert [tiles for tiles in ranked if tiles in measured] == list(measured)
    assert all(earlier <= AS_FAST * later for earlier, later in itertools.pairwise(measured.values()))


def test_the_plain_latent_attention_weighs_what_the_model_misses() -> None:
    missed, weights = [], set()
    for shape, measured in LATENT.items():
        tiles = next(iter(measured)), next(tiles for tiles in measured if tiles[0] == "pipelined")
        ranked = latent(shape)
        by_hand, plain = (ranked[one] for one in tiles)
        assert by_hand.prediction is not None
        assert plain.prediction is not None
        weights.add((by_hand.weight, plain.weight))
        if shape[0] > 8:  # of few sequences, launches and shares are what counts
            predicted = plain.prediction.seconds / by_hand.prediction.seconds
            missed.append(measured[tiles[1]] / measured[tiles[0]] / predicted)
    ((of_hand, of_plain),) = weights
    assert of_hand == 1.0
    assert of_plain == pytest.approx(geometric_mean(missed), abs=0.03)


@pytest.mark.parametrize(
    ("shape", "shares"),
    [
        ((64, 16, 8192), {2, 4, 8}),
        ((128, 64, 4096), {1, 2, 4}),
        ((128, 128, 4096), {1, 2}),
        ((1, 64, 65536), {132, 256}),
    ],
)
def test_two_groups_have_one_tile_and_shares_for_every_unit(shape: Any, shares: set[int]) -> None:
    ranked = mla_decode.rank(*shape, target="cuda:h200").candidates
    for variant in ("two_groups", "two_groups_in_turn"):
        found = [candidate.tiles for candidate in ranked if candidate.tiles["variant"] == variant]
        heads = min(64, shape[1])
        tile = {"block_M": heads, "block_N": 64, "num_stages": 2, "threads": 256}
        assert all(tile.items() <= tiles.items() for tiles in found)
        assert {tiles["splits"] for tiles in found} == shares
    # The first has as many shares as give every unit a block, and no more.
    assert shape[0] * -(-shape[1] // 64) * int(ranked[0].tiles["splits"]) in (128, 132, 256)


@pytest.mark.parametrize("shape", [(1, 16, 100), (33, 20, 2048, 256), (200, 128, 8192, 128)], ids=str)
def test_where_hopper_can_two_groups_in_turn_come_first(shape: tuple[int, ...]) -> None:
    assert mla_decode.rank(*shape, target="cuda:h200").candidates[0].tiles["variant"] == "two_groups_in_turn"


@pytest.mark.parametrize(
    ("target", "shape"),
    [("cuda:a100", (64, 64, 4096)), ("cuda:h200", (64, 8, 4096)), ("cuda:h200", (64, 64, 4096, 512, 32))],
)
def test_two_groups_are_for_hopper_and_many_heads(target: str, shape: tuple[int, ...]) -> None:
    variants = {candidate.tiles["variant"] for candidate in mla_decode.rank(*shape, target=target).candidates}
    assert variants == {"pipelined"}


def test_reads_of_several_parts_of_a_tensor_are_no_second_reads() -> None:
    tiles = {"block_M": 64, "block_N": 64, "num_stages": 2, "threads": 256, "variant": "two_groups"}
    for splits in (1, 8):
        (one,) = mla_decode.rank(128, 64, 4096, target="cuda:h200", splits=splits, **tiles).candidates
        assert one.prediction is not None
        cache_bytes = 128 * 4096 * (512 + 64) * 2
        bandwidth = H200.memories[0].bandwidth_bytes_per_s
        assert bandwidth is not None
        assert one.prediction.terms["memory"] > cache_bytes / bandwidth


@pytest.mark.parametrize("target", ["cuda:h200", "cuda:a100"])
def test_kernels_that_gather_are_offered_without_stages(target: str) -> None:
    """Whatever the tiles of the trace that says so: 64 columns of 64 channels are copied whole, 128 are not."""
    for channels in (48, 64):
        ranking = conv2d.rank(16, 28, 28, channels, 128, 3, padding=1, target=target)
        assert ranking.shape.gathers
        assert {0, 2, 3, 4} <= {verdict.tiles["num_stages"] for verdict in (*ranking.candidates, *ranking.refused)}
    plain = gemm.rank(4096, 4096, 4096, target=target)
    assert not plain.shape.gathers
    assert 0 not in {verdict.tiles["num_stages"] for verdict in (*plain.candidates, *plain.refused)}


def test_threads_that_gather_count_towards_what_a_block_may_have() -> None:
    tiles = {"block_M": 320, "block_N": 64, "block_K": 64, "num_stages": 2, "threads": 640}
    (refused,) = conv2d.rank(16, 56, 56, 48, 64, 3, target="cuda:h200", **tiles).refused
    assert refused.reason == "cuda.launch: 640 threads and 640 that copy, the chip allows 1024 a block"
    assert conv2d.rank(16, 56, 56, 64, 64, 3, target="cuda:h200", **tiles).refused == []
