"""What is measured for a shape, and what its result stands for."""

from __future__ import annotations

import pytest
import tilelang.language as T

import core
from core.compiler.artifacts import CompileOptions
from core.errors import TuningError
from core.ops.gemm import gemm
from core.tuning.environment import Environment
from core.tuning.planning import plan_shape, smaller_arguments, structural_arguments
from core.tuning.workers.shipping import pack

ENVIRONMENT = Environment("d", "1", "c", "0.1.15", ())


@core.kernel(out=["R"])
def scores(
    batch: int,
    heads: int,
    length: int,
    width: int,
    *,
    causal: bool = False,
    block: int = core.tile("length", multiple=16),
    threads: int = core.threads(),
):
    """A row of blocks over `length` for every head of every batch; each holds a whole row of `width`."""

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, length, width), "float16"), R: T.Tensor((batch, heads, length, width), "float16")
    ):
        with T.Kernel(T.ceildiv(length, block), heads, batch, threads=threads) as (bx, by, bz):
            held = T.alloc_shared((block, width), "float16")
            T.copy(Q[bz, by, bx * block, 0], held)
            T.copy(held, R[bz, by, bx * block, 0])

    return main


SHAPE = {"batch": 4, "heads": 8, "length": 1000, "width": 64, "causal": False}
TILES = {"block": 64, "threads": 128}


def plan(arguments=SHAPE, fixed=None, **options):
    chip = core.chip("cuda:h200")
    parcel = pack(scores)
    return plan_shape(scores, parcel, arguments, fixed or {}, chip, CompileOptions(**options), ENVIRONMENT, 5)


def test_what_a_block_holds_is_told_from_how_many_blocks_there_are():
    assert structural_arguments(scores, SHAPE, TILES) == ("width",)


def test_a_smaller_problem_has_a_few_blocks_and_the_same_tail():
    assert smaller_arguments(scores, SHAPE, TILES, ("width",)) == {
        "batch": 2,
        "heads": 2,
        "length": 4 * 64 + 1000 % 64,
        "width": 64,
        "causal": False,
    }
    small = {**SHAPE, "batch": 1, "heads": 2, "length": 100}
    assert smaller_arguments(scores, small, TILES, ("width",)) == small


def test_a_plan_is_the_best_of_the_ranking_under_a_key_of_everything_that_matters():
    found = plan()
    ranking = scores.rank(target="cuda:h200", **SHAPE)
    assert [verdict.tiles for verdict in found.candidates] == [verdict.tiles for verdict in ranking.candidates[:5]]
    assert found.ranked == len(ranking.candidates) > 5
    assert found.key.values == SHAPE
    assert found.key.dtypes == ("float16", "float16")
    assert (found.key.chip, found.key.environment, found.key.options) == ("cuda:h200", ENVIRONMENT, "")
    assert found.structural == ("width",)
    assert found.smaller(scores, TILES).arguments["batch"] == 2


def test_a_plan_is_ranked_under_the_options_that_its_candidates_are_compiled_with():
    symbolic = {name: T.dynamic(name) for name in "MNK"}
    arguments = gemm.arguments((), symbolic)

    def most_stages(**backend):
        options = CompileOptions(backend=backend)
        chip = core.chip("cuda:h200")
        found = plan_shape(gemm, pack(gemm), arguments, {}, chip, options, ENVIRONMENT, 5)
        return max(verdict.tiles["num_stages"] for verdict in found.candidates)

    assert most_stages() == 2
    assert most_stages(aligned_rows=True) > 2


def test_given_tiles_and_options_make_another_key():
    assert {verdict.tiles["block"] for verdict in plan(fixed={"block": 32}).candidates} == {32}
    keys = {plan().key.options, plan(fixed={"block": 32}).key.options, plan(fast_math=True).key.options}
    assert len(keys) == 3


def test_nothing_to_tune_is_said():
    with pytest.raises(TuningError, match="every tile parameter is given"):
        plan(fixed=TILES)
    with pytest.raises(TuningError, match=r"no candidate fits cuda:h200"):
        plan({**SHAPE, "width": 1 << 20})


def test_a_symbolic_dimension_is_kept_by_name():
    found = plan({**SHAPE, "length": T.dynamic("length")})
    assert found.key.values["length"] == "T.dynamic(length)"
    assert found.subject.arguments["length"].name == "length"
