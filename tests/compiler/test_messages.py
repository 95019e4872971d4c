"""What TileLang and TVM say about a faulty kernel arrives as a typed error with the user's line and what to do.

The texts are provoked, not quoted: each case traces or lowers a real kernel of `faulty_kernels`.
"""

from __future__ import annotations

import linecache

import pytest

import core
from core.cli._kernels import load_kernel
from core.compiler.messages import reason_of, translate
from core.errors import KernelError, Location, ResourceExceeded, ShapeMismatch, TileHALError, UnsupportedOp
from tests.compiler import faulty_kernels

#: kernel, type, what the message keeps of TileLang's reason, what the hint says to do.
FAULTS = (
    ("gemm_wrong_k", ShapeMismatch, "K_A = 64, K_B = 32", "check the shapes"),
    ("gemm_wrong_m", ShapeMismatch, "M_A = 64, M_C = 128", "check the shapes"),
    ("gemm_rank_one", ShapeMismatch, "2D or higher-order", "two dimensions"),
    ("gemm_dtypes_differ", ShapeMismatch, "float16 and bfloat16", "same type"),
    ("gemm_tiny", UnsupportedOp, "M must be divisible by 16, but got 8", "multiple"),
    ("gemm_m_odd", UnsupportedOp, "M must be divisible by 16, but got 50", "multiple"),
    ("gemm_k_odd", UnsupportedOp, "block_K (24)", "multiple"),
    ("gemm_global", UnsupportedOp, "A: global, B: global", "T.alloc_shared"),
    ("two_gemms_one_too_small", UnsupportedOp, "but got 24", "multiple"),
    ("no_warp_partition", ResourceExceeded, "M=16, N=16 cannot be evenly covered by 16 warps", "fewer threads"),
    ("copy_unequal", ShapeMismatch, "extents 64 and 32 are unequal", "both sides"),
    ("copy_whole_unequal", ShapeMismatch, "(128, 32)", "slice of the larger"),
    ("reduce_bad_dim", ShapeMismatch, "dim is 2", "must exist in the source"),
    ("reduce_bad_shape", ShapeMismatch, "output shape is [128]", "the source without it"),
    ("cumsum_bad_dim", ShapeMismatch, "Dimension 2 is out of bounds", "must exist in the source"),
    ("shared_in_global_reduce", UnsupportedOp, "global and global", "T.alloc_fragment"),
    ("unsupported_dtype", UnsupportedOp, "A is a tensor of float17", "types of docs/program.md"),
    ("fragment_constant_index", UnsupportedOp, "a at 5: a fragment is spread over threads", "shared buffer"),
    ("kept_dimension", UnsupportedOp, "keeps the reduced dimension", "without dimension 1"),
    ("uneven_rows", UnsupportedOp, "rows of 200", '256 long and fill the rest with -T.infinity("float32")'),
    ("uneven_single_row", UnsupportedOp, "rows of 200", "256 long and fill the rest with 0"),
    ("uneven_lanes", UnsupportedOp, "rows of 3", "make the rows of a 4 long"),
    ("part_of_a_fragment", UnsupportedOp, "must be a full region", "fragment of its own"),
    ("transposed_fragment", UnsupportedOp, "Layout infer conflict between a and b", "shared buffer"),
    ("unknown_op", KernelError, "no attribute 'copyy'", "did you mean copy"),
    ("unknown_name", KernelError, "'not_defined' is not defined", "define not_defined before"),
    ("thread_overflow", ResourceExceeded, "2048 threads per block", "1024"),
    ("negative_threads", ResourceExceeded, "got -1", "thread count"),
    ("python_abs", UnsupportedOp, "abs()", "T.abs"),
    ("symbolic_choice", KernelError, "and / or / not operator", "has to be a number"),
    ("int_division", UnsupportedOp, "integer divisions", "T.truncdiv"),
    ("wrong_rank_index", ShapeMismatch, "Buffer A is 2-dimensional", "one index for each dimension"),
    ("literal_overflow", KernelError, "300 exceeds maximum of uint8", "does not fit the type"),
    ("reshape_size", ShapeMismatch, "reshape/view", "same number of bits"),
    ("slice_whole", UnsupportedOp, "NoneType", "both of its ends"),
    ("variable_of_branch", KernelError, "used outside its defining region", "T.alloc_var"),
)


def refused(kernel: str) -> TileHALError:
    with pytest.raises(TileHALError) as caught:
        core.compile(getattr(faulty_kernels, kernel), target="cuda:h200", build=False)
    return caught.value


def line_of(error: TileHALError) -> str:
    assert error.location is not None
    return linecache.getline(error.location.file, error.location.line)


