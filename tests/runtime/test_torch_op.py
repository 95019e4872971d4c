"""Kernels as operators of torch: schemas, shapes before running, torch.compile without a break, mutation, devices."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tilelang.language as T
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

import core
from core.runtime import load_exported


def scale() -> Any:
    M = T.dynamic("M")

    @T.prim_func
    def scale(A: T.Tensor((M, 64), "float32"), s: T.float32, C: T.Tensor((M, 64), "float32")):
        with T.Kernel(T.ceildiv(M, 2)) as b:
            for i, j in T.Parallel(2, 64):
                C[b * 2 + i, j] = A[b * 2 + i, j] * s

    return scale


def add_in_place() -> Any:
    @T.prim_func
    def add_in_place(A: T.Tensor((64,), "float32"), n: T.int32):
        with T.Kernel(1):
            for i in T.Parallel(64):
                A[i] = A[i] + T.cast(n, "float32")

    return add_in_place


def split() -> Any:
    @T.prim_func
    def split(A: T.Tensor((64,), "float32"), Low: T.Tensor((32,), "float32"), High: T.Tensor((32,), "float16")):
        with T.Kernel(1):
            for i in T.Parallel(32):
                Low[i] = A[i]
                High[i] = T.cast(A[32 + i], "float16")

    return split


@pytest.fixture(scope="module")
def scaled() -> core.Kernel:
    return core.compile(scale(), target="cpu", out_idx=[2])


@pytest.fixture(scope="module")
def scale_op(scaled: core.Kernel) -> Callable[..., Any]:
    return scaled.as_torch_op("tilehal_test::scale")


@pytest.fixture(scope="module")
def add_op() -> Callable[..., Any]:
    return core.compile(add_in_place(), target="cpu").as_torch_op("tilehal_test::add_in_place")


@pytest.fixture(scope="module")
def split_op() -> Callable[..., Any]:
    return core.compile(split(), target="cpu", out_idx=[1, 2]).as_torch_op("tilehal_test::split")


def test_the_schema_says_what_is_written_and_returned(
    scale_op: Any, add_op: Any, split_op: Any, scaled: core.Kernel
) -> None:
    given = scaled.as_torch_op("tilehal_test::scale_into", outputs="given")
    assert str(scale_op._schema) == "tilehal_test::scale(Tensor A, float s) -> Tensor"
    assert str(add_op._schema) == "tilehal_test::add_in_place(Tensor(a0!) A, SymInt n) -> ()"
    assert str(split_op._schema) == "tilehal_test::split(Tensor A) -> (Tensor, Tensor)"
    assert str(given._schema) == "tilehal_test::scale_into(Tensor A, float s, Tensor(a2!) C) -> ()"


def test_torch_s_own_checks_of_an_operator_pass(scale_op: Any, add_op: Any, split_op: Any) -> None:
    torch.library.opcheck(scale_op, (torch.randn(5, 64), 2.0))
    torch.library.opcheck(add_op, (torch.randn(64), 3))
    torch.library.opcheck(split_op, (torch.randn(64),))


def model(scale_op: Any, add_op: Any) -> Callable[..., Any]:
    def run(x: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        y = scale_op(x + 1, 2.0) * 3
        z = y[0].clone()
        add_op(z, n)
        return y, z

    return run


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compile_keeps_the_kernel_in_one_graph_for_every_size(scale_op: Any, add_op: Any, backend: str) -> None:
    run = model(scale_op, add_op)
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(run, backend=counter, fullgraph=True, dynamic=True)
    for rows, n in ((5, 3), (9, 4), (2, 7)):
        x = torch.randn(rows, 64)
        for got, want in zip(compiled(x, n), run(x, n), strict=True):
            torch.testing.assert_close(got, want)
    assert counter.frame_count == 1


def test_a_written_input_is_seen_by_what_follows(add_op: Any) -> None:
    def run(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        before = x * 2
        add_op(x, 1)
        return before, x * 2

    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    x = torch.randn(64)
    start = x.clone()
    before, after = compiled(x)
    torch.testing.assert_close(before, start * 2)
    torch.testing.assert_close(after, (start + 1) * 2)
    torch.testing.assert_close(x, start + 1)


def test_wrong_shapes_are_refused_while_tracing(scale_op: Any) -> None:
    compiled = torch.compile(lambda x: scale_op(x, 1.0), backend="eager", fullgraph=True)
    wrongs = {
        "axis 1 must be 64": torch.randn(5, 63),
        "rank 1": torch.randn(64),
        "float16": torch.ones(2, 64).half(),
    }
    for text, wrong in wrongs.items():
        with pytest.raises(Exception, match=text):
            compiled(wrong)


def test_shapes_are_known_on_meta_without_running(scale_op: Any, split_op: Any) -> None:
    assert scale_op(torch.empty(7, 64, device="meta"), 1.0).shape == (7, 64)
    low, high = split_op(torch.empty(64, device="meta"))
    assert (low.shape, low.dtype, high.dtype) == ((32,), torch.float32, torch.float16)
    with pytest.raises(core.ShapeMismatch, match=r"argument 0 \(A\): axis 1 must be 64"):
        scale_op(torch.empty(7, 63, device="meta"), 1.0)


def test_a_kernel_that_is_not_registered_breaks_the_graph_and_is_right(scaled: core.Kernel) -> None:
    fresh = core.compile(scale(), target="cpu", out_idx=[2])
    x = torch.randn(3, 64)
    for kernel in (fresh, scaled):
        compiled = torch.compile(lambda x, k=kernel: k(x + 1, 2.0) * 3, backend="eager")
        for _ in range(3):
            torch.testing.assert_close(compiled(x), (x + 1) * 6)
        with pytest.raises(core.ShapeMismatch, match="axis 1 must be 64"):
            compiled(torch.randn(3, 65))


@pytest.mark.parametrize("called_before", [False, True])
def test_a_graph_that_may_not_break_says_how_a_kernel_gets_into_it(tmp_path: Path, called_before: bool) -> None:
    x = torch.randn(3, 64)
    kernel = core.compile(scale(), target="cpu", out_idx=[2])
    exported = load_exported(kernel.export(tmp_path / "out"))
    for called, way in ((kernel, r"kernel\.as_torch_op\("), (exported, r"torch\.library\.custom_op")):
        if called_before:
            called(x, 2.0)
        torch._dynamo.reset()
        with pytest.raises(torch._dynamo.exc.Unsupported, match=way):
            torch.compile(lambda x, k=called: k(x, 2.0) * 3, backend="eager", fullgraph=True)(x)


def test_gradients_go_through_the_backward_that_was_given(scaled: core.Kernel) -> None:
    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.s = inputs[1]

    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient * context.s, None

    op = scaled.as_torch_op("tilehal_test::scale_with_gradient", backward=backward, setup_context=setup)
    x = torch.randn(4, 64, requires_grad=True)
    op(x, 2.5).sum().backward()
    torch.testing.assert_close(x.grad, torch.full((4, 64), 2.5))


def test_without_a_backward_a_gradient_is_an_error_and_not_zero(scale_op: Any) -> None:
    x = torch.ones(2, 64, requires_grad=True)
    y = scale_op(x, 2.0)
    torch.testing.assert_close(y, torch.full((2, 64), 2.0))
    with pytest.raises(core.KernelError, match="tilehal_test::scale has no backward") as caught:
        y.sum().backward()
    assert "backward=" in caught.value.hint
    with pytest.raises(RuntimeError, match="functorch transforms"):
        torch.func.grad(lambda x: scale_op(x, 2.0).sum())(x.detach())
    assert not scale_op(x.detach(), 2.0).requires_grad


def test_what_a_kernel_writes_counts_as_changed_for_autograd(scaled: core.Kernel, add_op: Any) -> None:
    into = scaled.as_torch_op("tilehal_test::scale_into", outputs="given")
    x, weight = torch.ones(2, 64), torch.ones(2, 64, requires_grad=True)
    for change in (lambda y: into(x, 5.0, y), lambda y: add_op(y[0], 3)):
        y = torch.ones(2, 64)
        product = (weight * y).sum()
        change(y)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()
    with torch.inference_mode():
        y = torch.ones(2, 64)
        into(x, 5.0, y)
    torch.testing.assert_close(y, torch.full((2, 64), 5.0))


def test_registering_again_gives_the_same_operator(scaled: core.Kernel, scale_op: Any) -> None:
    assert scaled.as_torch_op("tilehal_test::scale") is scale_op


def test_a_name_stands_for_one_kernel_per_device(scale_op: Any) -> None:
    other = core.compile(scale(), target="cpu", out_idx=[2])
    with pytest.raises(core.KernelError, match="has a kernel for cpu already"):
        other.as_torch_op("tilehal_test::scale")
    with pytest.raises(core.KernelError, match="with other parameters"):
        core.compile(split(), target="cpu", out_idx=[1, 2]).as_torch_op("tilehal_test::scale")


def test_what_would_be_left_out_silently_is_refused(scaled: core.Kernel, scale_op: Any, add_op: Any) -> None:
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None

    with pytest.raises(core.KernelError, match="with another backward or none"):
        scaled.as_torch_op("tilehal_test::scale", backward=backward)
    with pytest.raises(core.KernelError, match="outputs='both', but they are returned or given"):
        scaled.as_torch_op("tilehal_test::both", outputs="both")  # type: ignore[arg-type]
    with pytest.raises(core.KernelError, match="a setup_context and no backward"):
        scaled.as_torch_op("tilehal_test::context", setup_context=backward)
    with pytest.raises(core.KernelError, match="writes its arguments, so torch takes no backward"):
        scaled.as_torch_op("tilehal_test::given_backward", outputs="given", backward=backward)
    # A refusal leaves nothing behind: the name is free.
    assert callable(scaled.as_torch_op("tilehal_test::given_backward", outputs="given"))


@pytest.mark.parametrize("name", ["aten::relu", "aten::add", "tilehal_foreign::op"])
def test_operators_of_others_are_not_touched(scaled: core.Kernel, name: str) -> None:
    library = torch.library.Library("tilehal_foreign", "FRAGMENT")
    library.define("op(Tensor x) -> Tensor")
    with pytest.raises(core.KernelError, match=f"torch has an operator {name} already"):
        scaled.as_torch_op(name)


@pytest.mark.parametrize("name", ["scale", "a::b::c", "a::", "::b", "a b::c", 3])
def test_a_name_has_a_namespace(scaled: core.Kernel, name: str) -> None:
    with pytest.raises(core.KernelError, match="no operator name"):
        scaled.as_torch_op(name)


def test_what_torch_cannot_place_or_size_is_refused() -> None:
    M = T.dynamic("M")

    @T.prim_func
    def ones(C: T.Tensor((M,), "float32")):
        with T.Kernel(T.ceildiv(M, 64)) as b:
            for i in T.Parallel(64):
                C[b * 64 + i] = 1.0

    kernel = core.compile(ones, target="cpu", out_idx=[0])
    with pytest.raises(core.KernelError, match="takes no tensor"):
        kernel.as_torch_op("tilehal_test::ones")
    into = kernel.as_torch_op("tilehal_test::ones_into", outputs="given")
    x = torch.zeros(70)
    into(x)
    assert x.sum() == 70


class Noted(TorchDispatchMode):
    """Notes torch's operators."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators.append(str(func))
        return func(*args, **kwargs or {})


