"""The generated source: readable, deterministic, free of machine paths, safe from the user's names."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import tilelang.language as T
import torch

Compile = Callable[..., Any]


def scale(n: int = 1000) -> Any:
    @T.prim_func
    def kernel(X: T.Tensor((n,), "float16"), Y: T.Tensor((n,), "float16")):
        with T.Kernel(T.ceildiv(n, 256)) as bx:
            x = T.alloc_shared((256,), "float16")
            T.copy(X[bx * 256], x)
            for i in T.Parallel(256):
                Y[bx * 256 + i] = x[i] * 2

    return kernel


def test_every_statement_carries_its_line(cpu: Compile) -> None:
    source = cpu(scale(), [1]).get_kernel_source()
    with open(__file__) as file:
        lines = file.read().splitlines()
    for text in ("T.copy(X[bx * 256], x)", "Y[bx * 256 + i] = x[i] * 2"):
        number = next(i for i, line in enumerate(lines, 1) if line.strip() == text)
        assert f"// test_source.py:{number}" in source


def test_source_is_the_same_every_time_and_names_no_folder(cpu: Compile) -> None:
    first, second = cpu(scale(), [1]).get_kernel_source(), cpu(scale(), [1]).get_kernel_source()
    assert first == second
    assert not re.search(r"/\w+/\w+/", first)


def test_the_preamble_has_only_the_sections_a_kernel_needs(cpu: Compile) -> None:
    source = cpu(scale(), [1]).get_kernel_source()
    assert "struct float16_format" in source
    assert "gemm_block" not in source
    assert "atomic_update" not in source
    assert "reduce_row" not in source


def test_the_first_lines_say_where_the_kernel_starts(cpu: Compile) -> None:
    lines = cpu(scale(), [1]).get_kernel_source().splitlines()
    number = int(re.search(r"starts at line (\d+)", lines[1]).group(1))  # type: ignore[union-attr]  # it is there
    assert lines[number - 1].startswith("using tile::float16;")


def test_whole_tiles_run_without_tests_and_only_the_edge_has_them(cpu: Compile) -> None:
    source = cpu(scale(1000), [1]).get_kernel_source()
    whole, edge = re.search(
        r"if \(bx \* 256 \+ 255 < 1000\) \{(.*?)\} else \{  // a tile at the edge(.*?)\n    \}", source, re.S
    ).groups()  # type: ignore[union-attr]  # it is there
    assert "if (" not in whole
    assert "if (bx * 256 + i < 1000)" in edge
    assert "a tile at the edge" not in cpu(scale(1024), [1]).get_kernel_source()


@pytest.mark.parametrize(
    "names",
    [
        ("tile", "status", "float16", "block"),
        ("new", "scratch", "i0", "int32_t"),
        ("template", "grid_x", "panels", "boolean"),
        ("printf", "read", "write", "arguments"),
        ("unix", "linux", "exp", "min"),
    ],
)
def test_names_taken_by_cpp_or_the_preamble_are_renamed(cpu: Compile, names: tuple[str, str, str, str]) -> None:
    a, b, c, d = names
    text = f"""
def make(T):
    @T.prim_func
    def kernel({a}: T.Tensor((100,), "float16"), {b}: T.Tensor((100,), "float16")):
        with T.Kernel(4) as {d}:
            {c} = T.alloc_shared((32,), "float16")
            T.copy({a}[{d} * 32], {c})
            for value in T.Parallel(32):
                {c}[value] = T.exp({c}[value]) * 2
            T.copy({c}, {b}[{d} * 32])
    return kernel
"""
    import linecache

    filename = f"<kernel {' '.join(names)}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {}
    exec(compile(text, filename, "exec"), namespace)
    kernel = namespace["make"](T)
    x = torch.randn(100).half()
    assert torch.equal(cpu(kernel, [1])(x), (x.float().exp().half() * 2))
