"""TileLang rewrites a `@T.prim_func` or `@T.macro` from its source whenever its factory runs; here rewrites are kept.

Reading, transforming and compiling the source is nine tenths of a trace (14 of 17 ms for a matrix product, 80 of 89 for
attention), and gives the same code each time: what differs between two calls of a factory are the values of the
function's closure, which the rewritten code gets as it is. Ranking and tuning trace one factory dozens of times.

This is the one private global of TileLang's that is exchanged, and only while something is traced here.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import textwrap
import threading
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from core._functions import closure_of

#: Rewrites kept; a kernel has one, and one for each of its macros.
_MOST = 256

_lock = threading.Lock()
_kept: OrderedDict[int, _Rewrite] = OrderedDict()
#: TileLang's own function while it is exchanged, and how many traces want it so.
_original: Callable[[Any], Any] | None = None
_users = 0


@dataclass(frozen=True)
class _Rewrite:
    """What the rewriting of one function came to.

    Attributes:
        code, namespace: of the original function; `names` of its closure.
        generator: TileLang's result. Assumes: `IRGenerator(gen, source, extra_type_hints)`, where `gen` is a function
            without defaults whose free variables are among the original's.
        meanings: what the rewriting looked up: names of launches, and of types in annotations, with what they meant.
    """

    code: types.CodeType
    namespace: dict[str, Any]
    names: frozenset[str]
    generator: Any
    meanings: tuple[tuple[str, bool, Any], ...]

    def serves(self, function: types.FunctionType, closure: Mapping[str, Any]) -> bool:
        """Whether rewriting this function would come to the same."""
        return (
            self.code is function.__code__
            and self.namespace is function.__globals__
            and self.names == closure.keys()
            and all(_meaning(path, launch, function, closure) is meaning for path, launch, meaning in self.meanings)
        )

    def with_closure(self, closure: Mapping[str, Any]) -> Any:
        """TileLang's result for the function with these values."""
        made = self.generator.gen
        cells = tuple(types.CellType(closure[name]) for name in made.__code__.co_freevars)
        function = types.FunctionType(made.__code__, made.__globals__, made.__name__, None, cells)
        return type(self.generator)(
            gen=function, source=self.generator.source, extra_type_hints=dict(self.generator.extra_type_hints)
        )


@contextmanager
def kept_rewrites() -> Iterator[None]:
    """Inside it, functions that were rewritten before are not rewritten again.

    Assumes: `tilelang.language.eager.builder.mutate` is what `T.prim_func` and `T.macro` call for each function.
    """
    global _original, _users
    builder: Any = sys.modules.get("tilelang.language.eager.builder")
    if builder is None or not hasattr(builder, "mutate"):
        yield
        return
    with _lock:
        if _users == 0:
            _original = builder.mutate
            builder.mutate = _rewritten
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                builder.mutate = _original


def _rewritten(function: Any) -> Any:
    original = _original
    assert original is not None
    if not isinstance(function, types.FunctionType):
        return original(function)
    closure = closure_of(function)
    with _lock:
        known = _kept.get(id(function.__code__))
        if known is not None and known.serves(function, closure):
            _kept.move_to_end(id(function.__code__))
            return known.with_closure(closure)
    made = original(function)
    rewrite = _keepable(function, closure, made)
    if rewrite is not None:
        with _lock:
            _kept[id(function.__code__)] = rewrite
            while len(_kept) > _MOST:
                _kept.popitem(last=False)
    return made


def _keepable(function: types.FunctionType, closure: Mapping[str, Any], made: Any) -> _Rewrite | None:
    """The rewrite, where its parts are what is assumed of them; else it is made anew each time."""
    generated = getattr(made, "gen", None)
    if (
        not isinstance(generated, types.FunctionType)
        or generated.__defaults__
        or generated.__kwdefaults__
        or not closure.keys() >= set(generated.__code__.co_freevars)
    ):
        return None
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):
        return None
    meanings = tuple(
        (path, launch, _meaning(path, launch, function, closure)) for path, launch in dict.fromkeys(_looked_up(tree))
    )
    return _Rewrite(function.__code__, function.__globals__, frozenset(closure), made, meanings)


def _looked_up(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    """The dotted names whose meaning the rewriting may ask for, and whether all it asks is if they launch a kernel."""
    for node in ast.walk(tree):
        if isinstance(node, ast.With):
            for item in node.items:
                if isinstance(item.context_expr, ast.Call) and (path := _dotted(item.context_expr.func)):
                    yield path, True
        elif isinstance(node, ast.AnnAssign):
            annotation = node.annotation
            if isinstance(annotation, ast.Call):
                annotation = annotation.func
            elif isinstance(annotation, ast.Subscript):
                annotation = annotation.value
            if path := _dotted(annotation):
                yield path, False


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (inner := _dotted(node.value)):
        return f"{inner}.{node.attr}"
    return ""


def _meaning(path: str, launch: bool, function: types.FunctionType, closure: Mapping[str, Any]) -> Any:
    """The object of a dotted name, or whether it launches a kernel; None for a name without a meaning."""
    root, *attributes = path.split(".")
    for scope in (closure, function.__globals__, vars(builtins)):
        if root in scope:
            value = scope[root]
            break
    else:
        return None
    for attribute in attributes:
        value = getattr(value, attribute, None)
    if not launch:
        return value
    from tilelang.language.kernel import is_kernel_launch_factory

    return bool(is_kernel_launch_factory(value))
