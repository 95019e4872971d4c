"""Which kernel a result belongs to: a fingerprint of a factory's source and of everything of the user's it refers to.

The fingerprint is taken from the syntax tree, so comments, layout and docstrings do not count, and it is the same in
every process and with every Python that parses the source to the same tree. Nothing is traced for it.
"""

from __future__ import annotations

import ast
import enum
import hashlib
import inspect
import json
import sys
import textwrap
import types
import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from core._functions import closure_of

if TYPE_CHECKING:
    from core.tiling.factory import KernelFactory

#: Packages whose code belongs to the environment, not to the kernel: their versions are in the key.
_ENVIRONMENT = frozenset({"tilelang", "tvm", "tvm_ffi", "torch", "numpy", *sys.stdlib_module_names})
#: Attributes under which decorators keep the function they were given (TileLang's macros, ours, functools).
_WRAPPED = ("function", "orig_func", "__wrapped__", "func")
_PLAIN = (bool, int, float, complex, str, bytes, type(None))

_known: weakref.WeakKeyDictionary[KernelFactory, str] = weakref.WeakKeyDictionary()


def source_fingerprint(factory: KernelFactory) -> str:
    """16 hexadecimal digits of what the factory's source says, with the functions and constants it refers to.

    Taken once per factory and process: edit the source and import it again.
    """
    found = _known.get(factory)
    if found is None:
        configs = sorted(
            (str(getattr(name, "value", name)), repr(value)) for name, value in factory.pass_configs.items()
        )
        content = {
            "out": list(factory.out),
            "pass_configs": configs,
            "function": _Reader().function(factory.function),
        }
        found = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
        _known[factory] = found
    return found


class _Reader:
    """Turns functions into plain data, each once."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def function(self, function: types.FunctionType | Any) -> Any:
        """The syntax tree of a function and what its names mean."""
        if id(function) in self._seen:
            return ["seen", function.__qualname__]
        self._seen.add(id(function))
        tree = _tree(function)
        if tree is None:
            return ["code", _code(function.__code__)]
        scope = {**function.__globals__, **closure_of(function)}
        return ["source", _plain(tree), {name: self.value(value) for name, value in _references(tree, scope)}]

    def value(self, value: Any) -> Any:
        """A constant by its value, a function of the user's by its source, anything else by its type."""
        if isinstance(value, enum.Enum):
            return ["enum", type(value).__qualname__, value.name]
        if isinstance(value, _PLAIN):
            return [type(value).__name__, repr(value)]
        if isinstance(value, (tuple, list)):
            return [type(value).__name__, [self.value(item) for item in value]]
        if isinstance(value, Mapping):
            return ["mapping", [[repr(key), self.value(item)] for key, item in value.items()]]
        function = _function_in(value)
        if function is not None and not _belongs_to_environment(function.__module__):
            return self.function(function)
        return ["object", type(value).__module__, type(value).__qualname__, getattr(value, "__qualname__", "")]


def _function_in(value: Any) -> types.FunctionType | None:
    """The Python function that `value` is or wraps."""
    for _ in range(4):
        if isinstance(value, types.FunctionType):
            return value
        inside = next((getattr(value, name) for name in _WRAPPED if callable(getattr(value, name, None))), None)
        if inside is None:
            return None
        value = inside
    return None


def _belongs_to_environment(module: str | None) -> bool:
    """Whether a module's code is covered by a version in the key; the kernels that TileHAL ships are kernels."""
    package, _, rest = (module or "").partition(".")
    return package in _ENVIRONMENT or (package == "core" and not rest.startswith("ops"))


def _references(tree: ast.AST, scope: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names of the tree that mean something outside it, and attributes of modules that are not the environment's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in scope and not isinstance(scope[node.id], types.ModuleType):
            yield node.id, scope[node.id]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = scope.get(node.value.id)
            if isinstance(module, types.ModuleType) and not _belongs_to_environment(module.__name__):
                missing = object()
                value = getattr(module, node.attr, missing)
                if value is not missing:
                    yield f"{node.value.id}.{node.attr}", value


def _tree(function: types.FunctionType) -> ast.AST | None:
    try:
        (found,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    if isinstance(found, ast.FunctionDef):
        found.decorator_list = []  # `core.kernel`, whatever it is called there; its arguments are counted apart
    return found


def _plain(node: Any) -> Any:
    """A syntax tree as lists, without what Python versions add or leave out: empty fields, contexts, positions."""
    if isinstance(node, ast.AST):
        fields = []
        for name, value in ast.iter_fields(node):
            if name in ("ctx", "kind", "type_comment", "type_params") or value in (None, []):
                continue
            if name == "body" and isinstance(value, list) and _is_docstring(value[0]):
                value = value[1:]
            fields.append([name, _plain(value)])
        return [type(node).__name__, fields]
    if isinstance(node, list):
        return [_plain(item) for item in node]
    return [type(node).__name__, repr(node)]


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _code(code: types.CodeType) -> Any:
    """A function typed in where no source is kept: its byte code, which only this Python version repeats."""
    constants = [_code(item) if isinstance(item, types.CodeType) else repr(item) for item in code.co_consts]
    return [list(sys.version_info[:2]), code.co_code.hex(), constants, list(code.co_names), list(code.co_varnames)]
