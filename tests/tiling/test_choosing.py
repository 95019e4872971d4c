"""Compiling a factory: the ranking is walked until a candidate lowers, and everything that happened is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import tilelang.language as T

import core
from core.compiler.artifacts import LoweredKernel
from core.ops.softmax import softmax
from core.plugins import Manager, hookimpl, local_entry, use_manager
from core.tiling import TileRule, ranking_cache
from tests.plugins.fakes import FakeVendor
from tests.tiling.kernels import product

VALUES = TileRule(
    "acme.values",
    "a few that acme likes",
    values={"M": (64, 128), "N": (64, 128), "K": (32, 64), "stages": (1, 2, 3), "threads": (128, 256)},
)
SHAPE = (1024, 1024, 1024)
CHIP = core.chip("cuda:h200").model_copy(update={"vendor": "acme", "name": "one", "aliases": ()})


class Acme(FakeVendor):
    """The H200's figures under another name. `refuse` is asked about the tiles of what is lowered."""

    def __init__(self) -> None:
        super().__init__("acme", "one")
        self.rules: list[TileRule] = [VALUES]
        self.refuse: Callable[[Mapping[str, int]], Exception | None] = lambda tiles: None
        self.lowered: list[Mapping[str, int]] = []

    @hookimpl
    def tilehal_chips(self):
        return [CHIP]

    @hookimpl
    def tilehal_tile_rules(self, chip, kernel):
        return self.rules

    @hookimpl
    def tilehal_lower(self, chip, program, options):
        launch = program.view.launches[0]
        by_name = {buffer.name: [int(extent.value) for extent in buffer.shape] for buffer in launch.buffers}
        tiles = {"M": by_name["a"][0], "K": by_name["a"][1], "N": by_name["b"][1], "threads": launch.threads[0]}
        self.lowered.append(tiles)
        error = self.refuse(tiles)
        if error is not None:
            raise error
        return LoweredKernel(chip.target, "none", "text", str(tiles), ("main",), program.signature)


@pytest.fixture
def acme(monkeypatch: pytest.MonkeyPatch) -> Iterator[Acme]:
    monkeypatch.setenv("TILEHAL_DISABLE_CACHE", "1")
    ranking_cache.forget()
    vendor = Acme()
    entries = [local_entry("acme", vendor, distribution="tilehal-acme", version="1.0")]
    with use_manager(Manager(entries)):
        yield vendor
    ranking_cache.forget()


def test_the_first_choice_is_compiled_and_everything_about_it_is_said(acme: Acme) -> None:
    ranking = product.rank(*SHAPE, target="acme")
    config = product.compile(*SHAPE, target="acme").config
    assert config.tiles == ranking.candidates[0].tiles
    assert len(acme.lowered) == 1
    assert config.choice is not None
    assert (config.choice.source, config.choice.place) == ("ranking", 1)
    assert (config.choice.ranked, config.choice.refused) == (48, 0)
    assert config.choice.predicted_s == ranking.candidates[0].prediction.seconds
    assert config.choice.bound == ranking.candidates[0].prediction.bound
    assert config.choice.rules == {"acme.values": "a few that acme likes"}
    assert config["block_M"].chosen_by == "rule:acme.values"
    assert config["block_M"].reason == "a few that acme likes"
    assert config.rejected == ()


def test_a_candidate_that_does_not_lower_gives_way_to_the_next_and_is_kept_with_its_reason(acme: Acme) -> None:
    ranking = product.rank(*SHAPE, target="acme")
    worst = ranking.candidates[0].tiles
    acme.refuse = lambda tiles: (
        core.UnsupportedOp(f"no {tiles['M']} x {tiles['N']} here\nsecond line")
        if (tiles["M"], tiles["N"], tiles["K"]) == (worst["block_M"], worst["block_N"], worst["block_K"])
        else None
    )
    config = product.compile(*SHAPE, target="acme").config
    place = config.choice.place
    assert place > 1
    assert config.tiles == ranking.candidates[place - 1].tiles
    assert [dict(r.tiles) for r in config.rejected] == [v.tiles for v in ranking.candidates[: place - 1]]
    assert {r.reason for r in config.rejected} == {f"no {worst['block_M']} x {worst['block_N']} here"}
    assert config.to_json()["choice"]["place"] == place


