"""`core.kernel` factories: tiles by rule, tiles by the user, and what is refused."""

import re
from typing import Any

import numpy as np
import pytest
import tilelang.language as T
import torch

import core
from core.ops.attention import attention
from core.portability.tracing import traced_program
from core.tiling import KernelFactory


@core.kernel(out=["C"])
def add(
    M: int,
    N: int,
    *,
    block_M: int = core.tile("M", multiple=2),
    block_N: int = core.tile("N", maximum=64),
    threads: int = core.threads(),
    dtype: str = "float32",
):
    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                C[by * block_M + i, bx * block_N + j] = (
                    A[by * block_M + i, bx * block_N + j] + B[by * block_M + i, bx * block_N + j]
                )

    return main


def test_a_factory_compiles_runs_and_says_who_chose_what() -> None:
    kernel = add.compile(33, 70, target="cpu", block_M=4)
    a, b = torch.randn(33, 70), torch.randn(33, 70)
    assert torch.equal(kernel(a, b), a + b)
    assert kernel.config["block_M"].requested == 4
    assert kernel.config["block_M"].chosen_by == "user"
    assert kernel.config["block_N"].chosen_by != "user"
    assert kernel.config.tiles["block_N"] <= 64


def test_a_parameter_that_does_not_apply_on_the_chip_is_said_so() -> None:
    threads = add.compile(16, 16, target="cpu").config["threads"]
    assert not threads.applies
    assert "one CPU thread runs a whole block" in threads.note
    assert add.compile(16, 16, target="cuda:h200").config["threads"].applies


def test_core_compile_takes_a_factory_too() -> None:
    kernel = core.compile(add, 16, 16, target="cpu", dtype="float16")
    a = torch.randn(16, 16).half()
    assert torch.equal(kernel(a, a), a + a)


@pytest.mark.parametrize(
    ("target", "entry"),
    [("cpu", "add_launch"), ("cuda:h200", "add_kernel"), ("metax:c500", "add_kernel"), ("ascend:910b3", "add")],
)
def test_a_kernel_goes_by_its_factorys_name_in_the_code_of_every_chip(target: str, entry: str) -> None:
    kernel = add.compile(16, 16, target=target, build=False)
    assert (kernel.name, kernel.entry_points) == ("add", (entry,))
    assert f"{entry}(" in kernel.get_kernel_source()
    assert not re.search(r"\bmain", kernel.get_kernel_source())


@core.kernel(out=["B"])
def twice_over(N: int, *, threads: int = core.threads()):
    @T.prim_func
    def in_two_steps(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 128), threads=threads) as block:
            for i in T.Parallel(128):
                B[block * 128 + i] = A[block * 128 + i] + 1
        with T.Kernel(T.ceildiv(N, 128), threads=threads) as block:
            for i in T.Parallel(128):
                B[block * 128 + i] = B[block * 128 + i] * 2

    return in_two_steps


def test_launches_of_one_kernel_are_told_apart_and_a_name_inside_a_factory_is_its_own_business() -> None:
    kernel = twice_over.compile(1000, target="cuda:h200", build=False)
    assert kernel.entry_points == ("twice_over_kernel", "twice_over_kernel_1")
    assert "in_two_steps" not in kernel.get_kernel_source()
    assert twice_over.compile(1000, target="cpu").entry_points == ("twice_over_0_launch", "twice_over_1_launch")


def test_a_factory_called_with_its_tiles_makes_the_very_kernel_that_compiling_it_makes() -> None:
    tiles = {"block_M": 4, "block_N": 64, "threads": 64}
    compiled = add.compile(16, 16, target="cuda:h200", build=False, **tiles)
    called = core.compile(add(16, 16, **tiles), target="cuda:h200", build=False, out_idx=[2])
    assert called.provenance.cache_key == compiled.provenance.cache_key


def test_a_factory_without_a_name_of_letters_leaves_its_function_the_name_it_has() -> None:
    nameless = core.kernel(lambda N: exponential(N, threads=128), out=["Y"])
    assert nameless.compile(512, target="cpu", build=False).name == "main"


def test_moving_a_kernel_keeps_the_users_numbers_and_chooses_the_others_again() -> None:
    kernel = add.compile(64, 64, target="cpu", block_M=4, build=False)
    moved = kernel.with_target("cuda:h200")
    assert moved.target == "cuda:h200"
    assert moved.config.tiles["block_M"] == 4
    assert kernel.with_target("cuda:h200", block_M=8).config.tiles["block_M"] == 8


