"""The Triton kernels' configurations; the kernels themselves need Triton."""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

import core.bench
from core.bench import measuring, triton_rows
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
    exact = {"columns": 512, "ROWS": 4, "WIDTH": 512, "EXACT": True, "OVERLAPPED": False, "num_warps": 8}
    assert triton_rows._options(config, 1024, 512, False) == exact
    assert triton_rows._options(config, 1022, 512, False) == {**exact, "EXACT": False}
    assert triton_rows._options(config, 1024, 300, False) == {**exact, "columns": 300, "EXACT": False}
    assert triton_rows._options(config, 1024, 512, True) == {**exact, "OVERLAPPED": True, "launch_pdl": True}


@pytest.mark.parametrize("overlapped", [False, True])
def test_without_triton_it_says_so(monkeypatch, overlapped):
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "core.bench.triton_kernels", raising=False)
    with pytest.raises(NotMeasured, match="Triton cannot be imported"):
        triton_rows.compile_all("softmax", 64, 512, "float16", overlapped=overlapped)


class Recording:
    """A Triton kernel that notes what it is compiled and launched with."""

    def __init__(self) -> None:
        self.compiled: list[dict] = []
        self.launched: list[dict] = []

    def warmup(self, *arguments, grid, **options):
        self.compiled.append(options)

    def __getitem__(self, grid):
        return lambda *arguments, **options: self.launched.append(options)


@pytest.fixture
def hopper(monkeypatch):
    """Triton's softmax recorded, as on a device whose launches can overlap."""
    kernel = Recording()
    module = SimpleNamespace(softmax_rows=kernel, gdc_wait=object())
    monkeypatch.setattr(triton_rows, "_module", lambda: module)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    return module


@pytest.mark.parametrize(("name", "said"), [("triton", ""), ("triton overlapped", ", launches overlap")])
def test_what_is_compiled_is_what_is_launched_and_each_kind_is_tuned_by_itself(hopper, name, said):
    overlapped = triton_rows.CONTENDERS[name]
    kernel, count = hopper.softmax_rows, len(list(triton_rows.configs(512)))
    case = Case("softmax", {"M": 64, "N": 512})
    assert measuring.compile_contender(case, name, "cuda:h200") == {"kernels": count}
    assert {options["OVERLAPPED"] for options in kernel.compiled} == {overlapped}
    assert {options.get("launch_pdl", False) for options in kernel.compiled} == {overlapped}
    _, note = triton_rows.tuned("softmax", torch.zeros(64, 512), [], overlapped=overlapped)
    assert kernel.launched[:count] == kernel.compiled
    assert note.endswith(f", the best of {count}{said}")
    assert {str(options) for options in kernel.launched} == {str(options) for options in kernel.compiled}


def test_launches_overlap_where_device_and_triton_can(hopper, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (8, 6))
    with pytest.raises(NotMeasured, match=r"from capability 9\.0 on, and the device has 8\.6"):
        triton_rows.compile_all("softmax", 64, 512, "float16", overlapped=True)
    with pytest.raises(NotMeasured, match=r"the device has 8\.6"):
        triton_rows.tuned("softmax", torch.zeros(64, 512), [], overlapped=True)
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(NotMeasured, match="NVIDIA's devices only"):
        triton_rows.compile_all("softmax", 64, 512, "float16", overlapped=True)
    hopper.gdc_wait = None
    with pytest.raises(NotMeasured, match="has no gdc_wait"):
        triton_rows.compile_all("softmax", 64, 512, "float16", overlapped=True)
    assert hopper.softmax_rows.compiled == []
    assert triton_rows.compile_all("softmax", 64, 512, "float16") == len(hopper.softmax_rows.compiled) > 0


def compiled(operator, overlapped, capability=90):
    """The PTX of one kernel; needs Triton, and no device."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = triton_rows._kernel(operator)
    options = triton_rows._options(triton_rows.Config(2, 4), 64, 512, overlapped)
    constants = {name: options.pop(name) for name in kernel.arg_names if name in options}
    kinds = {name: "constexpr" if name in constants else "*fp16" for name in kernel.arg_names} | {"rows": "i32"}
    source = ASTSource(kernel, kinds, constants)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options).asm["ptx"]


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_next_launch_is_let_go_then_this_one_waits_then_it_loads(operator):
    pattern = r"griddepcontrol\.\w+|(?:ld|st)\.global"
    found = re.findall(pattern, compiled(operator, overlapped=True))
    assert found[:3] == ["griddepcontrol.launch_dependents", "griddepcontrol.wait", "ld.global"]
    assert set(found[3:]) == {"ld.global", "st.global"}
    assert set(re.findall(pattern, compiled(operator, overlapped=False))) == {"ld.global", "st.global"}


def test_a_triton_without_the_waits_compiles_the_plain_kernels(monkeypatch):
    cuda = SimpleNamespace(__name__="triton.language.extra.cuda", __spec__=None)
    pytest.importorskip("triton")
    monkeypatch.delitem(sys.modules, "core.bench.triton_kernels", raising=False)
    monkeypatch.setitem(sys.modules, "triton.language.extra.cuda", cuda)
    monkeypatch.setattr(core.bench, "triton_kernels", None, raising=False)
    monkeypatch.delattr(core.bench, "triton_kernels")
    assert "griddepcontrol" not in compiled("softmax", overlapped=False, capability=80)
    with pytest.raises(NotMeasured, match="has no gdc_wait"):
        triton_rows.require_overlap()


@pytest.mark.gpu
def test_a_launch_that_overlaps_sees_what_the_one_in_front_of_it_wrote():
    pytest.importorskip("triton")
    x, weight = torch.randn(4096, 1024, device="cuda").half(), torch.rand(1024, device="cuda").half() + 0.5
    try:
        triton_rows.require_overlap(x.device)
    except NotMeasured as why:
        pytest.skip(str(why))
    found = []
    for overlapped in (False, True):
        values = [x, *(torch.full_like(x, float("nan")) for _ in range(20))]
        call = triton_rows._calling(triton_rows._kernel("rmsnorm"), triton_rows.Config(1, 4), *x.shape, overlapped)
        for source, target in pairwise(values):
            call(source, weight, target)
        found.append(values[-1])
    assert not found[0].isnan().any()
    assert torch.equal(*found)


@pytest.mark.gpu
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("shape", [(64, 512), (67, 300)])
@pytest.mark.parametrize("overlapped", [False, True])
def test_every_configuration_is_right(operator, shape, overlapped):
    pytest.importorskip("triton")
    if overlapped:
        try:
            triton_rows.require_overlap()
        except NotMeasured as why:
            pytest.skip(str(why))
    case = Case(operator, dict(zip(("M", "N"), shape, strict=True)))
    work = workload(case)
    device = torch.device("cuda")
    inputs = work.inputs(Make(device, torch.Generator(device=device), "float16"))
    expected = work.expected(inputs)
    for config in triton_rows.configs(shape[1]):
        y = torch.full_like(inputs["X"], float("nan"))
        call = triton_rows._calling(triton_rows._kernel(operator), config, *shape, overlapped)
        call(inputs["X"], *(value for name, value in inputs.items() if name != "X"), y)
        assert tensor_difference(y, expected) is None, config