@pytest.mark.parametrize(("kernel", "error", "reason", "hint"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_a_fault_has_its_type_line_and_hint(kernel, error, reason, hint):
    found = refused(kernel)
    assert type(found) is error
    assert reason in found.message
    assert hint in found.hint
    assert line_of(found).rstrip().endswith("# fault")


def test_a_diagnostic_that_quotes_a_line_is_placed_there():
    text = f"Fatal: no good\n  --> {faulty_kernels.__file__}:7:1\n   |\n 7 | x"
    found = translate(RuntimeError(text), fallback=UnsupportedOp, stage="lowering main")
    assert found.location == Location(faulty_kernels.__file__, 7)
    assert "-->" not in found.message


def test_a_return_inside_a_kernel_is_placed_at_the_kernel():
    found = refused("return_in_kernel")
    assert type(found) is KernelError
    assert "T.thread_return()" in found.hint
    assert "@T.prim_func" in line_of(found)


def test_a_constant_without_a_value_names_the_kernel():
    found = refused("missing_const")
    assert type(found) is KernelError
    assert found.message.startswith("tracing missing_const")
    assert "`N`" in found.message
    assert "N=1024" in found.hint
    assert "@tilelang.jit" in line_of(found)


@pytest.mark.parametrize(
    "kernel", ["gemm_wrong_k", "python_abs", "gemm_tiny", "variable_of_branch", "part_of_a_fragment"]
)
def test_nothing_is_printed(kernel, capfd):
    """TileLang's dump of the rewritten source stays out of the user's terminal."""
    refused(kernel)
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")


def test_the_cause_is_kept():
    assert isinstance(refused("python_abs").__cause__, TypeError)


TEXT_ANNOTATIONS = """
from __future__ import annotations
import tilelang.language as T

def copy(N: int, dtype: str = "float32"):
    @T.prim_func
    def main(A: T.Tensor((N,), dtype), B: T.Tensor((N,), dtype)):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(N):
                B[i] = A[i]
    return main
"""


def test_a_name_that_only_annotations_use_is_explained_where_annotations_are_text(tmp_path):
    file = tmp_path / "future.py"
    file.write_text(TEXT_ANNOTATIONS)
    with pytest.raises(KernelError, match="'dtype' is not defined") as caught:
        core.compile(load_kernel(f"{file}:copy"), 64, target="cpu", build=False)
    assert "remove `from __future__ import annotations`" in caught.value.hint


def test_an_unknown_text_keeps_its_reason_and_says_where_to_read_on():
    found = translate(RuntimeError("the moon is full"), fallback=UnsupportedOp, stage="lowering main")
    assert type(found) is UnsupportedOp
    assert found.message == "lowering main: RuntimeError: the moon is full"
    assert "__cause__" in found.hint


def test_a_text_that_cannot_be_placed_is_about_the_kernel():
    kernel = Location("/kernels.py", 3)
    found = translate(RuntimeError("no available layout found"), fallback=UnsupportedOp, stage="s", location=kernel)
    assert found.location == kernel


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Check failed: (a == b) is false: sizes differ", "sizes differ"),
        ("no layout\n  --> k.py:3:1\n   |\n 3 |     x = 1\n   | ^", "no layout"),
        ('Traceback (most recent call last):\n  File "a.py", line 1\nwrong', "wrong"),
        ("", "ValueError"),
    ],
)
def test_the_reason_is_the_sentence_without_the_dump(text, reason):
    assert reason_of(ValueError(text)) == reason


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        ({"dtype": "half"}, "unknown dtype `half`", "dtype='half': did you mean float16?"),
        ({"dtype": "flaot32"}, "unknown dtype `flaot32`", "dtype='flaot32': did you mean float32"),
        ({"dtype": "float61"}, "dtype='float61' is no dtype", "did you mean float64 or float16?"),
        ({"M": (512, 1024)}, "M=(512, 1024), where a kernel's size is wanted", "shapes and extents are ints"),
        ({"N": True}, "N=True, where a kernel's size is wanted", "shapes and extents are ints"),
        ({"M": None}, "M=None, where a kernel's size is wanted", "shapes and extents are ints"),
        ({"M": "abc"}, "M='abc', where a kernel's size is wanted", "shapes and extents are ints"),
        ({"M": 512.0}, "M=512.0, where a kernel's size is wanted", "shapes and extents are ints"),
        ({"rows": 0}, "rows=0, where a kernel's size is wanted", "give 1 or more"),
        ({"rows": [4, 8]}, "rows=[4, 8], where a kernel's size is wanted", "one for each"),
        ({"N": 64.0}, "N=64.0, where a kernel's size is wanted", "shapes and extents are ints"),
    ],
)
def test_an_argument_of_the_wrong_kind_is_named(arguments, message, hint):
    with pytest.raises(KernelError) as caught:
        core.compile(faulty_kernels.sized, target="cuda:h200", build=False, **arguments)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_a_kernel_that_asks_cuda_for_its_units_is_told_to_take_their_number(monkeypatch):
    """Whatever the target: the number would be that of this machine's device."""
    from tilelang.carver.arch.driver import cuda_driver

    monkeypatch.setattr(cuda_driver, "get_cuda_device_properties", lambda *_: None)
    with pytest.raises(RuntimeError) as caught:
        cuda_driver.get_num_sms()
    error = translate(caught.value, fallback=TileHALError, stage="tracing main")
    assert type(error) is KernelError
    assert "core.chip(target).main_unit.count" in error.hint
    assert core.chip("cuda:h200").main_unit.count == 132
