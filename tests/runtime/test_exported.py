"""Exported kernels: run without tilelang, from C, checked against the machine and against damage."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
import tilelang.language as T
import torch

import core
from core.codegen import exports, native
from core.compiler import Export, LoweredKernel
from core.plugins import Manager, hookimpl, local_entry, use_manager
from core.runtime import artifact, exported, load_exported
from tests.runtime import launch_kernels
from tests.runtime.standin import Driver, c_compiler

ROOT = Path(core.__file__).parents[1]
#: The example vendor's distribution, whose package is `tilehal_nova`.
NOVA = ROOT / "examples" / "vendor_example" / "backend"

#: Imported first in a child process: what an exported kernel must not need cannot be imported there.
BLOCK = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ImportError(f"{name} is blocked in this process")
sys.meta_path.insert(0, Blocked())
"""
NO_COMPILER_STACK = 'BLOCKED = ("tilelang", "tvm", "tvm_ffi", "backends", "pluggy")' + BLOCK
NO_TORCH = 'BLOCKED = ("tilelang", "tvm", "tvm_ffi", "torch", "numpy", "backends", "pluggy")' + BLOCK


def python(code: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, **options)


@pytest.fixture(scope="module")
def scaled() -> core.Kernel:
    return core.compile(launch_kernels.scaled(), target="cpu", out_idx=[3])


