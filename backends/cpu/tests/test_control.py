"""Control flow, scopes, several launches, symbolic sizes, strides, assertions."""

from collections.abc import Callable
from typing import Any

import pytest
import tilelang.language as T
import torch

from core import LaunchError

Compile = Callable[..., Any]


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_while_break_and_continue(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((20,), "int32"), Y: T.Tensor((3,), "int32")):
        with T.Kernel(1):
            n = T.alloc_var("int32", init=0)
            total = T.alloc_var("int32", init=0)
            odd = T.alloc_var("int32", init=0)
            while n < 20:
                total = total + X[n]
                n = n + 1
                if total > 30:
                    break
            for i in T.serial(20):
                if X[i] % 2 == 0:
                    continue
                odd = odd + X[i]
            Y[0] = n
            Y[1] = total
            Y[2] = odd

    x = torch.arange(20, dtype=torch.int32)
    assert cpu(kernel, [1])(x).tolist() == [9, 36, sum(range(1, 20, 2))]


def test_loops_with_starts_steps_and_extents_that_change_inside(cpu: Compile) -> None:
    @T.prim_func
    def kernel(Y: T.Tensor((4,), "int32")):
        with T.Kernel(1):
            n = T.alloc_var("int32", init=5)
            s = T.alloc_var("int32", init=0)
            u = T.alloc_var("int32", init=0)
            for i in T.serial(2, 10, 3):
                s = s * 100 + i
            for _ in T.serial(n):  # the trip count is fixed when the loop begins
                n = n + 1
            for j in T.unroll(4):
                u = u * 10 + j
            Y[0] = s
            Y[1] = n
            Y[2] = u
            Y[3] = 0
            for k in T.serial(5, 3):  # no iteration
                Y[3] = k

    assert cpu(kernel, [0])().tolist() == [20508, 10, 123, 0]


def test_if_else_on_the_block_and_inside_a_parallel_loop(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((4, 32), "float32"), Y: T.Tensor((4, 32), "float32")):
        with T.Kernel(4) as bx:
            x = T.alloc_shared((32,), "float32")
            T.copy(X[bx, 0], x)
            if bx % 2 == 0:
                for i in T.Parallel(32):
                    if i < 10:
                        x[i] = -x[i]
                    else:
                        x[i] = x[i] * 2.0
            elif bx == 3:
                T.fill(x, 3.0)
            T.copy(x, Y[bx, 0])

    x = randn(4, 32)
    want = x.clone()
    want[::2, :10] *= -1
    want[::2, 10:] *= 2
    want[3] = 3
    assert torch.equal(cpu(kernel, [1])(x), want)


def test_thread_return_ends_the_block(cpu: Compile) -> None:
    @T.prim_func
    def kernel(Y: T.Tensor((8,), "int32")):
        with T.Kernel(8) as bx:
            Y[bx] = 1
            if bx >= 5:
                T.thread_return()
            Y[bx] = 2

    assert cpu(kernel, [0])().tolist() == [2] * 5 + [1] * 3


def test_a_binding_keeps_the_value_it_was_made_with(cpu: Compile) -> None:
    @T.prim_func
    def kernel(Y: T.Tensor((3,), "int32")):
        with T.Kernel(1):
            v = T.alloc_var("int32", init=4)
            before = v * 10
            v = v + 1
            Y[0] = before
            Y[1] = v
            Y[2] = before + v

    assert cpu(kernel, [0])().tolist() == [40, 5, 45]


def test_a_variable_written_in_a_parallel_loop_is_private_to_the_iteration(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((64, 8), "float32"), Y: T.Tensor((64,), "float32"), Z: T.Tensor((64,), "float32")):
        with T.Kernel(1):
            total = T.alloc_var("float32", init=100.0)
            kept = T.alloc_local((8,), "float32")
            T.fill(kept, 1.0)
            for i in T.Parallel(64):
                for k in T.serial(8):
                    total = total + X[i, k]
                    kept[k] = kept[k] + X[i, k]
                Y[i] = total
                Z[i] = kept[7]

    x = randn(64, 8)
    y, z = cpu(kernel, [1, 2])(x)
    assert torch.allclose(y, x.sum(1) + 100, atol=1e-4)
    assert torch.allclose(z, x[:, 7] + 1, atol=1e-6)


