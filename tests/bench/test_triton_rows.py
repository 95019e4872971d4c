"""The Triton kernels' configurations; the kernels themselves need Triton."""

from __future__ import annotations

import sys

import pytest
import torch

from core.bench import triton_rows
from core.bench.case import Case
from core.bench.workloads import NotMeasured, workload
from core.bench.workloads.base import Make
from core.tuning.checking import tensor_difference

OPERATORS = ("softmax", "layernorm", "rmsnorm")


@pytest.mark.parametrize("columns", [512, 1024, 4096, 8192, 300])
def test_single_rows_and_several_with_few_and_many_warps_are_tried(columns):
    found = list(triton_rows.configs(columns))
    assert len(found) == len(set(found)) >= 8
    assert {config.rows for config in found} >= {1, 2, 4}
    assert len({config.warps for config in found}) >= 3


def test_a_single_pass_reads_whole_rows_and_leaves_masks_out_where_they_say_nothing():
    config = triton_rows.Config(4, 8)
    exact = {"columns": 512, "ROWS": 4, "WIDTH": 512, "EXACT": True}
    assert triton_rows._constants(config, 1024, 512) == exact
    assert triton_rows._constants(config, 1022, 512) == {**exact, "EXACT": False}
    assert triton_rows._constants(config, 1024, 300) == {**exact, "columns": 300, "EXACT": False}


def test_without_triton_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "core.bench.triton_kernels", raising=False)
    with pytest.raises(NotMeasured, match="Triton cannot be imported"):
        triton_rows.compile_all("softmax", 64, 512, "float16")


@pytest.mark.gpu
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("shape", [(64, 512), (67, 300)])
def test_every_configuration_is_right(operator, shape):
    pytest.importorskip("triton")
    case = Case(operator, dict(zip(("M", "N"), shape, strict=True)))
    work = workload(case)
    device = torch.device("cuda")
    inputs = work.inputs(Make(device, torch.Generator(device=device), "float16"))
    expected = work.expected(inputs)
    for config in triton_rows.configs(shape[1]):
        y = torch.full_like(inputs["X"], float("nan"))
        call = triton_rows._calling(triton_rows._kernel(operator), config, *shape)
        call(inputs["X"], *(value for name, value in inputs.items() if name != "X"), y)
        assert tensor_difference(y, expected) is None, config
