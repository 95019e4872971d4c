"""The suites: the shapes that the goals are about, and what a call of each counts for."""

from __future__ import annotations

import pytest

from core.bench.bounds import READING, bounded, raise_ceilings
from core.bench.case import OPERATORS, SUITES, Case, suite
from core.bench.compiling import contenders_to_compile
from core.bench.contenders import RULE, TORCH
from core.bench.workloads import WORKLOADS, workload
from core.errors import BenchError


def test_the_standard_suite_has_the_shapes_of_the_goals():
    products = {tuple(case.shape.values()) for case in suite("standard", ["gemm"])}
    assert {(4096, 4096, 4096), (4096, 14336, 4096), (16, 4096, 4096), (64, 8192, 8192)} <= products
    assert len(suite("standard", ["gemm"])) == 2 * 9
    assert {case.dtype for case in suite("standard", ["gemm"])} == {"float16", "bfloat16"}
    for operator in ("softmax", "layernorm", "rmsnorm"):
        sizes = [case.shape["M"] * case.shape["N"] * 2 for case in suite("standard", [operator])]
        assert len(sizes) == 4
        assert max(sizes) >= 64 * 2**20
    assert len(suite("standard", ["attention"])) == 5
    assert [case.shape["M"] for case in suite("standard", ["mla"])] == [16, 64, 128]


@pytest.mark.parametrize("name", SUITES)
def test_every_suite_has_every_operator_and_each_case_once(name):
    cases = suite(name)
    assert len({case.name for case in cases}) == len(cases)
    assert {case.operator for case in cases} == set(WORKLOADS) == set(OPERATORS) - {"launch"}
    assert [Case.from_json(case.to_json()) for case in cases] == cases


def test_what_does_not_exist_is_refused_with_what_does():
    with pytest.raises(BenchError, match="no operator 'conv'") as refused:
        suite("small", ["conv"])
    assert "gemm" in refused.value.hint
    with pytest.raises(BenchError, match="no suite 'large'"):
        suite("large")


def test_labels_say_what_differs():
    labels = [case.label for case in suite("standard", ["attention"])]
    assert labels[:3] == ["4x32x2048x128", "4x32x4096x128 causal", "4x32/8x2048x128 causal"]
    assert suite("standard", ["mla"])[0].label == "16 heads, 64 x 8192 keys"


def test_operations_and_bytes_of_a_call():
    gemm = workload(Case("gemm", {"M": 4, "N": 5, "K": 6}))
    assert gemm.flops == 2 * 4 * 5 * 6
    assert gemm.bytes_moved == 2 * (24 + 30 + 20)
    rows = workload(Case("layernorm", {"M": 8, "N": 16}))
    assert rows.bytes_moved == 2 * (2 * 8 * 16 + 2 * 16)
    shape = {"batch": 2, "heads": 4, "kv_heads": 2, "M": 8, "N": 8, "dim": 16}
    full, causal = (workload(Case("attention", shape, options=o)) for o in ({}, {"causal": True}))
    assert full.flops == 2 * causal.flops == 2 * (2 * 2 * 4 * 8 * 8 * 16)
    assert full.bytes_moved == 2 * 2 * 16 * 8 * (4 + 2) * 2
    decode = workload(Case("mla", {"batch": 128, "M": 128, "N": 4096}))
    # With 128 heads an element of the cache serves 128 queries twice: about 242 operations a byte.
    assert decode.flops / (128 * 4096 * 576 * 2) == pytest.approx(241.8, abs=0.1)


def test_raw_tilelang_is_compiled_when_its_tiles_are_known():
    work = contenders_to_compile(suite("small"), ("tilehal", "tilelang"))
    names = [name for _, name in work]
    assert names.index("tilelang") > max(place for place, name in enumerate(names) if name == "tilehal")
    assert names.count("triton") == names.count("triton overlapped") == 6  # row operators only
    assert work[0][0].operator == "attention"
    assert {case.operator for case, _ in work} == set(WORKLOADS)
    launches = contenders_to_compile([], ("tilehal",), launch=True)
    assert [name for _, name in launches] == ["scale", "symbolic", "matmul", "tilelang", "tilelang, allocating"]


