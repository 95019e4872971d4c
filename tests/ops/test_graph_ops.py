"""The operators' functions under torch.compile and torch.export: one call in the graph, what is refused, gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import core
from core.ops import functional

ROWS = {"block_M": 16, "block_N": 64, "threads": 128}
PRODUCT = {"block_M": 16, "block_N": 32, "block_K": 32, "num_stages": 1, "threads": 128}
DENSE = {**PRODUCT, "panel": 0, "policy": 0}
ATTENTION = {"block_M": 16, "block_N": 16, "num_stages": 1, "threads": 128}
#: Names for `activation` and `gated_activation`, which is what is in a graph.
NAMED = {"relu", "gelu", "silu", "silu_and_mul", "gelu_and_mul"}
OPERATORS = sorted(set(functional.__all__) - {"forget", "kernels"} - NAMED)


class Everything(torch.nn.Module):
    """Every function once, on inputs whose first dimension is the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = torch.nn.Parameter(torch.rand(64))
        self.weight = torch.nn.Parameter(torch.randn(32, 64) / 8)
        self.experts = torch.nn.Parameter(torch.randn(2, 64, 32) / 8)
        self.filters = torch.nn.Parameter(torch.randn(2, 2, 16, 16) / 8)

    def forward(self, x: torch.Tensor, ends: torch.Tensor, lengths: torch.Tensor) -> dict[str, Any]:
        found: dict[str, Any] = {"rmsnorm": functional.rmsnorm(x + 1, self.gain, eps=1e-5, **ROWS)}
        found["add_rmsnorm"] = functional.add_rmsnorm(x, found["rmsnorm"], self.gain, **ROWS)
        found["softmax"] = functional.softmax(found["add_rmsnorm"][1], out=torch.empty_like(x), **ROWS)
        found["layernorm"] = functional.layernorm(x, self.gain, self.gain, **ROWS)
        found["linear"] = functional.linear(x, self.weight, **DENSE)
        found["gemm"] = functional.gemm(x, self.weight.mT, residual=found["linear"], activation="silu", **DENSE)
        found["grouped_gemm"] = functional.grouped_gemm(x, self.experts, ends, **PRODUCT)
        found["activation"] = functional.gelu(x, approximate="tanh", block_N=128, threads=128)
        found["gated_activation"] = functional.silu_and_mul(x, **ROWS)
        heads = x.view(-1, 1, 2, 32)
        found["attention"] = functional.attention(heads, heads, heads, **ATTENTION)
        found["attention_varlen"] = functional.attention_varlen(*[x.view(-1, 2, 32)] * 3, ends, ends, **ATTENTION)
        cache, one = x.view(-1, 4, 16), x.view(-1, 4, 16) * 2
        found["mla_decode"] = functional.mla_decode(one, one, cache, cache, lengths, target="cpu")
        found["conv2d"] = functional.conv2d(x.view(-1, 2, 2, 16), self.filters, padding=1, **PRODUCT)
        return found

    @staticmethod
    def inputs(batch: int) -> tuple[torch.Tensor, ...]:
        ends = torch.tensor([0, 2, batch], dtype=torch.int32)
        return torch.randn(batch, 64), ends, torch.full((batch,), 3, dtype=torch.int32)


class Checking(torch.fx.Interpreter):
    """Runs a graph and puts every operator of TileHAL in it to torch's own checks, with the arguments of its call."""

    CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor")

    def __init__(self, graph: torch.fx.GraphModule) -> None:
        super().__init__(graph)
        self.called: list[str] = []

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if str(target).startswith("tilehal."):
            self.called.append(str(target))
            torch.library.opcheck(target, args, kwargs, test_utils=self.CHECKS)
        return super().call_function(target, args, kwargs)


@pytest.fixture(scope="module")
def everything() -> tuple[Everything, tuple[torch.Tensor, ...], dict[str, Any]]:
    """The module, its inputs for five rows, and what it gives eagerly: its kernels are compiled once."""
    model, inputs = Everything(), Everything.inputs(5)
    with torch.no_grad():
        return model, inputs, model(*inputs)


