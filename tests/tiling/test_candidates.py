"""The candidate set: what rules, parameters, dimensions and the user make of it, and why the rest is not in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import core
from core.tiling import KernelShape, TileParameter, TileRule, candidates
from core.tiling.candidates import MOST_CONFIGURATIONS, standing

PARAMETERS = {
    "bm": TileParameter("tile", "M", 16, 16, 256),
    "st": TileParameter("stages", None, 1, 0, 4),
    "mode": TileParameter("choice", "mode", choices=("plain", "fast"), by_rule=True),
}


def shape(**dimensions: int) -> KernelShape:
    return KernelShape("k", "gemm", dimensions, ("float16",), PARAMETERS)


def values_of(name: str, found: list[Any]) -> list[Any]:
    return list(dict.fromkeys(candidate.tiles[name] for candidate in found))


def test_candidates_are_the_product_of_the_rules_values_in_their_order() -> None:
    rule = TileRule("r", "x", values={"M": (128, 64), "stages": (3, 2), "mode": ("fast", "plain")})
    accepted, refused = candidates(shape(M=4096), [rule])
    assert [tuple(c.tiles.values()) for c in accepted] == [
        (m, st, mode) for m in (128, 64) for st in (3, 2) for mode in ("fast", "plain")
    ]
    assert set(accepted[0].chosen_by.values()) == {"rule:r"}
    assert refused == []


def test_the_values_of_several_rules_are_joined_and_each_says_whose_it_is() -> None:
    rules = [TileRule("house", "x", values={"M": (96,)}), TileRule("vendor", "x", values={"M": (64, 96)})]
    accepted, _ = candidates(shape(M=4096), rules)
    assert {c.tiles["bm"]: c.chosen_by["bm"] for c in accepted} == {96: "rule:house", 64: "rule:vendor"}


def test_a_key_no_rule_names_gets_generic_values_and_a_choice_by_rule_its_first_option() -> None:
    accepted, _ = candidates(shape(M=4096), [TileRule("r", "x", values={"M": (64,), "unknown": (1, 2)})])
    assert values_of("st", accepted) == [2, 1, 0]
    assert values_of("mode", accepted) == ["plain"]
    assert {c.chosen_by["mode"] for c in accepted} == {"default"}


def test_every_option_of_a_choice_no_rule_names_is_a_candidate_the_first_before_the_others() -> None:
    free = {"bm": PARAMETERS["bm"], "way": core.choice("way", "plain", "fast", 3)}
    accepted, _ = candidates(KernelShape("k", "gemm", {"M": 4096}, (), free), [TileRule("r", "x", values={"M": (64,)})])
    assert [(c.tiles["bm"], c.tiles["way"]) for c in accepted] == [(64, "plain"), (64, "fast"), (64, 3)]
    assert {c.chosen_by["way"] for c in accepted} == {"default"}
    named, _ = candidates(
        KernelShape("k", "gemm", {"M": 4096}, (), free), [TileRule("r", "x", values={"M": (64,), "way": ("fast",)})]
    )
    assert values_of("way", named) == ["fast"]


def test_a_reduction_may_hold_a_dimension_whole_where_no_rule_says_anything() -> None:
    free = {"bn": TileParameter("tile", "N")}
    for operator, largest in (("reduction", 4096), ("elementwise", 128)):
        accepted, _ = candidates(KernelShape("k", operator, {"N": 3000}, (), free), [])
        assert max(values_of("bn", accepted)) == largest


def test_a_value_the_parameter_does_not_allow_is_refused_once_with_the_reason() -> None:
    rule = TileRule("r", "x", values={"M": (24, 512, 64), "stages": (2, 9), "mode": ("slow", "fast")})
    accepted, refused = candidates(shape(M=4096), [rule])
    assert [tuple(c.tiles.values()) for c in accepted] == [(64, 2, "fast")]
    assert {next(iter(v.tiles.items())): v.reason for v in refused} == {
        ("bm", 24): "bm: 24 is not a multiple of 16",
        ("bm", 512): "bm: 512 is above the maximum 256",
        ("st", 9): "st: 9 is above the maximum 4",
        ("mode", "slow"): "mode: 'slow' is not one of 'plain', 'fast'",
    }
    assert all(v.rules == ("r",) and v.status == "refused" for v in refused)


def test_where_none_of_the_values_is_allowed_the_nearest_that_is_stands_for_them() -> None:
    accepted, refused = candidates(shape(M=4096), [TileRule("r", "x", values={"M": (500, 1000)})])
    assert values_of("bm", accepted) == [256]
    assert accepted[0].chosen_by["bm"] == "default"
    assert [v.tiles for v in refused] == [{"bm": 500}, {"bm": 1000}]


def test_tiles_larger_than_the_smallest_that_covers_the_dimension_are_dropped() -> None:
    accepted, refused = candidates(shape(M=100), [TileRule("r", "x", values={"M": (32, 64, 128, 256)})])
    assert values_of("bm", accepted) == [32, 64, 128]
    assert [(v.tiles, v.reason) for v in refused] == [({"bm": 256}, "bm: M=100 is covered by 128")]


def test_a_dimension_much_smaller_than_every_value_also_gets_the_least_tile_that_covers_it() -> None:
    accepted, _ = candidates(shape(M=1), [TileRule("r", "x", values={"M": (64, 128)})])
    assert {c.tiles["bm"]: c.chosen_by["bm"] for c in accepted} == {64: "rule:r", 16: "default"}


def test_the_users_number_is_the_only_value_whatever_rules_say() -> None:
    rule = TileRule("r", "x", values={"M": (64,)}, prefer=({"M": 128, "stages": 1},))
    accepted, _ = candidates(shape(M=16), [rule], {"bm": 48})
    assert values_of("bm", accepted) == [48]
    assert {c.chosen_by["bm"] for c in accepted} == {"user"}
    assert accepted[0].tiles["st"] == 1


def test_preferred_configurations_come_first_in_the_rules_order_and_leave_the_rest_open() -> None:
    rules = [
        TileRule("house", "x", prefer=({"M": 32},)),
        TileRule("vendor", "x", values={"M": (64,), "stages": (3, 4)}, prefer=({"M": 128, "stages": 2},)),
    ]
    accepted, _ = candidates(shape(M=4096), rules)
    assert [(c.tiles["bm"], c.tiles["st"], c.preferred) for c in accepted] == [
        (32, 3, 0),
        (32, 4, 0),
        (128, 2, 1),
        (64, 3, None),
        (64, 4, None),
    ]
    assert accepted[0].chosen_by == {"bm": "rule:house", "st": "rule:vendor", "mode": "default"}
    assert accepted[0].rules == ("house", "vendor")


def test_a_preferred_tile_is_cut_to_what_the_dimension_needs_and_the_parameter_allows() -> None:
    rule = TileRule("r", "x", prefer=({"M": 4096, "stages": 9},))
    first = candidates(shape(M=100), [rule])[0][0]
    assert (first.tiles["bm"], first.tiles["st"]) == (128, 4)


def test_generic_values_follow_what_a_rule_prefers() -> None:
    accepted, _ = candidates(shape(M=4096), [TileRule("r", "x", prefer=({"M": 96, "stages": 3},))])
    assert [(c.tiles["bm"], c.tiles["st"]) for c in accepted[:3]] == [(96, 3), (64, 2), (64, 1)]
    assert accepted[1].chosen_by == {"bm": "default", "st": "default", "mode": "default"}


def test_no_configuration_is_there_twice() -> None:
    rule = TileRule("r", "x", values={"M": (64, 32)}, prefer=({"M": 64}, {"M": 64, "stages": 2}))
    accepted, _ = candidates(shape(M=4096), [rule])
    assert len({tuple(c.tiles.values()) for c in accepted}) == len(accepted) == 6


def test_what_a_rule_forbids_is_refused_with_its_name_and_reason() -> None:
    def odd(kernel: KernelShape, tiles: Mapping[str, Any]) -> str | None:
        return f"{tiles['M']} rows at {kernel.dimensions['M']}" if tiles["M"] == 64 else None

    rules = [TileRule("values", "x", values={"M": (64, 128)}), TileRule("law", "x", forbid=odd)]
    accepted, refused = candidates(shape(M=4096), rules, {"st": 2, "mode": "plain"})
    assert values_of("bm", accepted) == [128]
    assert [(v.tiles, v.reason, v.rules) for v in refused] == [
        ({"bm": 64, "st": 2, "mode": "plain"}, "law: 64 rows at 4096", ("values", "law"))
    ]


def test_a_rule_that_raises_is_named() -> None:
    rule = TileRule("broken", "x", forbid=lambda kernel, tiles: tiles["Q"])  # type: ignore[return-value]
    with pytest.raises(core.BackendHookError, match=r"tile rule broken .* `forbid` raised KeyError: 'Q'"):
        candidates(shape(M=16), [rule])


def test_a_replaced_rule_takes_no_part() -> None:
    house = TileRule("house", "x", values={"M": (32,)}, replaces=("vendor", "absent"))
    vendor = TileRule("vendor", "x", values={"M": (64,)}, forbid=lambda kernel, tiles: "never")
    accepted, _ = candidates(shape(M=4096), [house, vendor])
    assert values_of("bm", accepted) == [32]
    assert standing([house, vendor]) == ([house], {"vendor": "house"})
    # A rule of lower priority replaces nothing above it.
    assert standing([vendor, house]) == ([vendor, house], {})


def test_more_configurations_than_can_be_looked_at_lose_the_last_values_and_it_is_said() -> None:
    parameters = {name: TileParameter("choice", name, choices=tuple(range(40))) for name in "abc"}
    large = KernelShape("k", "gemm", {}, (), parameters)
    rule = TileRule("r", "x", values={name: tuple(range(40)) for name in "abc"})
    accepted, refused = candidates(large, [rule])
    assert MOST_CONFIGURATIONS / 2 < len(accepted) <= MOST_CONFIGURATIONS
    assert accepted[0].tiles == {"a": 0, "b": 0, "c": 0}
    assert {v.reason for v in refused} == {
        f"{name}: more than {MOST_CONFIGURATIONS} configurations: the last values go" for name in "abc"
    }


def test_what_a_rule_leaves_out_is_not_considered_unless_nothing_else_is_there() -> None:
    def leave_out(kernel: KernelShape, tiles: Mapping[str, Any]) -> str | None:
        return "large tiles are for other shapes" if tiles["M"] > 64 else None

    rule = TileRule("r", "x", values={"M": (128, 64), "stages": (2,)}, leave_out=leave_out)
    accepted, refused = candidates(shape(M=4096), [rule])
    assert values_of("bm", accepted) == [64]
    assert [v.reason for v in refused] == ["r: left out: large tiles are for other shapes"]
    # The user's own number, and what a rule asks for by name, are considered all the same.
    assert values_of("bm", candidates(shape(M=4096), [rule], {"bm": 128})[0]) == [128]
    table = TileRule("table", "x", prefer=({"M": 128},))
    assert values_of("bm", candidates(shape(M=4096), [table, rule])[0]) == [128, 64]
