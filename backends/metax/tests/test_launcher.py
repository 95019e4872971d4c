"""Load, launch, stream order, error codes: against a runtime library that checks every argument and runs the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import core
from backends.metax.dialect import MACA
from backends.metax.tests.kernels import doubled_rows, matmul, scaled_rows
from core.codegen.simt import Runtime, SimtLauncher
from core.compiler import BuiltKernel

STREAM = 0x1234


def calls(sdk: Path) -> list[str]:
    return (sdk / "calls").read_text().splitlines()


def launcher(prim_func: Any, **options: Any) -> SimtLauncher:
    kernel = core.compile(prim_func, target="metax:c500", **options)
    return SimtLauncher(kernel.build(), Runtime(MACA), current_stream=lambda index: STREAM)


def test_a_kernel_is_loaded_launched_and_right(sdk: Path) -> None:
    launch = launcher(matmul())
    a, b = torch.randn(128, 96).half(), torch.randn(96, 128).half()
    c = torch.full((128, 128), torch.nan)
    launch(a, b, c)
    torch.testing.assert_close(c, a.float() @ b.float(), atol=1e-4, rtol=1e-5)
    assert calls(sdk) == [
        "mcSetDevice 0",
        "mcModuleLoadData device 0",
        "mcModuleGetFunction main_kernel",
        "mcModuleLaunchKernel main_kernel grid 2 2 1 block 128 1 1 shared 16384 stream 0x1234",
    ]


def test_a_module_is_loaded_once_and_the_stream_asked_for_is_used(sdk: Path) -> None:
    launch = launcher(matmul())
    a, b, c = torch.zeros(128, 96).half(), torch.zeros(96, 128).half(), torch.empty(128, 128)
    launch(a, b, c)
    launch(a, b, c, stream=0x77)
    assert sum(line.startswith("mcModuleLoadData") for line in calls(sdk)) == 1
    assert [line.split()[-1] for line in calls(sdk) if "LaunchKernel" in line] == ["0x1234", "0x77"]


def test_launches_follow_each_other_on_one_stream_with_scalars_and_workspace(sdk: Path) -> None:
    launch = launcher(scaled_rows())
    a, c = torch.randn(5, 64), torch.zeros(5, 64)
    launch(a, 7, 0.5, torch.zeros(64), c, symbols={"M": 5})
    torch.testing.assert_close(c, a + 0.5 * a[0])
    launches = [line for line in calls(sdk) if "LaunchKernel" in line]
    assert [line.split()[1:5] for line in launches] == [
        ["main_kernel", "grid", "1", "1"],
        ["main_kernel_1", "grid", "5", "1"],
    ]
    assert {line.split()[-1] for line in launches} == {"0x1234"}


def test_a_launch_without_blocks_is_none(sdk: Path) -> None:
    launch = launcher(doubled_rows())
    launch(torch.zeros(0, 64), torch.zeros(0, 64), symbols={"M": 0})
    assert not any("LaunchKernel" in line for line in calls(sdk))
    a, c = torch.randn(3, 64), torch.zeros(3, 64)
    launch(a, c, symbols={"M": 3})
    torch.testing.assert_close(c, 2 * a)


def test_a_refused_launch_is_named_and_a_stale_error_is_not(sdk: Path) -> None:
    runtime = Runtime(MACA)
    launch = launcher(matmul())
    a, b, c = torch.zeros(128, 96).half(), torch.zeros(96, 128).half(), torch.empty(128, 128)
    launch(a, b, c)  # the library's last error is set all the time
    with pytest.raises(core.LaunchError, match=r"mcSetDevice returned mcErrorInvalidDevice \(101\)"):
        runtime.set_device(9, "main")
    with pytest.raises(core.LaunchError, match="mcModuleLoadData returned mcErrorInvalidImage") as caught:
        runtime.load(b"no image", "main")
    assert caught.value.details == {"code": 200, "error": "mcErrorInvalidImage", "call": "mcModuleLoadData"}


def test_an_entry_point_the_image_lacks_is_named(sdk: Path) -> None:
    from dataclasses import replace

    built = core.compile(matmul(), target="metax:c500").build()
    wrong = replace(built, lowered=replace(built.lowered, entry_points=("absent",)))
    with pytest.raises(core.LaunchError, match="mcModuleGetFunction returned mcErrorNotFound"):
        call(wrong)


def call(built: BuiltKernel) -> None:
    launch = SimtLauncher(built, Runtime(MACA), current_stream=lambda index: 0)
    launch(torch.zeros(128, 96).half(), torch.zeros(96, 128).half(), torch.empty(128, 128))


def test_a_launch_larger_than_the_runtime_takes_is_refused_by_its_code(sdk: Path) -> None:
    from dataclasses import replace

    built = core.compile(matmul(), target="metax:c500").build()
    plan = built.lowered.metadata["plan"]
    steps = [{**plan["steps"][0], "extents": [*plan["steps"][0]["extents"][:-1], "70000"]}]
    metadata = {**built.lowered.metadata, "plan": {**plan, "steps": steps}}
    with pytest.raises(core.LaunchError, match=r"mcErrorInvalidValue.*invalid argument"):
        call(replace(built, lowered=replace(built.lowered, metadata=metadata)))


def test_blocking_launches_raise_what_went_wrong_on_the_stream(sdk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEHAL_LAUNCH_BLOCKING", "1")
    launch = launcher(matmul())
    a, b, c = torch.zeros(128, 96).half(), torch.zeros(96, 128).half(), torch.empty(128, 128)
    launch(a, b, c)
    assert calls(sdk)[-1] == "mcStreamSynchronize stream 0x1234"
    with pytest.raises(core.LaunchError, match="mcStreamSynchronize returned mcErrorLaunchFailure"):
        launch(a, b, c, stream=0xBAD)


def test_without_a_runtime_library_the_error_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MACA_PATH", str(tmp_path))
    with pytest.raises(core.DeviceUnavailable, match=r"libmcruntime\.so cannot be loaded") as caught:
        Runtime(MACA)
    assert str(tmp_path / "lib" / "libmcruntime.so") in str(caught.value)
    assert "MACA_PATH" in caught.value.hint
