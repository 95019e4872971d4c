"""Where a refusal by a chip that runs blocks as a whole says to go: to targets that would take the kernel."""

import pytest
import tilelang.language as T

import core
from core.plugins.registry import manager
from core.portability.rules import runs_threads

WHOLE_BLOCKS = ("cpu", "ascend:910b3")


def refusal(prim_func, target: str) -> core.UnsupportedOp:
    with pytest.raises(core.UnsupportedOp) as caught:
        core.compile(prim_func, target=target, simulate=target != "cpu")
    return caught.value


@pytest.mark.parametrize("target", WHOLE_BLOCKS)
def test_per_thread_code_goes_to_the_vendors_whose_chips_run_threads(target):
    @T.prim_func
    def main(X: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            X[T.get_thread_binding(0)] = 1.0

    vendors = sorted(b.vendor for b in manager().load_all() if any(map(runs_threads, b.chips())))
    assert {"cuda", "metax"} <= set(vendors)
    assert "cpu" not in vendors
    assert refusal(main, target).hint.endswith(f"compile it for a target with threads ({', '.join(vendors)})")


@pytest.mark.parametrize("target", WHOLE_BLOCKS)
def test_warps_with_work_of_their_own_are_to_be_one_pipelined_loop(target):
    @T.prim_func
    def main(X: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=256):
            tile = T.alloc_shared((128,), "float32")
            ready = T.alloc_barrier(128)
            tx = T.get_thread_binding(0)
            if tx < 128:
                tile[tx] = 1.0
                T.barrier_arrive(ready)
            else:
                T.barrier_wait(ready, 0)
                X[tx - 128] = tile[tx - 128]

    hint = refusal(main, target).hint
    assert "one T.Pipelined loop" in hint
    assert "T.Parallel" not in hint
    assert hint.endswith("(cuda)")


@pytest.mark.parametrize("target", WHOLE_BLOCKS)
@pytest.mark.parametrize("as_statement", [True, False])
def test_what_only_tilelang_knows_goes_to_targets_that_it_lowers(target, as_statement):
    @T.prim_func
    def main(X: T.Tensor((128,), "uint32")):
        with T.Kernel(1, threads=128):
            if as_statement:
                T.rng_init(1)
            for i in T.Parallel(128):
                X[i] = T.rng_rand()

    error = refusal(main, target)
    assert ("rng_init" if as_statement else "rng_rand") in error.message
    assert error.hint.endswith("a target that TileLang itself lowers (cuda)")