def test_a_call_comes_through_python_once(scale_op: Any) -> None:
    x = torch.randn(3, 64)
    for _ in range(2):  # how outputs are made is worked out once
        scale_op(x, 2.0)
    called: list[str] = []
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None)
    try:
        scale_op(x, 2.0)
    finally:
        sys.setprofile(None)
    assert called.count("__call__") == 1
    assert "outside" in called
    assert not {"below", "one", "differentiable", "forward"} & set(called)


def test_what_torch_does_below_autograd_is_done(scale_op: Any) -> None:
    x = torch.randn(3, 64)
    scale_op(x, 2.0)
    with Noted() as noted:
        torch.testing.assert_close(scale_op(x, 2.0), x * 2)
    assert noted.operators[0] == "tilehal_test.scale.default"
    negated = torch.randn(3, 64, dtype=torch.complex64).conj().imag
    assert negated.is_neg()
    torch.testing.assert_close(scale_op(negated, 2.0), negated * 2)
    torch.testing.assert_close(torch.func.functionalize(lambda x: scale_op(x, 2.0))(x), x * 2)
    graph = make_fx(lambda x: scale_op(x + 1, 2.0))(x)
    assert [node.target for node in graph.graph.nodes if "tilehal_test" in str(node.target)] == [scale_op]
    torch.testing.assert_close(graph(x + 1), (x + 2) * 2)
    with FakeTensorMode() as fakes:
        assert scale_op(fakes.from_tensor(x), 2.0).shape == (3, 64)
    with pytest.raises(core.ShapeMismatch, match="axis 1 must be 64"):
        scale_op(torch.randn(3, 65), 2.0)


def test_a_gradient_is_that_of_each_output() -> None:
    def backward(context: Any, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        return torch.cat([low, high.float()])

    op = core.compile(split(), target="cpu", out_idx=[1, 2]).as_torch_op("tilehal_test::split_back", backward=backward)
    x = torch.randn(64, requires_grad=True)
    for _ in range(2):
        x.grad = None
        low, high = op(x)
        (low.sum() * 3 + high.sum() * 2).backward()
        torch.testing.assert_close(x.grad, torch.cat([torch.full((32,), 3.0), torch.full((32,), 2.0)]))
    compiled = torch.compile(lambda x: op(x)[0] * 3, backend="aot_eager", fullgraph=True)
    x.grad = None
    compiled(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.cat([torch.full((32,), 3.0), torch.zeros(32)]))


def test_a_kernel_whose_class_has_its_own_call_is_called_by_it() -> None:
    class Counting(core.Kernel):
        calls = 0

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return super().__call__(*args, **kwargs)

    kernel: Any = core.compile(scale(), target="cpu", out_idx=[2])
    kernel.__class__ = Counting
    op = kernel.as_torch_op("tilehal_test::scale_counted")
    for _ in range(3):
        op(torch.ones(2, 64), 2.0)
    assert kernel.calls == 3