def test_a_row_is_bounded_by_the_slower_of_memory_and_arithmetic():
    ceilings = {"bytes_per_s": 4e12, "ops_per_s": {"float16": 7e14}}
    row = {"operator": "gemm", "dtype": "float16", "flops": 7e11, "bytes_moved": 4e8, "contenders": {}}
    row["contenders"]["tilehal"] = {"cold": {"median_s": 2e-3}}
    found = bounded(row, ceilings)
    assert found["bound"] == {"seconds": 1e-3, "memory_s": 1e-4, "compute_s": 1e-3, "limited_by": "compute"}
    assert row["contenders"]["tilehal"]["cold"]["share_of_bound"] == 0.5
    rows = bounded({**row, "operator": "softmax", "contenders": {}}, ceilings)
    assert rows["bound"]["limited_by"] == "memory"


@pytest.mark.parametrize(("read", "memory_s"), [(5e12, 0.8e-4), (3e12, 1e-4), (None, 1e-4)])
def test_reading_bounds_what_only_reads_and_only_where_it_is_faster_than_a_copy(read, memory_s):
    ceilings = {"bytes_per_s": 4e12, "ops_per_s": {}} | ({"read_bytes_per_s": read} if read else {})
    row = {"operator": "mla", "dtype": "float16", "flops": 1.0, "bytes_moved": 4e8, "contenders": {}}
    assert bounded(row, ceilings)["bound"]["memory_s"] == pytest.approx(memory_s)
    for other in ("softmax", "gemm", "attention"):
        assert bounded({**row, "operator": other}, ceilings)["bound"]["memory_s"] == pytest.approx(1e-4)


@pytest.mark.parametrize("case", [case for case in suite("standard") if case.operator in READING], ids=str)
def test_what_a_reading_bounds_writes_at_most_3_percent(case):
    work = workload(case)
    written = case.shape["batch"] * case.shape["M"] * 512 * work.element_bytes
    assert written / work.bytes_moved < 0.03


def test_the_fastest_library_product_of_the_run_is_the_ceiling():
    ceilings = {"bytes_per_s": 4e12, "ops_per_s": {"float16": 6e14}}
    row = {
        "operator": "gemm",
        "dtype": "float16",
        "flops": 7e11,
        "contenders": {"cublas": {"cold": {"median_s": 1e-3}}},
    }
    raise_ceilings(ceilings, [row, {**row, "flops": 1e11}, {**row, "contenders": {"cublas": {"status": "failed"}}}])
    assert ceilings["ops_per_s"] == {"float16": pytest.approx(7e14)}


def test_only_a_product_of_torch_raises_the_ceiling_of_products():
    ceilings = {"bytes_per_s": 1.0, "ops_per_s": {"float16": 1.0}}
    row = {"dtype": "float16", "flops": 1e9, "bytes_moved": 1.0, "contenders": {TORCH: {"cold": {"median_s": 1.0}}}}
    raise_ceilings(ceilings, [{**row, "operator": "softmax"}])
    assert ceilings["ops_per_s"] == {"float16": 1.0}
    raise_ceilings(ceilings, [{**row, "operator": "gemm", "contenders": {RULE: {"cold": {"median_s": 1.0}}}}])
    assert ceilings["ops_per_s"] == {"float16": 1.0}
    raise_ceilings(ceilings, [{**row, "operator": "gemm"}])
    assert ceilings["ops_per_s"] == {"float16": 1e9}


def test_the_fastest_copy_of_the_run_is_the_ceiling_of_memory():
    ceilings = {"bytes_per_s": 2.75e12, "ops_per_s": {}}
    copied = {"operator": "softmax", "dtype": "float16", "bytes_moved": 4e8, "flops": 1.0}
    raise_ceilings(ceilings, [{**copied, "contenders": {"copy": {"cold": {"median_s": 1e-4}}}}])
    assert ceilings["bytes_per_s"] == pytest.approx(4e12)
