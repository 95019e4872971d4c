"""A kernel's own call after its first: the compiled check with nothing around it, by position and by name."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import sys
import threading
import weakref
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import tilelang.language as T
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

import core
from core.runtime import ExportedKernel, load_exported
from tests.runtime.standin import c_compiler


def two_outputs() -> Any:
    @T.prim_func
    def two_outputs(
        A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32"), s: T.float32, C: T.Tensor((8,), "float32")
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                B[i] = A[i] * s
                C[i] = A[i] + s

    return two_outputs


def compiled() -> core.Kernel:
    c_compiler()
    kernel = core.compile(two_outputs(), target="cpu", out_idx=[1, 3])
    kernel(torch.zeros(8), 1.0)
    return kernel


def compiled_with(b: torch.Tensor, c: torch.Tensor) -> core.Kernel:
    """A kernel that has been called, and has made no outputs."""
    c_compiler()
    kernel = core.compile(two_outputs(), target="cpu", out_idx=[1, 3])
    kernel(torch.zeros(8), b, 1.0, c)
    return kernel


@pytest.fixture(scope="module", params=["compiled", "exported"])
def kernel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = compiled()
    if request.param == "compiled":
        return made
    loaded = load_exported(made.export(tmp_path_factory.mktemp("exported")))
    loaded(torch.zeros(8), 1.0)
    return loaded


def test_no_python_is_between_the_call_and_the_check(kernel: Any) -> None:
    called: list[str] = []
    a, b, c = (torch.zeros(8) for _ in range(3))
    kernel(a, 2.0)  # how outputs are made on a device is worked out once
    sys.setprofile(lambda frame, event, argument: called.append(frame.f_code.co_name) if event == "call" else None)
    try:
        kernel(a, b, 2.0, c)
        kernel(a, 2.0)
        kernel(a, s=2.0, C=c, B=b)
        kernel(A=a, s=2.0)
    finally:
        sys.setprofile(None)
    assert called == []


def test_arguments_by_name_are_those_by_position(kernel: Any) -> None:
    a, b, c = torch.arange(8.0), torch.empty(8), torch.empty(8)
    calls = [
        lambda: kernel(a, b, 2.0, c),
        lambda: kernel(a, b, 2.0, C=c),
        lambda: kernel(a, b, C=c, s=2.0),
        lambda: kernel(C=c, s=2.0, B=b, A=a),
        lambda: kernel(C=c, s=2.0, B=b, A=a, stream=None),
        lambda: kernel(**{"".join(["A"]): a, "s": 2.0, "B": b, "C": c}),
    ]
    for call in calls:
        b.fill_(9)
        c.fill_(9)
        first, second = call()
        assert (first is b, second is c) == (True, True)
        torch.testing.assert_close((b, c), (a * 2, a + 2))
    for allocated in (kernel(a, 2.0), kernel(a, s=2.0), kernel(s=2.0, A=a)):
        torch.testing.assert_close(tuple(allocated), (a * 2, a + 2))


@pytest.mark.parametrize(
    ("positional", "named", "text"),
    [
        (0, {"A": "a", "B": "b", "s": 1.0}, "misses C"),
        (1, {"A": "a", "s": 1.0}, "got 'A' twice"),
        (1, {"s": 1.0, "D": "b"}, "has no parameter 'D'"),
        (1, {}, "takes 2 inputs"),
        (1, {"B": "b"}, "misses s"),
        (2, {"s": "a"}, "misses C"),
        (5, {}, "takes 2 inputs"),
        (4, {"s": 1.0}, "got 's' twice"),
        (1, {"s": "a"}, "is a scalar float32, got Tensor"),
        (1, {"s": 1e39}, r"is a scalar float32, which cannot hold 1e\+39"),
        (1, {"s": 1.0, "stream": "0"}, "stream is the vendor's handle, an integer; got str"),
    ],
)
def test_what_does_not_fit_is_told_as_before_the_first_call(
    kernel: Any, positional: int, named: dict[str, Any], text: str
) -> None:
    tensors = {"a": torch.zeros(8), "b": torch.zeros(8)}
    arguments = [torch.zeros(8) for _ in range(positional)]
    with pytest.raises(core.LaunchError, match=text):
        kernel(*arguments, **{name: tensors.get(value, value) for name, value in named.items()})


def test_an_output_without_memory_is_not_written(kernel: Any) -> None:
    """Where a mode makes tensors that stand for others, torch's address of one is null."""
    a, b, c = torch.ones(8), torch.zeros(8), torch.zeros(8)
    for others_too in (True, False):
        with FakeTensorMode(allow_non_fake_inputs=others_too):
            with pytest.raises(core.LaunchError, match="an output that torch allocates here is a FakeTensor"):
                kernel(a, 2.0)
            kernel(a, b, 2.0, c)
        torch.testing.assert_close((b, c), (a * 2, a + 2))


