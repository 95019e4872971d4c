"""Loading a kernel's compiled argument check and launch (`core.codegen.launch`) into this process."""

from __future__ import annotations

import ctypes
import gc
import inspect
import sys
import sysconfig
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from core.errors import LaunchError
from core.runtime.dynamo import hide_from_dynamo
from core.runtime.extents import Extent
from core.runtime.signature import ScalarArgument, Signature, TensorArgument
from core.runtime.values import torch_dtype

if TYPE_CHECKING:
    import torch


class _Miss:
    """What a compiled call gives back when its arguments are not what it checks for."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISS"


#: Given back untouched: the binder then says what is wrong, or makes the call itself.
MISS: Final = _Miss()


#: From (class, its full name as bytes, names of the parameters, `missed(args, kwargs)`, `failed(error)`) to (a subclass
#: whose one object is called directly, what of the launch it holds).
MakeDirect: TypeAlias = Callable[..., tuple[type, object]]


@dataclass(frozen=True, slots=True)
class CompiledCall:
    """The functions of a loaded launch library.

    Attributes:
        call: takes the tensors and numbers of a call, all of them or the inputs only; gives the outputs, or `MISS`.
        make_direct: makes a kernel object's own type, see :func:`call_directly`.
        raw: takes device index, stream handle, pointers and numbers, symbolic dimensions; checks nothing.

    `call` and `raw` raise RuntimeError with the driver's or the kernel's message.
    """

    call: Callable[..., Any]
    raw: Callable[..., None]
    make_direct: MakeDirect


class CannotLoad(Exception):
    """The library cannot be used in this process; the message says why."""


def load(library: Path, signature: Signature, device_type: str, payload: bytes | int) -> CompiledCall:
    """Loads a launch library.

    Args:
        device_type: torch's name of the tensors' device.
        payload: the device binary, or the address of the CPU kernel's function.

    Raises:
        CannotLoad: another Python than CPython with its lock, a torch without DLPack's exchange table, or a library
            that is not for this machine.
    """
    import torch

    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise CannotLoad("this Python's objects have another layout")
    exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if exchange is None:
        raise CannotLoad(f"torch {torch.__version__} has no __dlpack_c_exchange_api__")
    try:
        bind = ctypes.PyDLL(str(library)).tilehal_bind_2
    except (OSError, AttributeError) as error:
        raise CannotLoad(str(error)) from error
    bind.restype, bind.argtypes = ctypes.py_object, [ctypes.py_object]
    prototypes = tuple(
        torch.empty(0, dtype=torch_dtype(argument.dtype)) if isinstance(argument, TensorArgument) else None
        for argument in signature.arguments
    )
    config = (
        torch.Tensor,
        torch.nn.Parameter,
        exchange,
        MISS,
        _Allocators(signature, device_type),
        prototypes,
        (None, payload, exchange, torch.Tensor.is_neg, True, torch._C._len_torch_dispatch_stack),
        payload,
    )
    try:
        call, raw, make_direct = bind(config)
    except Exception as error:
        raise CannotLoad(str(error)) from error
    return CompiledCall(call, raw, make_direct)


class Direct(Protocol):
    """A kernel object whose calls can become direct."""

    def __call__(self, *args: Any, stream: int | None = None, **kwargs: Any) -> Any: ...

    def _checked_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], stream: int | None) -> Any: ...

    def _failed(self, error: Exception) -> Exception: ...


def call_directly(kernel: Direct, signature: Signature, make_direct: MakeDirect, replaced: Callable[..., Any]) -> None:
    """From now on Python calls the compiled check when `kernel` is called, with no function of ours in between.

    Python looks a call up in the object's type, so the kernel gets a type of its own, a subclass of the one it has.
    What the check does not take goes to `_checked_call`, a failure to `_failed`; both find the kernel by a weak
    reference, because no garbage collector sees what C code holds.

    Args:
        replaced: the `__call__` that this does the work of. A kernel whose class has another keeps that one.
    """
    if type(kernel).__call__ is not replaced:
        return
    reference = weakref.ref(kernel)

    def alive() -> Direct:
        found = reference()
        if found is None:
            raise LaunchError(f"{signature.name} is gone", hint="keep the kernel, not the function that it calls")
        return found

    def missed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        stream = kwargs.pop("stream", None)
        return alive()._checked_call(args, kwargs, stream)

    def failed(error: Exception) -> Any:
        if isinstance(error, RuntimeError):
            raise alive()._failed(error) from error
        raise error

    hide_from_dynamo(missed, failed)
    names = tuple(sys.intern(argument.name) for argument in signature.arguments)
    kind = type(kernel)
    name = f"{kind.__module__}.{kind.__qualname__}".encode()
    own: Any
    own, held = make_direct(kind, name, names, missed, failed)
    # Of the full name, all up to the last dot is taken for the module's: a class within something has another.
    own.__module__, own.__qualname__, own.__doc__ = kind.__module__, kind.__qualname__, kind.__doc__
    own.__signature__ = _signature_of_calls(kind)
    own.__init_subclass__ = _derived(own, kind)
    own._launch = held
    _show(own, "__call__", replaced)
    kernel.__class__ = own
    # A type is in a cycle with itself and goes when the collector runs; what is loaded goes with the kernel.
    weakref.finalize(kernel, _call_by_python, own, kind).atexit = False


def _show(own: type, name: str, method: Callable[..., Any]) -> None:
    """Lets who reads the type find `method`, where the interpreter goes by the type's slot.

    Dynamo reads it: of a slot it says that it cannot trace it, of a function why it may not. Setting an attribute would
    set the slot too, so the entry is made in the type's dictionary, which the collector knows.
    """
    (entries,) = (found for found in gc.get_referents(own.__dict__) if isinstance(found, dict))
    entries[name] = method
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(own))


def _derived(own: type, kind: type) -> Any:
    """Makes a class that is derived from one kernel's own type one that is derived from the kernel's class."""

    def init_subclass(made: type[Any], /, **keywords: Any) -> None:
        made.__bases__ = tuple(kind if base is own else base for base in made.__bases__)
        super(made, made).__init_subclass__(**keywords)

    return classmethod(init_subclass)


def _call_by_python(own: Any, kind: Any) -> None:
    """What the collector takes along with a kernel may still call it, from a `__del__`."""
    own.__call__ = kind.__call__
    del own._launch


@lru_cache
def _signature_of_calls(kind: Any) -> inspect.Signature:
    """What `inspect.signature` says of an object of this type."""
    method = inspect.signature(kind.__call__)
    return method.replace(parameters=list(method.parameters.values())[1:])


class _Allocators:
    """For a device, how each output is made there; `tilehal_make` in binding.h says what the tuples hold.

    Torch's own generated code makes its buffers past the dispatcher, by a function that a launch can use too; it makes
    them on the thread's current device, and the launch asks which that is. Else `empty_like` of a tensor that is there
    already is the cheapest way torch has; the one used has a single element.
    """

    def __init__(self, signature: Signature, device_type: str) -> None:
        self._outputs = [a for a in signature.arguments if not isinstance(a, ScalarArgument) and a.is_output]
        self._device_type = device_type

    def __call__(self, index: int) -> tuple[tuple[Any, ...], ...]:
        import torch
        from torch.utils._python_dispatch import _disable_current_modes

        device = torch.device(self._device_type) if self._device_type == "cpu" else torch.device("cuda", index)
        # These are kept: a mode of this one call neither sees them nor puts its own tensors in their place.
        with _disable_current_modes():
            return tuple(self._output(argument, device) for argument in self._outputs)

    def _output(self, argument: TensorArgument, device: torch.device) -> tuple[Any, ...]:
        import torch

        dtype = torch_dtype(argument.dtype)
        past = getattr(torch._C._dynamo.guards, f"_empty_strided_{device.type}", None)
        one = torch.empty((), dtype=dtype, device=device)
        if argument.strides is not None:
            return dtype, past, None, one.new_empty_strided, None
        if any(isinstance(extent, str) for extent in argument.shape):
            return dtype, past, None, one.new_empty, None
        shape = tuple(Extent(extent)({}) for extent in argument.shape)
        like = torch.empty_like(one.expand(shape), device="meta")
        usual = (torch.empty_like, (one.expand(shape),)) if like.is_contiguous() else (one.new_empty, (shape,))
        return dtype, past, (shape, torch.empty(shape, device="meta").stride(), dtype), *usual
