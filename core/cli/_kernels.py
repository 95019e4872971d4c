"""Which kernel a command line means: `FILE:FUNCTION`, its `--param NAME=VALUE` and its `--dynamic NAME`."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from core.errors import KernelError

#: What separates one NAME=VALUE from the next where somebody puts several into one word.
_NEXT = re.compile(r"\s*[,;\s]\s*([A-Za-z_]\w*)=")
#: The option of commands that measure nothing.
Dynamic = Annotated[
    list[str] | None,
    typer.Option(
        "--dynamic", metavar="NAME", help="Argument that is a size known at calls only (T.dynamic); repeat it for each."
    ),
]
#: The option of commands that measure, and need an extent for it.
DynamicExtent = Annotated[
    list[str] | None,
    typer.Option(
        "--dynamic",
        metavar="NAME=EXTENT",
        help="Argument that is a size known at calls only (T.dynamic), and what it is while measuring.",
    ),
]


def load_kernel(spec: str) -> Any:
    """The object `FILE:FUNCTION` names. The file's folder is importable while it is loaded.

    Raises:
        KernelError: no such file, the file does not import, or it has no such name (near names are in the hint).
    """
    file, separator, name = spec.rpartition(":")
    if not separator or not file or not name:
        example = spec if spec.endswith(".py") else "kernels.py"
        raise KernelError(
            f"{spec!r} is not FILE:FUNCTION", hint=f"name the function too, for example {example}:softmax"
        )
    path = Path(file)
    if not path.is_file():
        raise KernelError(
            f"no such file: {file}", hint="give the path from the current folder; of a module, the path of its file"
        )
    from core._tilelang import import_tilelang

    import_tilelang()
    module_spec = importlib.util.spec_from_file_location(path.stem, path)
    if module_spec is None or module_spec.loader is None:
        raise KernelError(f"{file} is not a Python file", hint="its name must end in .py")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with redirect_stdout(sys.stderr):  # what the file prints must not end up inside --json
            module_spec.loader.exec_module(module)
    except Exception as error:
        raise KernelError(
            f"{file} does not import: {type(error).__name__}: {error}", hint="run it with python"
        ) from error
    finally:
        sys.path.remove(str(path.resolve().parent))
    if not hasattr(module, name):
        import difflib

        names = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        near = difflib.get_close_matches(name, names, 3) or names[:8]
        raise KernelError(f"{file} has no {name!r}", hint=f"it has {', '.join(near)}" if near else "")
    return getattr(module, name)


def parse_parameters(items: Sequence[str]) -> dict[str, Any]:
    """`NAME=VALUE` items as keyword arguments; a value is a Python literal, else text (`dtype=float16`)."""
    values: dict[str, Any] = {}
    for item in items:
        name, separator, text = item.partition("=")
        if not separator or not name.isidentifier():
            raise KernelError(
                f"--param {item!r} is not NAME=VALUE", hint="for example --param M=4096 --param dtype=float16"
            )
        if not text:
            raise KernelError(f"--param {item!r} has no value", hint=f"for example --param {name}=4096")
        if name in values:
            raise KernelError(f"--param {name} is given twice", hint="give each parameter once")
        try:
            values[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            several = _NEXT.sub(r" --param \1=", item)
            if several != item:
                raise KernelError(f"--param {item!r} is not one NAME=VALUE", hint=f"--param {several}") from None
            values[name] = text
    return values


def parse_dynamic(items: Sequence[str], *, measured: bool) -> dict[str, int | None]:
    """`--dynamic` items by name: the extents to measure at; None for one that was given without.

    Args:
        measured: whether the command measures anything.

    Raises:
        KernelError: an item is no NAME or NAME=EXTENT, is given twice, or has an extent that nothing is measured at.
    """
    found: dict[str, int | None] = {}
    for item in items:
        name, separator, text = item.partition("=")
        if not name.isidentifier() or (separator and not (text.isdecimal() and int(text) > 0)):
            raise KernelError(f"--dynamic {item!r} is not NAME or NAME=EXTENT", hint="for example --dynamic M=4096")
        if name in found:
            raise KernelError(f"--dynamic {name} is given twice", hint="give each size once")
        if separator and not measured:
            raise KernelError(
                f"--dynamic {item}: nothing is measured here, so {name} has no extent", hint=f"say --dynamic {name}"
            )
        found[name] = int(text) if separator else None
    return found


def dynamic_arguments(kernel: Any, parameters: Mapping[str, Any], dynamic: Mapping[str, int | None]) -> dict[str, Any]:
    """The arguments of a kernel with a symbolic size for each of `dynamic` that it takes.

    One with an extent may also be a size that the kernel's own text makes symbolic: it is no argument then.

    Raises:
        KernelError: the kernel takes no such argument, or a `--param` gives it a value as well.
    """
    import tilelang.language as T

    taken = _parameters(kernel)
    found = dict(parameters)
    for name, extent in dynamic.items():
        if name in parameters:
            raise KernelError(
                f"{name} is given by --param and by --dynamic", hint=f"leave out --param {name}, or --dynamic {name}"
            )
        if name in taken:
            found[name] = T.dynamic(name)
        elif extent is None:
            raise KernelError(
                f"--dynamic {name}: {getattr(kernel, '__name__', 'the kernel')} has no argument of that name",
                hint=f"its arguments are {', '.join(taken)}" if taken else "it has none: its sizes are in its text",
            )
    return found


def _parameters(kernel: Any) -> list[str]:
    """Names of the arguments of whatever a user calls a kernel, a factory's tile parameters left out."""
    from core.tiling.factory import KernelFactory

    if isinstance(kernel, KernelFactory):
        return [name for name in kernel.signature.parameters if name not in kernel.parameters]
    try:
        return list(inspect.signature(kernel).parameters)
    except (TypeError, ValueError):  # a PrimFunc, say
        return []
