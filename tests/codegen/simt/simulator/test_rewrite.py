"""The closed list of source rewrites, and what the text of a kernel tells about its shared memory."""

from __future__ import annotations

import pytest

import core
from core.codegen.simt.simulator.rewrite import DYNAMIC, ENTRY, STATIC, lines_mentioning, rewrite, shared_parts


@pytest.mark.parametrize(
    ("declared", "becomes"),
    [
        (
            "extern __shared__ __align__(1024) uchar buf[];",
            "uchar *const buf = (uchar *)tilehal_sim_dynamic_shared();",
        ),
        ("extern __shared__ float x[];", "float *const x = (float *)tilehal_sim_dynamic_shared();"),
        (
            "__shared__ float red[128];",
            "float (&red)[128] = *(float(*)[128])"
            'tilehal_sim_static_shared(0, "red", sizeof(float[128]), alignof(float));',
        ),
        (
            "__shared__ __align__(16) unsigned char t[4][16];",
            "unsigned char (&t)[4][16] = *(unsigned char(*)[4][16])"
            'tilehal_sim_static_shared(0, "t", sizeof(unsigned char[4][16]), 16);',
        ),
        (
            "__shared__ int one;",
            'int (&one) = *(int*)tilehal_sim_static_shared(0, "one", sizeof(int), alignof(int));',
        ),
    ],
)
def test_shared_declarations(declared: str, becomes: str) -> None:
    assert rewrite(f"{declared}\n", ()).source == f"{becomes}\n\n"


def test_rules_are_named_in_order_and_only_when_applied() -> None:
    assert rewrite("void k() {}\n", ["k"]).rules == (ENTRY,)
    both = "extern __shared__ float x[];\n__shared__ float y[4];\n"
    assert rewrite(both, ["k"]).rules == (DYNAMIC, STATIC, ENTRY)


def test_arrays_are_numbered() -> None:
    text = rewrite("__shared__ float x[4];\n__shared__ float y[4];\n", ()).source
    assert 'static_shared(0, "x"' in text
    assert 'static_shared(1, "y"' in text


def test_everything_else_and_the_line_numbers_stay() -> None:
    source = '// extern __shared__ a comment\nconst char* s = "__shared__ int x;";\nint f(int a) { return a; }\n'
    rewritten = rewrite(source, ["k"]).source
    assert rewritten.startswith(source)
    assert rewritten[len(source) :] == "\nTILEHAL_SIM_ENTRY(k)\n"
    split = "extern __shared__\n  float x[];\nint after;\n"
    assert rewrite(split, ()).source.splitlines().index("int after;") == 2


def test_an_unknown_form_is_refused_by_its_text() -> None:
    with pytest.raises(core.UnsupportedOp, match=r"__shared__ Tile tile = \{\}"):
        rewrite("  __shared__ Tile tile = {};\n", ())


PARTS = """
  void* A = ((void*)((char*)buf_dyn_shmem + 0));
  void* B = ((void*)((char*)buf_dyn_shmem + 8192));
"""


def test_a_part_ends_where_the_next_begins() -> None:
    assert [(p.name, p.offset, p.bytes) for p in shared_parts(PARTS, 12288)] == [("A", 0, 8192), ("B", 8192, 4096)]


def test_parts_that_share_their_place_are_bounded_by_the_whole() -> None:
    reused = PARTS + "  void* C = ((void*)((char*)buf_dyn_shmem + 0));\n"
    assert [p.bytes for p in shared_parts(reused, 12288)] == [12288, 4096, 12288]


def test_mentions_are_of_whole_names() -> None:
    assert lines_mentioning("A\nAB\nB[A]\n", ["A", "B"]) == [0, 1, 0, 3]
