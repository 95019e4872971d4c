"""What a compilation is told: measured tiles where they may be used, and where they come from."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

import core
from core.compiler.artifacts import CompileOptions
from core.compiler.keys import canonical
from core.errors import TuningError, TuningWarning
from core.plugins import DetectedDevice, Manager, hookimpl, local_entry, use_manager
from core.tiling.fingerprint import source_fingerprint
from core.tuning.environment import environment_of
from core.tuning.results.exchange import to_text
from core.tuning.results.keys import options_text
from core.tuning.results.lookup import tuned_tiles, use_tuned
from core.tuning.results.records import Key, Outcome, Result
from core.tuning.results.store import default_store
from tests.plugins.fakes import FakeVendor
from tests.timing import median_s


@core.kernel
def scale(M: int, N: int, *, block: int = core.tile("M", multiple=8), threads: int = core.threads(), dtype="float16"):
    """Never traced: a look-up reads its source."""
    return (M, N, block, threads, dtype)


@pytest.fixture
def vendor():
    """A made-up vendor with a device; `vendor.tables` is what an extension of it ships."""
    owner = FakeVendor("acme", "one", devices=[DetectedDevice("one", 0, "acme: One", driver="570")])
    extension = SimpleNamespace(tables=[])

    @hookimpl
    def tilehal_tuned_tables(chip):
        return extension.tables

    extension.tilehal_tuned_tables = tilehal_tuned_tables
    entries = [
        local_entry("acme", owner, distribution="tilehal-acme", version="1.0"),
        local_entry("acme", extension, role="extension", distribution="acme-tables", version="2.0"),
    ]
    manager = Manager(entries)
    with use_manager(manager):
        backend = manager.backend("acme")
        yield SimpleNamespace(backend=backend, chip=backend.chips()[0], tables=extension.tables)


@pytest.fixture
def ask(vendor):
    def ask(M=1024, N=512, *, dtype="float16", **how):
        arguments = {"M": M, "N": N, "dtype": dtype}
        return tuned_tiles(scale, arguments, vendor.chip, vendor.backend, **how)

    return ask


@pytest.fixture
def measured(vendor):
    """Stores outcomes; returns the result."""

    def store(*blocks, M=1024, N=512, options="", structural=(), store=True, **environment):
        here = environment_of(vendor.chip, vendor.backend)
        key = Key(
            kernel="scale",
            fingerprint=source_fingerprint(scale),
            arguments=canonical({"M": M, "N": N, "dtype": "float16"}),
            dtypes=(),
            chip="acme:one",
            environment=replace(here, **environment),
            options=options,
        )
        outcomes = tuple(Outcome({"block": b, "threads": 128}, "ok", (i + 1) * 1e-3) for i, b in enumerate(blocks))
        result = Result(key, outcomes, structural)
        if store:
            default_store().add([result])
        return result

    return store


def test_nothing_measured_is_nothing_and_makes_no_file(ask):
    assert ask() is None
    assert not default_store().path.exists()


def test_the_fastest_measured_here_is_used(ask, measured):
    measured(64, 32)
    found = ask()
    assert found.tiles == {"block": 64, "threads": 128}
    assert found.chosen_by == "tuned:store"
    assert found.outcome.median_s == 1e-3


def test_failures_alone_are_no_result(ask, measured):
    result = measured(store=False)
    default_store().record(result.key, Outcome({"block": 64, "threads": 128}, "crash"))
    assert ask() is None


def test_what_was_imported_says_from_where(ask, measured):
    result = measured(64, store=False)
    outcome = replace(result.outcomes[0], source="team.json")
    default_store().add([replace(result, outcomes=(outcome,))])
    assert ask().chosen_by == "tuned:import team.json"


class TestAnotherEnvironment:
    def test_is_not_used_unless_the_user_says_so_and_then_says_what_differs(self, ask, measured, monkeypatch):
        measured(64, driver="560")
        assert ask() is None
        with use_tuned("any"):
            assert ask().chosen_by == "tuned:store, driver 560 there, 570 here"
        monkeypatch.setenv("TILEHAL_TUNED", "any")
        assert ask().tiles["block"] == 64

    def test_what_was_measured_here_goes_first_even_when_slower(self, ask, measured):
        measured(64, driver="560")
        measured(16, 32)
        with use_tuned("any"):
            assert ask().chosen_by == "tuned:store"
            assert ask().tiles["block"] == 16

    def test_off_is_off(self, ask, measured):
        measured(64)
        with use_tuned("off"):
            assert ask() is None

    def test_a_misspelt_policy_is_refused(self, ask, measured, monkeypatch):
        monkeypatch.setenv("TILEHAL_TUNED", "all")
        with pytest.raises(TuningError, match="TILEHAL_TUNED='all'"):
            ask()


class TestGivenTiles:
    def test_a_result_is_used_where_its_best_agrees(self, ask, measured):
        measured(64, 32)
        assert ask(overrides={"threads": 128}).tiles == {"block": 64, "threads": 128}
        assert ask(overrides={"block": 64}).tiles == {"block": 64, "threads": 128}
        # 32 was measured and is not the best: what would be best with it, nobody has looked for.
        assert ask(overrides={"block": 32}) is None

    def test_a_search_with_the_same_numbers_given_goes_first(self, ask, measured):
        measured(64)
        measured(32, options=options_text(None, {"block": 32}))
        assert ask(overrides={"block": 32}).tiles["block"] == 32
        assert ask().tiles["block"] == 64

    def test_when_all_are_given_there_is_nothing_to_look_up(self, ask, measured):
        measured(64)
        assert ask(overrides={"block": 64, "threads": 128}) is None


def test_other_compile_options_are_other_results(ask, measured):
    measured(64)
    fast = CompileOptions(fast_math=True)
    assert ask(options=CompileOptions(verbose=True)).tiles["block"] == 64
    assert ask(options=fast) is None
    measured(32, options=options_text(fast, {}))
    assert ask(options=fast).tiles["block"] == 32


class TestNeighbours:
    def test_the_nearest_measured_shape_stands_in_and_is_named(self, ask, measured):
        measured(64, M=1024)
        measured(32, M=2048)
        found = ask(M=1536)
        assert found.tiles["block"] == 32
        assert found.chosen_by == "tuned:store, of M=2048"

    def test_not_beyond_an_octave_nor_for_another_dtype(self, ask, measured):
        measured(64)
        assert ask(M=4096) is None
        assert ask(M=2048, dtype="bfloat16") is None
        assert ask(M=2048).tiles["block"] == 64

    def test_an_argument_of_the_block_moves_half_as_far(self, ask, measured):
        measured(64, N=512, structural=("N",))
        assert ask(N=720) is not None
        assert ask(N=768) is None

    def test_a_tile_that_the_new_shape_cannot_use_gives_way_to_the_next_fastest(self, ask, measured):
        measured(64, 32, 16, M=40)
        assert ask(M=33).tiles["block"] == 64
        assert ask(M=32).tiles["block"] == 32
        assert ask(M=33, refuse=lambda tiles: "too large" if tiles["block"] > 16 else None).tiles["block"] == 16
        assert ask(M=33, refuse=lambda tiles: "never") is None

    def test_the_very_shape_goes_before_any_neighbour(self, ask, measured):
        measured(64, M=1024)
        measured(32, M=1032)
        assert ask(M=1024).chosen_by == "tuned:store"


class TestShippedTables:
    @pytest.fixture
    def ship(self, vendor, tmp_path):
        def ship(*results, name="acme-one.json"):
            path = tmp_path / name
            path.write_text(to_text(results))
            vendor.tables.append(path)

        return ship

    def test_a_table_is_used_and_says_that_its_driver_was_another(self, ask, measured, ship):
        ship(measured(64, store=False, driver="560"))
        assert ask().chosen_by == "tuned:table acme-one.json, driver 560 there, 570 here"

    def test_it_must_be_for_this_tilelang(self, ask, measured, ship):
        ship(measured(64, store=False, tilelang="0.1.14"))
        assert ask() is None

    def test_the_user_s_own_measurement_goes_first_then_the_table_then_a_neighbour(self, ask, measured, ship):
        ship(measured(64, store=False))
        measured(32, M=1032)
        assert ask().chosen_by == "tuned:table acme-one.json"
        measured(16)
        assert ask().chosen_by == "tuned:store"

    def test_its_shapes_have_neighbours_too(self, ask, measured, ship):
        ship(measured(64, store=False))
        assert ask(M=1200).chosen_by == "tuned:table acme-one.json, of M=1024"

    def test_a_file_that_does_not_read_is_left_out_with_a_warning(self, ask, measured, ship, vendor, tmp_path):
        vendor.tables.append(tmp_path / "missing.json")
        ship(measured(64, store=False))
        with pytest.warns(TuningWarning, match=r"missing\.json cannot be read"):
            assert ask().tiles["block"] == 64


def test_a_store_that_cannot_be_read_is_a_warning_and_no_error(ask, tmp_path, monkeypatch):
    path = tmp_path / "broken.sqlite"
    path.write_bytes(b"nothing that is a database" * 100)
    monkeypatch.setenv("TILEHAL_TUNING_STORE", str(path))
    with pytest.warns(TuningWarning, match="compiling without tuned results"):
        assert ask() is None


def test_an_argument_without_a_stable_form_is_never_found(vendor, measured):
    measured(64)
    arguments = {"M": 1024, "N": object(), "dtype": "float16"}
    assert tuned_tiles(scale, arguments, vendor.chip, vendor.backend) is None


@pytest.mark.parametrize("shapes", [0, 200], ids=["an empty store", "200 shapes"])
def test_it_takes_less_than_a_millisecond(ask, measured, shapes):
    for index in range(shapes):
        measured(*range(8, 168, 8), M=1024 + 8 * index)
    ask()
    sizes = iter(range(1024, 1224, 8))
    found = []
    assert median_s(lambda: found.append(ask(M=next(sizes))), 25) < 1e-3
    assert {one is not None for one in found} == {shapes > 0}
