"""A disk that does not play along: read-only, full, unreadable, not a folder. Compilation goes on and says so once."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.compiler.artifacts import BuiltKernel
from core.compiler.cache import Cache, CacheWarning, entry, private
from core.errors import BuildFailed
from tests.compiler.cache_samples import builder, finish, key, lowered_kernel, never, start


def compile_two_kernels(cache: Cache) -> list[str]:
    """Lowers and builds two kernels, checks them, and returns what was said."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for name in "ab":
            lowered, _ = cache.lowered(key(name), lowered_kernel)
            built, _ = cache.built(key(name), lowered, builder(lowered))
            assert built.path("library").read_bytes() == b"ELF"
            assert built.toolchain.command == ("g++", "-o", str(built.directory / "kernel.so"))
    assert all(warning.category is CacheWarning for warning in said)
    return [str(warning.message) for warning in said]


class TestUnusableFolder:
    def test_a_folder_below_a_file(self, tmp_path):
        (tmp_path / "file").touch()
        root = tmp_path / "file" / "cache"
        (message,) = compile_two_kernels(Cache(root))
        assert f"compiles without its cache in {root}" in message
        assert "Not a directory" in message
        assert "TILEHAL_CACHE_DIR" in message

    def test_a_file_in_place_of_the_folder(self, tmp_path):
        (tmp_path / "cache").touch()
        assert len(compile_two_kernels(Cache(tmp_path / "cache"))) == 1

    def test_kernels_built_without_the_cache_live_as_long_as_the_process(self, tmp_path):
        (tmp_path / "file").touch()
        script = """
            import warnings
            warnings.simplefilter("ignore")
            cache = Cache(Path(args[0]))
            lowered = lowered_kernel()
            built, hit = cache.built(key("b"), lowered, builder(lowered))
            child = os.fork()
            if child == 0:
                sys.exit(0)  # takes nothing of its parent's away
            os.waitpid(child, 0)
            print(built.directory, hit, built.path("library").read_bytes())
        """
        folder, hit, content = finish(start(script, tmp_path / "file" / "cache")).split()
        assert (hit, content) == ("False", "b'ELF'")
        assert not Path(folder).exists()

    def test_what_a_failed_build_left_outlives_the_process(self, tmp_path):
        (tmp_path / "file").touch()
        script = """
            import tempfile, warnings
            from core.errors import BuildFailed
            warnings.simplefilter("ignore")
            tempfile.tempdir = args[1]

            def make(folder):
                if args[2]:
                    (folder / "kernel.cpp").write_text(args[2])
                raise BuildFailed("refused", details={"source": str(folder / "kernel.cpp")})

            try:
                Cache(Path(args[0])).built(key("b"), lowered_kernel(), make)
            except BuildFailed as error:
                print(error.details["source"])
        """
        temporary = tmp_path / "temporary"
        temporary.mkdir()
        finish(start(script, tmp_path / "file" / "cache", temporary, ""))
        assert list(temporary.iterdir()) == []
        source = Path(finish(start(script, tmp_path / "file" / "cache", temporary, "int x = ;")).strip())
        assert source.read_text() == "int x = ;"
        assert temporary in source.parents

    def test_nowhere_to_build_at_all_is_a_typed_error(self, monkeypatch):
        def refuse(prefix: str) -> str:
            raise OSError(errno.EROFS, "Read-only file system", "/tmp")

        monkeypatch.setattr(private.tempfile, "mkdtemp", refuse)
        with pytest.raises(BuildFailed, match="no folder to build in") as caught:
            private.new_folder()
        assert "TMPDIR" in caught.value.hint


@pytest.fixture
def read_only(monkeypatch) -> None:
    """Makes every call that would change the file system below a folder called `cache` fail as a read-only one does."""

    def guard(name: str) -> None:
        real = getattr(os, name)

        def guarded(path, *args, **kwargs):
            changes = name != "open" or args[0] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if changes and "/cache/" in f"{path}/":
                raise OSError(errno.EROFS, "Read-only file system", str(path))
            return real(path, *args, **kwargs)

        monkeypatch.setattr(os, name, guarded)

    for name in ("mkdir", "open", "rename", "replace", "utime", "unlink"):
        guard(name)


