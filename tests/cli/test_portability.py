"""`tilehal portability`."""

from __future__ import annotations

import json

import pytest

from core.cli.main import run

SOURCE = """
import tilelang.language as T

print("printed by the kernel's file")


def product(dtype: str, stages: int = 2):
    @T.prim_func
    def main(A: T.Tensor((64, 256), dtype), B: T.Tensor((256, 64), dtype), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 32), dtype)
            b = T.alloc_shared((32, 64), dtype)
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(8, num_stages=stages):
                T.copy(A[0, k * 32], a)
                T.copy(B[k * 32, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)
    return main
"""


@pytest.fixture
def kernel(tmp_path):
    file = tmp_path / "products.py"
    file.write_text(SOURCE)
    return f"{file}:product"


def test_a_column_per_chip_and_a_row_per_line_in_100_columns(kernel, capsys):
    targets = "cpu,cuda:a100,cuda:h200,metax:c500,ascend:910b3"
    assert run(["portability", kernel, "--param", "dtype=float32", "--target", targets]) == 0
    out = capsys.readouterr().out
    assert max(len(line) for line in out.splitlines()) <= 100
    rows = [line.split() for line in out.splitlines()]
    [first, second] = [row for row in rows if "T.gemm(a," in row]
    assert [word for word in first if word in ("native", "emulated")] == ["emulated", "emulated", "emulated", "native"]
    assert [word for word in second if word in ("native", "emulated")] == ["emulated"]
    assert ["cuda:h200", "shared", "32,768", "232,448", "fits"] in rows


def test_a_refusal_is_explained_and_is_exit_status_1(kernel, capsys):
    words = ["portability", kernel, "--param", "dtype=float16", "--param", "stages=9", "--target", "metax:c500"]
    assert run(words) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "metax:c500 has 64 KiB of shared memory per block; this kernel needs 72 KiB" in out
    assert "change: it fits with num_stages=8 instead of 9" in out
    assert "too much" in out


def test_the_default_is_the_default_chip_of_every_vendor(kernel, capsys):
    from core.plugins import manager

    run(["portability", kernel, "--param", "dtype=float16", "--json"])
    data = json.loads(capsys.readouterr().out)
    assert [chip["target"] for chip in data["chips"]] == [b.chips()[0].target for b in manager().load_all()]


def test_targets_may_be_repeated_and_count_once(kernel, capsys):
    words = ["--target", "cuda:h200,cpu", "--targets", "cuda:h200"]
    run(["portability", kernel, "--param", "dtype=float16", "--json", *words])
    assert len(json.loads(capsys.readouterr().out)["chips"]) == 2


def test_json_is_not_mixed_with_what_the_file_prints(kernel, capsys):
    run(["portability", kernel, "--param", "dtype=float16", "--target", "cuda:h200", "--json"])
    printed = capsys.readouterr()
    assert json.loads(printed.out)["status"] == "native"
    assert "printed by the kernel's file" in printed.err


def test_sarif_is_written_beside_the_table(kernel, tmp_path, capsys):
    file = tmp_path / "report.sarif"
    run(["portability", kernel, "--param", "dtype=float32", "--target", "cuda:h200", "--sarif", str(file)])
    assert "T.gemm" in capsys.readouterr().out
    data = json.loads(file.read_text())
    assert data["version"] == "2.1.0"
    assert [result["ruleId"] for result in data["runs"][0]["results"]] == ["float32-product"]


def test_nothing_is_lowered(kernel, monkeypatch, capsys):
    from core.plugins import Backend

    def called(self, hook, *args, **kwargs):
        raise AssertionError(f"{hook} was called")

    monkeypatch.setattr(Backend, "call", called)
    assert run(["portability", kernel, "--param", "dtype=float16", "--target", "cpu,cuda:h200,metax:c500"]) == 0
    assert capsys.readouterr().out


def test_a_size_that_is_known_at_calls_only_is_an_argument_too(tmp_path, capsys):
    file = tmp_path / "copies.py"
    file.write_text(
        """
import tilelang.language as T

def copy(N: int):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 64), threads=64) as bx:
            for i in T.Parallel(64):
                B[bx * 64 + i] = A[bx * 64 + i]
    return main
"""
    )
    assert run(["portability", f"{file}:copy", "--dynamic", "N", "--target", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernel"] == "main"
    assert run(["portability", f"{file}:copy", "--dynamic", "M", "--target", "cpu"]) == 2
    assert "its arguments are N" in capsys.readouterr().err


def test_an_unknown_kernel_is_an_error_of_the_command(kernel, capsys):
    assert run(["portability", kernel.replace(":product", ":produkt"), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "kernel"
    assert "product" in error["hint"]


def test_sarif_into_a_missing_folder_is_told_at_once(kernel, tmp_path, capsys):
    words = ["portability", kernel, "--param", "dtype=float16", "--sarif", str(tmp_path / "missing" / "x.sarif")]
    assert run(words) == 2
    captured = capsys.readouterr()
    assert "there is no folder" in " ".join(captured.err.replace("│", " ").split())
    assert "printed by the kernel's file" not in captured.err


def test_registers_that_suffice_are_said_to_fit(kernel, capsys):
    assert run(["portability", kernel, "--param", "dtype=float16", "--target", "cuda:h200,metax:n260"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "cuda:h200 registers 16,384 130,560 fits" in lines
    assert "metax:n260 registers 16,384 unknown what does not fit spills" in lines


def test_a_long_what_if_name_breaks_at_its_changes(kernel, capsys):
    targets = "cpu,cuda:h200,metax:c500+shared=128KiB,metax:c550+shared=128KiB"
    run(["portability", kernel, "--param", "dtype=float16", "--target", targets])
    words = capsys.readouterr().out.split()
    assert words.count("metax:c500") == words.count("+shared=128KiB") // 2
    assert "metax:c550" in words
