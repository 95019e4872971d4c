"""The compiled argument check accepts what the binder accepts, leaves the rest to it, and calls with what was given."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode

from core.codegen.host import build_launch
from core.codegen.launch import binding_source, call_source, with_headers
from core.errors import TileHALError
from core.runtime.arguments import Binder
from core.runtime.compiled import MISS, _Allocators, load
from core.runtime.signature import ScalarArgument, Signature, TensorArgument
from tests.properties import examples
from tests.runtime.standin import c_compiler

ADD = Signature(
    "add",
    (
        TensorArgument("A", "float32", (4, 8)),
        TensorArgument("B", "float32", (4, 8)),
        TensorArgument("C", "float32", (4, 8), is_output=True, writes=True),
    ),
    outputs=(2,),
)
DYNAMIC = Signature(
    "dynamic",
    (
        TensorArgument("A", "float16", ("M", "K")),
        ScalarArgument("scale", "float32"),
        TensorArgument("B", "bfloat16", ("K", "2*N"), strides=("S", 1)),
        ScalarArgument("n", "int32"),
        TensorArgument("C", "int64", ("M", "(N + 7)//8"), is_output=True, writes=True),
        TensorArgument("D", "bool", (1, 3), is_output=True, writes=True),
    ),
    symbols=("M", "K", "N", "S"),
    outputs=(5, 4),
)
DYNAMIC_TYPES = ["handle", "float32", "handle", "int32", "handle", "handle", "int32", "int64", "int32", "int64"]
INNER = Signature(
    "inner",
    (
        TensorArgument("A", "float32", ("M",)),
        TensorArgument("C", "float32", ("M - 4", "n"), is_output=True),
        ScalarArgument("n", "int32"),
    ),
    symbols=("M",),
    outputs=(1,),
)
MIXED = Signature(
    "mixed",
    (
        TensorArgument("A", "float32", ("M", 8)),
        TensorArgument("B", "float32", (2, "M"), strides=("M", 1)),
        TensorArgument("C", "float32", ("M", 8), is_output=True),
    ),
    symbols=("M",),
    outputs=(2,),
)
FLAGS = Signature(
    "flags",
    (ScalarArgument("on", "bool"), ScalarArgument("byte", "uint8"), TensorArgument("A", "float8_e4m3", ("M",))),
    ("M",),
)


class Call:
    """A compiled call whose kernel notes its arguments, and the binder of the same signature."""

    def __init__(self, signature: Signature, types: list[str], folder: Path) -> None:
        c_compiler()
        source = call_source(signature, types) + binding_source(signature, "cpu", refuses_empty=False)
        files = build_launch(folder, with_headers(source), f"compile {signature.name}")
        kinds = {"handle": ctypes.c_void_p, "float32": ctypes.c_float, "int32": ctypes.c_int32, "int64": ctypes.c_int64}
        c_types = [kinds.get(kind, ctypes.c_uint8) for kind in types]
        self.seen: list[tuple[Any, ...]] = []
        self.message: bytes | None = None
        self._function = ctypes.CFUNCTYPE(ctypes.c_void_p, *c_types)(self._note)
        address = ctypes.cast(self._function, ctypes.c_void_p).value
        assert address is not None
        self.compiled = load(folder / files["launch"], signature, "cpu", address)
        self.binder = Binder(signature, "cpu")
        self._kept = ctypes.create_string_buffer(b"an assertion of the kernel's own")

    def _note(self, *values: Any) -> int:
        self.seen.append(values)
        return ctypes.addressof(self._kept) if self.message else 0

    def __call__(self, *args: Any) -> Any:
        return self.compiled.call(*args)


@pytest.fixture(scope="module")
def add(tmp_path_factory: pytest.TempPathFactory) -> Call:
    return Call(ADD, ["handle"] * 3, tmp_path_factory.mktemp("add"))


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory: pytest.TempPathFactory) -> Call:
    return Call(DYNAMIC, DYNAMIC_TYPES, tmp_path_factory.mktemp("dynamic"))


@pytest.fixture(scope="module")
def flags(tmp_path_factory: pytest.TempPathFactory) -> Call:
    return Call(FLAGS, ["bool", "uint8", "handle", "int32"], tmp_path_factory.mktemp("flags"))


def test_given_outputs_are_used_and_returned(add: Call) -> None:
    a, b, c = torch.ones(4, 8), torch.ones(4, 8), torch.empty(4, 8)
    assert add(a, b, c) is c
    assert add.seen[-1] == (a.data_ptr(), b.data_ptr(), c.data_ptr())


def test_outputs_left_out_are_allocated(add: Call, dynamic: Call) -> None:
    a, b = torch.ones(4, 8), torch.ones(4, 8)
    c = add(a, b)
    assert (c.shape, c.dtype, c.is_contiguous(), c.requires_grad) == ((4, 8), torch.float32, True, False)
    assert add.seen[-1] == (a.data_ptr(), b.data_ptr(), c.data_ptr())
    assert add(a, b).data_ptr() != c.data_ptr()


@pytest.mark.parametrize("shape", [(3, 5, 9), (1, 5, 9), (0, 5, 9), (4, 1, 1)], ids=str)
def test_allocated_outputs_are_laid_out_as_torch_would(dynamic: Call, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    d, c = dynamic(torch.ones(m, k).half(), 2, torch.ones(k, 2 * n, dtype=torch.bfloat16), 0)
    for made, size in ((c, (m, (n + 7) // 8)), (d, (1, 3))):
        assert (made.shape, made.stride()) == (size, torch.empty(size).stride())


@pytest.mark.parametrize("past", [True, False], ids=["past the dispatcher", "through it"])
def test_outputs_are_made_past_torch_s_dispatcher_where_it_offers_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, past: bool
) -> None:
    guards, made = torch._C._dynamo.guards, []
    if past:
        make = guards._empty_strided_cpu
        monkeypatch.setattr(guards, "_empty_strided_cpu", lambda *args: made.append(args) or make(*args))
    else:
        monkeypatch.delattr(guards, "_empty_strided_cpu")
    (tmp_path / "add").mkdir()
    add, dynamic = Call(ADD, ["handle"] * 3, tmp_path / "add"), Call(DYNAMIC, DYNAMIC_TYPES, tmp_path)
    a = torch.ones(4, 8)
    half, bfloat = torch.ones(3, 5).half(), torch.ones(5, 4, dtype=torch.bfloat16)
    for mode in (nullcontext(), torch.inference_mode(), torch.device("meta")):
        with mode:
            outputs = [add(a, a), *dynamic(half, 2, bfloat, 1)]
            expected = [torch.empty(o.shape, dtype=o.dtype, device="cpu") for o in outputs]
        for output, like in zip(outputs, expected, strict=True):
            assert output.device == like.device
            assert output.is_inference() == like.is_inference()
            assert output.stride() == like.stride()
    each = [((4, 8), (8, 1), torch.float32), ((3, 1), (1, 1), torch.int64), ((1, 3), (3, 1), torch.bool)]
    assert made == (each * 3 if past else [])


def test_symbols_scalars_and_several_outputs(dynamic: Call) -> None:
    a = torch.ones(3, 5).half()
    b = torch.ones(5, 40, dtype=torch.bfloat16)[:, :18]
    d, c = dynamic(a, 2, b, -7)
    assert (d.shape, d.dtype) == ((1, 3), torch.bool)
    assert (c.shape, c.dtype) == ((3, 2), torch.int64)
    assert dynamic.seen[-1] == (a.data_ptr(), 2.0, b.data_ptr(), -7, c.data_ptr(), d.data_ptr(), 3, 5, 9, 40)
    again = dynamic(a, 0.5, b, 1, c, d)
    assert again[0] is d
    assert again[1] is c


def test_types_without_an_alphabet_of_their_own_are_told_apart(flags: Call) -> None:
    x = torch.zeros(6).to(torch.float8_e4m3fn)
    assert flags(True, 255, x) is None
    assert flags.seen[-1] == (1, 255, x.data_ptr(), 6)
    for wrong in (x.view(torch.uint8), x.float().to(torch.float8_e5m2)):
        assert flags(True, 255, wrong) is MISS


def fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.empty(4, 8)


class Sub(torch.Tensor):
    pass


#: What may be passed for a (4, 8) float32 tensor, right or wrong.
OFFERED: dict[str, Callable[[], Any]] = {
    "right": lambda: torch.ones(4, 8),
    "a part of another": lambda: torch.ones(9, 8)[3:7],
    "a parameter": lambda: torch.nn.Parameter(torch.ones(4, 8)),
    "with gradient": lambda: torch.ones(4, 8, requires_grad=True),
    "transposed": lambda: torch.ones(8, 4).t(),
    "every second column": lambda: torch.ones(4, 16)[:, ::2],
    "expanded": lambda: torch.ones(1, 8).expand(4, 8),
    "another dtype": lambda: torch.ones(4, 8).half(),
    "another int": lambda: torch.ones(4, 8, dtype=torch.int32),
    "another extent": lambda: torch.ones(4, 9),
    "another rank": lambda: torch.ones(32),
    "empty": lambda: torch.ones(0, 8),
    "on meta": lambda: torch.ones(4, 8, device="meta"),
    "a number": lambda: 3,
    "none": lambda: None,
    "a list": lambda: [[1.0] * 8] * 4,
    "a subclass": lambda: torch.ones(4, 8).as_subclass(Sub),
    "fake": fake,
    "sparse": lambda: torch.ones(4, 8).to_sparse(),
    "sparse rows": lambda: torch.ones(4, 8).to_sparse_csr(),
    "without memory": lambda: torch._efficientzerotensor((4, 8)),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
}


@pytest.mark.filterwarnings("ignore:.*(Sparse CSR|nested tensors)")
@pytest.mark.parametrize("offered", OFFERED)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_what_is_called_is_what_the_binder_accepts(add: Call, position: int, offered: str) -> None:
    args = [torch.ones(4, 8) for _ in range(3)]
    args[position] = OFFERED[offered]()
    try:
        add.binder(tuple(args), {})
        accepted = True
    except TileHALError:
        accepted = False
    called = add(*args) is not MISS
    assert not (called and not accepted)
    # The one thing the binder takes that the compiled check leaves to it.
    assert called == (accepted and offered != "a subclass")


@examples(150)
@given(
    shape=st.lists(st.integers(0, 3), min_size=2, max_size=2),
    strides=st.lists(st.integers(0, 4), min_size=2, max_size=2),
    scale=st.sampled_from([1, 2.5, True, "x", None, 10**400, 1e300, 3.4028235e38, -3.4028236e38, float("-inf")]),
    n=st.sampled_from([0, -(2**31), 2**31 - 1, 2**31, 2**70, 1.0, True, "x"]),
)
def test_layouts_and_numbers_are_judged_as_by_the_binder(
    dynamic: Call, shape: list[int], strides: list[int], scale: Any, n: Any
) -> None:
    a = torch.empty(64, dtype=torch.float16).as_strided(shape, strides)
    b = torch.ones(shape[1], 4, dtype=torch.bfloat16)
    try:
        dynamic.binder((a, scale, b, n), {})
        accepted = True
    except TileHALError:
        accepted = False
    called = dynamic(a, scale, b, n) is not MISS
    assert called == accepted


def test_of_fixed_and_symbolic_extents_together_each_is_checked(tmp_path: Path) -> None:
    mixed = Call(MIXED, ["handle"] * 3 + ["int32"], tmp_path)
    a, b = torch.ones(3, 8), torch.ones(2, 3)
    made = mixed(a, b)
    assert (made.shape, made.is_contiguous()) == ((3, 8), True)
    assert mixed.seen[-1] == (a.data_ptr(), b.data_ptr(), made.data_ptr(), 3)
    for shape, strides, accepted in (
        ((3, 8), (8, 1), True),
        ((1, 8), (99, 1), True),
        ((3, 8), (1, 3), False),
        ((3, 8), (16, 1), False),
        ((3, 8), (8, 2), False),
        ((1, 8), (8, 2), False),
        ((3, 7), (7, 1), False),
    ):
        offered = torch.ones(64).as_strided(shape, strides)
        for args in ((offered, torch.ones(2, shape[0])), (torch.ones(shape[0], 8), torch.ones(2, shape[0]), offered)):
            assert (mixed(*args) is not MISS) == accepted, (shape, strides)
            with nullcontext() if accepted else pytest.raises(TileHALError):
                mixed.binder(args, {})
    for strides in ((4, 1), (3, 2), (1, 2)):
        offered = torch.ones(64).as_strided((2, 3), strides)
        assert mixed(a, offered) is MISS
        with pytest.raises(TileHALError, match="strides"):
            mixed.binder((a, offered), {})


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_the_imaginary_part_of_a_conjugate_is_left_to_the_binder(dynamic: Call) -> None:
    b = torch.ones(1, 4, dtype=torch.bfloat16)
    negated = torch.full((1, 1), 1 + 2j).to(torch.complex32).conj().imag
    assert (negated.item(), negated.is_contiguous()) == (-2.0, True)
    assert dynamic(negated, 1.0, b, 0) is MISS
    assert dynamic(negated.resolve_neg(), 1.0, b, 0) is not MISS


def test_outputs_of_less_than_nothing_are_left_to_the_binder(tmp_path: Path) -> None:
    inner = Call(INNER, ["handle", "handle", "int32", "int32"], tmp_path)
    for rows, n in ((4, 2), (5, 0), (3, 2), (5, -1)):
        try:
            shape = inner.binder((torch.ones(rows), n), {})[2].shape
        except TileHALError:
            assert inner(torch.ones(rows), n) is MISS
            assert (rows, n) in ((3, 2), (5, -1))
        else:
            assert inner(torch.ones(rows), n).shape == shape == (rows - 4, n)


def test_the_number_of_arguments_is_checked(add: Call) -> None:
    a = torch.ones(4, 8)
    for args in ((), (a,), (a, a, a, a)):
        assert add(*args) is MISS


def test_a_miss_leaves_no_exception_and_no_reference(add: Call) -> None:
    a = torch.ones(4, 8)
    before = sys.getrefcount(a)
    for _ in range(1000):
        assert add(a, a.half()) is MISS
        assert add(a, a, a) is a
        add(a, a)
    assert sys.getrefcount(a) == before


def test_a_kernel_s_message_is_raised(add: Call) -> None:
    a = torch.ones(4, 8)
    add.message = b"yes"
    try:
        with pytest.raises(RuntimeError, match="an assertion of the kernel's own"):
            add(a, a)
    finally:
        add.message = None
    add(a, a)


def test_a_kernel_object_s_call_hands_over_what_is_not_its_own(add: Call) -> None:
    a, c = torch.ones(4, 8), torch.empty(4, 8)

    def failed(error: Exception) -> None:
        raise ValueError(f"a {type(error).__name__}") from error

    class Kernel:
        pass

    names = tuple(map(sys.intern, "ABC"))
    own, _held = add.compiled.make_direct(
        Kernel, b"here.Kernel", names, lambda args, kwargs: ("missed", args, kwargs), failed
    )
    assert (own.__module__, own.__qualname__, own.__mro__[1]) == ("here", "Kernel", Kernel)
    direct: Any = own()
    assert direct(a, C=c, B=a) is c
    assert add.seen[-1] == (a.data_ptr(), a.data_ptr(), c.data_ptr())
    assert direct(a, 1) == ("missed", (a, 1), {})
    assert direct(a, B=a, stream=7) == ("missed", (a,), {"B": a, "stream": 7})
    assert direct(B=a, C=c) == ("missed", (), {"B": a, "C": c})
    before = sys.getrefcount(a), sys.getrefcount(c)
    add.message = b"yes"
    try:
        for _ in range(100):
            with pytest.raises(ValueError, match="a RuntimeError") as caught:
                direct(A=a, B=a, C=c)
            assert "an assertion of the kernel's own" in str(caught.value.__cause__)
            del caught
    finally:
        add.message = None
    for _ in range(100):
        direct(a, B=a, D=c)
        direct(A=a, B=a, C=c)
    assert (sys.getrefcount(a), sys.getrefcount(c)) == before


def test_a_dimension_beyond_the_kernel_s_counter_is_left_to_the_binder(dynamic: Call) -> None:
    rows = 2**31
    a = torch.empty(0).half().as_strided((rows, 0), (1, 1))
    b = torch.empty(0, 2, dtype=torch.bfloat16)
    c, d = torch.empty(0, dtype=torch.int64).as_strided((rows, 0), (1, 1)), torch.empty(1, 3, dtype=torch.bool)
    before = len(dynamic.seen)
    assert dynamic(a[: rows - 1], 1.0, b[:, :0], 1, c[: rows - 1], d) is not MISS
    assert dynamic(a, 1.0, b[:, :0], 1, c, d) is MISS
    assert len(dynamic.seen) == before + 1


def test_threads_call_at_once(add: Call) -> None:
    failures: list[str] = []

    def work() -> None:
        a, b, c = (torch.ones(4, 8) for _ in range(3))
        for _ in range(300):
            if add(a, b, c) is not c or add(a, b).shape != (4, 8):
                failures.append("wrong")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_threads_that_make_the_first_outputs_at_once_keep_one_way_to_make_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, together, answers = _Allocators.__call__, threading.Barrier(2), []

    def slowly(self: _Allocators, index: int) -> tuple[tuple[Any, ...], ...]:
        answers.append(answer(self, index))
        together.wait(60)
        return answers[-1]

    monkeypatch.setattr(_Allocators, "__call__", slowly)
    add, a = Call(ADD, ["handle"] * 3, tmp_path), torch.ones(4, 8)
    threads = [threading.Thread(target=add, args=(a, a)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(add.seen) == len(answers) == 2
    dropped, kept = sorted(sys.getrefcount(each) for each in answers)
    assert kept == dropped + 1
