"""A ranking is made once: remembered in the process and on disk, and made again when the kernel is another."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tilelang.language as T

import core
from core.compiler.cache import default
from core.compiler.keys import own_code_hash
from core.plugins import manager
from core.tiling import ranking_cache
from core.tiling.problem import TileProblem
from core.tiling.ranking_cache import ranking_key
from tests.tiling.kernels import product, traced


@pytest.fixture(autouse=True)
def own_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEHAL_CACHE_DIR", str(tmp_path / "cache"))
    ranking_cache.forget()


def key(*args: Any, target: str = "metax:c500", more: Mapping[str, Any] | None = None, **given: Any) -> str | None:
    chip = core.chip(target)
    arguments = {**product.arguments(args, {}), **(more or {})}
    return ranking_key(product, arguments, chip, manager().backend(chip.vendor), given)


def test_a_second_ranking_in_a_process_traces_and_predicts_nothing() -> None:
    first = product.rank(512, 512, 512, target="metax:c500")
    assert first.effort.traces > 0
    before = traced["product"]
    second = product.rank(512, 512, 512, target="metax:c500")
    assert traced["product"] == before
    assert (second.effort.recalled, second.effort.traces, second.effort.predictions) == ("process", 0, 0)
    assert second.candidates is first.candidates


def test_a_second_compilation_traces_only_what_it_compiles() -> None:
    first = product.compile(512, 512, 512, target="metax:c500")
    before = traced["product"]
    second = product.compile(512, 512, 512, target="metax:c500")
    assert traced["product"] - before == 1
    assert second.config.choice == first.config.choice


def test_a_ranking_from_disk_costs_the_one_trace_that_proves_it() -> None:
    first = product.rank(512, 512, 512, target="metax:c500")
    ranking_cache.forget()
    before = traced["product"]
    second = product.rank(512, 512, 512, target="metax:c500")
    assert second.effort.recalled == "disk"
    assert traced["product"] - before == 1
    assert second.candidates == first.candidates
    assert list(second.refused) == list(first.refused)
    assert [entry.kernel for entry in default().entries() if entry.stage == "files"] == ["ranking of product"]


def test_another_process_does_not_rank_again() -> None:
    kernel = product.compile(512, 512, 512, target="metax:c500")
    # An edit of TileHAL between the two would be another TileHAL; that is not what this is about.
    code = f"""
import json
from core.compiler import keys

keys.own_code_hash = lambda: {own_code_hash()!r}
from tests.tiling.kernels import product, traced

kernel = product.compile(512, 512, 512, target="metax:c500")
print(json.dumps([traced["product"], kernel.config.tiles, kernel.config.choice.ranked]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == [1, kernel.config.tiles, kernel.config.choice.ranked]


def test_everything_a_ranking_depends_on_is_in_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [
        key(512, 512, 512),
        key(512, 512, 513),
        key(512, 512, 512, target="metax:c550"),
        key(512, 512, 512, target="metax:c500+shared=32KiB"),
        key(512, 512, 512, block_M=64),
        key(T.dynamic("m"), 512, 512),
        key(T.dynamic("n"), 512, 512),
    ]
    monkeypatch.setattr("core._tilelang.tilelang_version", lambda: "9.9")
    keys.append(key(512, 512, 512))
    assert None not in keys
    assert len(set(keys)) == len(keys)


def test_equal_symbols_have_equal_keys_and_an_argument_without_a_stable_form_has_none() -> None:
    assert key(T.dynamic("m"), 512, 512) == key(T.dynamic("m"), 512, 512)
    assert key(512, 512, 512) == key(512, 512, 512)
    assert key(512, 512, 512, more={"epilogue": object()}) is None


class _Width:
    """State that no source shows."""

    def __init__(self) -> None:
        self.value = 1

    def __call__(self) -> int:
        return self.value


_width = _Width()


@core.kernel(out=["B"])
def repeated(N: int, *, block: int = core.tile("N", maximum=256), threads: int = core.threads()):
    times = _width()

    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=threads) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * T.float32(times)

    return main


def test_a_kernel_that_became_another_one_behind_the_keys_back_is_ranked_again() -> None:
    def ranking(*, checked: bool = False) -> Any:
        return TileProblem.of(repeated, (4096,), {}, "cuda:h200").ranking(checked=checked)

    first = ranking()
    assert ranking(checked=True).effort.recalled == "process"
    _width.value = 3
    try:
        again = ranking(checked=True)
        assert again.effort.recalled == ""
        assert again.fingerprint != first.fingerprint
        assert ranking(checked=True).effort.recalled == "process"
        ranking_cache.forget()
        assert ranking().effort.recalled == ""  # the disk still has the old one
    finally:
        _width.value = 1


def test_a_file_that_cannot_be_read_is_ranked_again_and_a_disabled_cache_is_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(ranking_cache, "write_ranking", lambda _, folder: (folder / "ranked.json").write_text("{}"))
        product.rank(512, 512, 512, target="metax:c500")
    ranking_cache.forget()
    assert product.rank(512, 512, 512, target="metax:c500").effort.recalled == ""
    monkeypatch.setenv("TILEHAL_DISABLE_CACHE", "1")
    product.rank(512, 512, 514, target="metax:c500")
    monkeypatch.delenv("TILEHAL_DISABLE_CACHE")
    assert sum(entry.stage == "files" for entry in default().entries()) == 1


def test_an_error_is_raised_again_and_not_remembered() -> None:
    @core.kernel
    def broken(N: int, *, block: int = core.tile("N")):
        raise core.ResourceExceeded("not today")

    for _ in range(2):
        with pytest.raises(core.ResourceExceeded, match="not today") as caught:
            broken.rank(64, target="metax:c500")
        assert "remembered" not in caught.value.details
