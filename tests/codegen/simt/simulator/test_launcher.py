"""Arguments, launch plans and modes: what goes in and out of a simulated call."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from typing import Any

import pytest
import torch

import core
from core.runtime import ScalarArgument, TensorArgument
from tests.codegen.simt.simulator.handwritten import kernel, tensor

SCALE = """
extern "C" __global__ void __launch_bounds__(64) k(const float* in, float* out, float factor, int n) {
  const int t = threadIdx.x + blockIdx.x * blockDim.x;
  if (t < n) out[t] = factor * in[t];
}
"""
PARAMETERS: list[TensorArgument | ScalarArgument] = [
    TensorArgument("in", "float32", ("n",)),
    TensorArgument("out", "float32", ("n",), writes=True),
    ScalarArgument("factor", "float32"),
    ScalarArgument("n", "int32"),
]
MODES = pytest.mark.parametrize("checked", [False, True], ids=["plain", "checked"])


@dataclass
class Function:
    """An entry point as lowering describes it."""

    name: str = "k"
    argument_types: tuple[str, ...] = ("handle", "handle", "float32", "int32")
    launch_tags: tuple[str, ...] = ("blockIdx.x", "threadIdx.x")


def plan(**step: Any) -> dict[str, Any]:
    """Lowering's metadata for one launch of `SCALE`."""
    one = {
        "function": "k",
        "arguments": ("tensor:0", "tensor:1", "factor", "n"),
        "extents": ("((n + 63) // 64)", "64"),
        "conditions": (),
        **step,
    }
    return {"functions": [asdict(Function())], "plan": {"steps": [one], "workspaces": (), "scalars": {}}}


@MODES
@pytest.mark.parametrize("count", [1, 64, 100])
def test_the_grid_follows_from_the_call(count: int, checked: bool) -> None:
    launch = kernel(SCALE, PARAMETERS, metadata=plan(), checked=checked)
    given, out = torch.randn(count), torch.zeros(count)
    launch(given, out, 2.5, count)
    assert torch.equal(out, given * 2.5)


def test_a_step_whose_condition_fails_is_left_out() -> None:
    launch = kernel(SCALE, PARAMETERS, metadata=plan(conditions=("n > 10",)))
    for count, ran in ((10, 0.0), (11, 1.0)):
        out = torch.zeros(count)
        launch(torch.ones(count), out, 1.0, count)
        assert out.unique().tolist() == [ran]


def test_a_grid_without_blocks_runs_nothing() -> None:
    launch = kernel(SCALE, PARAMETERS, metadata=plan())
    launch(torch.ones(0), torch.zeros(0), 1.0, 0)


def test_symbols_are_known_to_the_plan() -> None:
    body = 'extern "C" __global__ void k(int* out, int value) { out[threadIdx.x] = value; }'
    metadata = {
        "functions": [asdict(Function(argument_types=("handle", "int32"), launch_tags=("threadIdx.x",)))],
        "plan": {
            "steps": [{"function": "k", "arguments": ("tensor:0", "(m * 3)"), "extents": ("64",), "conditions": ()}],
            "workspaces": (),
        },
    }
    launch = kernel(body, [tensor("out", "int32", 64, writes=True)], metadata=metadata)
    out = torch.zeros(64, dtype=torch.int32)
    launch(out, symbols={"m": 7})
    assert out.unique().tolist() == [21]
    with pytest.raises(core.LaunchError, match="needs m"):
        launch(out)


def test_a_workspace_is_shared_by_the_launches_of_a_call() -> None:
    body = """
extern "C" __global__ void first(int* scratch) { scratch[threadIdx.x] = threadIdx.x; }
extern "C" __global__ void k(int* scratch, int* out) {
  out[threadIdx.x] = scratch[63 - threadIdx.x];
}
"""
    functions = [
        asdict(Function("first", ("handle",), ("threadIdx.x",))),
        asdict(Function("k", ("handle", "handle"), ("threadIdx.x",))),
    ]
    steps = [
        {"function": "first", "arguments": ("workspace:0",), "extents": ("64",), "conditions": ()},
        {"function": "k", "arguments": ("workspace:0", "tensor:0"), "extents": ("64",), "conditions": ()},
    ]
    metadata = {"functions": functions, "plan": {"steps": steps, "workspaces": (("int32", "1*(64)"),)}}
    out = torch.zeros(64, dtype=torch.int32)
    for checked in (False, True):
        launch = kernel(
            body,
            [tensor("out", "int32", 64, writes=True)],
            metadata=metadata,
            checked=checked,
            entry_points=("first", "k"),
        )
        launch(out.zero_())
        assert out.tolist() == list(range(63, -1, -1))


