"""Launching through a stand-in for CANN's runtime that checks every argument and runs the simulator's code."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tilelang.language as T
import torch
from hypothesis import given
from hypothesis import strategies as st

import core
from backends.ascend.runtime import library
from backends.ascend.runtime.acl import Acl
from backends.ascend.runtime.arguments import LaunchPlan, Slot, number_bytes
from backends.ascend.runtime.packing import Packer
from backends.ascend.tests.standin.machine import CALLS, OTHER_STREAM, STREAM, Machine, ascend_machine, build_runtime
from core.runtime import Extent
from tests.kernels import Case, all_kernels

CHIPS = ("ascend:910b3", "ascend:950pr_9589")
#: One kernel for each kind of core, and what it is.
KERNELS = {
    "cube": "gemm.gemm[nn-float16-float32-128x128x96]",
    "vector": "softmax.softmax[7x200]",
    "mix": "attention.flash_attention[causal-d64]",
}


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_runtime(tmp_path_factory.mktemp("ascendcl"))


@pytest.fixture
def machine(runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    with ascend_machine(runtime, tmp_path / "cann", monkeypatch) as found:
        yield found


def corpus(name: str) -> Case:
    return next(case for case in all_kernels() if case.name == name)


def _zeros(argument: Any) -> torch.Tensor:
    return torch.zeros(argument.shape, dtype=getattr(torch, argument.dtype))


class Call:
    """Arguments of a case's kernel in its order, outputs holding zeros, all of them known to the machine."""

    def __init__(self, machine: Machine, case: Case, kernel: core.Kernel) -> None:
        signature = kernel.program.signature
        self.case = case
        self.inputs = list(case.inputs(torch.Generator().manual_seed(3)))
        self.outputs = [_zeros(signature.arguments[position]) for position in signature.outputs]
        rest = iter(self.inputs)
        outputs = dict(zip(signature.outputs, self.outputs, strict=True))
        self.arguments = [outputs[i] if i in outputs else next(rest) for i in range(len(signature.arguments))]
        machine.tensors(*(a for a in self.arguments if isinstance(a, torch.Tensor)))

    def check(self) -> None:
        self.case.check(self.outputs, self.inputs)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("kind", KERNELS)
def test_kernels_of_every_kind_are_loaded_packed_launched_and_right(machine: Machine, kind: str, chip: str) -> None:
    case = corpus(KERNELS[kind])
    kernel = case.compile(chip)
    machine.describe(kernel)
    assert kernel.build().metadata["launches"][0]["kernel_type"] == kind
    call = Call(machine, case, kernel)
    kernel(*call.arguments)
    assert machine.library.standin_pending() == 1
    assert not call.outputs[0].any(), "a launch returns before the kernel has run"
    machine.synchronize()
    call.check()
    assert kernel.provenance.evidence == "device"
    wanted = ["aclrtBinaryLoadFromData", "aclrtBinaryGetFunction", "aclrtLaunchKernelWithHostArgs"]
    assert [call for call in machine.calls if call in wanted] == wanted
    # 910B takes the address where cores synchronise, 950 does not.
    assert ("aclrtGetHardwareSyncAddr" in machine.calls) == (chip == "ascend:910b3")


def test_an_image_is_loaded_once_and_the_stream_asked_at_each_launch(machine: Machine) -> None:
    case = corpus(KERNELS["vector"])
    kernel = case.compile("ascend:910b3")
    machine.describe(kernel)
    call = Call(machine, case, kernel)
    kernel(*call.arguments)
    machine.stream = OTHER_STREAM
    kernel(*call.arguments)
    assert machine.asked_devices == [0, 0]
    assert machine.calls.count("aclrtBinaryLoadFromData") == 1
    machine.synchronize(STREAM)
    assert machine.library.standin_pending() == 1
    machine.synchronize(OTHER_STREAM)
    call.check()


def test_a_stream_given_is_the_one_used_and_torch_is_not_asked(machine: Machine) -> None:
    case = corpus(KERNELS["vector"])
    kernel = case.compile("ascend:910b3")
    machine.describe(kernel)
    call = Call(machine, case, kernel)
    kernel(*call.arguments, stream=OTHER_STREAM)
    assert machine.asked_devices == []
    machine.synchronize(OTHER_STREAM)
    call.check()