@pytest.mark.parametrize(
    ("tiles", "reason"),
    [
        ({"block_M": 3}, "not a multiple of 2"),
        ({"block_N": 128}, "maximum"),
        ({"block_N": True}, "must be an int"),
        ({"block_N": "64"}, "must be an int"),
    ],
)
def test_a_number_of_the_users_that_the_parameter_does_not_allow_is_refused(tiles: dict[str, Any], reason: str) -> None:
    with pytest.raises(core.KernelError, match=reason) as caught:
        add.compile(64, 64, target="cpu", **tiles)
    assert "the chip's rules then choose it" in caught.value.hint


def test_missing_and_unknown_arguments_are_named() -> None:
    with pytest.raises(core.KernelError, match="missing N"):
        add.compile(64, target="cpu")
    with pytest.raises(core.KernelError, match="unexpected keyword argument 'width'"):
        add.compile(64, 64, target="cpu", width=3)


def test_a_tile_holds_something() -> None:
    for limits in ({"multiple": 0}, {"minimum": 0}, {"minimum": -4}):
        with pytest.raises(core.KernelError, match=f"{next(iter(limits))} must be at least 1"):
            core.tile("M", **limits)


def test_tile_parameters_are_keyword_only_and_tile_an_argument() -> None:
    marker, other = core.tile("M"), core.tile("N")
    with pytest.raises(core.KernelError, match="keyword-only"):
        core.kernel(lambda M, block=marker: None)
    with pytest.raises(core.KernelError, match="not an argument"):
        core.kernel(lambda M, *, block=other: None)


def test_a_fault_of_the_kernel_is_reported_as_itself_and_not_as_a_tile_that_does_not_fit() -> None:
    @core.kernel(out=["B"])
    def broken(N: int, *, block: int = core.tile("N")):
        @T.prim_func
        def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
            with T.Kernel(1, threads=64):
                x = T.alloc_fragment((8, 16), "float32")
                y = T.alloc_fragment((8,), "float32")
                T.reduce_sum(x, y, dim=3)

        return main

    with pytest.raises((core.ShapeMismatch, core.KernelError)) as caught:
        broken.compile(64, target="cpu")
    assert caught.value.location is not None
    assert caught.value.location.file == __file__


def test_a_factory_with_every_tile_given_is_an_ordinary_function() -> None:
    assert isinstance(add, KernelFactory)
    prim_func = add(64, 64, block_M=2, block_N=32, threads=64)
    assert len(prim_func.params) == 3
    with pytest.raises(core.KernelError, match="block_M, block_N, threads were not given"):
        add(64, 64)


@core.kernel(out=["B"])
def staged(N: int, *, block: int = core.tile("N"), threads: int = core.threads()):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=threads) as bx:
            tile = T.alloc_shared((block,), "float32")
            T.copy(A[bx * block], tile)
            T.copy(tile, B[bx * block])

    return main


def test_a_users_tile_that_does_not_fit_shows_the_buffers_and_what_would() -> None:
    with pytest.raises(core.ResourceExceeded) as caught:
        staged.compile(1 << 20, target="metax:c500", block=1 << 15)
    assert "with block=32768" in caught.value.message
    assert "tile    32768" in caught.value.message
    assert "smaller tiles" in caught.value.hint


def test_a_users_number_that_the_chip_forbids_is_named_once_with_the_reason() -> None:
    with pytest.raises(core.ResourceExceeded, match="100 threads are not whole waves of 32") as caught:
        staged.compile(1 << 20, target="cuda:h200", threads=100)
    assert caught.value.message.count("whole waves") == 1
    assert "threads=100" in caught.value.hint


def test_the_call_is_shown_as_one_would_write_it() -> None:
    with pytest.raises(core.KernelError) as caught:
        add.compile(64, target="cpu")
    assert "add(M, N, *, block_M=..., block_N=..., threads=..., dtype='float32')" in caught.value.hint
    assert repr(add) == "<core.kernel add(M, N, *, block_M=..., block_N=..., threads=..., dtype='float32')>"


def exponential(N: int, *, threads: int = core.threads()):
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 128), threads=threads) as block:
            for i in T.Parallel(128):
                Y[block * 128 + i] = T.exp2(X[block * 128 + i])

    return main


