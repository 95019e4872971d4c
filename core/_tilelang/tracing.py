"""From whatever a user calls a kernel to its PrimFunc; nothing is compiled."""

from __future__ import annotations
import __future__

import inspect
import re
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from core._dtypes import has_odd_bits, meant_dtype
from core._functions import near_name
from core._tilelang.importing import import_tilelang
from core._tilelang.rewriting import kept_rewrites
from core._tilelang.silence import silent
from core.errors import KernelError, Location, TileHALError


@dataclass(frozen=True)
class TracedKernel:
    """A PrimFunc and what the object it came from said about it.

    Attributes:
        prim_func: `tvm.tirx.PrimFunc`.
        out_idx: positions of the outputs, as the author gave them (None when unsaid).
        pass_configs, compile_flags: what the author attached to `@tilelang.jit`.
    """

    prim_func: Any
    out_idx: Sequence[int] | int | None
    pass_configs: Mapping[str, Any]
    compile_flags: tuple[str, ...]


def is_prim_func(obj: object) -> bool:
    """Whether this is a TVM PrimFunc. Never imports anything: without tilelang loaded there can be none."""
    tirx = sys.modules.get("tvm.tirx")
    return tirx is not None and isinstance(obj, tirx.PrimFunc)


def trace(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> TracedKernel:
    """The PrimFunc behind whatever a user calls a kernel: a PrimFunc, a `@tilelang.jit` object, a plain factory.

    Assumes: `JITImpl` has `get_tir`, `out_idx`, `pass_configs`, `compile_flags`; `AutoTuneImpl` has `jit_impl`;
    `JITKernel` has `prim_func`, `pass_configs` and `adapter.result_idx`.

    Raises:
        KernelError: it is none of these, or tracing failed (at the user's line, cause chained).
    """
    import_tilelang()
    if is_prim_func(func):
        if args or kwargs:
            raise KernelError(
                "a PrimFunc takes no arguments: its shapes are already fixed",
                hint="pass the factory (or the @tilelang.jit object) itself to give it arguments",
            )
        return TracedKernel(func, None, {}, ())
    _check_not_compiled(func)
    _check_keywords(func, kwargs)
    _check_dtypes(func, args, kwargs)
    implementation = getattr(func, "jit_impl", func)
    if hasattr(implementation, "get_tir"):
        with _trace_errors(func):
            prim_func = implementation.get_tir(*args, **kwargs)
        flags = implementation.compile_flags or ()
        return TracedKernel(
            prim_func,
            implementation.out_idx,
            dict(implementation.pass_configs or {}),
            (flags,) if isinstance(flags, str) else tuple(flags),
        )
    compiled = getattr(func, "prim_func", None)
    if compiled is not None and is_prim_func(compiled):
        # A kernel TileLang has compiled already (`@tilelang.jit` called, or `tilelang.compile`): its function serves.
        outputs = getattr(getattr(func, "adapter", None), "result_idx", None)
        return TracedKernel(compiled, list(outputs) if outputs else None, dict(func.pass_configs or {}), ())
    if not callable(func):
        raise KernelError(
            f"not a kernel: {type(func).__name__}",
            hint="pass a @T.prim_func, a @tilelang.jit function, a @core.kernel factory or a function returning one",
        )
    with _trace_errors(func):
        prim_func = func(*args, **kwargs)
    if not is_prim_func(prim_func):
        raise KernelError(
            f"{getattr(func, '__name__', func)!s} returned {type(prim_func).__name__}, not a PrimFunc",
            hint="a kernel factory ends with `return main`, where main is its @T.prim_func",
        )
    return TracedKernel(prim_func, None, {}, ())


def _check_not_compiled(func: Any) -> None:
    """Raises KernelError for a kernel of ours, which is callable too."""
    from core.runtime.kernel import Kernel

    if isinstance(func, Kernel):
        raise KernelError(
            f"{func.name} is compiled already, for {func.target}",
            hint="kernel.with_target(...) compiles it for another chip, with other tiles if you name them",
        )


def _check_keywords(func: Any, kwargs: Mapping[str, Any]) -> None:
    """Raises KernelError for a misspelt argument of a plain function; an eager kernel takes the names of its text."""
    if not isinstance(func, types.FunctionType) or func.__code__.co_flags & inspect.CO_VARKEYWORDS:
        return
    parameters = inspect.signature(func).parameters
    for name in kwargs:
        meant = None if name in parameters else near_name(name, parameters)
        if meant is not None:
            raise KernelError(
                f"{func.__name__} has no argument {name!r}", hint=f"did you mean {meant!r}?", location=_definition(func)
            )


def _check_dtypes(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raises KernelError for an argument that is spelt like a dtype and is none: TVM takes any number of bits."""
    function = _function(func)
    code = getattr(function, "__code__", None)
    names = code.co_varnames[: code.co_argcount] if code is not None else ()
    for name, value in (*zip(names, args, strict=False), *kwargs.items()):
        if isinstance(value, str) and has_odd_bits(value):
            raise KernelError(
                f"tracing {getattr(function, '__name__', 'the kernel')}: {name}={value!r} is no dtype",
                hint=meant_dtype(value),
                location=_definition(function),
            )


def named(prim_func: Any, name: str) -> Any:
    """The same PrimFunc under another name, which its entry points, errors and whatever profiles it go by.

    `name` becomes an identifier of the languages that backends print; without a letter of theirs in it (the name of a
    lambda, a word in another script) the function keeps its own.
    """
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    if name.isidentifier() and re.search("[A-Za-z]", plain):
        return prim_func.with_attr("global_symbol", plain)
    return prim_func


@contextmanager
def _trace_errors(func: Any) -> Iterator[None]:
    """Runs a trace silently (TileLang logs a dump of the rewritten source) and types what it raises."""
    try:
        with silent(), kept_rewrites():
            yield
    except TileHALError:
        raise
    except Exception as error:
        from core.compiler.messages import translate

        function = _function(func)
        typed = translate(
            error,
            fallback=KernelError,
            stage=f"tracing {getattr(function, '__name__', 'the kernel')}",
            location=_definition(function),
        )
        if isinstance(error, NameError) and _has_text_annotations(function):
            typed.hint = (
                f"remove `from __future__ import annotations` from the file, or use {error.name} in the kernel's body"
                " too: Python then keeps annotations as text, and a name that only they use is not there"
            )
        raise typed from error


def _function(func: Any) -> Any:
    """The user's function behind `@autotune` and `@tilelang.jit`. Assumes: `JITImpl.func` is what it wraps or made."""
    func = getattr(func, "jit_impl", func)
    func = getattr(func, "func", func)
    return getattr(func, "orig_func", func)


def _has_text_annotations(function: Any) -> bool:
    """Whether a function's file says `from __future__ import annotations`."""
    return bool(
        getattr(function, "__code__", None) and function.__code__.co_flags & __future__.annotations.compiler_flag
    )


def _definition(function: Any) -> Location | None:
    """The line a function is defined at, its first decorator's when it has any."""
    code = getattr(function, "__code__", None)
    return Location(code.co_filename, code.co_firstlineno) if code is not None else None


def user_location(error: BaseException) -> Location | None:
    """The deepest frame of a traceback that is the user's: not of Python's, TileLang's, TVM's or ours."""
    found: Location | None = None
    traceback = error.__traceback__
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if _is_user_file(file):
            found = Location(file, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def _is_user_file(file: str) -> bool:
    path = Path(file)
    if file.startswith("<") or not path.is_absolute() or not path.is_file():
        return False
    return not file.startswith(_foreign_roots())


@lru_cache(maxsize=1)
def _foreign_roots() -> tuple[str, ...]:
    """Folders of code that is not the user's: Python's, TileLang's, TVM's, torch's and ours, wherever installed."""
    packages = (sys.modules.get(name) for name in ("tilelang", "tvm", "tvm_ffi", "torch", "core"))
    files = [str(module.__file__) for module in packages if module is not None and module.__file__]
    standard = sysconfig.get_paths()
    folders = [str(Path(file).parent) for file in files]
    return tuple(f"{folder}/" for folder in (*folders, standard["stdlib"], standard["purelib"], standard["platlib"]))