def test_every_function_is_one_call_of_one_graph(everything: Any) -> None:
    model, inputs, expected = everything
    graphs, given = [], []

    def record(graph: torch.fx.GraphModule, tensors: list[Any]) -> Any:
        graphs.append(graph)
        return lambda *args: given.append(args) or graph(*args)

    with torch.no_grad():
        got = torch.compile(model, backend=record, fullgraph=True, dynamic=True)(*inputs)
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
        (graph,) = graphs
        checking = Checking(graph)
        checking.run(*given[0])
    assert sorted(name.split(".")[1] for name in checking.called) == OPERATORS
    assert "tilehal.softmax.into" in checking.called


def test_an_exported_program_has_the_calls_with_a_symbolic_batch(everything: Any, tmp_path: Path) -> None:
    model, inputs, expected = everything
    batch = {0: torch.export.Dim("batch", min=4)}
    ends = {0: torch.export.Dim.STATIC}
    with torch.no_grad():
        program = torch.export.export(model, inputs, dynamic_shapes=(batch, ends, batch))
        torch.export.save(program, tmp_path / "model.pt2")
        torch.testing.assert_close(
            torch.export.load(tmp_path / "model.pt2").module()(*inputs), expected, rtol=0, atol=0
        )
    called = [node for node in program.graph.nodes if str(node.target).startswith("tilehal.")]
    assert sorted(str(node.target).split(".")[1] for node in called) == OPERATORS
    rows = next(node for node in called if "layernorm" in str(node.target)).meta["val"].shape[0]
    assert isinstance(rows, torch.SymInt)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_one_compilation_by_torch_serves_every_batch(backend: str) -> None:
    gain, up, down = torch.rand(64), torch.randn(64, 64) / 8, torch.randn(64, 64) / 8

    def block(x: torch.Tensor) -> torch.Tensor:
        y = functional.rmsnorm(x * 2, gain, **ROWS)
        y = functional.gemm(y, up.mT, activation="silu", **DENSE)
        return functional.gemm(y + 1, down.mT, activation="silu", **DENSE) * 2

    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(block, backend=counter, fullgraph=True, dynamic=True)
    for rows, sequences in ((4, 3), (2, 9)):
        x = torch.randn(sequences, rows, 64)
        torch.testing.assert_close(compiled(x), block(x))
    assert counter.frame_count == 1