FAST = {"tl.enable_fast_math": True}
exact = core.kernel(exponential, out=["Y"])
fast = core.kernel(out=["Y"], pass_configs=FAST)(exponential)


def test_a_factory_carries_its_pass_configurations_and_the_users_win() -> None:
    kernel = fast.compile(512, threads=128, target="cuda:h200", build=False)
    assert kernel.config.relaxations[0].startswith("tl.enable_fast_math")
    plain = exact.compile(512, threads=128, target="cuda:h200", build=False)
    assert plain.provenance.cache_key != kernel.provenance.cache_key
    asked = exact.compile(512, threads=128, target="cuda:h200", build=False, pass_configs=FAST)
    assert asked.provenance.cache_key == kernel.provenance.cache_key
    refused = fast.compile(
        512, threads=128, target="cuda:h200", build=False, pass_configs={"tl.enable_fast_math": False}
    )
    assert refused.config.relaxations == ()


@pytest.mark.parametrize("target", ["cpu", "metax:c500", "ascend:910b3"])
def test_pass_configurations_a_chip_has_no_use_for_change_nothing_there(target: str) -> None:
    kernel = fast.compile(512, threads=128, target=target, build=False)
    assert kernel.config.relaxations == ()
    assert kernel.get_kernel_source() == exact.compile(512, threads=128, target=target, build=False).get_kernel_source()


def test_dtypes_are_refused_that_a_factory_does_not_declare() -> None:
    def copy(N: int, *, dtype: str = "float32", other: str | None = None) -> Any:
        return dtype

    declared = {"dtype": ("float16", "float32"), "other": lambda arguments: (arguments["dtype"],)}
    factory = core.kernel(copy, dtypes=declared)
    assert factory(8, dtype=torch.float16, other="float16") == "float16"
    with pytest.raises(core.ShapeMismatch, match="copy has no dtype int8: it is one of float16, float32") as caught:
        factory(8, dtype="int8")
    assert caught.value.details == {"argument": "dtype", "dtype": "int8", "allowed": ["float16", "float32"]}
    with pytest.raises(
        core.ShapeMismatch, match="copy has no other float16 with these arguments: it is one of float32"
    ):
        factory.compile(8, other="float16", target="cpu")
    with pytest.raises(core.KernelError, match="dtypes names 'type', which is not an argument"):
        core.kernel(copy, dtypes={"type": ("float16",)})


