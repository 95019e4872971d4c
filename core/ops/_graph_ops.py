"""Functions of torch tensors as operators of torch, which `torch.compile` and `torch.export` keep as one call."""

from __future__ import annotations

import ast
import functools
import inspect
import threading
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import index
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
    """A parameter's type, in a schema and in Python, and whether None goes too."""

    schema: str
    types: tuple[type, ...]
    optional: bool = False


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
    required = tuple(name for name, p in own.items() if p.default is p.empty)
    kinds = {name: _kind(p.annotation) for name, p in own.items()}
    returns = str(signature.return_annotation)
    name, parameters = function.__name__, ", ".join(_declared(p, kinds[name]) for name, p in own.items())
    outputs = "(Tensor, Tensor)" if returns.startswith("tuple") else "Tensor"
    compute = _define(name, "default", f'({parameters}, *, str options="{{}}") -> {outputs}', function, tuple(own))
    into = None
    if "out" in signature.parameters:
        schema = f'({parameters}, *, {_OUT[returns]} out, str options="{{}}") -> ()'
        into = _define(name, "into", schema, function, tuple(own))

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if not torch.compiler.is_compiling():
            return function(*args, **kwargs)
        given: dict[str, Any] = {**kwargs, **dict(zip(positional, args, strict=False))}
        bound = len(given) == len(args) + len(kwargs) and all(key in given for key in required)
        out = given.pop("out", None)
        options = _as_text({key: value for key, value in given.items() if key not in kinds})
        values = {key: value for key, value in given.items() if key in kinds}
        fits = all(_fits(value, kinds[key]) for key, value in values.items())
        if not bound or not fits or options is None or not _is_memory(out, returns):
            return _call_outside_of_the_graph(function, args, kwargs)  # type: ignore[no-any-return]
        if out is None:
            return compute(**values, options=options)  # type: ignore[no-any-return]
        into(**values, out=out if isinstance(out, torch.Tensor) else list(out), options=options)  # type: ignore[misc]
        return out  # type: ignore[no-any-return]

    return call


def _kind(annotation: str) -> _Kind:
    plain = annotation.removesuffix(" | None")
    return _KINDS[plain]._replace(optional=plain != annotation)


def _declared(parameter: inspect.Parameter, kind: _Kind) -> str:
    """The parameter as a schema has it: `float eps=1e-05`."""
    default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
    return f"{kind.schema}{'?' if kind.optional else ''} {parameter.name}{default}"


def _fits(value: Any, kind: _Kind) -> bool:
    return isinstance(value, kind.types) or (value is None and kind.optional)


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
        return repr(index(value))
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


def _define(
    name: str, overload: str, schema: str, function: Callable[..., Any], names: tuple[str, ...]
) -> Callable[..., Any]:
    """The operator of this schema: what it runs, on any device, its shapes, and that it has no backward.

    Args:
        names: the parameters of `function` that the operator takes by position; torch leaves out defaults at the end.
    """
    exact = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)
    qualified = name if overload == "default" else f"{name}.{overload}"
    _library.define(qualified + schema, tags=(torch.Tag.pt2_compliant_tag, exact))
    operator: Callable[..., Any] = getattr(getattr(getattr(torch.ops, NAMESPACE), name), overload)

    def run(*values: Any, options: str = "{}", out: Any = None) -> Any:
        given = dict(zip(names, values, strict=False))
        if out is None:
            return function(**given, **_options(options))
        function(**given, out=out, **_options(options))
        if not only_shapes():
            for written in [out] if isinstance(out, torch.Tensor) else out:
                if not written.is_inference():  # which has no version
                    # A backward that saved what is written must not read what is in it now.
                    torch.autograd.graph.increment_version(written)
        return None

    def fake(*values: Any, **keywords: Any) -> Any:
        before, _running.only_shapes = _running.only_shapes, True
        try:
            return run(*values, **keywords)
        finally:
            _running.only_shapes = before

    def without_backward(*values: Any, **keywords: Any) -> Any:
        out = keywords.get("out", ())
        tensors = (*values, *(out if isinstance(out, (list, tuple)) else (out,)))
        refuse_gradients(name, [tensor for tensor in tensors if isinstance(tensor, torch.Tensor)])
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*values, **keywords)

    _library.impl(qualified, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{qualified}", fake, lib=_library)
    _library.impl(qualified, without_backward, "Autograd")
    return operator


hide_from_dynamo(
    _call_outside_of_the_graph,
    reason="an argument is not what the operator's schema takes; the call itself says why, without fullgraph=True",
)
