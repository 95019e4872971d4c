"""A ranking as files comes back as it was."""

from __future__ import annotations

import json

import pytest

import core
from core.ops.conv2d import conv2d
from core.tiling import TileRule, rank
from core.tiling.ranking_files import UnreadableRanking, read_ranking, write_ranking
from tests.tiling.kernels import product


def test_a_ranking_comes_back_as_it_was(tmp_path) -> None:
    rules = [
        TileRule("table", "m", prefer=({"M": 512, "N": 512, "K": 64, "stages": 3, "threads": 128},), replaces=("old",)),
        TileRule("values", "v", values={"M": (64, 256), "N": (64, 256), "K": (64,), "stages": (2, 9)}),
        TileRule("law", "l", forbid=lambda k, t: "odd" if t["threads"] == 64 else None, weigh=lambda k, t, p: 1.5),
        TileRule("old", "o"),
    ]
    chip = core.chip("cuda:h200")
    ranking = rank(product, product.arguments((4096, 4096, 4096), {}), chip, rules, {})
    assert ranking.passed_over
    assert ranking.replaced == {"old": "table"}
    write_ranking(ranking, tmp_path)
    found = read_ranking(tmp_path, product.parameters)
    assert found.candidates == ranking.candidates
    assert len(found.refused) == len(ranking.refused)
    assert list(found.refused) == list(ranking.refused)
    assert found.passed_over == ranking.passed_over
    assert found.effort.recalled == "disk"
    for name in ("kernel", "target", "shape", "reasons", "replaced", "notes", "fingerprint"):
        assert getattr(found, name) == getattr(ranking, name), name


def test_what_was_told_of_the_kernel_comes_back(tmp_path) -> None:
    tiles = {"block_M": 64, "block_N": 64, "block_K": 64, "num_stages": 0}
    ranking = conv2d.rank(16, 28, 28, 48, 64, 3, target="cuda:h200", **tiles)
    assert ranking.shape.gathers
    write_ranking(ranking, tmp_path)
    assert read_ranking(tmp_path, conv2d.parameters).shape == ranking.shape


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"shape": [1]}', '{"shape": ["a", "b", {}, []]}'])
def test_a_folder_that_holds_something_else_is_unreadable(tmp_path, text: str) -> None:
    with pytest.raises(UnreadableRanking, match="Error"):
        read_ranking(tmp_path, product.parameters)
    (tmp_path / "ranked.json").write_text(text)
    (tmp_path / "refused.json").write_text("{}")
    with pytest.raises(UnreadableRanking, match="Error"):
        read_ranking(tmp_path, product.parameters)


def test_json_of_a_ranking_has_every_candidate_and_every_reason() -> None:
    ranking = product.rank(512, 512, 512, target="cuda:h200", block_M=64)
    data = json.loads(json.dumps(ranking.to_json()))
    assert [c["tiles"]["block_M"] for c in data["candidates"]] == [64] * len(ranking.candidates)
    assert data["candidates"][0]["prediction"]["memory_bytes"]["shared"] > 0
    assert all(refused["reason"] for refused in data["refused"])
    assert data["operator"] == "gemm"