def meta(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def test_dtypes_and_extents_are_known_without_running() -> None:
    ops = torch.ops.tilehal
    bytes_, eighths = meta(20, 64, dtype=torch.int8), meta(20, 64, dtype=torch.float8_e4m3fn)
    assert ops.gemm(bytes_, bytes_.mT).dtype == torch.int32
    assert ops.gemm(eighths, eighths.mT).dtype == torch.float16
    assert ops.gemm(bytes_, bytes_.mT, out_dtype=torch.float32).dtype == torch.float32
    grouped = ops.grouped_gemm(
        meta(9, 64), meta(2, 64, 8), meta(3, dtype=torch.int32), options="{'out_dtype': 'float32'}"
    )
    assert (grouped.shape, grouped.dtype) == ((9, 8), torch.float32)
    assert ops.conv2d(meta(2, 9, 8, 16), meta(3, 3, 16, 4), 2, 1).shape == (2, 5, 4, 4)


LEAF = torch.empty(8, 64, requires_grad=True)
WRONG: list[tuple[Callable[[torch.Tensor], Any], type[Exception], str]] = [
    (lambda x: functional.softmax(x.mT), core.ShapeMismatch, "has strides"),
    (lambda x: functional.gemm(x, x), core.ShapeMismatch, "is no product of matrices"),
    (lambda x: functional.rmsnorm(x, x[0], eps=-1.0), core.KernelError, "eps=-1.0"),
    (lambda x: functional.softmax(x * x.clone().requires_grad_()), core.LaunchError, "softmax has no backward"),
    (lambda x: functional.softmax(x, out=LEAF), core.LaunchError, "softmax has no backward"),
]


@pytest.mark.parametrize(("call", "error", "message"), WRONG)
def test_what_is_refused_eagerly_is_refused_while_tracing(call: Any, error: type[Exception], message: str) -> None:
    x = torch.randn(8, 64)
    with pytest.raises(error, match=message):
        call(x)
    # Dynamo puts an error of an operator into one of its own.
    with pytest.raises(Exception, match=f"{error.__name__}.*{message}"):
        torch.compile(call, backend="eager", fullgraph=True)(x)


def test_an_export_raises_the_error_itself() -> None:
    class Wrong(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.softmax(x.mT)

    with pytest.raises(core.ShapeMismatch, match="has strides"):
        torch.export.export(Wrong(), (torch.randn(8, 64),))


def test_what_only_the_kernel_finds_is_raised_when_the_graph_runs() -> None:
    compiled = torch.compile(lambda x: functional.softmax(x), backend="eager", fullgraph=True)
    with pytest.raises(core.ShapeMismatch, match="softmax has no dtype float64"):
        compiled(torch.randn(8, 64).double())


def test_what_no_schema_holds_runs_outside_of_the_graph() -> None:
    target, x = core.target.resolve("cpu"), torch.randn(5, 64)
    call = partial(functional.softmax, target=target, **ROWS)
    torch.testing.assert_close(torch.compile(lambda x: call(x + 1) * 2, backend="eager")(x), (x + 1).softmax(-1) * 2)
    with pytest.raises(Exception, match="not what the operator's schema takes"):
        torch.compile(lambda x: call(x + 1) * 2, backend="eager", fullgraph=True)(x)
    with pytest.raises(core.LaunchError, match="softmax: x is a tensor, got list"):
        torch.compile(lambda x: functional.softmax([x]), backend="eager")(x)


def test_numbers_that_vary_are_those_of_each_call() -> None:
    x, weight = torch.randn(1, 4, 4, 16), torch.randn(2, 2, 16, 16)

    def call(x: torch.Tensor, stride: int, rows: int) -> torch.Tensor:
        return functional.conv2d(x, weight, stride=stride, **{**PRODUCT, "block_M": rows})

    compiled = torch.compile(call, backend="eager", fullgraph=True, dynamic=True)
    functional.forget()
    assert [compiled(x, stride, rows).shape[1] for stride, rows in ((2, 16), (1, 32))] == [2, 3]
    assert [kernel.config.tiles["block_M"] for kernel in functional.kernels()] == [16, 32]


def test_memory_is_counted_as_changed_as_every_torch_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """Older ones take one tensor at a time, and none that was made in inference mode."""
    counted = []

    def of_one(tensor: torch.Tensor) -> None:
        assert not tensor.is_inference()
        counted.append(tensor)

    monkeypatch.setattr(torch.autograd.graph, "increment_version", of_one)
    x, gain = torch.randn(5, 64), torch.ones(64)
    with torch.inference_mode():
        total = torch.empty_like(x)
    memory = [torch.empty_like(x), total]
    torch.ops.tilehal.add_rmsnorm.into(x, x, gain, out=memory, options=repr(ROWS))
    assert len(counted) == 1
    assert counted[0] is memory[0]
    torch.testing.assert_close(total, 2 * x)


def test_written_memory_counts_as_changed() -> None:
    x = torch.randn(5, 64)

    def call(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        before = x * 2
        functional.softmax(x, out=x, **ROWS)
        return before, x * 2

    start, version = x.clone(), x._version
    before, after = torch.compile(call, backend="aot_eager", fullgraph=True)(x)
    assert x._version > version
    torch.testing.assert_close((before, x, after), (start * 2, start.softmax(-1), start.softmax(-1) * 2))
