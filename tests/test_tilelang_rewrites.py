"""Rewrites of TileLang's front end are kept between traces, and the program is the same as without."""

import threading
from typing import Any

import pytest
import tilelang.language as T
import tvm_ffi
from tilelang.language.eager import builder

from core._tilelang import rewriting, trace
from core._tilelang.rewriting import kept_rewrites
from core.program import Program


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    monkeypatch.setattr(rewriting, "_kept", type(rewriting._kept)())


@pytest.fixture
def rewrites(monkeypatch):
    """The functions that TileLang itself rewrites, by name."""
    original, seen = builder.mutate, []

    def counted(function: Any) -> Any:
        seen.append(function.__name__)
        return original(function)

    monkeypatch.setattr(builder, "mutate", counted)
    return seen


def factory(N: int, block: int, scale: float = 1.0, dtype: str = "float32") -> Any:
    @T.macro
    def scaled(x):
        return x * scale

    @T.prim_func
    def main(A: T.Tensor((N,), dtype), B: T.Tensor((N,), dtype)):
        with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
            for i in T.Parallel(block):
                if scale > 1.0:
                    B[bx * block + i] = scaled(A[bx * block + i])
                else:
                    B[bx * block + i] = A[bx * block + i]

    return main


def hashed(prim_func: Any) -> int:
    return tvm_ffi.structural_hash(prim_func)


def test_a_second_trace_rewrites_nothing_and_gives_the_program_that_rewriting_gives(rewrites):
    wanted = {arguments: hashed(factory(*arguments)) for arguments in ((64, 16, 2.0), (96, 32, 0.5, "float16"))}
    assert len(set(wanted.values())) == 2
    rewrites.clear()
    for arguments, expected in wanted.items():
        assert hashed(trace(factory, arguments, {}).prim_func) == expected
    assert rewrites == ["scaled", "main"]


def test_lines_of_the_kernel_are_those_of_the_kernel(rewrites):
    first, second = (trace(factory, (64, block), {}).prim_func for block in (16, 32))
    assert rewrites == ["scaled", "main"]
    lines = [Program(prim_func).view.launches[0].location for prim_func in (first, second)]
    assert lines[0] == lines[1]
    assert lines[0].file == __file__


def test_another_function_with_the_same_text_is_rewritten(rewrites):
    def make() -> Any:
        namespace: dict[str, Any] = {}
        exec(compile("def f(): pass", "x.py", "exec"), namespace)
        return namespace["f"]

    first, second = make(), make()
    assert first.__code__ is not second.__code__
    with kept_rewrites():
        for function in (first, second):
            with pytest.raises(OSError, match="source"):  # none to read: TileLang's own error comes through
                builder.mutate(function)
    assert rewrites == ["f", "f"]


def test_a_launch_that_means_something_else_now_is_rewritten(rewrites, monkeypatch):
    launch = T.Kernel

    def renamed(N: int, open_launch: Any) -> Any:
        @T.prim_func
        def main(A: T.Tensor((N,), "float32")):
            with open_launch(1, threads=32):
                A[0] = 0.0

        return main

    trace(renamed, (8, launch), {})
    trace(renamed, (16, launch), {})
    assert rewrites == ["main"]

    class Other:
        """No launch at all."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            raise RuntimeError("opened")

    with pytest.raises(Exception, match="opened"):
        trace(renamed, (16, Other), {})
    assert rewrites == ["main", "main"]


def test_tilelangs_own_function_is_back_when_the_last_trace_is_over():
    original = builder.mutate
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with kept_rewrites():
            inside.set()
            leave.wait()

    other = threading.Thread(target=hold)
    other.start()
    inside.wait()
    with kept_rewrites():
        assert builder.mutate is not original
    assert builder.mutate is not original
    leave.set()
    other.join()
    assert builder.mutate is original
