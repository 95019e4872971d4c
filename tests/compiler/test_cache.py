"""The cache of compiled kernels: what is found again, what is checked, and what is never used."""

from __future__ import annotations

import json
import os
import time
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from core.compiler import cache as cache_package
from core.compiler import serialize
from core.compiler.artifacts import BuiltKernel
from core.compiler.cache import Cache, CacheWarning
from core.errors import BackendHookError
from tests.compiler.cache_samples import builder, key, lowered_kernel, never
from tests.timing import median_s


@pytest.fixture
def cache(tmp_path) -> Cache:
    return Cache(tmp_path / "cache")


def entry_folder(cache: Cache, stage: str) -> Path:
    (found,) = [entry.folder for entry in cache.entries() if entry.stage == stage]
    return found


class TestLowered:
    def test_a_kernel_comes_back_equal_without_being_made_again(self, cache):
        made, hit = cache.lowered(key("a"), lowered_kernel)
        assert (made, hit) == (lowered_kernel(), False)
        for reader in (cache, Cache(cache.root)):
            assert reader.lowered(key("a"), never) == (lowered_kernel(), True)

    def test_the_first_result_is_already_what_later_ones_will_be(self, cache):
        kernel = replace(lowered_kernel(), metadata={"pair": (1, 2)})
        made, _ = cache.lowered(key("a"), lambda: kernel)
        again, _ = cache.lowered(key("a"), never)
        assert made == again
        assert made.metadata == {"pair": [1, 2]}

    def test_keys_do_not_see_each_other(self, cache):
        cache.lowered(key("a"), lambda: lowered_kernel("one"))
        made, hit = cache.lowered(key("b"), lambda: lowered_kernel("two"))
        assert (made.signature.name, hit) == ("two", False)

    def test_metadata_that_another_process_could_not_read_is_refused_by_name(self, cache):
        kernel = replace(lowered_kernel(), metadata={"where": Path("x")})
        with pytest.raises(BackendHookError, match=r"LoweredKernel\.metadata\['where'\] holds a pathlib\.\w*Path"):
            cache.lowered(key("a"), lambda: kernel)
        assert cache.entries() == []

    def test_what_make_raises_reaches_the_caller_and_nothing_is_stored(self, cache):
        with pytest.raises(ZeroDivisionError):
            cache.lowered(key("a"), lambda: 1 // 0)
        assert cache.entries() == []
        assert cache.lowered(key("a"), lowered_kernel)[1] is False

    @pytest.mark.parametrize("bad", ["", "abc", "../" * 8, key("a").upper(), key("a")[:63] + "/"])
    def test_what_is_no_key_is_refused(self, cache, bad):
        with pytest.raises(ValueError, match="is not a cache key"):
            cache.lowered(bad, never)


class TestBuilt:
    def test_files_move_to_their_place_and_come_back(self, cache):
        lowered = lowered_kernel()
        built, hit = cache.built(key("b"), lowered, builder(lowered))
        assert hit is False
        assert built.directory == entry_folder(cache, "built")
        assert built.path("library").read_bytes() == b"ELF"
        assert (built.directory / "src" / "kernel.cpp").read_text() == lowered.source
        assert Cache(cache.root).built(key("b"), lowered, never) == (built, True)

    def test_the_command_is_told_as_it_can_be_run_again(self, cache):
        lowered = lowered_kernel()
        built, _ = cache.built(key("b"), lowered, builder(lowered))
        assert built.toolchain.command == ("g++", "-o", str(built.directory / "kernel.so"))

    def test_a_binary_of_other_source_is_not_used_even_under_the_same_key(self, cache):
        first, second = lowered_kernel(source="int a;"), lowered_kernel(source="int b;")
        cache.built(key("b"), first, builder(first, b"1"))
        built, hit = cache.built(key("b"), second, builder(second, b"2"))
        assert (hit, built.lowered, built.path("library").read_bytes()) == (False, second, b"2")

    def test_links_in_the_folder_become_files(self, cache, tmp_path):
        (tmp_path / "elsewhere").write_bytes(b"linked")
        lowered = lowered_kernel()

        def make(folder: Path) -> BuiltKernel:
            built = builder(lowered)(folder)
            (folder / "device.bin").symlink_to(tmp_path / "elsewhere")
            return replace(built, files={"library": "kernel.so"})

        built, _ = cache.built(key("b"), lowered, make)
        (tmp_path / "elsewhere").unlink()
        assert (built.directory / "device.bin").read_bytes() == b"linked"

    def test_a_file_the_hook_did_not_leave_is_its_fault(self, cache):
        lowered = lowered_kernel()
        for name in ("missing.so", "../../outside"):
            with pytest.raises(BackendHookError, match=r"names .* as its library, but left no such file"):
                cache.built(key("b"), lowered, lambda d, n=name: replace(builder(lowered)(d), files={"library": n}))

    def test_a_kernel_of_other_source_is_the_hooks_fault(self, cache):
        with pytest.raises(BackendHookError, match="made from other source"):
            cache.built(key("b"), lowered_kernel(), builder(lowered_kernel(source="int other;")))


class TestFolder:
    def test_any_files_can_be_kept_by_key(self, cache):
        folder, hit = cache.folder(key("f"), lambda d: (d / "sim.so").write_bytes(b"S"), label="softmax simulator")
        assert (hit, (folder / "sim.so").read_bytes()) == (False, b"S")
        assert cache.folder(key("f"), never) == (folder, True)
        assert cache.entries()[0].kernel == "softmax simulator"


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


class TestDamage:
    @pytest.mark.parametrize("harm", [truncate, flip, Path.unlink])
    @pytest.mark.parametrize("name", ["manifest.json", "kernel.json", "source.cpp", "attachments/1"])
    def test_a_damaged_lowered_kernel_is_set_aside_and_made_again(self, cache, name, harm):
        cache.lowered(key("a"), lowered_kernel)
        folder = entry_folder(cache, "lowered")
        harm(folder / name)
        if name == "manifest.json" and harm is flip:
            # Wherever the flipped bit fell: either the manifest tells, or a file no longer fits it.
            (folder / name).write_text((folder / name).read_text().replace(key("a"), key("b")))
        with pytest.warns(CacheWarning, match=f"damaged entry.*{folder}") as caught:
            made, hit = Cache(cache.root).lowered(key("a"), lowered_kernel)
        assert (made, hit, len(caught)) == (lowered_kernel(), False, 1)
        assert cache.lowered(key("a"), never) == (lowered_kernel(), True)
        (aside,) = (cache.root / "v1" / "quarantine").iterdir()
        assert aside.name.startswith(f"lowered-{key('a')}")

    @pytest.mark.parametrize("harm", [truncate, flip, Path.unlink])
    @pytest.mark.parametrize("name", ["built.json", "kernel.so", "src/kernel.cpp"])
    def test_a_damaged_built_kernel_is_set_aside_and_made_again(self, cache, name, harm):
        lowered = lowered_kernel()
        cache.built(key("b"), lowered, builder(lowered))
        cache.built(key("b"), lowered, never)  # checked once: what was checked is not believed after a change
        harm(entry_folder(cache, "built") / name)
        with pytest.warns(CacheWarning, match="damaged entry"):
            built, hit = cache.built(key("b"), lowered, builder(lowered))
        assert (hit, built.path("library").read_bytes()) == (False, b"ELF")
        assert cache.stats().damaged == 1

    def test_verify_finds_a_change_that_keeps_size_and_time(self, cache):
        lowered = lowered_kernel()
        built, _ = cache.built(key("b"), lowered, builder(lowered))
        cache.built(key("b"), lowered, never)
        path = built.path("library")
        times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
        path.write_bytes(b"XLF")
        os.utime(path, ns=times)
        (damaged,) = cache.verify()
        assert (damaged.key, damaged.damaged) == (key("b"), "the contents of kernel.so changed")

    def test_an_entry_copied_to_another_key_is_not_believed(self, cache):
        cache.lowered(key("a"), lowered_kernel)
        folder = entry_folder(cache, "lowered")
        target = cache.root / "v1" / "lowered" / key("b")[:2] / key("b")
        target.parent.mkdir(parents=True)
        folder.rename(target)
        with pytest.warns(CacheWarning, match="belongs to another key"):
            assert cache.lowered(key("b"), lowered_kernel)[1] is False

    def test_a_record_of_another_schema_is_a_miss_without_a_word(self, cache, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(serialize, "SCHEMA", 999)
            cache.lowered(key("a"), lowered_kernel)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert cache.lowered(key("a"), lowered_kernel)[1] is False
            assert cache.lowered(key("a"), never)[1] is True

    def test_sound_entries_verify(self, cache):
        lowered, _ = cache.lowered(key("a"), lowered_kernel)
        cache.built(key("b"), lowered, builder(lowered))
        assert cache.verify() == []


class TestSpeed:
    def test_a_hit_takes_under_five_milliseconds(self, cache):
        lowered = lowered_kernel(source="x = 1;\n" * 10_000)
        cache.lowered(key("a"), lambda: lowered)
        cache.built(key("b"), lowered, builder(lowered, bytes(1_000_000)))

        def hit():
            found, _ = cache.lowered(key("a"), never)
            cache.built(key("b"), found, never)

        assert median_s(hit, 9) < 0.005


class TestInspection:
    def test_entries_say_what_they_are(self, cache):
        lowered, _ = cache.lowered(key("a"), lowered_kernel)
        built, _ = cache.built(key("b"), lowered, builder(lowered))
        entries = {entry.stage: entry for entry in cache.entries()}
        assert set(entries) == {"lowered", "built"}
        found = entries["built"]
        assert (found.kernel, found.target, found.route, found.detail) == ("softmax", "cpu:here", "cpp", "g++ 12.2")
        assert found.folder == built.directory
        assert found.size_bytes == sum(p.stat().st_size for p in built.directory.rglob("*") if p.is_file())
        assert abs(found.created_s - time.time()) < 60
        assert json.loads(json.dumps(found.to_json()))["stage"] == "built"

    def test_stats_count_entries_bytes_hits_and_misses(self, cache):
        cache.lowered(key("a"), lowered_kernel)
        cache.lowered(key("a"), never)
        cache.lowered(key("b"), lowered_kernel)
        stats = cache.stats()
        assert (stats.hits, stats.misses) == ({"lowered": 1}, {"lowered": 2})
        assert stats.entries == {"lowered": 2, "built": 0, "files": 0}
        assert stats.size_bytes["lowered"] == sum(entry.size_bytes for entry in cache.entries())

    def test_clear_takes_what_fits_every_condition(self, cache):
        for name, target in (("a", "cuda:h200"), ("b", "cuda:a100"), ("c", "cpu:here")):
            cache.lowered(key(name), lambda t=target: lowered_kernel(target=t))
        assert cache.clear(target="cuda", older_than_s=3600).entries == 0
        assert cache.clear(target="cuda:h200").entries == 1
        assert cache.clear(target="cud").entries == 0
        assert cache.clear(target="cuda").entries == 1
        assert cache.clear(keys=[key("a")]).entries == 0
        assert [entry.target for entry in cache.entries()] == ["cpu:here"]
        cleared = cache.clear()
        assert (cleared.entries, cleared.in_use, cache.entries()) == (1, 0, [])
        assert cleared.size_bytes > 0

    def test_clear_leaves_what_is_in_use_unless_forced(self, cache):
        lowered = lowered_kernel()
        built, _ = cache.built(key("b"), lowered, builder(lowered))
        assert cache.clear().in_use == 1
        assert built.path("library").exists()
        assert cache.clear(force=True).entries == 1
        assert not built.directory.exists()


class TestDefault:
    def test_the_environment_decides(self, tmp_path, monkeypatch):
        monkeypatch.setenv("TILEHAL_CACHE_DIR", str(tmp_path / "one"))
        monkeypatch.setenv("TILEHAL_CACHE_LIMIT", "20 MiB")
        monkeypatch.delenv("TILEHAL_DISABLE_CACHE", raising=False)
        first = cache_package.default()
        assert (first.root, first.limit_bytes, first.enabled) == (tmp_path / "one", 20 * 2**20, True)
        assert cache_package.default() is first
        monkeypatch.setenv("TILEHAL_DISABLE_CACHE", "1")
        assert cache_package.default().enabled is False

    def test_disabled_reads_and_writes_nothing(self, tmp_path):
        Cache(tmp_path).lowered(key("a"), lowered_kernel)
        before = sorted(tmp_path.rglob("*"))
        off = Cache(tmp_path, enabled=False)
        lowered = lowered_kernel()
        assert [off.lowered(key("a"), lowered_kernel)[1] for _ in range(2)] == [False, False]
        built, hit = off.built(key("b"), lowered, builder(lowered))
        assert (hit, built.path("library").read_bytes()) == (False, b"ELF")
        assert tmp_path not in built.directory.parents
        assert sorted(tmp_path.rglob("*")) == before