@pytest.fixture(scope="module")
def original(scaled: core.Kernel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scaled.export(tmp_path_factory.mktemp("exported") / "scaled")


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy, to be damaged."""
    return Path(shutil.copytree(original, tmp_path / "copy"))


def expected(x: torch.Tensor, s: float, n: int) -> torch.Tensor:
    return x * s + (n - 1)


# ---------------------------------------------------------------------------------------------------- from Python

RUN_ON_TENSORS = (
    NO_COMPILER_STACK
    + """
import torch
from core.runtime import load_exported
kernel = load_exported(sys.argv[1])
for rows in (7, 1, 130, 7):
    x = torch.randn(rows, 64)
    assert torch.equal(kernel(x, 2.0, 1), x * 2), rows
    y = torch.empty(rows, 64)
    assert kernel(x, 3.0, 1, y) is y
    assert torch.equal(y, x * 3)
try:
    kernel(torch.randn(7, 63), 2.0, 1)
except Exception as error:
    print(type(error).__name__, "axis 1 must be 64" in str(error))
print(kernel.how)
print(sorted(set(sys.modules) & {"tilelang", "tvm", "tvm_ffi", "backends"}))
"""
)

RUN_ON_ADDRESSES = (
    NO_TORCH
    + """
import array
from core.runtime import load_exported
kernel = load_exported(sys.argv[1])
x = array.array("f", range(3 * 64))
y = array.array("f", [0]) * (3 * 64)
kernel.launch(x.buffer_info()[0], 2.5, 1, y.buffer_info()[0], symbols={"M": 3})
print(list(y) == [value * 2.5 for value in x])
"""
)


BY_ITS_VENDOR = (
    'BLOCKED = ("tilelang", "tvm", "tvm_ffi", "backends")'
    + BLOCK
    + """
import array
import core.runtime
from core.plugins import Manager, local_entry, use_manager
sys.path.insert(0, sys.argv[2])
import tilehal_nova.plugin
with use_manager(Manager([local_entry("nova", tilehal_nova.plugin)])):
    kernel = core.runtime.load_exported(sys.argv[1])
print(kernel.metadata["launch"]["kind"], kernel.target)
print(sorted(set(sys.modules) & {"torch", "tilelang", "tvm", "tvm_ffi", "backends"}))
x = array.array("f", range(3 * 64))
y = array.array("f", [0]) * (3 * 64)
kernel.launch(x.buffer_info()[0], 2.5, 1, y.buffer_info()[0], symbols={"M": 3})
print(list(y) == [value * 2.5 for value in x])
import torch
for rows in (7, 1, 130, 7):
    x = torch.randn(rows, 64)
    assert torch.equal(kernel(x, 2.0, 1), x * 2), rows
    y = torch.empty(rows, 64)
    assert kernel(x, 3.0, 1, y) is y
    assert torch.equal(y, x * 3)
try:
    kernel(torch.randn(7, 63), 2.0, 1)
except Exception as error:
    print(type(error).__name__, "axis 1 must be 64" in str(error))
import pickle
with use_manager(Manager([local_entry("nova", tilehal_nova.plugin)])):
    print(torch.equal(pickle.loads(pickle.dumps(kernel))(x, 2.0, 1), x * 2))
"""
)


def test_it_runs_where_tilelang_cannot_be_imported(original: Path) -> None:
    done = python(RUN_ON_TENSORS, original)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["ShapeMismatch True", "a C call, compiled", "[]"]


def test_it_runs_on_addresses_without_torch(original: Path) -> None:
    done = python(RUN_ON_ADDRESSES, original)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_without_its_compiled_check_it_is_called_through_ctypes(folder: Path) -> None:
    rewrite(folder, lambda data: data["files"].pop("launch"))
    kernel = load_exported(folder)
    x = torch.randn(5, 64)
    for _ in range(2):
        torch.testing.assert_close(kernel(x, 0.5, 1), x * 0.5)
    assert kernel.how == "a C call through ctypes: exported without a compiled check"


def test_values_and_dimensions_are_asked_for_by_name(original: Path) -> None:
    kernel = load_exported(original)
    with pytest.raises(core.LaunchError, match=r"takes 4 values \(A, s, n, C\), got 2"):
        kernel.launch(1, 2.0, symbols={"M": 1})
    with pytest.raises(core.LaunchError, match="needs M"):
        kernel.launch(0, 1.0, 1, 0)
    with pytest.raises(core.LaunchError, match="too large"):
        kernel.launch(0, 1.0, 1, 0, symbols={"M": 2**31})
    for values, rows, text in (
        ((torch.ones(1), 1.0, 1, 0), 1, "A is the address of a tensor's data, got Tensor"),
        ((0, 1.0, 1, None), 1, "C is the address of a tensor's data, got NoneType"),
        ((0, "1", 1, 0), 1, "s is a scalar float32, got str"),
        ((0, 1.0, 2**31, 0), 1, "n is a scalar int32, which cannot hold 2147483648"),
        ((0, 1.0, 1, 0), -1, "M is -1, and it is an extent"),
        ((0, 1.0, 1, 0), 1.0, "M is 1.0, and it is an extent"),
    ):
        with pytest.raises(core.LaunchError, match=text):
            kernel.launch(*values, symbols={"M": rows})


# ---------------------------------------------------------------------------------------------------- the folder


def test_the_metadata_follows_its_schema_and_says_how_to_launch(original: Path) -> None:
    data = json.loads((original / artifact.METADATA).read_text())
    schema = json.loads((ROOT / "core" / "runtime" / "artifact.schema.json").read_text())
    jsonschema.validate(data, schema)
    assert data["symbols"] == {"M": {"argument": 0, "attribute": "shape", "axis": 0, "factor": 1}}
    assert [argument["name"] for argument in data["signature"]["arguments"]] == ["A", "s", "n", "C"]
    assert data["launch"]["function"] == "scaled_call"
    assert data["launch"]["types"] == ["handle", "float32", "int32", "handle", "int64"]
    assert sorted(data["files"]) == ["binary", "header", "launch", "loader", "native_source"]
    assert str(ROOT) not in (original / artifact.METADATA).read_text()


def rewrite(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Changes the metadata and signs it again, as an export of another kernel or version would."""
    data = json.loads((folder / artifact.METADATA).read_text())
    change(data)
    artifact.write(folder, data)


@pytest.mark.parametrize("role", ["binary", "launch", "header", "loader", "native_source"])
def test_a_changed_or_missing_file_is_named(folder: Path, role: str) -> None:
    name = json.loads((folder / artifact.METADATA).read_text())["files"][role]["name"]
    path = folder / name
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(core.ArtifactError, match=f"{name} is not the file that was exported"):
        load_exported(folder)
    path.unlink()
    with pytest.raises(core.ArtifactError, match=f"{name} cannot be read"):
        load_exported(folder)


def test_changed_metadata_is_noticed(folder: Path) -> None:
    path = folder / artifact.METADATA
    text = path.read_text()
    path.write_text(text.replace('"axis": 0', '"axis": 1'))
    with pytest.raises(core.ArtifactError, match="was changed after it was exported"):
        load_exported(folder)
    path.write_text(text[:-20])
    with pytest.raises(core.ArtifactError, match="is damaged"):
        load_exported(folder)
    path.write_text("{}")
    with pytest.raises(core.ArtifactError, match="does not describe an exported kernel"):
        load_exported(folder)
    path.unlink()
    with pytest.raises(core.ArtifactError, match="holds no exported kernel"):
        load_exported(folder)


def test_another_schema_is_refused_and_a_newer_minor_one_is_read(folder: Path) -> None:
    rewrite(folder, lambda data: data.update(schema=[1, 7], new="field"))
    load_exported(folder)
    rewrite(folder, lambda data: data.update(schema=[2, 0]))
    with pytest.raises(core.ArtifactError, match=r"schema \[2, 0\], this TileHAL reads 1.x"):
        load_exported(folder)


@pytest.mark.parametrize("text", ["__import__('os').system('true')", "M.__class__", "N"])
def test_a_size_that_is_no_arithmetic_is_never_evaluated(folder: Path, text: str) -> None:
    rewrite(folder, lambda data: data["signature"]["arguments"][0].update(shape=[text, 64]))
    with pytest.raises(core.ArtifactError):
        load_exported(folder)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data.pop("files"), "it has no 'files'"),
        (lambda data: data.update(files=None), "NoneType"),
        (lambda data: data["files"].update(binary="scaled.so"), "string indices"),
        (lambda data: data["files"].pop("binary"), "has no binary file"),
        (lambda data: data["files"]["binary"].update(name="../scaled.so"), r"outside of its folder: \.\./scaled\.so"),
        (lambda data: data.pop("signature"), "it has no 'signature'"),
        (lambda data: data["signature"].update(outputs=[9]), "index out of range"),
        (lambda data: data["signature"].update(outputs=[0]), "output 0 is no parameter that is one"),
        (
            lambda data: data["signature"]["arguments"][1].update(dtype="int32"),
            r"a function of \(handle, float32, int32",
        ),
        (lambda data: data.update(launch=[]), "list indices"),
        (lambda data: data["launch"].pop("function"), "it has no 'function'"),
        (lambda data: data["launch"].update(function="scale"), "undefined symbol: scale"),
        (lambda data: data["launch"].update(set_threads="scale"), "undefined symbol: scale"),
        (lambda data: data["launch"]["types"].pop(), r"a function of \(handle, float32, int32, handle\)"),
        (lambda data: data["launch"].update(kind="opencl"), "launched by 'opencl'"),
        (lambda data: data["launch"].update(kind="cuda-driver"), "tensors on cpu for a launch by cuda-driver"),
        (lambda data: data.update(device_type="cuda"), "tensors on cuda for a launch by c-function"),
    ],
)
def test_metadata_of_another_form_is_refused_before_anything_is_called(
    folder: Path, change: Callable[[dict[str, Any]], Any], reason: str
) -> None:
    rewrite(folder, change)
    with pytest.raises(core.ArtifactError, match=reason) as caught:
        load_exported(folder)
    assert caught.value.hint