def test_of_a_subclass_only_its_memory_is_asked(kernel: Any) -> None:
    class Talking(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise AssertionError(f"{func} is asked")

    a, b, c = (torch.ones(8).as_subclass(Talking) for _ in range(3))
    fresh: Any = core.compile(two_outputs(), target="cpu", out_idx=[1, 3])
    for called in (kernel, fresh, fresh):
        torch.testing.assert_close(called(a, 2.0)[0], torch.full((8,), 2.0))
        assert called(a, b, 3.0, c)[0] is b
        torch.testing.assert_close(b.as_subclass(torch.Tensor), torch.full((8,), 3.0))
    with pytest.raises(core.LaunchError, match=r"argument 0 \(A\) has no shape yet"):
        kernel(torch.nn.UninitializedParameter(), 2.0)


def test_a_graph_made_of_operators_is_not_made_without_the_kernel(kernel: Any) -> None:
    with pytest.raises(core.LaunchError, match="is called while torch records operators") as caught:
        make_fx(lambda x: kernel(x + 1, 2.0)[0] * 3)(torch.ones(8))
    assert "as_torch_op" in caught.value.hint


class Seen(TorchDispatchMode):
    """Notes torch's operators, or fails in their place."""

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__()
        self.error = error
        self.operators: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators.append(str(func))
        if self.error is not None:
            raise self.error
        return func(*args, **kwargs or {})


def test_a_mode_sees_the_outputs_made_whatever_was_active_when_the_first_were() -> None:
    given = torch.zeros(8), torch.zeros(8)
    a = torch.ones(8)
    first, second = compiled_with(*given), compiled_with(*given)
    with FakeTensorMode(allow_non_fake_inputs=True), pytest.raises(core.LaunchError, match="is a FakeTensor"):
        first(a, 2.0)
    for kernel in (first, second, second):
        with Seen() as seen:
            made = kernel(a, 2.0)
        assert seen.operators == ["aten.empty.memory_format"] * 2
        torch.testing.assert_close(tuple(made), (a * 2, a + 2))


def test_what_torch_says_of_an_output_that_it_cannot_make_is_raised_as_by_the_first_call(kernel: Any) -> None:
    a = torch.ones(8)
    for error in (
        RuntimeError("no memory"),
        torch.OutOfMemoryError("no memory"),
        ValueError("no"),
        KeyboardInterrupt(),
    ):
        with Seen(error), pytest.raises(type(error)) as caught:
            kernel(a, 2.0)
        assert caught.value is error
    torch.testing.assert_close(tuple(kernel(a, 2.0)), (a * 2, a + 2))


def test_an_error_keeps_the_lines_it_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_room(*_: Any) -> None:
        raise ValueError("no room")

    monkeypatch.setattr(torch._C._dynamo.guards, "_empty_strided_cpu", without_room)
    kernel = compiled()
    with pytest.raises(ValueError, match="no room") as caught:
        kernel(torch.ones(8), 2.0)
    assert caught.traceback[-1].name == "without_room"


def test_numbers_of_other_libraries_are_python_s(kernel: Any) -> None:
    a = torch.arange(8.0)
    for s in (np.float32(0.5), np.int64(3), 2**63, True):
        torch.testing.assert_close(tuple(kernel(a, s)), (a * float(s), a + float(s)))


def test_a_copy_is_the_kernel_itself(kernel: Any) -> None:
    assert copy.copy(kernel) is kernel
    assert copy.deepcopy({"kernel": kernel})["kernel"] is kernel


def test_an_export_is_pickled_as_its_folder_and_a_kernel_not_at_all(kernel: Any) -> None:
    if isinstance(kernel, core.Kernel):
        with pytest.raises(core.KernelError, match=r"two_outputs for cpu:.* cannot be pickled") as caught:
            pickle.dumps(kernel)
        assert "load_exported" in caught.value.hint
        return
    again = pickle.loads(pickle.dumps(kernel))
    assert again.directory == kernel.directory
    torch.testing.assert_close(again(torch.ones(8), 2.0), kernel(torch.ones(8), 2.0))


def test_it_is_still_a_kernel() -> None:
    kernel = compiled()
    fresh = core.compile(two_outputs(), target="cpu", out_idx=[1, 3])
    assert isinstance(kernel, core.Kernel)
    for kind in (core.Kernel, type("Mine", (core.Kernel,), {"__qualname__": "local.<locals>.Mine"})):
        made = core.compile(two_outputs(), target="cpu", out_idx=[1, 3])
        made.__class__ = kind
        made(torch.zeros(8), 1.0)
        own = type(made)
        assert own.__base__ is kind
        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            assert getattr(own, name) == getattr(kind, name)
    assert inspect.signature(kernel) == inspect.signature(fresh)
    assert (kernel.name, kernel.provenance.evidence) == ("two_outputs", "device")
    # Calling a kernel's function by hand still works, and so does a kernel of its own.
    torch.testing.assert_close(core.Kernel.__call__(kernel, torch.ones(8), 2.0)[0], torch.full((8,), 2.0))
    torch.testing.assert_close(fresh(torch.ones(8), 3.0)[0], torch.full((8,), 3.0))


def counting(kind: Any) -> Any:
    """A class of kernels that count their calls."""

    class Counting(kind):  # type: ignore[misc]
        calls = 0

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return super().__call__(*args, **kwargs)

    return Counting


@pytest.mark.parametrize("called_before", [False, True])
def test_a_call_of_a_class_s_own_is_always_what_is_called(kernel: Any, tmp_path: Path, called_before: bool) -> None:
    fresh: Any = core.compile(two_outputs(), target="cpu", out_idx=[1, 3])
    if isinstance(kernel, ExportedKernel):
        fresh = load_exported(kernel.directory)
    plain = type(fresh)
    if called_before:
        fresh(torch.zeros(8), 1.0)
    fresh.__class__ = counting(plain)
    for _ in range(3):
        torch.testing.assert_close(fresh(torch.ones(8), 2.0)[0], torch.full((8,), 2.0))
    assert fresh.calls == 3


def test_a_class_derived_from_a_kernel_s_own_type_is_one_of_any_kernel(kernel: Any) -> None:
    plain = type(kernel).__base__
    kind = counting(type(kernel))
    assert kind.__mro__ == (kind, *plain.__mro__)
    other: Any = load_exported(kernel.directory) if plain is ExportedKernel else compiled()
    other.__class__ = kind
    for _ in range(2):
        torch.testing.assert_close(other(torch.ones(8), 3.0)[0], torch.full((8,), 3.0))
    assert other.calls == 2


def test_what_a_class_asks_of_those_derived_from_it_is_asked() -> None:
    class Registering(core.Kernel):
        derived: ClassVar[list[Any]] = []

        def __init_subclass__(cls, mark: int = 0) -> None:
            cls.derived.append((cls.__name__, mark))

    kernel = core.compile(two_outputs(), target="cpu", out_idx=[1, 3])
    kernel.__class__ = Registering
    kernel(torch.zeros(8), 1.0)
    Registering.derived.clear()

    class Derived(type(kernel), mark=7):  # type: ignore[misc]
        pass

    assert Registering.derived == [("Derived", 7)]
    assert Derived.__base__ is Registering


def test_kernels_go_when_nobody_holds_them_and_take_what_they_loaded_along() -> None:
    kernel = compiled()
    reference, own = weakref.ref(kernel), type(kernel)
    gc.disable()
    try:
        held = vars(own)["_launch"]
        before = sys.getrefcount(held)
        del kernel
        assert reference() is None
        assert "_launch" not in vars(own)
        assert sys.getrefcount(held) == before - 1
        del held
        # What stays behind is called as before the first call.
        assert vars(own)["__call__"] is core.Kernel.__call__
    finally:
        gc.enable()


@pytest.mark.parametrize("exported", [False, True])
def test_what_goes_together_with_a_kernel_can_still_call_it(tmp_path: Path, exported: bool) -> None:
    class Owner:
        def __init__(self, kernel: Any) -> None:
            self.kernel = kernel

        def __del__(self) -> None:
            results.append(self.kernel(torch.ones(8), 2.0)[0])

    results: list[torch.Tensor] = []
    kernel: Any = compiled()
    if exported:
        kernel = load_exported(kernel.export(tmp_path / "out"))
        kernel(torch.zeros(8), 1.0)
    kernel.owner = Owner(kernel)
    del kernel
    gc.collect()
    torch.testing.assert_close(results, [torch.full((8,), 2.0)])


def test_a_call_outlives_the_name_of_its_kernel() -> None:
    call = compiled().__call__
    gc.collect()
    assert len(call(torch.zeros(8), 1.0)) == 2
    with pytest.raises(core.LaunchError, match="is a scalar float32"):
        call(torch.zeros(8), "x")


def test_kernels_of_one_library_are_told_apart() -> None:
    first, second = compiled(), compiled()
    assert type(first) is not type(second)
    a = torch.ones(8)
    del first
    gc.collect()
    torch.testing.assert_close(tuple(second(a, 2.0)), (a * 2, a + 2))
    with pytest.raises(core.LaunchError, match="takes 2 inputs"):
        second(a)


def test_the_export_is_called_directly_too(tmp_path: Path) -> None:
    loaded = load_exported(compiled().export(tmp_path / "out"))
    assert type(loaded) is ExportedKernel
    loaded(torch.zeros(8), 1.0)
    assert type(loaded).__base__ is ExportedKernel


def test_the_collector_may_call_an_export_that_is_being_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Owner:
        def __del__(self) -> None:
            results.append(loaded(torch.ones(8), 2.0)[0])

    def launcher() -> Any:
        monkeypatch.undo()
        Owner()
        return loaded._runs.launcher()

    results: list[torch.Tensor] = []
    loaded = load_exported(compiled().export(tmp_path / "out"))
    monkeypatch.setattr(loaded._runs, "launcher", launcher)
    caller = threading.Thread(target=lambda: results.append(loaded(torch.ones(8), 3.0)[0]), daemon=True)
    caller.start()
    caller.join(30)
    assert not caller.is_alive(), "it waits for itself"
    torch.testing.assert_close(results, [torch.full((8,), 2.0), torch.full((8,), 3.0)])
