"""A failure is remembered under the same key, as long as it would fail again."""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import pytest

from core.compiler.cache import Cache, refusals
from core.compiler.toolchain import run_tool
from core.errors import (
    BackendHookError,
    BuildFailed,
    DeviceUnavailable,
    Location,
    ResourceExceeded,
    ShapeMismatch,
    TileHALError,
    ToolchainNotFound,
    UnsupportedOp,
)
from tests.compiler.cache_samples import builder, finish, key, lowered_kernel, never, start


@pytest.fixture
def cache(tmp_path) -> Cache:
    return Cache(tmp_path / "cache")


def failing(error: Exception):
    def make(*_: object):
        raise error

    return make


def age(seconds: float, monkeypatch) -> None:
    now = time.time
    monkeypatch.setattr(refusals.time, "time", lambda: now() + seconds)


class TestLowering:
    @pytest.mark.parametrize("kind", [UnsupportedOp, ShapeMismatch, ResourceExceeded])
    def test_comes_back_as_it_was_without_being_tried_again(self, cache, kind):
        error = kind("no fp8 here", hint="use float16", details={"bytes": 12, "list": [1, None]})
        with pytest.raises(kind):
            cache.lowered(key("a"), failing(error))
        for reader in (cache, Cache(cache.root)):
            with pytest.raises(kind) as caught:
                reader.lowered(key("a"), never)
            again = caught.value
            assert (again.message, again.hint) == (error.message, error.hint)
            assert again.details == {**error.details, "remembered": True}
        assert cache.stats().hits == {"refused": 1}
        assert cache.stats().refusals == 1

    def test_keeps_what_its_cause_said(self, cache):
        def refuse(*_: object):
            raise UnsupportedOp("no int4") from ValueError("Check failed: int4")

        with pytest.raises(UnsupportedOp) as first:
            cache.lowered(key("a"), refuse)
        assert isinstance(first.value.__cause__, ValueError)
        with pytest.raises(UnsupportedOp) as again:
            cache.lowered(key("a"), never)
        assert isinstance(again.value.__cause__, refusals.RememberedCause)
        assert str(again.value.__cause__) == "ValueError: Check failed: int4"

    def test_another_key_is_tried(self, cache):
        with pytest.raises(UnsupportedOp):
            cache.lowered(key("a"), failing(UnsupportedOp("no")))
        assert cache.lowered(key("b"), lowered_kernel)[1] is False

    def test_is_seen_by_other_processes(self, cache):
        with pytest.raises(UnsupportedOp):
            cache.lowered(key("a"), failing(UnsupportedOp("no fp8 here")))
        script = """
            try:
                Cache(Path(args[0])).lowered(key("a"), never)
            except Exception as error:
                print(type(error).__name__, error.message)
        """
        assert finish(start(script, cache.root)) == "UnsupportedOp no fp8 here\n"

    def test_a_line_is_only_told_for_the_kernel_it_belongs_to(self, cache, tmp_path):
        for name in ("one.py", "two.py"):
            (tmp_path / name).write_text("kernel\n")
        one, two = (Location(str(tmp_path / name), 1) for name in ("one.py", "two.py"))
        with pytest.raises(UnsupportedOp):
            cache.lowered(key("a"), failing(UnsupportedOp("no", location=one)), origin=one)
        with pytest.raises(UnsupportedOp) as caught:
            cache.lowered(key("a"), never, origin=one)
        assert caught.value.location == one
        # The same kernel, word for word, in another file: it is told its own line.
        with pytest.raises(UnsupportedOp) as caught:
            cache.lowered(key("a"), failing(UnsupportedOp("no", location=two)), origin=two)
        assert caught.value.location == two

    def test_a_line_in_a_file_that_changed_is_not_told(self, cache, tmp_path):
        file = tmp_path / "kernel.py"
        file.write_text("kernel\n")
        where = Location(str(file), 1)
        with pytest.raises(UnsupportedOp):
            cache.lowered(key("a"), failing(UnsupportedOp("no", location=where)), origin=where)
        file.write_text("import this\nkernel\n")
        assert cache.lowered(key("a"), lowered_kernel, origin=where)[1] is False

    def test_a_line_without_an_origin_is_not_remembered(self, cache):
        with pytest.raises(UnsupportedOp):
            cache.lowered(key("a"), failing(UnsupportedOp("no", location=Location("kernel.py", 1))))
        assert cache.lowered(key("a"), lowered_kernel)[1] is False


