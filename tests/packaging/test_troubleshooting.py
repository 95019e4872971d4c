"""The way out that the troubleshooting page gives works on every target, where the direct way fails."""

from __future__ import annotations

import importlib.util
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

import core
from demo import kernels
from tests.packaging.layout import ROOT
from tests.packaging.markdown import blocks

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()


def sources() -> dict[str, str]:
    """The page's softmax, and the same with the load that the page gives as the other way."""
    whole, load = blocks(PAGE, "python")
    loop = re.search(r"^( +)for i, j in .*\n.*if_then_else.*\n", whole, re.MULTILINE)
    assert loop is not None
    return {"loop": whole, "copy": whole.replace(loop[0], textwrap.indent(load, loop[1]))}


@pytest.fixture(params=["loop", "copy"])
def softmax(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    script = tmp_path / f"rows_by_{request.param}.py"
    script.write_text(sources()[request.param])
    spec = importlib.util.spec_from_file_location(script.stem, script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.softmax


@pytest.mark.parametrize("target", ["cpu", "metax:c500"])
def test_rows_of_any_length_are_right(softmax: Any, target: str) -> None:
    x = torch.randn(7, 200).half()
    y = softmax.compile(7, 200, target=target, simulate=target != "cpu")(x)
    assert torch.allclose(y.float(), torch.softmax(x.float(), dim=1), atol=2e-3, rtol=2e-3)


def test_they_compile_where_the_direct_way_does_not(softmax: Any) -> None:
    with pytest.raises(core.UnsupportedOp, match="no available layout found"):
        kernels.softmax.compile(7, 200, target="cuda:h200")
    assert "__global__" in softmax.compile(7, 200, target="cuda:h200").get_kernel_source()
