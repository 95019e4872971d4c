"""Which kernel a command line means: `FILE:FUNCTION` and its `--param NAME=VALUE`."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from core.errors import KernelError


def load_kernel(spec: str) -> Any:
    """The object `FILE:FUNCTION` names. The file's folder is importable while it is loaded.

    Raises:
        KernelError: no such file, the file does not import, or it has no such name (near names are in the hint).
    """
    file, separator, name = spec.rpartition(":")
    if not separator or not file or not name:
        raise KernelError(f"{spec!r} is not FILE:FUNCTION", hint="for example: examples/kernels.py:softmax")
    path = Path(file)
    if not path.is_file():
        raise KernelError(f"no such file: {file}", hint="give the path from the current folder")
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
            values[name] = text
    return values