def test_a_fault_that_every_candidate_shares_is_the_kernels(acme: Acme) -> None:
    acme.refuse = lambda tiles: core.UnsupportedOp(f"no such thing with {tiles['M']}", hint="do without")
    with pytest.raises(core.UnsupportedOp, match="no such thing") as caught:
        product.compile(*SHAPE, target="acme")
    assert caught.value.hint == "do without"
    assert len(acme.lowered) == 8


def test_after_two_alike_failures_the_next_candidate_is_unlike_them(acme: Acme) -> None:
    ranking = product.rank(*SHAPE, target="acme")

    def refuse(tiles):
        return None if (tiles["M"], tiles["K"]) == (64, 32) else core.UnsupportedOp(f"never {tiles['M']}")

    acme.refuse = refuse
    config = product.compile(*SHAPE, target="acme").config
    working = [i for i, v in enumerate(ranking.candidates, 1) if (v.tiles["block_M"], v.tiles["block_K"]) == (64, 32)]
    assert working[0] > 8  # more fail before it than are tried before the kernel is blamed
    assert config.choice.place in working
    assert len(acme.lowered) <= 7
    assert len(config.rejected) == len(acme.lowered) - 1


def test_want_of_room_is_no_reason_to_leave_the_order(acme: Acme) -> None:
    ranking = product.rank(*SHAPE, target="acme")
    acme.refuse = lambda tiles: core.ResourceExceeded("no room") if len(acme.lowered) <= 12 else None
    assert product.compile(*SHAPE, target="acme").config.choice.place == 13
    assert ranking.effort.recalled == ""


def test_a_configuration_the_user_fixed_is_refused_as_it_is(acme: Acme) -> None:
    acme.refuse = lambda tiles: core.UnsupportedOp("not this one")
    tiles = {"block_M": 64, "block_N": 64, "block_K": 32, "num_stages": 2, "threads": 128}
    with pytest.raises(core.UnsupportedOp, match="not this one"):
        product.compile(*SHAPE, target="acme", **tiles)
    assert len(acme.lowered) == 1
    with pytest.raises(core.ResourceExceeded, match="this kernel needs") as caught:
        product.compile(*SHAPE, target="acme", **{**tiles, "block_M": 1024, "block_N": 1024})
    assert "a  " in caught.value.message  # the table of buffers


def test_an_estimate_of_room_does_not_refuse_what_the_user_asked_for(acme: Acme, monkeypatch) -> None:
    from core.tiling import evaluation
    from core.tiling.feasibility import Misfit

    monkeypatch.setattr(evaluation, "misfit", lambda profile, chip, **_: Misfit("too large by estimate", 1))
    tiles = {"block_M": 64, "block_N": 64, "block_K": 32, "num_stages": 2, "threads": 128}
    assert product.rank(*SHAPE, target="acme", **tiles).candidates == ()
    assert product.compile(*SHAPE, target="acme", **tiles).config.tiles == tiles


def test_what_a_rule_forbids_is_refused_to_the_user_too(acme: Acme) -> None:
    acme.rules = [TileRule("acme.law", "x", forbid=lambda kernel, tiles: "wrong results" if tiles["N"] == 80 else None)]
    tiles = {"block_M": 64, "block_N": 80, "block_K": 32, "num_stages": 2, "threads": 128}
    with pytest.raises(core.ResourceExceeded, match=r"allows no tile .*block_N=80.*acme\.law: wrong results"):
        product.compile(*SHAPE, target="acme", **tiles)
    assert product.compile(*SHAPE, target="acme", **{**tiles, "block_N": 64}).config.choice.source == "user"