def test_another_machine_is_refused(folder: Path) -> None:
    rewrite(folder, lambda data: data["launch"]["machine"]["instruction_sets"].append("avx1024"))
    with pytest.raises(core.DeviceUnavailable, match="a CPU with avx1024, which this one has not"):
        load_exported(folder)
    rewrite(folder, lambda data: data["launch"]["machine"].update(architecture="pdp11"))
    with pytest.raises(core.DeviceUnavailable, match="compiled for pdp11, this machine is"):
        load_exported(folder)


def test_an_export_replaces_an_earlier_one_which_may_be_running(scaled: core.Kernel, folder: Path) -> None:
    (folder / "scaled.h").write_text("old")
    before = {path.name: path.stat().st_ino for path in folder.iterdir()}
    scaled.export(folder)
    load_exported(folder)
    after = {path.name: path.stat().st_ino for path in folder.iterdir()}
    assert sorted(after) == sorted(before)
    # Other files of the same name, so that a library that is loaded keeps its own.
    assert [name for name in after if after[name] == before[name]] == []


def test_an_export_that_fails_leaves_the_earlier_one(
    scaled: core.Kernel, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("core.compiler.export.write", full)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(core.ArtifactError, match=f"nothing can be exported to {folder}: .*No space left") as caught:
        scaled.export(folder)
    assert caught.value.hint
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_place_that_is_no_folder_is_refused(scaled: core.Kernel, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    for place in (tmp_path / "file", tmp_path / "file" / "folder"):
        with pytest.raises(core.ArtifactError, match="nothing can be exported to"):
            scaled.export(place)
    assert (tmp_path / "file").read_text() == "kept"


def test_exports_to_one_folder_come_one_after_the_other(scaled: core.Kernel, tmp_path: Path) -> None:
    place = tmp_path / "with space, é and 日本"
    x = torch.ones(3, 64)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(scaled.export, [place] * 12)) == [place] * 12
    assert torch.equal(load_exported(place)(x, 2.0, 1), x * 2)
    assert sorted(path.suffix for path in place.iterdir()) == [".c", ".cpp", ".h", ".json", ".so", ".so"]


def test_what_cannot_be_exported_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    for target in ("metax", "ascend"):
        kernel = core.compile(launch_kernels.several(), target=target, build=False)
        with pytest.raises(core.UnsupportedOp, match="does not implement tilehal_export"):
            kernel.export(tmp_path / target)
        assert not (tmp_path / target).exists()


def test_a_kernel_that_only_tilelang_s_host_code_can_launch_is_not_exported(tmp_path: Path) -> None:
    @T.prim_func
    def kept(A: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            T.annotate_l2_hit_ratio({A: 0.5})
            for i in T.Parallel(64):
                C[i] = A[i]

    kernel = core.compile(kept, target="cuda:h200", build=False)
    with pytest.raises(core.UnsupportedOp, match=r"which only TileLang.s own host code can do"):
        kernel.export(tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def vendor(tilehal_export: Callable[..., Any]) -> Manager:
    """The CPU's backend and a package that extends it, whose export comes first."""
    plugin = SimpleNamespace(tilehal_export=hookimpl(tilehal_export))
    owner = local_entry("cpu", import_module("backends.cpu.plugin"))
    return Manager([owner, local_entry("cpu", plugin, role="extension", distribution="nova-exports")])


def test_a_package_of_a_vendor_gives_an_export_of_its_own(tmp_path: Path) -> None:
    def queued(chip: core.Chip, lowered: LoweredKernel) -> Export:
        def interface(title: str, binary: str, content: bytes) -> tuple[str, str]:
            return f"// {title}\n", f'#include "scaled.h"\n// {binary}, {len(content)} bytes\n'

        return Export({"kind": "nova-queue", "plan": "its own"}, "cpu", "library", ".nova", ".cc", interface)

    with use_manager(vendor(queued)):
        kernel = core.compile(launch_kernels.scaled(), target="cpu", out_idx=[3])
        folder = kernel.export(tmp_path / "scaled")
    metadata = json.loads((folder / "kernel.json").read_text())
    jsonschema.validate(metadata, json.loads(Path(artifact.__file__).with_name("artifact.schema.json").read_text()))
    assert metadata["launch"] == {"kind": "nova-queue", "plan": "its own"}
    assert {role: file["name"] for role, file in metadata["files"].items() if role != "launch"} == {
        "binary": "scaled.nova",
        "native_source": "scaled.cc",
        "header": "scaled.h",
        "loader": "scaled.c",
    }
    assert (folder / "scaled.nova").read_bytes() == kernel.build().path("library").read_bytes()
    assert f"scaled.nova, {(folder / 'scaled.nova').stat().st_size} bytes" in (folder / "scaled.c").read_text()
    assert (folder / "scaled.h").read_text().startswith("// scaled for cpu:host, exported by TileHAL")
    with (
        use_manager(vendor(queued)),
        pytest.raises(core.ArtifactError, match="does not implement tilehal_load") as caught,
    ):
        load_exported(folder)
    assert "launched by 'nova-queue', as backends for cpu:host do" in caught.value.message
    assert "its loader in C" in caught.value.hint
    with use_manager(Manager([])), pytest.raises(core.ArtifactError, match="and there is none here") as caught:
        load_exported(folder)
    assert "install the package that made it (local-cpu 0)" in caught.value.hint


@pytest.fixture(scope="module")
def nova(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kernel that the example vendor's package has exported."""
    with pytest.MonkeyPatch.context() as patch, use_manager(Manager([local_entry("nova", nova_plugin(patch))])):
        kernel = core.compile(launch_kernels.scaled(), target="nova", out_idx=[3], build=False)
        return kernel.export(tmp_path_factory.mktemp("exported") / "nova")


def nova_plugin(patch: pytest.MonkeyPatch) -> Any:
    patch.syspath_prepend(str(NOVA))
    return import_module("tilehal_nova.plugin")


def test_a_vendor_s_own_launch_is_loaded_by_its_package_where_tilelang_cannot_be_imported(nova: Path) -> None:
    done = python(BY_ITS_VENDOR, nova, NOVA)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["nova-function nova:n1", "[]", "True", "ShapeMismatch True", "True"]


def test_a_vendor_s_package_hears_of_damage_before_it_loads_anything(nova: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(nova, tmp_path / "copy"))
    (folder / "scaled.so").write_bytes(b"\x7fELF")
    with pytest.raises(core.ArtifactError, match="is not the file that was exported"):
        load_exported(folder)


def test_what_a_vendor_loads_is_checked(nova: Path) -> None:
    def load(chip: core.Chip, artifact: Any, device: int) -> Any:
        return print

    with pytest.MonkeyPatch.context() as patch:
        house = SimpleNamespace(tilehal_load=hookimpl(load))
        entries = [
            local_entry("nova", nova_plugin(patch)),
            local_entry("nova", house, role="extension", distribution="house"),
        ]
        with use_manager(Manager(entries)), pytest.raises(core.BackendHookError, match="instead of LoadedExport"):
            load_exported(nova)


def test_what_a_vendor_refuses_to_export_has_the_kernel_s_line(tmp_path: Path) -> None:
    def refuse(chip: core.Chip, lowered: LoweredKernel) -> Export:
        raise core.UnsupportedOp("its queue is too short", hint="make it longer")

    with use_manager(vendor(refuse)):
        kernel = core.compile(launch_kernels.scaled(), target="cpu", out_idx=[3], build=False)
        with pytest.raises(core.UnsupportedOp, match="too short") as caught:
            kernel.export(tmp_path / "scaled")
    assert caught.value.location == kernel.program.location
    assert not (tmp_path / "scaled").exists()


def test_a_vendor_s_export_of_another_type_is_the_package_s_fault(tmp_path: Path) -> None:
    with use_manager(vendor(lambda chip, lowered: {"kind": "nova-queue"})):
        kernel = core.compile(launch_kernels.scaled(), target="cpu", out_idx=[3], build=False)
        with pytest.raises(core.BackendHookError, match="tilehal_export of nova-exports 0 failed: it returned dict"):
            kernel.export(tmp_path / "scaled")


# ---------------------------------------------------------------------------------------------------- from C

PROGRAM = """
#include <stdio.h>
#include "scaled.h"
int main(int count, char **arguments) {
    scaled_kernel *kernel;
    static float x[130 * 64], y[130 * 64];
    for (int i = 0; i < 130 * 64; ++i) x[i] = (float)(i % 97);
    if (count != 2 || scaled_load(&kernel, arguments[1]) != 0) { printf("%s\\n", scaled_error()); return 1; }
    scaled_set_threads(kernel, 2);
    for (int64_t rows = 1; rows <= 130; rows += 43) {
        if (scaled_launch(kernel, 0, NULL, x, 2.5f, 1, y, rows) != 0) { printf("%s\\n", scaled_error()); return 2; }
        for (int64_t i = 0; i < rows * 64; ++i) if (y[i] != x[i] * 2.5f) return 3;
    }
    if (scaled_launch(kernel, 0, NULL, x, 2.5f, 1, y, INT64_C(1) << 40) == 0) return 4;
    printf("%s\\n", scaled_error());
    scaled_unload(kernel);
    return 0;
}
"""


def build(folder: Path, text: str, program: Path, *, loader: str, standard: str = "gnu99") -> None:
    source = program.with_suffix(".c")
    source.write_text(text)
    warnings = ["-Wall", "-Wextra", "-Wno-unused-function", "-Werror"]
    command = [*c_compiler(), f"-std={standard}", *warnings, "-O1", f"-I{folder}", str(source), str(folder / loader)]
    subprocess.run([*command, "-o", str(program), "-ldl", "-lpthread"], check=True)


def test_a_c_program_runs_it(original: Path, tmp_path: Path) -> None:
    program = tmp_path / "program"
    build(original, PROGRAM, program, loader="scaled.c")
    done = subprocess.run([program, original], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("M is too large: the kernel counts it in 32 bits")


def test_the_c_loader_notices_damage(folder: Path, tmp_path: Path) -> None:
    program = tmp_path / "program"
    build(folder, PROGRAM, program, loader="scaled.c")
    with (folder / "scaled.so").open("ab") as file:
        file.write(b"x")
    done = subprocess.run([program, folder], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout.rstrip().endswith("is not the file that was exported")
    (folder / "scaled.so").unlink()
    done = subprocess.run([program, folder], capture_output=True, text=True)
    assert done.stdout.rstrip().endswith("cannot be opened")


def test_the_header_is_c_plus_plus_too(original: Path) -> None:
    source = '#include "scaled.h"\n#include "scaled.h"\nint (*load)(scaled_kernel **, const char *) = scaled_load;\n'
    command = [*c_compiler(), "-x", "c++", "-Wall", "-Werror", f"-I{original}", "-fsyntax-only", "-"]
    subprocess.run(command, input=source, text=True, check=True)


def test_names_that_c_has_taken_are_changed(tmp_path: Path) -> None:
    @T.prim_func
    def register(int: T.Tensor((8,), "float32"), stream: T.int32):
        with T.Kernel(1):
            for i in T.Parallel(8):
                int[i] = T.cast(stream, "float32")

    folder = core.compile(register, target="cpu").export(tmp_path / "out")
    header = (folder / "register_.h").read_text()
    assert "register__launch(register__kernel *kernel, int device, void *stream, void *int_, int32_t stream_)" in header
    subprocess.run([*c_compiler(), "-Wall", "-Werror", "-fsyntax-only", str(folder / "register_.h")], check=True)


# ---------------------------------------------------------------------------------------------------- for a device


def test_without_a_driver_the_error_says_so(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a driver")
    folder = cuda_folder(tmp_path)
    with pytest.raises(core.DeviceUnavailable, match="the CUDA driver cannot be loaded"):
        load_exported(folder)


def cuda_folder(folder: Path) -> Path:
    """An exported CUDA kernel, with the stand-in's idea of a binary where there is no nvcc."""
    kernel = core.compile(launch_kernels.product(), target="cuda:h200", out_idx=[2], build=False)
    try:
        return kernel.export(folder / "product")
    except core.ToolchainNotFound as error:
        pytest.skip(error.message)


CUDA_PROGRAM = """
#include <stdio.h>
#include "product.h"
int main(int count, char **arguments) {
    product_kernel *kernel;
    (void)count;
    if (product_load(&kernel, arguments[1]) != 0) { printf("%s\\n", product_error()); return 1; }
    const void *a = (void *)0x100000, *b = (void *)0x200000;
    if (product_launch(kernel, 1, (void *)5, a, b, (void *)0x300000, 200) != 0) {
        printf("%s\\n", product_error());
        return 2;
    }
    if (product_launch(kernel, 1, (void *)5, (char *)a + 2, b, (void *)0x300000, 200) == 0) return 3;
    printf("%s\\n", product_error());
    product_unload(kernel);
    return 0;
}
"""

CUDA_PYTHON = (
    NO_TORCH
    + """
from core.errors import TileHALError
from core.runtime import load_exported
try:
    kernel = load_exported(sys.argv[1], device=1)
    for address in (0x100000, 0x100008):
        kernel.launch(address, 0x200000, 0x300000, symbols={"M": 200}, device=1, stream=5)
except TileHALError as error:
    print(f"{type(error).__name__}: {error.message}")
"""
)


def test_a_device_kernel_needs_the_driver_only_and_its_own_chip(driver: Driver, tmp_path: Path) -> None:
    folder, program = cuda_folder(tmp_path), tmp_path / "program"
    schema = json.loads((ROOT / "core" / "runtime" / "artifact.schema.json").read_text())
    jsonschema.validate(json.loads((folder / artifact.METADATA).read_text()), schema)
    build(folder, CUDA_PROGRAM, program, loader="product.c")
    entries = {"product_kernel": "mmpi"}
    driver.calls()

    done = subprocess.run([program, folder], env=driver.environment(entries), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "A starts at 0x100002, its data must start at a multiple of 16 bytes" in done.stdout
    from_c = driver.calls()
    assert from_c[-1] == "unload"
    done = python(CUDA_PYTHON, folder, env=driver.environment(entries))
    refused = "LaunchError: product: A starts at 0x100008, its data must start at a multiple of 16 bytes\n"
    assert (done.returncode, done.stdout) == (0, refused), done.stderr
    assert (
        "A: float16 (M, 256), packed row by row, from a multiple of 16 bytes, read"
        in (folder / "product.h").read_text()
    )
    from_python = driver.calls()
    assert [line for line in from_c if line.startswith("launch")] == [from_python[-1]]
    assert "grid=2,1,1" in from_python[-1]

    built = "was built for compute capability 9.0 exactly, device 1 has"
    for settings, text in (
        ({"STANDIN_CAPABILITY": "80"}, f"{built} 8.0"),
        ({"STANDIN_CAPABILITY": "100"}, f"{built} 10.0"),
        ({"STANDIN_VERSION": "11080"}, "CUDA 12.0"),
    ):
        environment = driver.environment(entries, **settings)
        done = python(CUDA_PYTHON, folder, env=environment)
        assert done.stdout.startswith("DeviceUnavailable"), done.stderr
        assert text in done.stdout
        done = subprocess.run([program, folder], env=environment, capture_output=True, text=True)
        assert done.returncode in (1, 2)
        assert text.removeprefix("was built ").removeprefix("CUDA ") in done.stdout
    assert not [line for line in driver.calls() if line.startswith("launch")]


def test_a_device_kernel_names_the_oldest_driver_that_can_launch_it() -> None:
    """CUDA 12.0 where it has tensor maps or a launch with attributes, which an older driver would not know."""

    def lowered(kernel: Any, target: str) -> LoweredKernel:
        return core.compile(kernel, target=target, build=False).lowered

    plain = lowered(launch_kernels.scaled(), "cuda:a100")
    plan = native.plan_of(plain)
    mapped = native.plan_of(lowered(launch_kernels.product(), "cuda:h200"))
    assert plan is not None
    assert mapped is not None
    (launch,) = plan.launches

    def needed(**changes: Any) -> Any:
        metadata = {**plain.metadata, native.PLAN: replace(plan, **changes).to_json()}
        return exports.cuda_driver(replace(plain, metadata=metadata), "sm_80").launch["driver"]

    assert needed() == 11040
    assert needed(maps=mapped.maps) == 12000
    for special in ({"cluster": ("2", "1", "1")}, {"programmatic": True}, {"cooperative": True}):
        assert needed(launches=(launch, replace(launch, **special))) == 12000


def test_instruction_sets_are_read_from_what_linux_says(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text("processor\t: 0\nflags\t\t: fpu avx2 avx512f nopl fma\n")
    from core.runtime.machine import instruction_sets

    assert instruction_sets(tmp_path)[1] == ("avx2", "avx512f", "fma")
    assert instruction_sets(tmp_path / "nowhere")[1] == ()
    assert exported.instruction_sets()[0] == os.uname().machine