@MODES
def test_tensors_are_used_where_they_are_whatever_their_start_and_strides(checked: bool) -> None:
    body = """
extern "C" __global__ void k(const float* in, float* out) {
  if (threadIdx.x < 10) out[2 * threadIdx.x] = in[3 * threadIdx.x] + 1;
}
"""
    given, out = torch.randn(40), torch.zeros(40)
    launch = kernel(
        body,
        [TensorArgument("in", "float32", (10,), (3,)), TensorArgument("out", "float32", (10,), (2,), writes=True)],
        checked=checked,
    )
    launch(given[1::3][:10], out[3::2][:10])
    expected = torch.zeros(40)
    expected[3:23:2] = given[1:31:3] + 1
    assert torch.equal(out, expected)


@MODES
def test_a_tensor_passed_twice_is_one_memory(checked: bool) -> None:
    body = 'extern "C" __global__ void k(float* a, float* b) { b[threadIdx.x] = 2 * a[threadIdx.x] + 1; }'
    values = torch.arange(64.0)
    kernel(body, [tensor("a", "float32", 64), tensor("b", "float32", 64, writes=True)], checked=checked)(values, values)
    assert torch.equal(values, 2 * torch.arange(64.0) + 1)


def test_checked_mode_gives_back_only_what_is_written() -> None:
    given = torch.randn(64)
    before = given.clone()
    kernel(SCALE, PARAMETERS, metadata=plan(), checked=True)(given, torch.zeros(64), 3.0, 64)
    assert torch.equal(given, before)


def test_half_precision_scalars() -> None:
    body = 'extern "C" __global__ void k(float* out, _Float16 value) { out[threadIdx.x] = (float)value; }'
    out = torch.zeros(64)
    kernel(body, [tensor("out", "float32", 64, writes=True), ScalarArgument("value", "float16")])(out, 0.1)
    assert out[0].item() == torch.tensor(0.1, dtype=torch.float16).item()


def test_more_than_1024_threads_are_refused() -> None:
    body = 'extern "C" __global__ void k(float* out) { out[0] = 1; }'
    with pytest.raises(core.LaunchError, match="a block of 1088 threads"):
        kernel(body, [tensor("out", "float32", 64, writes=True)], threads=1088)(torch.zeros(64))


def test_one_kernel_called_from_many_threads_at_once() -> None:
    launch = kernel(SCALE, PARAMETERS, metadata=plan())
    given = [torch.randn(1000) for _ in range(8)]
    outs = [torch.zeros(1000) for _ in range(8)]
    threads = [threading.Thread(target=launch, args=(given[i], outs[i], float(i), 1000)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(8):
        assert torch.equal(outs[i], given[i] * i)


def test_what_the_shim_lacks_is_named_with_the_source_at_hand() -> None:
    body = 'extern "C" __global__ void k(float* out) { out[0] = __builtin_mxc_teleport(1); }'
    with pytest.raises(core.BuildFailed, match="__builtin_mxc_teleport") as caught:
        kernel(body, [tensor("out", "float32", 64, writes=True)])
    assert caught.value.details["source"]


def test_the_mode_is_an_option_else_the_environment_else_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    from core.codegen.simt.simulator.simulate import CHECKED_VARIABLE, _mode
    from core.compiler import CompileOptions

    assert _mode(CompileOptions()) == "plain"
    monkeypatch.setenv(CHECKED_VARIABLE, "checked")
    assert _mode(CompileOptions()) == "checked"
    assert _mode(CompileOptions(backend={"simulator": "plain"})) == "plain"
    with pytest.raises(core.TileHALError, match="fast"):
        _mode(CompileOptions(backend={"simulator": "fast"}))


def test_a_kernel_simulated_before_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from core.codegen.simt.simulator import build

    kernel(SCALE, PARAMETERS, metadata=plan())

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a tool was run")

    monkeypatch.setattr(build, "run_tool", refuse)
    out = torch.zeros(64)
    kernel(SCALE, PARAMETERS, metadata=plan())(torch.ones(64), out, 2.0, 64)
    assert out.unique().tolist() == [2.0]
