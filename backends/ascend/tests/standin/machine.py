"""An Ascend machine that is none: CANN's runtime and `hivmc` stand in, and the simulator's code is what kernels run."""

from __future__ import annotations

import ctypes
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import core
from backends.ascend.runtime import library
from backends.ascend.simulator.simulate import simulator
from core.codegen.host import find_c_compiler
from core.plugins import DetectedDevice
from core.target import Target

FOLDER = Path(__file__).parent
STREAM = 0x5EA0
OTHER_STREAM = 0x5EB0
MAGIC_VECTOR, MAGIC_AI_CORE = 0x41415246, 0x43554245
#: Arguments that the compiler marks, by their letter.
ROLES = {"ffts_base_address": "s", "sync_block_lock": "L", "workspace": "W"}
#: Calls of the runtime that a launch makes, with an error class each.
CALLS = {
    "aclrtSetDevice": core.DeviceUnavailable,
    "aclrtBinaryLoadFromData": core.DeviceUnavailable,
    "aclrtBinaryGetFunction": core.DeviceUnavailable,
    "aclrtGetHardwareSyncAddr": core.LaunchError,
    "aclrtMallocHost": core.LaunchError,
    "aclrtMemcpyAsync": core.LaunchError,
    "aclrtLaunchKernelWithHostArgs": core.LaunchError,
    "aclrtSynchronizeStream": core.LaunchError,
}


def build_runtime(folder: Path) -> Path:
    """Compiles the stand-in for libascendcl.so."""
    path = folder / "libascendcl.so"
    warnings = ("-Wall", "-Wextra", "-Werror")
    command = [*find_c_compiler().command, *warnings, "-O1", "-fPIC", "-shared", "-fvisibility=hidden"]
    subprocess.run([*command, str(FOLDER / "ascendcl.c"), "-o", str(path)], check=True, timeout=120)
    return path


class Machine:
    """What a test sees and sets."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.library.standin_calls.restype = ctypes.c_char_p
        self.library.standin_kernel.argtypes = (
            *(ctypes.c_char_p, ctypes.c_char_p),
            *(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p),
        )
        self.library.standin_region.argtypes = (ctypes.c_uint64, ctypes.c_uint64)
        self.library.standin_stream.argtypes = (ctypes.c_uint64,)
        self.library.aclrtSynchronizeStream.argtypes = (ctypes.c_void_p,)
        self.library.standin_reset()
        self.library.standin_stream(STREAM)
        self.library.standin_stream(OTHER_STREAM)
        self.stream = STREAM
        self.asked_devices: list[int] = []
        self.kept: list[Any] = []

    @property
    def calls(self) -> list[str]:
        """Calls of the runtime so far, in order."""
        return list(self.library.standin_calls().decode().split())

    def fail(self, call: str, code: int) -> None:
        """Lets every later `call` return `code`."""
        self.library.standin_fail(call.encode(), code)

    def synchronize(self, stream: int = STREAM) -> None:
        assert self.library.aclrtSynchronizeStream(stream) == 0

    def tensors(self, *tensors: torch.Tensor) -> None:
        """Memory that arguments may point to."""
        for tensor in tensors:
            self.library.standin_region(tensor.data_ptr(), tensor.untyped_storage().nbytes())

    def describe(
        self, kernel: core.Kernel, *, kinds: str | None = None, workspace: int | None = None, locks: int = 0
    ) -> None:
        """Tells the stand-in what each launch takes, as the compiled module says, and lets the simulator run it."""
        code = simulator(kernel.chip, kernel._lowered)
        self.kept.append(code)
        built = kernel.build()
        for number, (entry, loaded) in enumerate(zip(kernel.entry_points, code.objects, strict=True)):
            module = built.path(f"module_{number}" if number else "module").read_text()
            described = argument_kinds(module, entry) if kinds is None else kinds
            planned = built.metadata["launches"][number]["workspace_bytes_per_block"] or 0
            size = planned if workspace is None else workspace
            self.library.standin_kernel(entry.encode(), described.encode(), size, locks, 7, loaded.address)


def argument_kinds(module: str, entry: str) -> str:
    """One letter per argument of a compiled module's entry, as ascendcl.c has them."""
    head = re.search(rf"func\.func @{entry}(?:_mix_aiv)?\((.*)\) attributes", module)
    assert head is not None
    kinds = ""
    for argument in re.split(r", (?=%arg\d+: )", head[1]):
        type_ = argument.split(": ", 1)[1]
        named = re.search(r"#hacc\.arg_type<(\w+)>", type_)
        if named is not None and named[1] in ROLES:
            kinds += ROLES[named[1]]
        elif type_.startswith("memref"):
            kinds += "p"
        else:
            bits = re.match(r"b?[if](\d+)", type_)
            assert bits is not None, type_
            kinds += str(int(bits[1]) // 8)
    assert kinds.endswith("444")
    return kinds[:-3] + "ggg"


@contextmanager
def ascend_machine(runtime: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """CANN at `folder`, with a runtime and a hivmc; torch_npu; one device of whatever chip is asked for.

    Its memory is this machine's, so its tensors are torch's CPU tensors.
    """
    (folder / "lib64").mkdir(parents=True)
    (folder / "lib64" / "libascendcl.so").symlink_to(runtime)
    for name in ("hivmc", "hivmc-a5"):
        script = folder / "bin" / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FOLDER / "hivmc.py"}" "$@"\n')
        script.chmod(0o755)
    monkeypatch.setenv("ASCEND_HOME_PATH", str(folder))
    monkeypatch.setenv("STANDIN_CC", shlex.join(find_c_compiler().command))
    machine = Machine(runtime)

    def current(device: int) -> int:
        machine.asked_devices.append(device)
        return machine.stream

    torch_npu = types.ModuleType("torch_npu")
    torch_npu._C = types.SimpleNamespace(_npu_getCurrentRawStream=current)  # type: ignore[attr-defined]  # made up
    monkeypatch.setitem(sys.modules, "torch_npu", torch_npu)
    monkeypatch.setattr(
        Target, "find_device", lambda self, **_: DetectedDevice(self.chip.name, 0, "stand-in", torch_device="cpu:0")
    )
    library.load_library.cache_clear()
    yield machine
    library.load_library.cache_clear()
    machine.library.standin_reset()
