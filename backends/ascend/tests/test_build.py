"""Through Huawei's compiler: final modules, plans read back, refusals and overflows in our terms."""

from pathlib import Path

import pytest
import tilelang.language as T

import core
from backends.ascend import messages
from backends.ascend.plan import read_plan
from backends.ascend.spec import parse_spec, target_spec
from backends.ascend.tests.capacity_kernels import trace
from backends.ascend.tests.conftest import chip_of
from backends.ascend.toolchain import find_compiler
from core.errors import BuildFailed
from core.hardware import Chip, load_chips, verify
from core.ops.grouped_gemm import grouped_gemm
from tests.kernels import Case, all_kernels, construct
from tests.properties import first_of_each

#: What has no form for this compiler; docs/ascend.md lists each with its reason.
REFUSED = {
    "language.doubles[300]": "64-bit floats",
    "language.tickets[200]": "old value",
    "gemm.gemm[nn-float16-float16-64x64x64]": "accumulate",
}
#: In the public target specification, and not in release 1.2.0 of the compiler.
UNKNOWN_CHIPS = {"910_9363"}


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    "case", first_of_each([c for c in all_kernels() if c.name not in REFUSED], construct), ids=lambda case: case.name
)
def test_every_kernel_of_the_corpus_reaches_the_final_module(case: Case, target: str) -> None:
    kernel = case.compile(target)
    built = kernel.build()
    assert "func.func" in built.path("module").read_text()
    assert kernel.provenance.evidence == "vendor compiler"
    assert "no hivmc" in kernel.provenance.toolchain or "binary" in built.files


@pytest.mark.usefixtures("compiler")
def test_rows_of_a_product_that_end_at_a_bound_in_a_variable_reach_the_final_module(target: str) -> None:
    kernel = grouped_gemm.compile(3, 33, 129, 65, target=target, build=True)
    assert kernel.provenance.evidence == "vendor compiler"
    assert kernel.config.choice is not None
    assert kernel.config.choice.place == 1


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_form_is_refused_before_the_compiler_with_a_hint(name: str, target: str) -> None:
    case = next(case for case in all_kernels() if case.name == name)
    with pytest.raises(core.UnsupportedOp, match=REFUSED[name]) as caught:
        case.compile(target)
    assert caught.value.hint


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("kernel", "parameters", "kind", "multi_buffer"),
    [
        ("gemm", {"bm": 128, "bn": 128, "bk": 64, "dtype": "float16", "epilogue": False}, "cube", True),
        ("gemm", {"bm": 64, "bn": 128, "bk": 64, "dtype": "float16", "epilogue": True}, "mix", False),
        ("softmax", {"rows": 4, "columns": 1024, "dtype": "float16", "tail": True}, "vector", True),
        ("attention", {"bm": 64, "bn": 64, "D": 64, "causal": True}, "mix", False),
    ],
)
def test_kernel_type_memory_and_multi_buffering(
    target: str, kernel: str, parameters: dict[str, object], kind: str, multi_buffer: bool
) -> None:
    built = core.compile(trace(kernel, parameters), target=target).build()
    record = built.metadata["launches"][0]
    assert record["kernel_type"] == kind
    assert record["multi_buffer"] is multi_buffer
    memory = built.resources.memory_bytes
    if kind == "cube":
        assert memory["l0c"] >= 128 * 128 * 4
        assert "ub" not in memory
    else:
        assert 0 < memory["ub"] <= chip_of(target).memory("ub").capacity_bytes
    if target == "ascend:910b3":
        assert record["task_type"] == {"cube": 20, "vector": 10, "mix": 32}[kind]
        assert (record["workspace_bytes_per_block"] or 0) > 0 or kind != "mix"


@pytest.mark.usefixtures("compiler")
def test_multi_buffering_is_the_users_to_choose(target: str) -> None:
    program = trace("gemm", {"bm": 128, "bn": 128, "bk": 64, "dtype": "float16", "epilogue": False})
    sizes = {}
    for wanted in (True, False):
        built = core.compile(program, target=target, options={"multi_buffer": wanted}).build()
        assert built.metadata["launches"][0]["multi_buffer"] is wanted
        sizes[wanted] = built.resources.memory_bytes["l1"]
    assert sizes[True] == 2 * sizes[False]


def test_an_unknown_option_is_refused_with_the_ones_there_are(target: str) -> None:
    program = trace("softmax", {"rows": 4, "columns": 1024, "dtype": "float16", "tail": False})
    with pytest.raises(core.KernelError, match="no option 'multibuffer'") as caught:
        core.compile(program, target=target, options={"multibuffer": False})
    assert "multi_buffer" in caught.value.hint


@pytest.mark.usefixtures("compiler")
def test_more_blocks_than_the_runtime_counts_run_in_a_loop(target: str) -> None:
    n = 70000

    @T.prim_func
    def main(X: T.Tensor((n, 64), "float32"), Y: T.Tensor((n, 64), "float32")):
        with T.Kernel(n, threads=128) as bx:
            for j in T.Parallel(64):
                Y[bx, j] = X[bx, j] + 1.0

    kernel = core.compile(main, target=target)
    assert "scf.for" in kernel.get_kernel_source()
    assert kernel.build().lowered.metadata["launches"][0]["looped"] is True


# -- messages ---------------------------------------------------------------------------------------------------------

LAUNCH = {
    "buffers": [
        {
            "name": "x",
            "shape": [16, 8192],
            "dtype": "float32",
            "bytes": 524288,
            "spaces": ["ub"],
            "file": "k.py",
            "line": 7,
        }
    ]
}


