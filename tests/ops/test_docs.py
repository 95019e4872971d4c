"""docs/operators.md: its examples run, and it names every function and variant there is."""

from __future__ import annotations

from core.ops import functional
from core.ops.gemm import gemm
from core.ops.softmax import softmax
from tests.packaging.layout import ROOT
from tests.packaging.markdown import blocks

PAGE = (ROOT / "docs" / "operators.md").read_text()


def test_its_examples_run():
    exec(compile("\n".join(blocks(PAGE, "python")), "docs/operators.md", "exec"), {})


def test_it_names_every_function_and_variant():
    assert [name for name in functional.__all__ if name not in PAGE] == []
    for factory in (gemm, softmax):
        assert [name for name in factory.parameters["variant"].choices if f"| `{name}` |" not in PAGE] == []
