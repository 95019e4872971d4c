"""An exported kernel called in a loop of C: what a launch takes when no Python is around it.

On a device that is the driver's own time, and a few nanoseconds for the checks.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.errors import LaunchError

_LOOP = """\
#include "{name}.c"

__attribute__((visibility("default"))) int tilehal_loop(
    const char *folder, int device, void *stream, const void *x, void *y, long count) {{
    static {name}_kernel *kernel;
    int code = 0;
    if (kernel == NULL) {{
        code = {name}_load(&kernel, folder);{threads}
    }}
    for (long i = 0; i < count && code == 0; ++i) code = {name}_launch(kernel, device, stream, x, y);
    return code;
}}

__attribute__((visibility("default"))) const char *tilehal_loop_error(void) {{ return {name}_error(); }}
"""


def loop_in_c(folder: Path, name: str, x: Any, y: Any) -> Callable[[int], None]:
    """Compiles the loop in the folder that a kernel of two tensors was exported to.

    Args:
        name: of the exported files: `main` for `main.c`.
        x, y: tensors of the kernel's shapes, on its device.

    Returns:
        A function that launches the kernel so many times, on the default stream.

    Raises:
        ToolchainNotFound, BuildFailed: as for a kernel's host side.
    """
    from core.codegen.host import find_c_compiler
    from core.codegen.launch import compile_command
    from core.compiler.toolchain import run_tool

    source = folder / "loop.c"
    threads = ""
    if x.device.type == "cpu":  # as many as `load_exported` gives it, else it would be another kernel that is timed
        threads = f"\n        if (code == 0) {name}_set_threads(kernel, {len(os.sched_getaffinity(0))});"
    source.write_text(_LOOP.format(name=name, threads=threads), encoding="utf-8")
    command = compile_command(tuple(find_c_compiler().command), source.name, "loop.so")
    run_tool(command, cwd=folder, source=source, purpose="compile a loop of launches")
    library = ctypes.CDLL(str(folder / "loop.so"))
    library.tilehal_loop.argtypes = [ctypes.c_char_p, ctypes.c_int, *[ctypes.c_void_p] * 3, ctypes.c_long]
    library.tilehal_loop_error.restype = ctypes.c_char_p

    def run(count: int) -> None:
        where = (str(folder).encode(), x.device.index or 0, None)
        if library.tilehal_loop(*where, x.data_ptr(), y.data_ptr(), count) != 0:
            raise LaunchError(
                f"{name} called from C: {library.tilehal_loop_error().decode()}",
                hint="`tilehal doctor` looks at the installation",
            )

    return run