def test_too_many_blocks_are_named_before_what_rules_leave_out(acme: Acme) -> None:
    wide = TileRule("acme.wide", "x", leave_out=lambda kernel, tiles: "too narrow" if tiles["N"] == 64 else None)
    acme.rules = [wide, VALUES]
    with pytest.raises(
        core.ResourceExceeded, match=r"allows no tile: [\d,]+ blocks along y, a grid may have 65,535;"
    ) as caught:
        product.compile(2**24, 1024, 1024, target="acme")
    assert caught.value.hint.startswith("use larger tiles, another axis, or T.Persistent; `tilehal describe")


def test_smaller_tiles_are_advised_where_a_rule_leaves_none(acme: Acme) -> None:
    acme.rules = [TileRule("acme.law", "x", forbid=lambda kernel, tiles: "no", values=VALUES.values)]
    with pytest.raises(core.ResourceExceeded, match=r"allows no tile: acme\.law: no") as caught:
        product.compile(*SHAPE, target="acme")
    assert caught.value.hint.startswith("give it smaller tiles; `tilehal describe")


def test_the_users_numbers_stay_and_the_rest_is_ranked(acme: Acme) -> None:
    config = product.compile(*SHAPE, target="acme", block_M=48).config
    assert config.tiles["block_M"] == 48
    assert config["block_M"].chosen_by == "user"
    assert config["block_N"].chosen_by == "rule:acme.values"


def test_a_preferred_configuration_that_cannot_be_had_is_told(acme: Acme) -> None:
    big = TileRule("acme.table", "measured", prefer=({"M": 256, "N": 256, "K": 128, "stages": 1, "threads": 4096},))
    acme.rules = [big, VALUES]
    (rejected,) = product.compile(*SHAPE, target="acme").config.rejected
    assert rejected.tiles["threads"] == 4096
    assert rejected.reason == "4096 threads, a block may have 1024"


# -- Tiles that were measured --


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, int]:
    """What a look-up says was measured: the slowest of the candidates, so that the ranking would never take it."""
    from core.tuning.results import lookup
    from core.tuning.results.records import Outcome

    tiles = product.rank(*SHAPE, target="cuda:h200").candidates[-1].tiles
    found = lookup.Tuned(tiles, "store", Outcome(tiles, "ok", median_s=25e-6, predicted_s=30e-6))

    def tuned_tiles(factory, arguments, chip, backend, *, overrides, options, refuse):
        assert (factory, chip.target) == (product, "acme:one")
        assert refuse(tiles) is None
        return None if overrides else found

    monkeypatch.setattr(lookup, "tuned_tiles", tuned_tiles)
    return tiles


def test_what_was_measured_goes_before_what_is_predicted(measured: Mapping[str, int], acme: Acme) -> None:
    config = product.compile(*SHAPE, target="acme").config
    assert config.tiles == measured
    assert {entry.chosen_by for entry in config.values()} == {"tuned:store"}
    assert (config.choice.source, config.choice.predicted_s) == ("tuned:store", 30e-6)
    assert config.choice.reason == "the fastest that was measured: 25 us"
    # Given a number that nobody measured with, the ranking decides.
    assert product.compile(*SHAPE, target="acme", block_M=64).config.choice.source == "ranking"


def test_what_was_measured_and_does_not_compile_any_more_is_told(measured: Mapping[str, int], acme: Acme) -> None:
    acme.refuse = lambda tiles: core.UnsupportedOp("gone") if len(acme.lowered) == 1 else None
    config = product.compile(*SHAPE, target="acme").config
    assert config.choice.source == "ranking"
    assert [(dict(r.tiles), r.reason) for r in config.rejected] == [(measured, "tuned:store: gone")]


# -- Extensions --


