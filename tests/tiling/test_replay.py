"""The cost model against a measured sweep: every candidate that ran on the chip, in the model's order.

The sweep (`scripts/gpu_sweep.py`) and the profiles of its candidates (`scripts/score_ranking.py`) are data. A change in
the model that orders tiles worse shows here; one in what a profile holds asks for the profiles to be read anew.
"""

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from core.tiling.prediction import Prediction

ROOT = Path(__file__).parents[2]
SWEEP = Path(__file__).parent / "data" / "sweep-cuda-h200.json.gz"
PROFILES = Path(__file__).parent / "data" / "profiles-cuda-h200.json.gz"


def script() -> ModuleType:
    """`scripts/score_ranking.py`, which is no package."""
    spec = importlib.util.spec_from_file_location("score_ranking", ROOT / "scripts" / "score_ranking.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


scoring = script()


@pytest.fixture(scope="module")
def scores() -> list[Any]:
    groups = scoring.measured(scoring.load(SWEEP))
    stored = scoring.read_profiles(PROFILES)
    missing = [name for name, rows in groups.items() if len(stored.get(name, {}).get("rows", ())) != len(rows)]
    assert not missing, f"read the profiles anew: python scripts/score_ranking.py {SWEEP.relative_to(ROOT)} --trace"
    found: list[Any] = scoring.scores(groups, stored, "cuda:h200")
    return found


def test_the_sweep_covers_what_is_claimed(scores: list[Any]) -> None:
    operators = [score.label.split()[0] for score in scores]
    assert operators.count("gemm") >= 12
    assert all(operators.count(name) >= 6 for name in ("attention", "softmax", "layernorm"))
    assert sum(len(score.rows) for score in scores) > 2000
    # Tiles matter: on each shape the worst candidate is at least half as slow again as the best.
    assert all(max(row["ms"] for row in score.rows) > 1.5 * score.best for score in scores)


def test_the_first_choice_is_near_the_best_of_every_candidate(scores: list[Any]) -> None:
    firsts = {score.label: score.first_over_best for score in scores}
    assert scoring.geometric_mean(firsts.values()) <= 1.05, scoring.table(scores)
    assert max(firsts.values()) <= 1.25, scoring.table(scores)


def test_twenty_candidates_hold_the_best(scores: list[Any]) -> None:
    assert scoring.geometric_mean(score.best_of_20 for score in scores) <= 1.02, scoring.table(scores)


def test_times_are_about_right(scores: list[Any]) -> None:
    assert 0.85 < scoring.geometric_mean(score.bias for score in scores) < 1.2, scoring.table(scores)
    assert all(score.correlation > 0.5 for score in scores), scoring.table(scores)


def test_the_score_tells_a_good_order_from_none(scores: list[Any]) -> None:
    shuffled = random.Random(0)
    blind = []
    for score in scores:
        guesses = [Prediction(shuffled.random(), "none", {}) for _ in score.rows]
        blind.append(scoring.Score(score.label, score.rows, guesses))
    assert scoring.geometric_mean(score.first_over_best for score in blind) > 1.4
    assert abs(sum(score.correlation for score in blind) / len(blind)) < 0.2
    perfect = [
        scoring.Score(s.label, s.rows, [Prediction(row["ms"] / 1e3, "none", {}) for row in s.rows]) for s in scores
    ]
    assert all(score.first_over_best == 1.0 for score in perfect)
    assert all(score.correlation == pytest.approx(1.0) for score in perfect)


def test_rank_correlation_shares_ranks_among_ties() -> None:
    assert scoring.rank_correlation([1, 2, 3], [10, 20, 30]) == pytest.approx(1.0)
    assert scoring.rank_correlation([1, 2, 3], [30, 20, 10]) == pytest.approx(-1.0)
    assert scoring.rank_correlation([1, 1, 2], [5, 7, 9]) == pytest.approx(0.866, abs=1e-3)