ENTRIES = {
    "compile": lambda *args, **kw: add.compile(*args, target="cpu", **kw),
    "rank": lambda *args, **kw: add.rank(*args, target="cuda:h200", **kw),
    "tune": lambda *args, **kw: add.tune(*args, target="cpu", **kw),
    "tune of shapes": lambda *args, **kw: add.tune([args], target="cpu", **kw),
    "portability": lambda *args, **kw: traced_program(add, args, kw, []),
    "a call": lambda *args, **kw: add(*args, **{"block_M": 4, "block_N": 64, "threads": 64, **kw}),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_extent_that_cannot_be_tiled_is_refused_before_anything_is_ranked(entry: str) -> None:
    for value, hint in (
        (0, "leave the call out"),
        (-5, "number of elements along M"),
        ((512, 1024), "one M at a time"),
        ("dynamic", "T.dynamic"),
        (True, "M=512"),
        (64.0, "M=512"),
        (None, "M=512"),
    ):
        with pytest.raises(core.KernelError, match=rf"add: M={re.escape(repr(value))}, and M is the extent") as caught:
            ENTRIES[entry](value, 64)
        assert hint in caught.value.hint
        assert caught.value.location is not None
        assert caught.value.location.file == __file__


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_text_that_is_no_dtype_and_a_tile_of_nothing_are_refused(entry: str) -> None:
    with pytest.raises(core.KernelError, match="dtype='float61' is no dtype") as caught:
        ENTRIES[entry](64, 64, dtype="float61")
    assert caught.value.hint == "did you mean float64 or float16?"
    for value in (0, -4):
        with pytest.raises(core.KernelError, match=f"block_M={value}: {value} is below the minimum 2"):
            ENTRIES[entry](64, 64, block_M=value)


@core.kernel(out=["B"])
def negated(batch: int, N: int, *, block: int = core.tile("N"), threads: int = core.threads()):
    @T.prim_func
    def main(A: T.Tensor((batch, N), "float32"), B: T.Tensor((batch, N), "float32")):
        with T.Kernel(T.ceildiv(N, block), batch, threads=threads) as (bx, by):
            for i in T.Parallel(block):
                B[by, bx * block + i] = -A[by, bx * block + i]

    return main


@core.kernel(out=["C"])
def summed(N: int, K: int, *, parts: int = core.split("K", maximum=8), threads: int = core.threads()):
    @T.prim_func
    def main(A: T.Tensor((K, N), "float32"), C: T.Tensor((parts, N), "float32")):
        with T.Kernel(parts, threads=threads) as part:
            for i in T.Parallel(N):
                C[part, i] = A[part * (K // parts), i]

    return main


def test_an_extent_that_is_split_and_not_tiled_is_1_or_more_as_well() -> None:
    for call in (summed.compile, summed.rank, summed.tune):
        for value, hint in ((0, "leave the call out"), (-8, "number of elements along K"), (True, "K=512")):
            with pytest.raises(core.KernelError, match=f"K={value}, and K is the extent that parts divides") as caught:
                call(64, value, target="cpu")
            assert hint in caught.value.hint
    assert type(summed.arguments((64, np.int64(8)), {})["K"]) is int


def test_a_size_that_nothing_tiles_is_1_or_more_too() -> None:
    for call, rest in ((negated.compile, (64,)), (negated.rank, (64,)), (attention.compile, (8, 8, 64, 64, 64))):
        with pytest.raises(core.KernelError, match="has no elements: a dimension of it is 0") as caught:
            call(0, *rest, target="cuda:h200")
        assert "leave the call out" in caught.value.hint
        with pytest.raises(core.ShapeMismatch, match="has a dimension or stride of -1"):
            call(-1, *rest, target="cuda:h200")
    with pytest.raises(core.KernelError, match=r"batch=\[1\], and batch is an int"):
        negated.compile([1], 64, target="cpu")
    assert type(negated.arguments((np.int64(2), 64), {})["batch"]) is int
    with pytest.raises(core.KernelError, match=r"dim=0 .*where a kernel's size is wanted"):
        attention.compile(1, 8, 8, 64, 64, 0, target="cuda:h200")


@core.kernel(out=["B"])
def with_room_to_spare(spare: int, N: int, *, block: int = core.tile("N"), threads: int = core.threads()):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), unused: T.Tensor((spare,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(spare, threads=threads) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = 0.0
        with T.Kernel(T.ceildiv(N, block), threads=threads) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = -A[bx * block + i]

    return main


@pytest.mark.parametrize("target", ["cpu", "cuda:h200", "metax:c500", "ascend:910b3"])
def test_a_tensor_that_nothing_reads_may_be_empty_and_a_launch_without_blocks(target: str) -> None:
    kernel = with_room_to_spare.compile(0, 64, target=target, build=False)
    if target == "cpu":
        a = torch.randn(64)
        assert torch.equal(kernel(a, torch.empty(0)), -a)


def test_whole_numbers_of_numpy_are_pythons_and_tensors_are_none() -> None:
    assert add.arguments((np.int64(8), np.int32(4)), {}) == {"M": 8, "N": 4, "dtype": "float32"}
    assert {type(value) for value in add.arguments((np.int64(8), np.int32(4)), {}).values()} == {int, str}
    with pytest.raises(core.KernelError, match=r"M=tensor\(8\), and M is the extent"):
        add.rank(torch.tensor(8), 8, target="cpu")
    for dtype in (None, "", 16, ["float32"]):
        with pytest.raises(core.KernelError, match="is no dtype"):
            add.compile(8, 8, target="cpu", dtype=dtype)
    for name in ("float16", "float64"):  # NumPy's float64 equals None
        assert (
            add.compile(8, 8, target="cpu", dtype=np.dtype(name), build=False).lowered.signature.arguments[0].dtype
            == name
        )


def test_a_misspelt_argument_or_tile_parameter_is_named() -> None:
    for call in (add.compile, add.rank):
        with pytest.raises(core.KernelError, match="add has no argument 'block_m'") as caught:
            call(16, 16, target="cpu", block_m=4)
        assert caught.value.hint == "did you mean 'block_M'?"


def test_what_a_factory_misspells_is_named() -> None:
    misspelt = core.kernel(out=["Y"], pass_configs={"tl.enable_fast_maths": True})(exponential)
    with pytest.raises(core.KernelError, match="fast_maths") as caught:
        misspelt.compile(512, target="cpu")
    assert "tl.enable_fast_math" in caught.value.hint
