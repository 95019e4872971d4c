"""The backend of docs/simt.md, as printed: its package is found, its hooks lower, and what they make is right."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import torch

from core.codegen.simt import include_folder
from core.codegen.simt.simulator import simulator
from core.compiler import CompileOptions
from core.errors import UnsupportedOp
from core.plugins import Backend, Manager, local_entry
from core.program import Program
from tests.codegen.simt import zephyr
from tests.codegen.simt.test_other_chip import matmul
from tests.packaging.layout import ROOT
from tests.packaging.markdown import blocks

PACKAGE = "tilehal_zephyr"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The page's package, importable."""
    page = (ROOT / "docs" / "simt.md").read_text()
    folder = tmp_path_factory.mktemp("page") / PACKAGE
    header = folder / "include" / "tilehal" / "zephyr" / "platform.h"
    header.parent.mkdir(parents=True)
    for file, language in ((folder / "chips.toml", "toml"), (folder / "plugin.py", "python"), (header, "cpp")):
        [text] = blocks(page, language)
        file.write_text(text)
    (folder / "__init__.py").touch()
    sys.path.insert(0, str(folder.parent))
    yield folder
    sys.path.remove(str(folder.parent))
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def backend(package: Path) -> Backend:
    return Manager([local_entry("zephyr", import_module(f"{PACKAGE}.plugin"))]).backend("zephyr")


def test_the_pages_backend_lowers_a_product_that_is_right_on_the_simulator(package: Path, backend: Backend) -> None:
    [chip] = backend.chips()
    lowered = backend.call("tilehal_lower", chip, program=Program(matmul(64, 32, 64)), options=CompileOptions())
    assert lowered.metadata["matrix_instructions"] == ["__builtin_zeph_mma8x8x16"]
    generator = torch.Generator().manual_seed(1)
    a, b = torch.randn(64, 64, generator=generator).half(), torch.randn(32, 64, generator=generator).half()
    c = torch.full((64, 32), torch.nan)
    folders = (zephyr.FOLDER / "shim", package / "include", include_folder())
    simulator(chip, lowered, CompileOptions(), include_folders=folders)(a, b, c, symbols={})
    torch.testing.assert_close(c, a.float() @ b.float().T, atol=1e-4, rtol=0)


def test_every_hook_up_to_the_launch_is_there(backend: Backend) -> None:
    hooks = ("chips", "lower", "toolchain", "build", "launcher")
    assert all(backend.implements(f"tilehal_{hook}", backend.chips()[0]) for hook in hooks)


def test_an_operand_the_dialect_lacks_is_answered_with_the_entry_to_add(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = import_module(f"{PACKAGE}.plugin")
    monkeypatch.setattr(plugin, "ZEPHYR", plugin.ZEPHYR.derive(matrix_operands={}))
    with pytest.raises(UnsupportedOp, match="matrix_operands") as caught:
        backend.call("tilehal_lower", backend.chips()[0], program=Program(matmul(64, 32, 64)), options=CompileOptions())
    assert "('float32', 2): the C++ type" in caught.value.hint
