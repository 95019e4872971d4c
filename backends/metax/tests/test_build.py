"""Building: the command, the architecture, what is said when something is missing or refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

import core
from backends.metax.build import toolchain
from backends.metax.tests.conftest import forget, script
from backends.metax.tests.kernels import matmul
from backends.metax.toolchain import architecture


def test_without_an_sdk_the_error_names_the_variables_and_every_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MACA_PATH", str(tmp_path))
    forget()
    kernel = core.compile(matmul(), target="metax:c500")
    with pytest.raises(core.ToolchainNotFound) as caught:
        kernel.build()
    text = str(caught.value)
    for part in ("mxcc", "$MACA_PATH", "MACA_HOME", str(tmp_path / "mxgpu_llvm" / "bin"), "libmcruntime.so"):
        assert part in text


def test_mxcc_is_called_as_the_vendors_own_tools_call_it(sdk: Path) -> None:
    built = core.compile(matmul(), target="metax:c500").build()
    command = built.toolchain.command
    assert command[0] == str(sdk / "mxgpu_llvm/bin/mxcc")
    assert command[1:5] == ("-x", "maca", "-device-obj", "-O3")
    assert "--offload-arch=xcore1000" in command
    assert command[-3:] == ("-o", "kernel.mcbin", "kernel.maca")
    assert built.toolchain.version == "mxcc version 1.0.0 (stand-in) for xcore1000"
    assert built.path("binary").read_bytes().startswith(b"STANDIN")


def test_the_architecture_is_the_devices_where_the_device_is_that_chip(
    sdk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert architecture(core.chip("metax:c550")) == "xcore1002"  # what macainfo says
    assert architecture(core.chip("metax:c500")) == "xcore1000"  # another chip than the device here
    monkeypatch.setenv("MACA_ARCH", "XCORE1010")
    assert architecture(core.chip("metax:c500")) == "xcore1010"


def test_another_architecture_is_another_toolchain(sdk: Path) -> None:
    assert toolchain(core.chip("metax:c550")).version != toolchain(core.chip("metax:c500")).version


def test_a_refusal_keeps_the_message_the_command_and_the_source(sdk: Path) -> None:
    kernel = core.compile(matmul(), target="metax:c500", compile_flags=["-Drefuse"])
    with pytest.raises(core.BuildFailed) as caught:
        kernel.build()
    details = caught.value.details
    assert "kernel.maca:1:2: error: refused as asked" in details["output"]
    assert details["command"][0].endswith("mxcc")
    assert "__builtin_mxc_mma" in Path(details["source"]).read_text()


def test_where_there_is_no_mxcc_the_runtime_compiler_is_used_and_said(sdk: Path) -> None:
    (sdk / "mxgpu_llvm/bin/mxcc").unlink()
    forget()
    kernel = core.compile(matmul(N=192), target="metax:c500")
    built = kernel.build()
    assert built.toolchain.name == "mcrtc"
    assert "-arch=xcore1000" in built.toolchain.command
    assert built.path("binary").read_text() == kernel.get_kernel_source()
    assert kernel.provenance.toolchain == "mcrtc 3.5 for xcore1000" or kernel.provenance.toolchain == "mcrtc 3.5"


def test_a_refusal_of_the_runtime_compiler_has_its_log(sdk: Path) -> None:
    (sdk / "mxgpu_llvm/bin/mxcc").unlink()
    forget()
    kernel = core.compile(matmul(), target="metax:c500", compile_flags=["-refuse"])
    with pytest.raises(core.BuildFailed, match="MCRTC_ERROR_COMPILATION") as caught:
        kernel.build()
    assert "refused as asked" in str(caught.value)


def test_a_compiler_that_does_not_work_is_reported_as_missing(sdk: Path) -> None:
    script(sdk / "mxgpu_llvm/bin/mxcc", "echo 'cannot execute' >&2; exit 3")
    (sdk / "lib/libmcruntime.so").unlink()
    forget()
    with pytest.raises(core.ToolchainNotFound, match="cannot execute"):
        toolchain(core.chip("metax:c500"))