def test_a_buffer_declared_in_a_loop_keeps_its_contents(cpu: Compile) -> None:
    @T.prim_func
    def kernel(Y: T.Tensor((4,), "int32")):
        with T.Kernel(1):
            for i in T.serial(4):
                tile = T.alloc_shared((1,), "int32")
                if i == 0:
                    tile[0] = 7
                tile[0] = tile[0] + 1
                Y[i] = tile[0]

    assert cpu(kernel, [0])().tolist() == [8, 9, 10, 11]


def test_launches_run_one_after_the_other_over_a_workspace(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((64, 64), "float32"), Y: T.Tensor((64,), "float32"), Z: T.Tensor((1,), "float32")):
        with T.Kernel(64) as bx:
            x = T.alloc_fragment((64,), "float32")
            s = T.alloc_fragment((1,), "float32")
            T.copy(X[bx, 0], x)
            T.reduce_sum(x, s, dim=0)
            Y[bx] = s[0]
        with T.Kernel(1):
            y = T.alloc_fragment((64,), "float32")
            t = T.alloc_fragment((1,), "float32")
            T.copy(Y, y)
            T.reduce_sum(y, t, dim=0)
            Z[0] = t[0]

    x = randn(64, 64)
    y, z = cpu(kernel, [1, 2])(x)
    assert torch.allclose(y, x.sum(1), atol=1e-4)
    assert torch.allclose(z, x.sum().view(1), atol=1e-3)


def test_a_workspace_belongs_to_the_launch(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((32, 16), "float32"), Y: T.Tensor((32, 16), "float32")):
        with T.Kernel(32) as bx:
            work = T.alloc_global((32, 16), "float32")
            x = T.alloc_fragment((16,), "float32")
            T.copy(X[bx, 0], x)
            T.copy(x, work[bx, 0])
            for i in T.Parallel(16):
                Y[bx, i] = work[bx, 15 - i]

    x = randn(32, 16)
    assert torch.equal(cpu(kernel, [1])(x), x.flip(1))


@pytest.mark.parametrize(("m", "n"), [(1, 1), (64, 64), (100, 33), (7, 200)])
def test_symbolic_sizes_with_tails(cpu: Compile, m: int, n: int) -> None:
    M, N = T.dynamic("M"), T.dynamic("N")

    @T.prim_func
    def kernel(X: T.Tensor((M, N), "float16"), Y: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, 16)) as (bx, by):
            x = T.alloc_shared((16, 32), "float16")
            T.copy(X[by * 16, bx * 32], x)
            for i, j in T.Parallel(16, 32):
                Y[by * 16 + i, bx * 32 + j] = x[i, j] + X[by * 16 + i, bx * 32 + j]

    x = randn(m, n).half()
    assert torch.equal(cpu(kernel, [1])(x), x + x)


def test_scalars_are_parameters(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((50,), "float32"), a: T.float32, n: T.int32, Y: T.Tensor((50,), "float32")):
        with T.Kernel(1):
            for i in T.Parallel(50):
                if i < n:
                    Y[i] = X[i] * a
                else:
                    Y[i] = X[i]

    x = randn(50)
    y = cpu(kernel, [3])(x, 2.5, 20)
    assert torch.equal(y, torch.cat([x[:20] * 2.5, x[20:]]))


def test_declared_strides_are_used(cpu: Compile) -> None:
    S = T.dynamic("S")

    @T.prim_func
    def kernel(X: T.StridedTensor((10, 20), (S, 1), "float32"), Y: T.Tensor((10, 20), "float32")):
        with T.Kernel(1):
            x = T.alloc_shared((10, 20), "float32")
            T.copy(X, x)
            T.copy(x, Y)

    compiled = cpu(kernel, [1])
    wide = randn(10, 55)
    assert torch.equal(compiled(wide[:, 7:27]), wide[:, 7:27])


def test_tensors_of_more_than_two_to_the_31_elements(cpu: Compile) -> None:
    columns = 2**30 + 7

    @T.prim_func
    def kernel(X: T.Tensor((3, columns), "int8"), Y: T.Tensor((4,), "int8")):
        with T.Kernel(4) as bx:
            X[2, columns - 1 - bx] = bx + 1
            for i in T.Parallel(4):
                if i == bx:
                    Y[i] = X[i % 3, columns - 1 - bx] + X[2, columns - 1 - i]

    x = torch.zeros(3, columns, dtype=torch.int8)  # pages that are never touched take no memory
    y = torch.zeros(4, dtype=torch.int8)
    cpu(kernel)(x, y)
    assert x[2, -4:].tolist() == [4, 3, 2, 1]
    assert y.tolist() == [1, 2, 6, 4]
    assert x[:2].view(-1)[-10:].sum() == 0


