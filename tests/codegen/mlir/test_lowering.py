"""What kernels become: bounds only where needed, values carried only where needed, one broadcast, typed refusals."""

import re
from pathlib import Path
from typing import Any

import pytest
import tilelang.language as T

from core.codegen import mlir
from core.codegen.mlir import Builder, TileDialect, Value, tileops
from core.codegen.mlir.lanes import NeedsLoop
from core.errors import UnsupportedOp
from core.program import Copy, Program
from core.target import resolve
from tests.codegen.mlir import kernels
from tests.timing import median_s


class PlainDialect(TileDialect):
    """No vendor's: what the family does on its own."""

    max_blocks = 1000

    def atomic(self, b: Builder, kind: str, value: Value, memory: Value) -> None:
        b.add(f"vendor.atomic_{kind} {value.name}, {memory.name} : {value.type}, {memory.type}")


def source(prim_func: Any, **options: Any) -> str:
    lowered, _ = mlir.lower(Program(prim_func), resolve("cpu").chip, PlainDialect(), **options)
    return lowered.source


def test_a_tile_proved_inside_is_copied_without_bounds_or_fill() -> None:
    text = source(kernels.add(1024, 256))
    assert "memref.copy" in text
    assert "scf.if" not in text
    assert "subview" not in text
    assert "tensor<256xf32>" in text


def test_a_partial_tile_is_filled_when_short_and_copied_and_stored_in_part() -> None:
    text = source(kernels.add(1000, 256))
    assert text.count("scf.if") == 1
    assert re.search(r"memref\.subview .* memref<256xf32> to memref<\?xf32", text)
    assert re.search(r"tensor\.extract_slice .* tensor<256xf32> to tensor<\?xf32>", text)


def test_rows_before_a_bound_in_a_variable_are_stored_as_one_part_of_the_tile() -> None:
    text = source(kernels.cut_by_a_variable(False))
    assert re.search(r"tensor\.extract_slice .* tensor<16x32xf32> to tensor<\?x32xf32>", text)
    assert "tensor.extract " not in text  # no row's mask is looked up


def test_a_bound_that_the_branch_changes_is_the_one_it_was_entered_with() -> None:
    text = source(kernels.cut_by_a_variable(True))
    assert re.search(r"tensor\.extract .* : tensor<16xi1>", text)


def test_a_product_that_clears_in_the_first_iteration_accumulates_onto_zeros_made_before_the_loop() -> None:
    text = source(kernels.clearing_gemm(True))
    loop = text.index("scf.for")
    assert text.index("linalg.fill") < loop
    assert "scf.if" not in text
    assert re.search(r"scf\.for .* iter_args\(.*\) -> \(tensor<64x64xf32>\)", text)


def test_a_product_that_clears_some_other_time_decides_in_the_loop() -> None:
    assert "scf.if" in source(kernels.clearing_gemm(False))


def test_a_loop_carries_what_it_reads_first_and_nothing_it_only_overwrites() -> None:
    text = source(kernels.running_sum())
    assert re.search(r"scf\.for .* iter_args\(%\d+ = %\d+\) -> \(tensor<64xf32>\)", text)


def test_a_gather_loops_over_rows_and_copies_each_as_a_tile() -> None:
    text = source(kernels.gather())
    assert text.count("scf.for") == 1
    assert re.search(r"sizes: \[64\], strides: \[1\]", text)
    assert "tensor.insert_slice" in text


def test_a_mask_that_bounds_nothing_stores_element_by_element() -> None:
    text = source(kernels.masked_store())
    assert "memref.store" in text
    assert re.search(r"scf\.if %\d+ {\n(.*\n)*? *memref\.store", text)


def test_a_break_becomes_a_flag() -> None:
    text = source(kernels.first_negative())
    assert re.search(r"iter_args\(.*\) -> \((i1|i32)(, (i1|i32))+\)", text)