def failure(output: str) -> BuildFailed:
    return BuildFailed("it failed", details={"output": output, "source": "kernel.mlir", "command": []})


def test_an_overflow_names_the_space_the_buffers_and_bytes() -> None:
    text = "error: ub overflow, requires 33554432 bits while 1572864 bits available! (possible reason: tiling)"
    error = messages.translate(failure(text), {"files": {}}, LAUNCH, "ascend:910b3")
    assert isinstance(error, core.ResourceExceeded)
    assert (error.details["memory"], error.details["needed_bytes"], error.details["limit_bytes"]) == (
        "ub",
        4194304,
        196608,
    )
    assert "x: 16 x 8192 float32" in error.message
    assert (error.location.file, error.location.line) == ("k.py", 7)


def test_an_illegal_operation_is_the_users_line() -> None:
    text = (
        'loc("kernel.mlir":0:0): error: Failed to run BiShengHIR pipeline\n'
        "loc(\"softmax.py\":12:0): error: failed to legalize operation 'math.round' that was explicitly marked illegal"
    )
    error = messages.translate(failure(text), {"files": {"softmax.py": "/there/softmax.py"}}, LAUNCH, "ascend:910b3")
    assert isinstance(error, core.UnsupportedOp)
    assert "math.round" in error.message
    assert (error.location.file, error.location.line) == ("/there/softmax.py", 12)


def test_a_crash_keeps_its_own_error() -> None:
    crash = failure("LLVM ERROR: out of luck\nStack dump:")
    assert messages.translate(crash, {"files": {}}, LAUNCH, "ascend:910b3") is crash


@pytest.mark.usefixtures("compiler")
def test_a_crash_of_the_tool_never_loses_the_module(target: str) -> None:
    program = trace("softmax", {"rows": 4, "columns": 1024, "dtype": "float16", "tail": False})
    kernel = core.compile(program, target=target, compile_flags=["--no-such-option-of-the-compiler"])
    with pytest.raises(core.TileHALError) as caught:
        kernel.build()
    source = Path(str(caught.value.details["source"]))
    assert source.is_file()
    assert source.read_text() == kernel.get_kernel_source()


# -- plans ------------------------------------------------------------------------------------------------------------

MODULE = """module {
  func.func @k_infer_workspace_shape_function() -> index attributes {} {
    %c57344 = arith.constant 57344 : index
    return %c57344 : index
  }
  func.func @k_infer_task_type_function() -> i8 attributes {} {
    %c32_i8 = arith.constant 32 : i8
    return %c32_i8 : i8
  }
  func.func @k_mix_aic(%arg0: i64) attributes {hivm.func_core_type = #hivm.func_core_type<AIC>} {
    %c40960_i64 = arith.constant 40960 : i64
    %0 = hivm.hir.pointer_cast(%c40960_i64) : memref<8x4x16x16xf16, #hivm.address_space<cbuf>>
    %c0_i64 = arith.constant 0 : i64
    %1 = hivm.hir.pointer_cast(%c0_i64) : memref<4x4x16x16xf32, #hivm.address_space<cc>>
    return
  }
  func.func @k_mix_aiv(%arg0: i64) attributes {hivm.func_core_type = #hivm.func_core_type<AIV>} {
    %c16896_i64 = arith.constant 16896 : i64
    %0 = hivm.hir.pointer_cast(%c16896_i64) : memref<32x64xi1, #hivm.address_space<ub>>
    return
  }
}
"""


def test_a_plan_is_the_end_of_the_highest_buffer_of_each_space() -> None:
    plan = read_plan(MODULE, "k")
    assert plan.kernel_type == "mix"
    assert plan.functions == ("k_mix_aic", "k_mix_aiv")
    assert plan.memory_bytes == {"ub": 16896 + 256, "l1": 40960 + 16384, "l0c": 16384}
    assert (plan.workspace_bytes_per_block, plan.task_type, plan.lock_count) == (57344, 32, None)


def test_what_the_compiler_prints_of_ub_counts_on_the_950_family() -> None:
    assert read_plan(MODULE, "k", "[AscendNPU IR] Allocated UB size = 635904 bits \n").memory_bytes["ub"] == 79488


# -- chips ------------------------------------------------------------------------------------------------------------


def test_a_target_specification_is_read_in_bytes() -> None:
    text = '#dlti.dl_entry<"UB_SIZE", 1572864 : i32>, #dlti.dl_entry<"AI_CORE_COUNT", 20 : i32>'
    assert parse_spec(text) == {"memories.ub.capacity_bytes": 196608, "units.ai_core.count": 20}


@pytest.mark.parametrize("chip", load_chips("backends.ascend"), ids=lambda chip: chip.name)
def test_every_chip_is_what_the_compiler_says_it_is(chip: Chip) -> None:
    try:
        find_compiler(chip)
    except core.ToolchainNotFound as error:
        pytest.skip(f"ascendnpu-ir is not installed: {error.hint}")
    if chip.name in UNKNOWN_CHIPS:
        with pytest.raises(core.ToolchainNotFound, match="does not know"):
            target_spec(chip)
        return
    facts = target_spec(chip)
    assert len(facts) >= 8
    assert [check for check in verify(chip, facts) if check.verdict == "differs"] == []


def test_threads_and_stages_are_said_not_to_apply() -> None:
    from demo.kernels import matmul

    kernel = matmul.compile(256, 256, 256, target="ascend:910b3", build=False)
    assert not kernel.config["threads"].applies
    assert "pipelines by itself" in kernel.config["num_stages"].note
    assert kernel.resources.predicted.flops == 2 * 256**3
