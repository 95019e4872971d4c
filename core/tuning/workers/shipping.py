"""How another process gets a kernel factory (or a reference function): by name, by file, or by value.

By name, when a fresh interpreter would import the same object; by file, when it is a module's attribute and the module
was loaded from a file that no name leads to (`tilehal tune FILE:FUNCTION`, a test's module); else by value, with
cloudpickle, which a function typed into a notebook or closed over by another needs. TileLang parses the text of a
kernel, so the source goes with a value: the other process may be on a machine without the file.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import io
import linecache
import os
import pickle
import sys
import textwrap
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from typing import Any, Literal

from core.errors import KernelError


@dataclass(frozen=True, slots=True)
class Parcel:
    """A factory or function on its way to another process.

    Attributes:
        how: `name`, `file` or `value`.
        where: the module's name, or the file.
        attribute: its name in the module.
        content: the pickled object.
        sources: text of the files a value's functions come from, by the name Python knows them under.
        path: `sys.path` of the sender, so that what it imports is found here.
    """

    how: Literal["name", "file", "value"]
    where: str = ""
    attribute: str = ""
    content: bytes = b""
    sources: Mapping[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()


def pack(value: Any, *, same_machine: bool = True) -> Parcel:
    """Makes a parcel of a factory or a function.

    Args:
        same_machine: the receiver sees this machine's files.

    Raises:
        KernelError: it holds something that cannot be sent.
    """
    function = _function(value)
    name, module = getattr(function, "__module__", None), None
    attribute = getattr(function, "__qualname__", "")
    if name is not None and name != "__main__":
        module = sys.modules.get(name)
    path = tuple(sys.path)
    if module is not None and getattr(module, attribute, None) is value:
        if _is_importable(module):
            return Parcel("name", where=module.__name__, attribute=attribute, path=path)
        file = getattr(module, "__file__", None)
        if file and same_machine and os.path.isfile(file):
            return Parcel("file", where=os.path.abspath(file), attribute=attribute, path=path)
    content, sources = _by_value(value, module)
    return Parcel("value", content=content, sources=sources, path=path)


def unpack(parcel: Parcel) -> Any:
    """The factory or function, in this process."""
    for folder in parcel.path:
        if folder not in sys.path:
            sys.path.append(folder)
    if parcel.how == "name":
        return getattr(importlib.import_module(parcel.where), parcel.attribute)
    if parcel.how == "file":
        return getattr(_load(parcel.where), parcel.attribute)
    for name, text in parcel.sources.items():
        if not os.path.isfile(name):
            # Without a time stamp: `linecache` then never looks for the file.
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    value, names = pickle.loads(parcel.content)
    scope = getattr(_function(value), "__globals__", {})
    for name, meaning in names.items():
        scope.setdefault(name, meaning)
    # Annotations kept as text are evaluated in the module a function names. The sender's is not here, and another may
    # have its name (`__main__` does); without one they are evaluated in the function's own scope.
    scope["__name__"] = "tilehal_parcel"
    return value


def _function(value: Any) -> types.FunctionType | Any:
    return getattr(value, "function", value)


def _is_importable(module: types.ModuleType) -> bool:
    """Whether importing the module's name in a fresh process with this `sys.path` finds this module's file.

    `importlib.util.find_spec` would not do: it answers for a module that is loaded already, whoever loaded it.
    """
    file, locations, origin = getattr(module, "__file__", None), None, None
    parts = module.__name__.split(".")
    for count in range(1, len(parts) + 1):
        found = PathFinder.find_spec(".".join(parts[:count]), locations)
        if found is None:
            return False
        locations, origin = found.submodule_search_locations, found.origin
    return bool(origin and file and os.path.exists(origin) and os.path.samefile(origin, file))


def _load(file: str) -> types.ModuleType:
    """The module of a file, loaded once per process under a name that stands for the file."""
    name = f"tilehal_tuned_{abs(hash(file)):x}_{os.path.splitext(os.path.basename(file))[0]}"
    module = sys.modules.get(name)
    if module is None:
        folder = os.path.dirname(file)
        if folder not in sys.path:
            sys.path.append(folder)
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def _by_value(value: Any, module: types.ModuleType | None) -> tuple[bytes, dict[str, str]]:
    """The pickled object, and the text of every file that functions in it come from."""
    import cloudpickle

    files: set[str] = set()

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # no types
        """Keeps the file names of functions, which cloudpickle drops and TileLang's parser needs."""

        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, types.CodeType):
                files.add(obj.co_filename)
                _, parts = cloudpickle.Pickler.dispatch_table[types.CodeType](obj)
                return _code_in_file, (parts, obj.co_filename)
            return super().reducer_override(obj)

    # A module that no name leads to must travel with what the kernel uses of it.
    registered = module is not None and not _is_importable(module)
    if registered:
        cloudpickle.register_pickle_by_value(module)
    content = io.BytesIO()
    try:
        Pickler(content).dump((value, _named(_function(value))))
    except Exception as error:  # whatever the user's objects raise
        raise KernelError(
            f"{getattr(value, 'name', value)!r} cannot be sent to another process: {type(error).__name__}: {error}",
            hint="define it in a file, at the top level, so that the other process can import it",
        ) from error
    finally:
        if registered:
            cloudpickle.unregister_pickle_by_value(module)
    texts = {name: "".join(linecache.getlines(name)) for name in sorted(files)}
    return content.getvalue(), {name: text for name, text in texts.items() if text}


def _code_in_file(parts: tuple[Any, ...], file: str) -> types.CodeType:
    return types.CodeType(*parts).replace(co_filename=file)


def _named(function: Any) -> dict[str, Any]:
    """What the names in a function's text mean globally: annotations kept as text name what its code does not."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return {}
    scope = getattr(function, "__globals__", {})
    return {node.id: scope[node.id] for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in scope}