class TestReadOnly:
    def test_what_is_there_is_used_and_the_rest_is_made_without_a_folder_there(self, tmp_path, read_only):
        # Filled before the folder becomes read-only, by another process.
        script = """
            lowered, _ = Cache(Path(args[0])).lowered(key("a"), lowered_kernel)
            Cache(Path(args[0])).built(key("a"), lowered, builder(lowered))
        """
        root = tmp_path / "cache"
        finish(start(script, root))
        cache = Cache(root)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # using it needs no words
            lowered, hit = cache.lowered(key("a"), never)
            assert hit
            assert cache.built(key("a"), lowered, never)[1] is True
        (message,) = compile_two_kernels(cache)
        assert "Read-only file system" in message
        assert len(cache.entries()) == 2

    def test_a_damaged_entry_there_is_not_used(self, tmp_path, request):
        root = tmp_path / "cache"
        Cache(root).lowered(key("a"), lowered_kernel)
        (found,) = Cache(root).entries()
        (found.folder / "source.cpp").write_text("changed")
        request.getfixturevalue("read_only")
        cache = Cache(root)
        with pytest.warns(CacheWarning) as said:
            found = [cache.lowered(key("a"), lowered_kernel) for _ in range(2)]
        assert found == [(lowered_kernel(), False)] * 2
        # Once that it cannot be repaired, once that it is damaged.
        assert ["held a damaged entry" in str(warning.message) for warning in said] == [False, True]


class TestFullDisk:
    @pytest.mark.parametrize("function", ["write_manifest", "publish"])
    def test_a_kernel_that_cannot_be_published_is_used_from_where_it_was_built(self, tmp_path, monkeypatch, function):
        def full(*args: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(entry, function, full)
        cache = Cache(tmp_path / "cache")
        (message,) = compile_two_kernels(cache)
        assert "No space left on device" in message
        assert cache.entries() == []

    @pytest.mark.parametrize(
        "failure",
        [
            OSError(errno.ENOSPC, "No space left on device"),
            OSError(errno.EDQUOT, "Disk quota exceeded"),
            BuildFailed("g++ failed\n    fatal error: kernel.o: No space left on device"),
        ],
    )
    def test_a_build_that_ran_out_of_space_is_repeated_elsewhere(self, tmp_path, failure):
        root = tmp_path / "cache"
        lowered = lowered_kernel()

        def make(folder: Path) -> BuiltKernel:
            if root in folder.parents:
                (folder / "half").touch()
                raise failure
            return builder(lowered)(folder)

        cache = Cache(root)
        with pytest.warns(CacheWarning, match="the disk is full"):
            built, hit = cache.built(key("b"), lowered, make)
        assert (hit, built.path("library").read_bytes()) == (False, b"ELF")
        assert not list(root.rglob("half"))

    def test_another_error_of_the_build_is_not_taken_for_the_disks(self, tmp_path):
        calls = []

        def make(folder: Path) -> BuiltKernel:
            calls.append(folder)
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", "vendor.h")

        with pytest.raises(FileNotFoundError, match=r"vendor\.h"):
            Cache(tmp_path).built(key("b"), lowered_kernel(), make)
        assert len(calls) == 1


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A file system of one mebibyte of its own, where this user may mount one."""
    if shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("needs to mount a tmpfs")
    folder = tmp_path / "cache"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tilehal-test", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


class TestRealSmallDisk:
    def test_full(self, small_disk):
        cache = Cache(small_disk)
        lowered = lowered_kernel()
        big, small = bytes(2_000_000), b"ELF"
        with pytest.warns(CacheWarning, match="the disk is full") as said:
            built, _ = cache.built(key("big"), lowered, builder(lowered, big))
        assert built.path("library").read_bytes() == big
        assert len(said) == 1
        # Nothing of the failure is left behind: there is room for what fits.
        built, _ = cache.built(key("small"), lowered, builder(lowered, small))
        assert small_disk in built.directory.parents
        assert cache.built(key("small"), lowered, never)[1] is True

    def test_full_while_lowering(self, small_disk):
        cache = Cache(small_disk)
        kernel = lowered_kernel(source="x" * 2_000_000)
        with pytest.warns(CacheWarning, match="No space left on device"):
            assert cache.lowered(key("a"), lambda: kernel) == (kernel, False)
        assert cache.lowered(key("b"), lowered_kernel)[1] is False
        assert cache.lowered(key("b"), never)[1] is True

    def test_read_only(self, small_disk):
        script = """
            lowered, _ = Cache(Path(args[0])).lowered(key("a"), lowered_kernel)
            Cache(Path(args[0])).built(key("a"), lowered, builder(lowered))
        """
        finish(start(script, small_disk))
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
        cache = Cache(small_disk)
        (message,) = compile_two_kernels(cache)
        assert "Read-only file system" in message
        assert cache.stats().hits == {"lowered": 1, "built": 1}
