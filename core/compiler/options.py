"""The options of a call, as `core.compile` and `factory.tune` take them, checked."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from core._tilelang import known_pass_configs
from core.compiler.artifacts import CompileOptions
from core.errors import KernelError


def compile_options(
    pass_configs: Mapping[Any, Any] | None,
    compile_flags: Sequence[str] | str | None,
    fast_math: bool,
    options: Mapping[str, Any] | None,
    *,
    verbose: bool = False,
) -> CompileOptions:
    """The options of a call; arguments as for :func:`core.compile`.

    Raises:
        KernelError: TileLang has no such pass configuration, or an option is of another kind.
    """
    if isinstance(compile_flags, str) or compile_flags is None:
        flags: tuple[str, ...] = (compile_flags,) if compile_flags else ()
    elif isinstance(compile_flags, (list, tuple)) and all(isinstance(flag, str) for flag in compile_flags):
        flags = tuple(compile_flags)
    else:
        raise KernelError(f"compile_flags={compile_flags!r} are no flags", hint='pass a list of strings: ["-DN=4"]')
    if options is not None and not isinstance(options, Mapping):
        raise KernelError(f"options={options!r} are no options", hint="pass the backend's options by name, in a dict")
    backend = dict(options or {})
    timeout_s = backend.pop("timeout_s", None)
    if timeout_s is not None and (
        isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not 0 < timeout_s < math.inf
    ):
        raise KernelError(
            f"option timeout_s={timeout_s!r} is no time limit",
            hint="give the seconds that the native compiler may take, more than 0; leave it out for the usual limit",
        )
    return CompileOptions(
        pass_configs=checked_pass_configs(pass_configs),
        compile_flags=flags,
        fast_math=fast_math,
        backend=backend,
        verbose=verbose,
        timeout_s=timeout_s,
    )


def checked_pass_configs(pass_configs: Mapping[Any, Any] | None) -> dict[str, Any]:
    """Pass configurations by name. Raises KernelError for one that TileLang does not have: it would change nothing."""
    if pass_configs is not None and not isinstance(pass_configs, Mapping):
        raise KernelError(
            f"pass_configs={pass_configs!r} are no pass configurations",
            hint="pass them by name, in a dict: {tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True}",
        )
    # tilelang's `PassConfigKey` members are strings; plain strings pass.
    configs = {str(getattr(key, "value", key)): value for key, value in (pass_configs or {}).items()}
    known = known_pass_configs()
    for name in configs:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise KernelError(
                f"TileLang has no pass configuration {name!r}",
                hint=f"did you mean {near[0]!r}?" if near else "tilelang.PassConfigKey lists them",
            )
    return configs
