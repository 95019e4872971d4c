"""`core.program.liveness`: what first and last use do not say, on kernels whose fragments can be followed by eye."""

from typing import Any

import pytest
import tilelang.language as T

from core.program import Program
from core.program.lifetimes import buffer_uses
from core.program.liveness import Liveness, liveness


def found(prim_func: Any) -> dict[str, Liveness]:
    (launch,) = Program(prim_func).view.launches
    own = liveness(launch)
    return {use.buffer.name: own[id(use.buffer.storage)] for use in buffer_uses(launch, {})}


@pytest.fixture(scope="module")
def straight() -> dict[str, Liveness]:
    @T.prim_func
    def main(A: T.Tensor((64,), "float16"), B: T.Tensor((64,), "float16")):
        with T.Kernel(1, threads=32):
            stored = T.alloc_fragment((64,), "float16")
            x = T.alloc_fragment((64,), "float32")
            square = T.alloc_fragment((64,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(A, stored)  # 0
            for i in T.Parallel(64):  # 1, 2
                x[i] = stored[i]
            for i in T.Parallel(64):  # 3, 4
                square[i] = x[i] * x[i]
            T.reduce_sum(square, total, dim=0)  # 5
            for i in T.Parallel(64):  # 6, 7
                stored[i] = x[i] / total[0]
            T.copy(stored, B)  # 8

    return found(main)


def test_what_is_written_anew_is_idle_from_its_last_use_until_then(straight: dict[str, Liveness]) -> None:
    assert straight["stored"].idle == (3, 7)
    assert straight["x"].idle is None


def test_steps_go_from_the_statement_that_computes_to_the_last_that_uses(straight: dict[str, Liveness]) -> None:
    assert (straight["x"].steps, straight["square"].steps, straight["total"].steps) == (3, 1, 1)


def test_what_memory_fills_was_not_computed(straight: dict[str, Liveness]) -> None:
    assert straight["stored"].steps is None


def test_what_the_next_iteration_uses_is_always_wanted() -> None:
    @T.prim_func
    def main(A: T.Tensor((8, 64), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            sums = T.alloc_fragment((64,), "float32")
            before = T.alloc_fragment((64,), "float32")
            for k in T.serial(8):
                for i in T.Parallel(64):
                    B[i] = before[i]
                for i in T.Parallel(64):
                    sums[i] = A[k, i]
                for i in T.Parallel(64):
                    before[i] = sums[i] * 2

    own = found(main)
    assert own["before"] == Liveness(None, None)
    assert own["sums"] == Liveness(None, None)


def test_what_each_iteration_adds_to_or_uses_is_not_passed_on_to_the_next_statement() -> None:
    @T.prim_func
    def main(A: T.Tensor((8, 64), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            sums = T.alloc_fragment((64,), "float32")
            factor = T.alloc_fragment((64,), "float32")
            scaled = T.alloc_fragment((64,), "float32")
            added = T.alloc_fragment((64,), "float32")
            unrolled = T.alloc_fragment((64,), "float32")
            for i in T.Parallel(64):
                factor[i] = i
            T.clear(sums)
            for k in T.serial(8):
                if k < 7:
                    for i in T.Parallel(64):
                        scaled[i] = i * k * factor[i]
                    T.clear(unrolled)
                    for _ in T.unroll(4):
                        for i in T.Parallel(64):
                            unrolled[i] += scaled[i]
                    for i in T.Parallel(64):
                        added[i] = unrolled[i] + 1
                    for i in T.Parallel(64):
                        sums[i] += added[i]
            T.copy(sums, B)

    own = found(main)
    assert own["sums"].steps is None
    assert own["factor"].steps is None
    assert (own["scaled"].steps, own["unrolled"].steps, own["added"].steps) == (2, 2, 1)


def test_what_one_branch_alone_writes_anew_is_wanted_until_then() -> None:
    def kernel(otherwise: bool) -> Any:
        @T.prim_func
        def main(n: T.int32, A: T.Tensor((64,), "float32"), B: T.Tensor((3, 64), "float32")):
            with T.Kernel(1, threads=32):
                x = T.alloc_fragment((64,), "float32")
                T.copy(A, x)  # 0
                T.copy(x, B[0, 0])  # 1
                T.copy(A, B[1, 0])  # 2
                if n > 4:  # 3
                    T.clear(x)  # 4
                else:
                    if otherwise:
                        T.fill(x, 1)
                T.copy(x, B[2, 0])

        return main

    assert found(kernel(otherwise=False))["x"].idle is None
    assert found(kernel(otherwise=True))["x"].idle == (2, 4)


def test_what_is_read_while_it_is_written_anew_is_wanted_until_then() -> None:
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((3, 64), "float32")):
        with T.Kernel(1, threads=32):
            x = T.alloc_fragment((64,), "float32")
            T.copy(A, x)
            T.copy(A, B[0, 0])
            T.copy(A, B[1, 0])
            for i in T.Parallel(64):
                x[i] = x[i] * 2
            T.copy(x, B[2, 0])

    assert found(main)["x"].idle is None


def test_of_several_stretches_in_which_nothing_is_wanted_the_longest_counts() -> None:
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((8, 64), "float32")):
        with T.Kernel(1, threads=32):
            early = T.alloc_fragment((64,), "float32")
            late = T.alloc_fragment((64,), "float32")
            single = T.alloc_fragment((64,), "float32")
            T.copy(A, early)  # 0
            T.copy(A, late)  # 1
            T.clear(late)  # 2
            T.copy(late, single)  # 3
            T.clear(early)  # 4
            T.copy(early, B[0, 0])  # 5
            T.clear(early)  # 6
            T.copy(early, B[1, 0])  # 7
            T.clear(late)  # 8
            T.copy(late, B[2, 0])  # 9
            T.copy(single, B[3, 0])  # 10
            T.clear(single)  # 11
            T.copy(single, B[4, 0])  # 12

    own = found(main)
    assert own["early"].idle == (1, 4)
    assert own["late"].idle == (4, 8)
    assert own["single"].idle == (11, 11)


def test_what_a_loop_uses_and_what_follows_writes_anew_is_idle_in_between() -> None:
    @T.prim_func
    def main(A: T.Tensor((8, 64), "float32"), B: T.Tensor((9, 64), "float32")):
        with T.Kernel(1, threads=32):
            x = T.alloc_fragment((64,), "float32")
            for k in T.serial(8):  # 0
                for i in T.Parallel(64):  # 1, 2
                    x[i] = k
                T.copy(x, B[k, 0])  # 3
            T.copy(A[0, 0], B[8, 0])  # 4
            T.clear(x)  # 5
            T.copy(x, B[8, 0])  # 6

    assert found(main)["x"] == Liveness(3, (4, 5))


def test_what_shared_memory_fills_was_not_computed() -> None:
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((64,), "float32")
            x = T.alloc_fragment((64,), "float32")
            T.copy(A, tile)
            T.copy(tile, x)
            T.copy(x, B)

    assert found(main)["x"].steps is None


def in_a_loop(kind: str) -> Any:
    """`sums` is added to and `before` passed on from one iteration to the next; `twice` is of one iteration alone."""

    @T.macro
    def iteration(B, k, before, twice, sums):
        T.copy(before, B[k, 0])
        for i in T.Parallel(64):
            twice[i] = i * 2
        for i in T.Parallel(64):
            sums[i] += twice[i]
        T.clear(before)

    @T.prim_func
    def main(A: T.Tensor((8, 64), "float32"), B: T.Tensor((9, 64), "float32")):
        with T.Kernel(1, threads=32):
            place = T.alloc_var("int32", init=0)
            sums = T.alloc_fragment((64,), "float32")
            before = T.alloc_fragment((64,), "float32")
            twice = T.alloc_fragment((64,), "float32")
            T.clear(sums)
            if kind == "while":
                while place < 8:
                    iteration(B, place, before, twice, sums)
                    place = place + 1
            if kind == "pipelined":
                for k in T.Pipelined(8, num_stages=2):
                    iteration(B, k, before, twice, sums)
            T.copy(sums, B[8, 0])

    return main


@pytest.mark.parametrize("kind", ["while", "pipelined"])
def test_while_loops_and_pipelined_ones_are_loops_as_well(kind: str) -> None:
    own = found(in_a_loop(kind))
    assert own["sums"] == Liveness(None, None)
    assert own["before"] == Liveness(None, None)
    assert own["twice"] == Liveness(1, None)


def test_a_sum_over_the_terms_of_each_element_is_one_when_it_ends() -> None:
    @T.prim_func
    def main(A: T.Tensor((8, 64), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            sums = T.alloc_fragment((64,), "float32")
            for i in T.Parallel(64):
                sums[i] = i
            for i in T.Parallel(64):
                for k in T.serial(8):
                    sums[i] += k
            T.copy(sums, B)

    assert found(main)["sums"].steps == 2