def test_no_current_stream_is_an_error_unless_the_default_one_is_asked_for(machine: Machine) -> None:
    case = corpus(KERNELS["vector"])
    kernel = case.compile("ascend:910b3")
    machine.describe(kernel)
    call = Call(machine, case, kernel)
    machine.stream = 0
    with pytest.raises(core.LaunchError, match="no current stream for npu:0") as caught:
        kernel(*call.arguments)
    assert "stream=0" in caught.value.hint
    assert "aclrtLaunchKernelWithHostArgs" not in machine.calls
    machine.library.standin_stream(0)
    kernel(*call.arguments, stream=0)
    machine.synchronize(0)
    call.check()


def test_a_launch_can_be_made_to_wait(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEHAL_LAUNCH_BLOCKING", "1")
    case = corpus(KERNELS["vector"])
    kernel = case.compile("ascend:910b3")
    machine.describe(kernel)
    call = Call(machine, case, kernel)
    kernel(*call.arguments)
    call.check()
    machine.fail("aclrtSynchronizeStream", 507035)
    with pytest.raises(core.LaunchError, match=r"aclrtSynchronizeStream failed with 507035 \(a vector core faulted\)"):
        kernel(*call.arguments)


@pytest.mark.parametrize("kinds", ["sLWpp4ggg", "sLWpppggg", "LWppggg", "sLWp4ggg"])
def test_a_block_that_is_not_the_kernels_is_noticed(machine: Machine, kinds: str) -> None:
    """The stand-in really looks: described with other arguments, the same launch is refused by name."""
    case = corpus(KERNELS["vector"])
    kernel = case.compile("ascend:910b3")
    machine.describe(kernel, kinds=kinds)
    call = Call(machine, case, kernel)
    with pytest.raises(core.LaunchError, match=r"aclrtLaunchKernelWithHostArgs failed with 107000") as caught:
        kernel(*call.arguments)
    assert "CANN says:" in caught.value.message


def test_a_wrong_number_of_arguments_is_refused_before_the_runtime_is_called(machine: Machine) -> None:
    case = corpus(KERNELS["vector"])
    kernel = case.compile("ascend:910b3")
    machine.describe(kernel)
    call = Call(machine, case, kernel)
    before = machine.calls
    with pytest.raises(core.TileHALError, match="argument"):
        kernel(*call.arguments, *call.outputs)
    assert "aclrtLaunchKernelWithHostArgs" not in machine.calls[len(before) :]


@pytest.mark.parametrize("name", CALLS)
def test_an_error_code_of_each_call_is_reported_by_name(
    machine: Machine, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEHAL_LAUNCH_BLOCKING", "1")
    # A lock is what makes a launch copy something; another device is what makes it set one.
    monkeypatch.setenv(
        "STANDIN_ANSWERS",
        "main_infer_sync_block_lock_num_function=2 main_infer_sync_block_lock_init_function=7",
    )
    case = corpus(KERNELS["vector"])
    kernel = case.compile("ascend:910b3")
    machine.describe(kernel, locks=2)
    call = Call(machine, case, kernel)
    if name == "aclrtSetDevice":
        machine.library.aclrtSetDevice(1)
    machine.fail(name, 207001)
    with pytest.raises(CALLS[name], match=rf"{name} failed with 207001 \(out of memory\).*asked to fail") as caught:
        kernel(*call.arguments)
    assert caught.value.details == {"call": name, "code": 207001}
    assert caught.value.hint


def test_locks_and_workspace_are_given_as_the_build_says(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "STANDIN_ANSWERS",
        "main_infer_workspace_shape_function=4096 main_infer_sync_block_lock_num_function=3"
        " main_infer_sync_block_lock_init_function=7",
    )
    case = corpus(KERNELS["vector"])
    kernel = case.compile("ascend:910b3")
    machine.describe(kernel, workspace=4096, locks=3)
    call = Call(machine, case, kernel)
    for _ in range(2):
        kernel(*call.arguments)
    assert machine.calls.count("aclrtMemcpyAsync") == 2, "locks are set before each launch"
    machine.synchronize()
    call.check()
    assert machine.calls.count("aclrtMallocHost") == 1


def test_the_thread_gets_its_device_back(machine: Machine) -> None:
    case = corpus(KERNELS["vector"])
    kernel = case.compile("ascend:910b3")
    machine.describe(kernel)
    call = Call(machine, case, kernel)
    machine.library.aclrtSetDevice(1)
    kernel(*call.arguments)
    device = ctypes.c_int32()
    machine.library.aclrtGetDevice(ctypes.byref(device))
    assert device.value == 1


def scaled(dtype: str) -> Any:
    """Y = X * factor for a tensor of any length, with a 64-bit, an 8-bit and a float number between."""
    N = T.dynamic("N")

    @T.prim_func
    def main(
        X: T.Tensor((N,), dtype), factor: T.float32, wide: T.int64, small: T.int8, Y: T.Tensor((N,), dtype)
    ):  # fmt: skip
        with T.Kernel(T.ceildiv(N, 64), threads=64) as block:
            for i in T.Parallel(64):
                if block * 64 + i < N:
                    Y[block * 64 + i] = X[block * 64 + i] * factor + T.cast(wide, dtype) + T.cast(small, dtype)

    return main


@pytest.mark.parametrize("chip", CHIPS)
def test_numbers_of_every_width_and_sizes_reach_the_kernel(machine: Machine, chip: str) -> None:
    kernel = core.compile(scaled("float32"), target=chip)
    machine.describe(kernel)
    for length in (1, 64, 1000):
        x, y = torch.randn(length), torch.zeros(length)
        machine.tensors(x, y)
        kernel(x, 2.5, -3, -7, y)
        machine.synchronize()
        torch.testing.assert_close(y, x * 2.5 - 3 - 7)


def test_an_empty_grid_launches_nothing(machine: Machine) -> None:
    kernel = core.compile(scaled("float32"), target="ascend:910b3")
    machine.describe(kernel)
    kernel(torch.empty(0), 1.0, 0, 0, torch.empty(0))
    assert machine.library.standin_pending() == 0


def test_more_blocks_than_the_runtime_counts_are_refused(machine: Machine) -> None:
    kernel = core.compile(scaled("float32"), target="ascend:910b3")
    machine.describe(kernel)
    x = torch.zeros(64 * 65536)
    with pytest.raises(core.LaunchError, match=r"65536 x 1 x 1 = 65,536 blocks; .* at most 65,535") as caught:
        kernel(x, 1.0, 0, 0, x.clone())
    assert "blockify" in caught.value.hint


def test_blocks_in_a_loop_are_launched_once_per_core(machine: Machine) -> None:
    kernel = core.compile(scaled("float32"), target="ascend:910b3", options={"blockify": True})
    machine.describe(kernel)
    x, y = torch.randn(64 * 100), torch.zeros(64 * 100)
    machine.tensors(x, y)
    kernel(x, 2.0, 0, 1, y)
    machine.synchronize()
    torch.testing.assert_close(y, x * 2.0 + 1)


def test_launches_of_one_program_share_a_stream_in_order(machine: Machine) -> None:
    case = corpus("language.workspace[10x128]")
    kernel = case.compile("ascend:910b3")
    machine.describe(kernel)
    # Its own workspace is allocated by the launch: any address will do.
    machine.library.standin_region(0, 2**63)
    call = Call(machine, case, kernel)
    kernel(*call.arguments)
    machine.synchronize()
    call.check()


# -------------------------------------------------------------------------------------------- without CANN


def test_without_cann_the_error_says_what_to_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in library.HOME_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(library, "DEFAULT_HOMES", (str(tmp_path / "cann"),))
    library.load_library.cache_clear()
    with pytest.raises(core.ToolchainNotFound, match=r"libascendcl\.so") as caught:
        library.load_library()
    for place in ("$ASCEND_HOME_PATH (not set)", "LD_LIBRARY_PATH=", str(tmp_path / "cann")):
        assert place in caught.value.message
    assert "set_env.sh" in caught.value.hint
    assert "simulate=True" in caught.value.hint
    (tmp_path / "cann").mkdir()
    (tmp_path / "cann" / "set_env.sh").touch()
    with pytest.raises(core.ToolchainNotFound) as caught:
        library.load_library()
    assert f"source {tmp_path / 'cann' / 'set_env.sh'}" in caught.value.hint


def test_a_library_that_is_none_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "libascendcl.so").write_text("not a library")
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    library.load_library.cache_clear()
    with pytest.raises(core.DeviceUnavailable, match="cannot be loaded") as caught:
        library.load_library()
    assert "set_env.sh" in caught.value.hint


def test_a_cann_without_the_calls_is_too_old() -> None:
    with pytest.raises(core.DeviceUnavailable, match=r"aclrtLaunchKernelWithHostArgs.*too old"):
        Acl(ctypes.CDLL("libm.so.6"))


def test_without_torch_npu_the_error_says_so(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    case = corpus(KERNELS["vector"])
    kernel = case.compile("ascend:910b3")
    machine.describe(kernel)
    call = Call(machine, case, kernel)
    monkeypatch.setitem(sys.modules, "torch_npu", None)
    with pytest.raises(core.DeviceUnavailable, match="torch_npu is needed"):
        kernel(*call.arguments)


def test_without_hivmc_there_is_nothing_to_launch(machine: Machine, tmp_path: Path) -> None:
    for program in (tmp_path / "cann" / "bin").iterdir():
        program.unlink()
    case = corpus(KERNELS["vector"])
    kernel = case.compile("ascend:910b3")
    with pytest.raises(core.ToolchainNotFound, match="hivmc") as caught:
        case.run(kernel, case.inputs(torch.Generator().manual_seed(0)))
    assert "set_env.sh" in caught.value.hint


TYPES = {"i8": ctypes.c_int32, "i32": ctypes.c_int32, "f32": ctypes.c_float, "i64": ctypes.c_int64}


@given(
    tensors=st.integers(0, 6),
    numbers=st.lists(st.tuples(st.sampled_from(sorted(TYPES)), st.integers(-100, 100)), max_size=8),
    grid=st.tuples(*[st.integers(1, 65535)] * 3),
    sync=st.booleans(),
)
def test_the_block_is_laid_out_like_a_c_structure(
    tensors: int, numbers: list[tuple[str, int]], grid: tuple[int, int, int], sync: bool
) -> None:
    slots = [Slot("lock", "lock", "memref<?xi8>"), Slot("workspace", "workspace", "memref<?xi8>")]
    slots += [Slot("tensor", f"t{i}", "memref<?xf16>", i) for i in range(tensors)]
    slots += [Slot("scalar", f"s{i}", kind, tensors + i) for i, (kind, _) in enumerate(numbers)]
    slots += [Slot("grid", axis, "i32") for axis in "xyz"] + [Slot("block", axis, "i32") for axis in "xyz"]
    memory = [torch.zeros(1) for _ in range(tensors)]

    class Block(ctypes.Structure):
        _fields_ = [
            *([("sync", ctypes.c_uint64)] if sync else []),
            *((name, ctypes.c_uint64) for name in ("lock", "workspace", *(f"t{i}" for i in range(tensors)))),
            *((f"s{i}", TYPES[kind]) for i, (kind, _) in enumerate(numbers)),
            *((axis, ctypes.c_int32) for axis in "xyz"),
        ]

    plan = LaunchPlan("kernel", "main", tuple(slots), (), False)
    packed = Packer(plan, sync_address=sync).pack(
        [*memory, *(value for _, value in numbers)], {}, grid, {"lock": 11, "workspace": 12}, 10
    )
    assert len(packed) == ctypes.sizeof(Block)
    block = Block.from_buffer_copy(packed)
    assert (block.lock, block.workspace) == (11, 12)
    assert not sync or block.sync == 10
    assert [getattr(block, f"t{i}") for i in range(tensors)] == [tensor.data_ptr() for tensor in memory]
    for i, (kind, value) in enumerate(numbers):
        found = getattr(block, f"s{i}")
        assert (found & 0xFF if kind == "i8" else found) == (value & 0xFF if kind == "i8" else value)
    assert (block.x, block.y, block.z) == grid


def test_numbers_wrap_and_round_like_the_kernels_types() -> None:
    assert number_bytes(-1, "i32") == b"\xff" * 4
    assert number_bytes(2**32 + 5, "i32") == struct.pack("<i", 5)
    assert number_bytes(200, "i8") == b"\xc8"
    assert number_bytes(-(2**40), "i64") == struct.pack("<q", -(2**40))
    assert number_bytes(True, "i8") == b"\x01"
    assert number_bytes(0.1, "f32") == struct.pack("<f", 0.1)
    assert number_bytes(1e300, "f32") == struct.pack("<f", float("inf"))
    assert number_bytes(1.5, "bf16") == bytes.fromhex("c03f")
    assert number_bytes(1e6, "f16") == struct.pack("<e", float("inf"))


def test_a_dimension_beyond_what_the_module_counts_is_refused() -> None:
    """Passed as i32 it would wrap, and so would a tile's end computed from it."""
    slot = Slot("symbol", "m", "i32")
    wide = Slot("symbol", "n", "i64")
    plan = LaunchPlan("kernel", "main", (slot, wide), (Extent("(m + 7)//8"),), True)
    assert plan.blocks({"m": 2**31 - 2**24, "n": 2**40}, 20) == (20, 1, 1)
    with pytest.raises(core.LaunchError, match="m = 2,130,706,433 is too large") as caught:
        plan.blocks({"m": 2**31 - 2**24 + 1, "n": 1}, 20)
    assert caught.value.hint == 'declare it T.dynamic("m", "int64")'