def test_a_one_dimensional_tensor_of_more_than_two_to_the_31_elements(cpu: Compile) -> None:
    n, block = 2**31 + 100, 2**20

    @T.prim_func
    def kernel(X: T.Tensor((n,), "int8")):
        with T.Kernel(T.ceildiv(n, block)) as bx:
            if bx == T.ceildiv(n, block) - 1:
                for i in T.Parallel(block):
                    X[bx * block + i] = 5

    x = torch.zeros(n, dtype=torch.int8)
    cpu(kernel)(x)
    assert x[-101:].tolist() == [0] + [5] * 100


def test_host_branches_choose_a_launch_and_host_assertions_refuse_one(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((40,), "float32"), n: T.int32, Y: T.Tensor((40,), "float32")):
        assert n >= 0, "n must not be negative"
        if n > 10:
            with T.Kernel(1):
                for i in T.Parallel(40):
                    Y[i] = X[i] * 2.0
        else:
            with T.Kernel(2) as bx:
                for i in T.Parallel(20):
                    Y[bx * 20 + i] = X[bx * 20 + i] + T.cast(n, "float32")

    compiled, x = cpu(kernel, [2]), randn(40)
    assert torch.equal(compiled(x, 11), x * 2)
    assert torch.equal(compiled(x, 3), x + 3)
    with pytest.raises(LaunchError, match="n must not be negative"):
        compiled(x, -1)
    with pytest.raises(LaunchError, match="scalar int32, which cannot hold"):
        compiled(x, 2**40)


def test_a_failed_device_assertion_is_an_error_with_its_message_and_line(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((100,), "int32"), Y: T.Tensor((100,), "int32")):
        with T.Kernel(100) as bx:
            T.device_assert(X[bx] >= 0, "negative element")
            Y[bx] = X[bx]

    compiled = cpu(kernel, [1])
    x = torch.arange(100, dtype=torch.int32)
    assert torch.equal(compiled(x), x)
    x[60] = -1
    with pytest.raises(LaunchError, match=r"test_control\.py:\d+.*negative element"):
        compiled(x)
    x[60] = 1
    compiled(x)  # the next call starts afresh


def test_an_empty_grid_runs_no_block(cpu: Compile) -> None:
    N = T.dynamic("N")

    @T.prim_func
    def kernel(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 16)) as bx:
            for i in T.Parallel(16):
                Y[bx * 16 + i] = X[bx * 16 + i]

    assert cpu(kernel, [1])(torch.empty(0)).shape == (0,)


def test_three_grid_axes(cpu: Compile) -> None:
    @T.prim_func
    def kernel(Y: T.Tensor((3, 5, 7), "int32")):
        with T.Kernel(7, 5, 3) as (x, y, z):
            Y[z, y, x] = z * 100 + y * 10 + x

    want = torch.arange(3).view(3, 1, 1) * 100 + torch.arange(5).view(1, 5, 1) * 10 + torch.arange(7)
    assert torch.equal(cpu(kernel, [0])(), want.int())


def test_persistent_blocks_cover_the_domain_once(cpu: Compile) -> None:
    @T.prim_func
    def kernel(Y: T.Tensor((13, 9), "int32")):
        with T.Kernel(4) as bid:
            for i, j in T.Persistent([13, 9], 4, bid, group_size=2):
                T.atomic_add(Y[i, j], 1)

    y = torch.zeros(13, 9, dtype=torch.int32)
    cpu(kernel)(y)
    assert y.unique().tolist() == [1]


def test_slices_are_assigned_element_by_element(cpu: Compile) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((4, 16), "float32"), Y: T.Tensor((4, 8), "float32")):
        with T.Kernel(4) as bx:
            x = T.alloc_local((8,), "float32")
            x[0:8] = X[bx, 4:12]
            for i in T.serial(8):
                Y[bx, i] = x[i]

    x = randn(4, 16)
    assert torch.equal(cpu(kernel, [1])(x), x[:, 4:12])


def test_print_writes_to_standard_output(cpu: Compile, capfd: pytest.CaptureFixture[str]) -> None:
    @T.prim_func
    def kernel(X: T.Tensor((2,), "float32")):
        with T.Kernel(1):
            T.print(X[1], msg="second:")

    cpu(kernel)(torch.tensor([1.0, 2.5]))
    import ctypes

    ctypes.CDLL(None).fflush(None)
    assert "second: 2.5" in capfd.readouterr().out