def test_more_blocks_than_a_launch_may_have_run_in_a_loop() -> None:
    assert "scf.for" not in source(kernels.many_blocks(1000))
    text = source(kernels.many_blocks(1001))
    assert "arith.ceildivsi" in text
    assert "scf.for" in text
    assert "scf.for" in source(kernels.many_blocks(8), looped=True)


def test_every_operation_of_the_users_has_its_line() -> None:
    text = source(kernels.add(1024, 256))
    line = next(
        number
        for number, content in enumerate(Path(kernels.__file__).read_text().splitlines(), 1)
        if "B[bx * block + i] = A" in content
    )
    assert f'#line{line} = loc("kernels.py":{line}:0)' in text
    assert re.search(rf"arith\.addf .* loc\(#line{line}\)", text)


def test_a_thread_index_is_refused_with_the_line() -> None:
    with pytest.raises(UnsupportedOp, match="thread index") as caught:
        source(kernels.reads_thread_index())
    assert caught.value.location is not None
    assert caught.value.location.file == kernels.__file__
    assert caught.value.hint


@pytest.mark.parametrize("viewed", ["A", "B"])
def test_a_view_of_a_tensor_as_another_type_is_refused_with_the_line(viewed: str) -> None:
    with pytest.raises(UnsupportedOp, match=r"bits views a tensor as int\d+, but its elements are f32") as caught:
        source(kernels.bits_of_a_tensor(viewed))
    assert caught.value.location is not None
    assert caught.value.location.file == kernels.__file__
    assert "view the tile" in caught.value.hint


def test_the_same_kernel_gives_the_same_text() -> None:
    assert source(kernels.running_sum()) == source(kernels.running_sum())


def test_the_record_of_a_launch_says_what_to_pass_in_order() -> None:
    lowered, modules = mlir.lower(Program(kernels.gather()), resolve("cpu").chip, PlainDialect())
    launch = lowered.metadata["launches"][0]
    assert [a["role"] for a in launch["arguments"]] == ["tensor"] * 3 + ["grid"] * 3 + ["block"] * 3
    assert [a["name"] for a in launch["arguments"]][:3] == ["X", "rows", "Y"]
    assert launch["grid"] == ["1"]
    assert (lowered.route, lowered.language, lowered.entry_points) == ("tile-mlir", "mlir", ("main",))
    assert modules[0].files == {"kernels.py": kernels.__file__}


def test_lowering_is_quick() -> None:
    program = Program(kernels.clearing_gemm(True))
    _ = program.view
    assert median_s(lambda: mlir.lower(program, resolve("cpu").chip, PlainDialect()), 5) < 0.05


def test_a_statement_that_no_loop_helps_is_refused_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """`NeedsLoop` is for the loop around a statement: outside of all loops it is a refusal like any other."""

    def hopeless(*_: Any) -> None:
        raise NeedsLoop

    monkeypatch.setattr(tileops, "OPERATIONS", {**tileops.OPERATIONS, Copy: hopeless})
    with pytest.raises(UnsupportedOp, match="copy: this use of a tile has no form on whole tiles") as caught:
        source(kernels.clearing_gemm(True))
    location = caught.value.location
    assert location is not None
    assert "T.copy(A" in Path(location.file).read_text().splitlines()[location.line - 1]


def test_a_dtype_without_a_type_is_refused_at_the_parameter() -> None:
    @T.prim_func
    def main(
        X: T.Tensor((64,), "float32"),
        Y: T.Tensor((64,), "int4"),  # the parameter
    ):
        with T.Kernel(1, threads=64) as _:
            for i in T.Parallel(64):
                X[i] = 0.0

    with pytest.raises(UnsupportedOp, match="dtype int4 has no MLIR type here") as caught:
        source(main)
    location = caught.value.location
    assert location is not None
    assert "# the parameter" in Path(location.file).read_text().splitlines()[location.line - 1]
