"""The objects that a suite names: kernels, references, inputs."""

from __future__ import annotations

import importlib
import re
from typing import Any

from core.errors import KernelError

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def load(spec: str) -> Any:
    """What `FILE:FUNCTION` or `package.module:function` names.

    Raises:
        KernelError: there is no such file, module or name, or it does not import.
    """
    module, _, name = spec.rpartition(":")
    if module.endswith(".py") or not _MODULE.fullmatch(module):
        from core.cli._kernels import load_kernel

        return load_kernel(spec)
    try:
        found = importlib.import_module(module)
    except Exception as error:
        raise KernelError(
            f"{module} does not import: {type(error).__name__}: {error}", hint="a file is named as path/kernels.py:name"
        ) from error
    if not hasattr(found, name):
        raise KernelError(f"{module} has no {name!r}", hint="name a kernel of the module, as package.module:name")
    return getattr(found, name)
