"""The cache stays within its limit, and what goes first is what was used least recently."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from core.compiler.cache import Cache, eviction, session
from core.compiler.cache.settings import DEFAULT_LIMIT_BYTES, format_size, from_environment, parse_size
from core.errors import TileHALError
from tests.compiler.cache_samples import builder, key, lowered_kernel, never

MIB = 2**20


def age(cache: Cache, name: str, hours: float) -> None:
    """Makes the entry look as if it was last used that long ago."""
    (folder,) = [entry.folder for entry in cache.entries() if entry.key == key(name)]
    used = time.time() - hours * 3600
    os.utime(folder / "manifest.json", (used, used))


def store(cache: Cache, name: str, size_bytes: int = MIB) -> None:
    cache.lowered(key(name), lambda: lowered_kernel(name, source="x" * size_bytes))


def names(cache: Cache) -> set[str]:
    return {entry.kernel for entry in cache.entries()}


class TestLimit:
    def test_least_recently_used_goes_first(self, tmp_path):
        filled = Cache(tmp_path)
        for name, hours in (("a", 1), ("b", 4), ("c", 3), ("d", 2)):
            store(filled, name)
            age(filled, name, hours)
        # Four mebibytes and a little: down to 90% of three, two stay.
        Cache(tmp_path, limit_bytes=3 * MIB).maintain()
        assert names(filled) == {"a", "d"}

    def test_a_look_up_is_a_use(self, tmp_path):
        cache = Cache(tmp_path)
        for name, hours in (("a", 9), ("b", 8), ("c", 7)):
            store(cache, name)
            age(cache, name, hours)
        cache.lowered(key("a"), never)
        Cache(tmp_path, limit_bytes=2 * MIB).maintain()
        assert names(cache) == {"a"}

    def test_the_time_of_use_is_written_at_most_hourly(self, tmp_path):
        cache = Cache(tmp_path)
        store(cache, "a", 10)
        for hours, written in ((0.5, False), (1.5, True)):
            age(cache, "a", hours)
            before = cache.entries()[0].used_s
            cache.lowered(key("a"), never)
            assert (cache.entries()[0].used_s != before) is written

    def test_it_happens_by_itself_as_the_cache_grows(self, tmp_path):
        cache = Cache(tmp_path, limit_bytes=4 * MIB)
        for index in range(12):
            store(cache, f"k{index}")
            age(cache, f"k{index}", 12 - index)
        assert sum(cache.stats().size_bytes.values()) <= 4 * MIB
        assert "k11" in names(cache)

    def test_within_the_limit_nothing_goes(self, tmp_path):
        cache = Cache(tmp_path)
        store(cache, "a")
        age(cache, "a", 10_000)
        cache.maintain()
        assert names(cache) == {"a"}

    def test_what_this_process_may_still_load_stays_and_the_limit_gives_way(self, tmp_path):
        cache = Cache(tmp_path, limit_bytes=MIB)
        lowered = lowered_kernel()
        built, _ = cache.built(key("b"), lowered, builder(lowered, bytes(2 * MIB)))
        age(cache, "b", 10)
        store(cache, "c")
        cache.maintain()
        assert {entry.stage for entry in cache.entries()} == {"built"}
        assert built.path("library").stat().st_size == 2 * MIB

    def test_an_entry_that_came_into_use_during_eviction_stays(self, tmp_path, monkeypatch):
        cache = Cache(tmp_path)
        store(cache, "a")
        age(cache, "a", 10)
        real = session.used_by_others

        def used_by_others(*arguments):
            cache.lowered(key("a"), never)  # another process looks it up between the scan and the removal
            return real(*arguments)

        monkeypatch.setattr(session, "used_by_others", used_by_others)
        Cache(tmp_path, limit_bytes=1).maintain()
        assert names(cache) == {"a"}


class TestSweep:
    def test_old_leftovers_of_every_kind_go_and_new_ones_stay(self, tmp_path):
        root = tmp_path / "v1"
        old = time.time() - session.KEEP_S - 10
        kinds = ("sessions/9-{}/1-built", "quarantine/built-{}", "locks/{}.lock", "refused/aa/{}.json")
        for name in ("old", "new"):
            for kind in kinds:
                path = root / kind.format(name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch() if path.suffix else path.mkdir()
        for path in sorted(root.rglob("*old*")):
            os.utime(path, (old, old))
        eviction.sweep(root, None)
        assert not list(root.rglob("*old*"))
        assert len(list(root.rglob("*new*"))) == len(kinds)


class TestSettings:
    @pytest.mark.parametrize(
        ("text", "size_bytes"),
        [("0", 0), ("4096", 4096), ("500MB", 500 * 10**6), (" 4 gib ", 4 * 2**30), ("1.5K", 1500), ("2TiB", 2**41)],
    )
    def test_sizes(self, text, size_bytes):
        assert parse_size(text, "X") == size_bytes

    @pytest.mark.parametrize("text", ["lots", "-1", "4GiBs", "1 2", "iB", "I"])
    def test_what_is_no_size_is_refused_by_name(self, text, monkeypatch):
        monkeypatch.setenv("TILEHAL_CACHE_LIMIT", text)
        with pytest.raises(TileHALError, match=f"TILEHAL_CACHE_LIMIT='{text}' is not a size"):
            from_environment()

    @pytest.mark.parametrize(
        ("text", "enabled"), [("1", False), ("TRUE", False), ("", True), ("0", True), ("no", True)]
    )
    def test_disabling(self, text, enabled, monkeypatch):
        monkeypatch.setenv("TILEHAL_DISABLE_CACHE", text)
        assert from_environment().enabled is enabled

    def test_neither_yes_nor_no_is_refused(self, monkeypatch):
        monkeypatch.setenv("TILEHAL_DISABLE_CACHE", "maybe")
        with pytest.raises(TileHALError, match="neither yes nor no"):
            from_environment()

    def test_defaults(self, monkeypatch, tmp_path):
        for name in ("TILEHAL_CACHE_DIR", "TILEHAL_CACHE_LIMIT", "TILEHAL_DISABLE_CACHE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        settings = from_environment()
        assert (settings.limit_bytes, settings.enabled) == (DEFAULT_LIMIT_BYTES, True)
        assert settings.root.name == "tilehal"

    def test_a_relative_folder_is_meant_from_where_the_process_is_now(self, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("TILEHAL_CACHE_DIR", "here")
        assert from_environment().root == tmp_path / "here"
        monkeypatch.setenv("TILEHAL_CACHE_DIR", "~/there")
        assert from_environment().root == Path.home() / "there"

    @pytest.mark.parametrize(
        ("size_bytes", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (4 * 2**30, "4.0 GiB")]
    )
    def test_sizes_for_people(self, size_bytes, text):
        assert format_size(size_bytes) == text