def extended(acme: Acme, *rules: TileRule, priority: int = 1) -> Manager:
    @hookimpl
    def tilehal_tile_rules(chip, kernel):
        return list(rules)

    house = SimpleNamespace(tilehal_tile_rules=tilehal_tile_rules, priority=priority)
    return Manager(
        [
            local_entry("acme", acme, distribution="tilehal-acme", version="1.0"),
            local_entry("acme:one", house, role="extension", distribution="house", version="1"),
        ]
    )


def test_an_extensions_table_goes_before_what_the_owners_rules_rank(acme: Acme) -> None:
    table = TileRule(
        "house.table", "measured by us", prefer=({"M": 64, "N": 64, "K": 32, "stages": 1, "threads": 256},)
    )
    with use_manager(extended(acme, table)):
        config = product.compile(*SHAPE, target="acme").config
    assert list(config.tiles.values()) == [64, 64, 32, 1, 256]
    assert {entry.chosen_by for entry in config.values()} == {"rule:house.table"}
    assert config["threads"].reason == "measured by us"


def test_of_two_tables_the_one_of_higher_priority_goes_first(acme: Acme) -> None:
    acme.rules = [TileRule("acme.table", "x", prefer=({"M": 128, "N": 128},)), VALUES]
    table = TileRule("house.table", "x", prefer=({"M": 64, "N": 64},))
    for priority, first in ((1, "house.table"), (-1, "acme.table")):
        ranking_cache.forget()
        with use_manager(extended(acme, table, priority=priority)):
            config = product.compile(*SHAPE, target="acme").config
        assert config["block_M"].chosen_by == f"rule:{first}"


def test_an_extension_replaces_an_owners_rule(acme: Acme) -> None:
    ours = TileRule("house.values", "x", values={"M": (32,), "N": (32,), "K": (16,)}, replaces=("acme.values",))
    with use_manager(extended(acme, ours)):
        ranking = product.rank(*SHAPE, target="acme")
    assert ranking.replaced == {"acme.values": "house.values"}
    assert {v.tiles["block_M"] for v in ranking.candidates} == {32}


# -- Choices --


@core.kernel(out=["B"])
def variants(
    N: int, *, mode: str = core.choice("mode", "plain", "doubled", 3), threads: int = core.threads(), block: int = 64
):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=threads) as bx:
            for i in T.Parallel(block):
                if mode == "doubled":
                    B[bx * block + i] = A[bx * block + i] * 2.0
                else:
                    B[bx * block + i] = A[bx * block + i]

    return main


def test_a_choice_of_the_users_may_be_a_word_and_only_one_there_is() -> None:
    kernel = variants.compile(100, target="cpu", mode="doubled")
    assert kernel.config["mode"].requested == "doubled"
    assert kernel.config["mode"].chosen_by == "user"
    assert "2" in kernel.get_kernel_source()
    assert variants.compile(100, target="cpu").config.tiles["mode"] == "plain"
    assert variants.compile(100, target="cpu", mode=3).config.tiles["mode"] == 3
    with pytest.raises(core.KernelError, match="'double' is not one of 'plain', 'doubled', 3"):
        variants.compile(100, target="cpu", mode="double")
    for value in (True, 1.0, None):
        with pytest.raises(core.KernelError, match="must be an int or a str"):
            variants.compile(100, target="cpu", mode=value)


@pytest.mark.parametrize("fixed", [{"variant": "direct"}, {"variant": "bulk"}, {"variant": "direct", "threads": 256}])
def test_what_goes_with_no_generic_tile_goes_with_the_chips_rules(fixed: dict[str, Any]) -> None:
    """These variants hold rows whole and refuse every generic tile; the operator is read off another."""
    tiles = softmax.compile(4096, 1024, target="cuda:h200", **fixed).config.tiles
    assert tiles["block_N"] == 1024
    assert fixed.items() <= tiles.items()
