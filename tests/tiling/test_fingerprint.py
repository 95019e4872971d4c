"""The fingerprint of a kernel's source: it changes with what the kernel does and with nothing else."""

from __future__ import annotations

import importlib.util
import itertools
import textwrap

import pytest

from core.tiling.fingerprint import source_fingerprint

KERNEL = """
import core
import tilelang.language as T

SCALE = 2.0
TABLE = {"float16": 8}


@T.macro
def scaled(x):
    return x * SCALE


def rows(M, block):
    return T.ceildiv(M, block)


@core.kernel(out=["B"])
def twice(M: int, *, block: int = core.tile("M"), dtype: str = "float16"):
    @T.prim_func
    def main(A: T.Tensor((M,), dtype), B: T.Tensor((M,), dtype)):
        with T.Kernel(rows(M, block), threads=128) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = scaled(A[bx * block + i]) + TABLE["float16"]

    return main
"""

_number = itertools.count()


@pytest.fixture
def fingerprint(tmp_path):
    def of(source: str) -> str:
        path = tmp_path / f"kernel_{next(_number)}.py"
        path.write_text(textwrap.dedent(source))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return source_fingerprint(module.twice)

    return of


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SCALE = 2.0", "SCALE = 2.0  # a comment"),
        ("    @T.prim_func\n", '    """A docstring."""\n\n    @T.prim_func\n'),
        ("threads=128) as bx", "threads=128 ) as bx"),
        ("SCALE = 2.0", "UNUSED = 1\nSCALE = 2.0"),
    ],
    ids=["comment", "docstring", "layout", "something else in the file"],
)
def test_what_does_not_count(fingerprint, old, new):
    assert old in KERNEL
    assert fingerprint(KERNEL.replace(old, new)) == fingerprint(KERNEL)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("threads=128", "threads=256"),
        ('core.tile("M")', 'core.tile("M", multiple=16)'),
        ('out=["B"]', "out=[1]"),
        ("return T.ceildiv(M, block)", "return T.ceildiv(M, block) + 0"),
        ("return x * SCALE", "return SCALE * x"),
        ("SCALE = 2.0", "SCALE = 3.0"),
        ('"float16": 8', '"float16": 16'),
    ],
    ids=["body", "parameter", "outputs", "helper", "macro", "constant behind a macro", "table"],
)
def test_what_counts(fingerprint, old, new):
    assert old in KERNEL
    assert fingerprint(KERNEL.replace(old, new)) != fingerprint(KERNEL)


def test_a_factory_inside_a_function_counts_what_it_closes_over():
    import core

    def made(extent):
        @core.kernel
        def inner(M: int, *, block: int = core.tile("M")):
            return extent + M

        return inner

    assert source_fingerprint(made(1)) == source_fingerprint(made(1))
    assert source_fingerprint(made(1)) != source_fingerprint(made(2))


def test_a_factory_without_source_has_one_too():
    import core

    def typed_in(number):
        scope = {"core": core}
        text = f"@core.kernel\ndef f(M: int, *, b: int = core.tile('M')):\n    return M + {number}\n"
        exec(compile(text, "<typed in>", "exec"), scope)
        return scope["f"]

    assert source_fingerprint(typed_in(1)) == source_fingerprint(typed_in(1))
    assert source_fingerprint(typed_in(1)) != source_fingerprint(typed_in(2))