class TestBuild:
    def test_a_compiler_that_refused_is_not_called_again_and_its_files_are_there(self, cache):
        lowered = lowered_kernel()
        folders: list[Path] = []

        def make(folder: Path):
            folders.append(folder)
            (folder / "kernel.cpp").write_text("int x = ;")
            run_tool([sys.executable, "-c", "raise SystemExit('error: x')"], cwd=folder, source=Path("kernel.cpp"))

        for _ in range(3):
            with pytest.raises(BuildFailed, match="error: x") as caught:
                cache.built(key("b"), lowered, make)
        assert len(folders) == 1
        assert caught.value.details["source"] == str(folders[0] / "kernel.cpp")
        assert (folders[0] / "kernel.cpp").read_text() == "int x = ;"
        assert cache.refusal(key("b")) is not None
        # Without its source the message would point nowhere.
        (folders[0] / "kernel.cpp").unlink()
        assert cache.refusal(key("b")) is None
        assert cache.built(key("b"), lowered, builder(lowered))[1] is False

    def test_the_files_of_a_failed_build_outlive_the_process(self, cache):
        script = """
            from core.errors import BuildFailed
            def make(folder):
                (folder / "kernel.cpp").write_text("int x = ;")
                raise BuildFailed("no", details={"source": str(folder / "kernel.cpp")})
            try:
                Cache(Path(args[0])).built(key("b"), lowered_kernel(), make)
            except BuildFailed as error:
                print(error.details["source"])
        """
        source = Path(finish(start(script, cache.root)).strip())
        assert source.read_text() == "int x = ;"
        refused = cache.refusal(key("b"))
        assert isinstance(refused, BuildFailed)
        cache.clear()
        assert (cache.refusal(key("b")), source.exists()) == (None, False)

    @pytest.mark.parametrize(
        "error",
        [
            ToolchainNotFound("no nvcc"),
            DeviceUnavailable("no device"),
            BackendHookError("a bug"),
            TileHALError("who knows"),
            BuildFailed("killed", details={"transient": True}),
            BuildFailed("cannot write kernel.o: No space left on device"),
            BuildFailed("odd", details={"object": object()}),
            type("VendorError", (BuildFailed,), {})("a vendor's own"),
            RuntimeError("a bug"),
        ],
    )
    def test_what_may_work_next_time_is_tried_next_time(self, cache, error):
        lowered = lowered_kernel()
        with pytest.raises(type(error)), warnings.catch_warnings(action="ignore"):
            cache.built(key("b"), lowered, failing(error))
        assert cache.refusal(key("b")) is None
        assert cache.built(key("b"), lowered, builder(lowered))[1] is False


class TestForgetting:
    def test_after_a_day(self, cache, monkeypatch):
        with pytest.raises(UnsupportedOp):
            cache.lowered(key("a"), failing(UnsupportedOp("no")))
        assert cache.refusal(key("a"), stage="lowered") is not None
        age(25 * 3600, monkeypatch)
        assert cache.refusal(key("a"), stage="lowered") is None

    def test_when_it_works_after_all(self, cache, monkeypatch):
        with pytest.raises(UnsupportedOp):
            cache.lowered(key("a"), failing(UnsupportedOp("no")))
        age(25 * 3600, monkeypatch)
        assert cache.stats().refusals == 1
        cache.lowered(key("a"), lowered_kernel)
        assert cache.stats().refusals == 0

    @pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 1}', '{"format": 99}'])
    def test_one_that_cannot_be_read_is_none(self, cache, text):
        with pytest.raises(UnsupportedOp):
            cache.lowered(key("a"), failing(UnsupportedOp("no")))
        (path,) = (cache.root / "v1" / "refused").rglob("*.json")
        path.write_text(text)
        assert cache.lowered(key("a"), lowered_kernel)[1] is False

    def test_disabled_remembers_nothing(self, tmp_path):
        cache = Cache(tmp_path, enabled=False)
        with pytest.raises(UnsupportedOp):
            cache.lowered(key("a"), failing(UnsupportedOp("no")))
        assert cache.refusal(key("a"), stage="lowered") is None
        assert cache.lowered(key("a"), lowered_kernel)[1] is False
