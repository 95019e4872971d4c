"""Functions of torch tensors as operators of torch, which `torch.compile` and `torch.export` keep as one call."""

from __future__ import annotations

import ast
import functools
import inspect
import threading
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import torch

from core.errors import LaunchError
from core.runtime.dynamo import hide_from_dynamo

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NAMESPACE = "tilehal"

_P = ParamSpec("_P")
_R = TypeVar("_R")

_library = torch.library.Library(NAMESPACE, "FRAGMENT")


class _Kind(NamedTuple):
    """A parameter's type: in a schema, and in Python."""

    schema: str
    types: tuple[type, ...]


_KINDS = {
    "Tensor": _Kind("Tensor", (torch.Tensor,)),
    "bool": _Kind("bool", (bool,)),
    "int": _Kind("int", (int,)),
    "float": _Kind("float", (float, int)),
    "str": _Kind("str", (str,)),
    "torch.dtype": _Kind("ScalarType", (torch.dtype,)),
}
_OUT = {"Tensor": "Tensor(a!)", "tuple[Tensor, Tensor]": "Tensor(a!)[]"}


class _Running(threading.local):
    #: Whether a call on this thread is asked for its outputs' shapes and dtypes alone.
    only_shapes = False


_running = _Running()


def only_shapes() -> bool:
    """Whether torch asks for the shapes and dtypes of the outputs, and nothing may be compiled or launched."""
    return _running.only_shapes


def refuse_gradients(operator: str, tensors: Iterable[Any]) -> None:
    """Raises LaunchError when gradients are on and one of `tensors` requires one: the operators have no backward."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise LaunchError(
            f"{operator} has no backward, and an argument requires a gradient",
            hint="call it under torch.no_grad(), or detach its arguments",
        )


def graph_operator(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """`function`, which under `torch.compile` and `torch.export` is a call of the operator `tilehal::<its name>`.

    The operator's shapes and dtypes, and what it refuses, are those of `function` itself, asked without data. With an
    output given (`out=`) it is the overload `into`, which writes. Keywords of `function` that are no parameters of its
    own travel as text. A call that no schema holds breaks the graph and runs as it is.
    """
    signature = inspect.signature(function)
    own = {name: p for name, p in signature.parameters.items() if p.kind is not p.VAR_KEYWORD and name != "out"}
    positional = tuple(name for name, p in own.items() if p.kind is p.POSITIONAL_OR_KEYWORD)
    # A default that is missing fits no kind, so that the function itself says what is.
    expected = tuple((name, p.default, *_kind(p.annotation)) for name, p in own.items())
    returns = str(signature.return_annotation)
    name = function.__name__
    schemas = ", ".join(f"{schema}{'?' if optional else ''} {name}" for name, _, schema, _, optional in expected)
    several = "(Tensor, Tensor)" if returns.startswith("tuple") else "Tensor"
    names = tuple(own)
    compute = _define(name, f"{name}({schemas}, str options) -> {several}", _compute(function, names))
    into = None
    if "out" in signature.parameters:
        into = _define(
            name, f"{name}.into({schemas}, {_OUT[returns]} out, str options) -> ()", _into(function, names), "into"
        )

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if not torch.compiler.is_compiling():
            return function(*args, **kwargs)
        given: dict[str, Any] = {**kwargs, **dict(zip(positional, args, strict=False))}
        out = given.pop("out", None)
        options = _as_text({key: value for key, value in given.items() if key not in names})
        values = [given.get(key, default) for key, default, _, _, _ in expected]
        fits = [isinstance(v, e[3]) or (v is None and e[4]) for v, e in zip(values, expected, strict=True)]
        twice = len(args) > len(positional) or any(key in kwargs for key in positional[: len(args)])
        if twice or options is None or not all(fits) or not _is_memory(out, returns):
            return _call_outside_of_the_graph(function, args, kwargs)  # type: ignore[no-any-return]
        values = [int(v) if e[2] == "int" else v for v, e in zip(values, expected, strict=True)]
        if out is None:
            return compute(*values, options)  # type: ignore[no-any-return]
        into(*values, out if isinstance(out, torch.Tensor) else list(out), options)  # type: ignore[misc]
        return out  # type: ignore[no-any-return]

    return call


def _kind(annotation: str) -> tuple[str, tuple[type, ...], bool]:
    """The schema's type, Python's types, and whether None goes too."""
    plain = annotation.removesuffix(" | None")
    return *_KINDS[plain], plain != annotation


def _is_memory(out: Any, returns: str) -> bool:
    if out is None or isinstance(out, torch.Tensor):
        return out is None or returns == "Tensor"
    return returns != "Tensor" and isinstance(out, (tuple, list)) and all(isinstance(t, torch.Tensor) for t in out)


def _call_outside_of_the_graph(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What the operator's schema does not hold, for instance a `Target` object, or a list where a tensor goes."""
    return function(*args, **kwargs)


def _as_text(value: Any) -> str | None:
    """A literal; None when an option is more than names, whole numbers, dtypes, and dictionaries of them."""
    if value is None or isinstance(value, (bool, str)):
        return repr(value)
    if isinstance(value, int):
        return repr(int(value))
    if isinstance(value, torch.dtype):
        return repr(str(value).removeprefix("torch."))
    if not isinstance(value, dict):
        return None
    parts = [(repr(key), _as_text(item)) for key, item in value.items()]
    if any(item is None for _, item in parts):
        return None
    return "{" + ", ".join([f"{key}: {item}" for key, item in parts]) + "}"


@lru_cache(maxsize=256)
def _options(text: str) -> dict[str, Any]:
    found: dict[str, Any] = ast.literal_eval(text)
    return found


def _compute(function: Callable[..., Any], names: tuple[str, ...]) -> Callable[..., Any]:
    def compute(*values: Any) -> Any:
        return function(**dict(zip(names, values[:-1], strict=True)), **_options(values[-1]))

    return compute


def _into(function: Callable[..., Any], names: tuple[str, ...]) -> Callable[..., Any]:
    def into(*values: Any) -> None:
        *own, out, options = values
        written = [out] if isinstance(out, torch.Tensor) else list(out)
        function(**dict(zip(names, own, strict=True)), out=out, **_options(options))
        if not only_shapes():
            # A backward that saved what is written must not read what is in it now.
            torch.autograd.graph.increment_version(written)

    return into


def _define(name: str, schema: str, run: Callable[..., Any], overload: str = "default") -> Callable[..., Any]:
    """The operator of this schema: what it runs, on any device, its shapes, and that it has no backward."""
    exact = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag, exact))
    qualified = name if overload == "default" else f"{name}.{overload}"
    operator: Callable[..., Any] = getattr(getattr(getattr(torch.ops, NAMESPACE), name), overload)

    def fake(*values: Any) -> Any:
        before, _running.only_shapes = _running.only_shapes, True
        try:
            return run(*values)
        finally:
            _running.only_shapes = before

    def without_backward(*values: Any) -> Any:
        flat = [item for value in values for item in (value if isinstance(value, (list, tuple)) else [value])]
        refuse_gradients(name, [tensor for tensor in flat if isinstance(tensor, torch.Tensor)])
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*values)

    _library.impl(qualified, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{qualified}", fake, lib=_library)
    _library.impl(qualified, without_backward, "Autograd")
    return operator


hide_from_dynamo(
    _call_outside_of_the_graph,
    reason="an argument is not what the operator's schema takes; the call itself says why, without fullgraph=True",
)
