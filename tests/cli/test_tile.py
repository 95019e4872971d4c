"""`tilehal tile`."""

from __future__ import annotations

import json

import pytest

import core
from core.cli.main import run
from core.cli.tile import _headings
from core.tiling import KernelShape, Ranking, TileParameter, ranking_cache

SOURCE = """
import core
import tilelang.language as T


@core.kernel(out=["C"])
def product(
    M: int, N: int, K: int, *, dtype: str = "float16",
    block_M: int = core.tile("M", multiple=16), block_N: int = core.tile("N", multiple=16),
    block_K: int = core.tile("K", multiple=16), num_stages: int = core.stages(), threads: int = core.threads(),
    store: str = core.choice("store", "direct", "staged"),
):
    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            a = T.alloc_shared((block_M, block_K), dtype)
            b = T.alloc_shared((block_K, block_N), dtype)
            c = T.alloc_fragment((block_M, block_N), "float32")
            d = T.alloc_shared((block_M, block_N), dtype)
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], a)
                T.copy(B[k * block_K, bx * block_N], b)
                T.gemm(a, b, c)
            if store == "staged":
                T.copy(c, d)
                T.copy(d, C[by * block_M, bx * block_N])
            else:
                T.copy(c, C[by * block_M, bx * block_N])
    return main


def fixed(N: int):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=64):
            A[0] = 0.0
    return main
"""
SHAPE = [word for name in "MNK" for word in ("--param", f"{name}=1024")]


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEHAL_CACHE_DIR", str(tmp_path / "cache"))
    ranking_cache.forget()
    file = tmp_path / "kernels.py"
    file.write_text(SOURCE)
    return f"{file}:product"


@pytest.fixture
def report(kernel, capsys):
    def report(*words: str, target: str = "cuda:h200"):
        assert run(["tile", kernel, "--target", target, *SHAPE, *words]) == 0
        return capsys.readouterr().out

    return report


def test_the_table_says_what_is_predicted_what_bounds_it_and_what_each_memory_takes(report):
    out = report()
    lines = [line.split() for line in out.splitlines()]
    first = next(words for words in lines if words and words[0] == "1")
    data = json.loads(report("--json"))
    best = data["candidates"][0]
    assert str(best["tiles"]["block_M"]) in first
    assert best["prediction"]["bound"] in first
    shared = best["prediction"]["memory_bytes"]["shared"] / 1024
    assert f"{shared:.3g}" in first
    assert f"gemm of float16; {len(data['candidates'])} ranked, {len(data['refused'])} refused" in out
    assert "rules" in out
    assert all(len(line) <= 100 for line in out.splitlines()[2:])


def test_the_first_choice_is_explained(report):
    out = report()
    data = json.loads(report("--json"))
    first = data["candidates"][0]
    assert "first choice" in out
    for name, who in first["chosen_by"].items():
        assert f"{name}={first['tiles'][name]}" in out
        assert who in out
    assert all(name in data["rules"] for name in first["rules"])


def test_ten_are_shown_and_all_when_asked(report):
    def places(out):
        table = out.partition("first choice")[0].splitlines()
        return [int(words[0]) for line in table if (words := line.split()) and words[0].isdigit()]

    data = json.loads(report("--json"))
    assert len(data["candidates"]) > 10
    assert places(report()) == list(range(1, 11))
    assert f"... {len(data['candidates']) - 10} more: --all" in report()
    assert places(report("--all")) == list(range(1, len(data["candidates"]) + 1))


def test_a_tile_parameter_given_is_kept_whatever_its_type(report):
    data = json.loads(report("--json", "--param", "block_M=48", "--param", "store=staged"))
    assert data["given"] == {"block_M": 48, "store": "staged"}
    for candidate in data["candidates"]:
        assert (candidate["tiles"]["block_M"], candidate["tiles"]["store"]) == (48, "staged")
        assert candidate["chosen_by"]["store"] == "user"
    assert "block_M=48, " in report("--param", "block_M=48")


def test_every_refusal_has_its_reason(report):
    large = [word for given in ("block_M=256", "block_N=512", "block_K=128") for word in ("--param", given)]
    data = json.loads(report("--json", *large))
    assert data["refused"]
    assert all(refused["reason"] for refused in data["refused"])
    out = report(*large, "--param", "num_stages=4")
    assert "no tile can be had" in out
    assert "why" in out


def test_a_ranking_that_was_remembered_says_so(report):
    assert "remembered" not in report()
    assert "remembered (process)" in report()
    ranking_cache.forget()
    assert "remembered (disk)" in report()


def test_a_what_if_chip_is_ranked_too(report):
    data = json.loads(report("--json", target="cuda:h200+shared=64KiB"))
    assert data["target"] == "cuda:h200+shared=64KiB"
    assert all(c["prediction"]["memory_bytes"]["shared"] <= 64 * 1024 for c in data["candidates"])


def test_a_size_that_is_known_at_calls_only_is_ranked_with_what_is_assumed(kernel, capsys):
    words = ["tile", kernel, "--target", "cuda:h200", "--dynamic", "M", "--param", "N=256", "--param", "K=64"]
    assert run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == ["M is symbolic: ranked as if it were 4096"]


def test_a_kernel_without_tile_parameters_is_refused(kernel, capsys):
    assert run(["tile", kernel.replace("product", "fixed"), "--param", "N=64", "--json"]) == 2
    assert "is no @core.kernel factory" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_a_value_that_is_not_allowed_and_an_unknown_argument_are_named(kernel, capsys):
    assert run(["tile", kernel, *SHAPE, "--param", "store=twice", "--json"]) == 2
    assert "'twice' is not one of 'direct', 'staged'" in json.loads(capsys.readouterr().out)["error"]["message"]
    assert run(["tile", kernel, *SHAPE, "--param", "blok=1"]) == 2
    assert "unexpected keyword argument 'blok'" in capsys.readouterr().err


def test_headings_are_short_where_names_take_room_and_never_the_same():
    def headings(**parameters):
        shape = KernelShape("k", "gemm", {}, (), parameters)
        return _headings(list(parameters), Ranking("k", "t", shape, (), ()))

    few = {"block_M": core.tile("M"), "threads": core.threads()}
    assert headings(**few) == {"block_M": "block_M", "threads": "threads"}
    many = {
        "block_M": core.tile("M"),
        "block_N": core.tile("N"),
        "inner_stages": core.stages(),
        "outer_stages": core.stages(),
        "split": core.split("K"),
        "variant": core.choice("variant", "a", "b"),
        "variety": TileParameter("choice", "variety", choices=("a",)),
    }
    assert headings(**many) == {
        "block_M": "M",
        "block_N": "N",
        "inner_stages": "st",
        "outer_stages": "outer_stages",
        "split": "sK",
        "variant": "var",
        "variety": "variety",
    }
