"""Every statement and buffer of a view carries the user's line, also where TileLang's macros wrote the statement."""

import tilelang.language as T

from core.program import Program, walk


@T.macro
def scale(tile, factor):
    for i, j in T.Parallel(8, 64):
        tile[i, j] *= factor  # in the user's own macro


@T.prim_func
def kernel(A: T.Tensor((32, 64), "float32"), B: T.Tensor((32,), "float32")):
    with T.Kernel(4, threads=128) as b:
        tile = T.alloc_shared((8, 64), "float32")
        total = T.alloc_shared((8,), "float32")
        peak = T.alloc_shared((8,), "float32")
        T.copy(A[b * 8, 0], tile)
        scale(tile, 2.0)
        T.reduce_sum(tile, total, dim=1)  # first
        T.reduce_max(tile, peak, dim=1)  # second

        for i in T.Parallel(8):
            total[i] += peak[i]
        f = T.alloc_fragment((8,), "float32")
        T.copy(total, f)
        T.cumsum(f)  # third
        T.print(total[0], msg="total")  # fourth
        T.copy(f, B[b * 8])


def source(location) -> str:
    with open(location.file) as file:
        return file.readlines()[location.line - 1].strip()


def test_every_statement_has_a_line_of_the_users():
    for stmt in walk.statements(Program(kernel).view):
        assert stmt.location is not None
        assert stmt.location.file == __file__


def test_statements_have_the_line_that_was_written():
    (launch,) = Program(kernel).view.launches
    lines = [source(stmt.location) for stmt in launch.body]
    assert lines == [
        "T.copy(A[b * 8, 0], tile)",
        "for i, j in T.Parallel(8, 64):",
        *["T.reduce_sum(tile, total, dim=1)  # first"] * 3,
        *["T.reduce_max(tile, peak, dim=1)  # second"] * 3,
        "for i in T.Parallel(8):",
        "T.copy(total, f)",
        *["T.cumsum(f)  # third"] * 3,
        *['T.print(total[0], msg="total")  # fourth'] * 2,
        "T.copy(f, B[b * 8])",
    ]
    assert source(launch.body[1].body[0].location) == "tile[i, j] *= factor  # in the user's own macro"


def test_buffers_have_the_line_of_their_declaration():
    view = Program(kernel).view
    (launch,) = view.launches
    named = {buffer.name: buffer for buffer in launch.buffers}
    assert source(named["total"].location) == 'total = T.alloc_shared((8,), "float32")'
    assert all(buffer.location.file == __file__ for buffer in launch.buffers)
    assert source(view.parameters[0].buffer.location).startswith("def kernel(")


def test_the_program_has_the_line_of_its_function():
    assert source(Program(kernel).view.location).startswith(("@T.prim_func", "def kernel("))
