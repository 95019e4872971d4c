"""Finding and loading `libascendcl.so`, CANN's public runtime, and what its error codes mean."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from core.errors import DeviceUnavailable, ToolchainNotFound

LIBRARY = "libascendcl.so"
#: Variables that CANN's set_env.sh sets, current and older.
HOME_VARIABLES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
#: Where CANN's installers put it when nobody says otherwise.
DEFAULT_HOMES = (
    "/usr/local/Ascend/cann",
    "/usr/local/Ascend/ascend-toolkit/latest",
    "/usr/local/Ascend/latest",
)
_FOLDERS = ("lib64", "runtime/lib64", "acllib/lib64")

#: What a code means to somebody launching a kernel. Source: CANN's acl/error_codes/rt_error_codes.h.
MEANINGS = {
    107000: "a parameter is invalid",
    107001: "no such device",
    107002: "this thread has no device context",
    107003: "the stream belongs to another device",
    107020: "a task took too long",
    207000: "the device does not have this feature",
    207001: "out of memory",
    207004: "no device",
    507000: "internal error of the runtime",
    507014: "an AI core took too long",
    507015: "an AI core faulted",
    507016: "an AI core trapped",
    507027: "the kernel is not in the binary",
    507034: "a vector core took too long",
    507035: "a vector core faulted",
    507036: "a vector core trapped",
    507899: "internal error of the driver",
}


@lru_cache(maxsize=1)
def load_library() -> ctypes.CDLL:
    """CANN's runtime, loaded once per process: the copy torch_npu has loaded where it is the same file.

    Raises:
        ToolchainNotFound: it is nowhere; every place is listed, and the script to source where CANN is installed.
        DeviceUnavailable: it is there and cannot be loaded.
    """
    looked: list[str] = []
    for path in _candidates(looked):
        if not path.is_file():
            looked.append(f"{path} (not there)")
            continue
        return _open(str(path))
    # A name without a folder is looked for as the loader does: in LD_LIBRARY_PATH and the system's folders.
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        looked.append(f"LD_LIBRARY_PATH={os.environ.get('LD_LIBRARY_PATH', '')} ({error})")
    scripts = [script for home in DEFAULT_HOMES if (script := Path(home) / "set_env.sh").is_file()]
    for home in DEFAULT_HOMES:
        looked.append(f"{home} ({'not sourced' if Path(home).is_dir() else 'no such folder'})")
    places = "\n".join(f"    {place}" for place in looked)
    raise ToolchainNotFound(
        f"{LIBRARY} (CANN's runtime) is needed to launch Ascend kernels, and was not found. Looked at:\n{places}",
        hint=f"run `source {scripts[0]}` in this shell first"
        if scripts
        else "install the CANN toolkit and `source <cann>/set_env.sh`, which sets ASCEND_HOME_PATH and LD_LIBRARY_PATH;"
        " or run the kernel with simulate=True (`tilehal compile`: --run --simulate)",
        details={"looked": looked},
    )


def _candidates(looked: list[str]) -> Sequence[Path]:
    found: list[Path] = []
    for variable in HOME_VARIABLES:
        home = os.environ.get(variable, "").strip()
        if home:
            found += [Path(home) / folder / LIBRARY for folder in _FOLDERS]
        else:
            looked.append(f"${variable} (not set)")
    return found


def _open(path: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise DeviceUnavailable(
            f"{path} cannot be loaded: {error}",
            hint="source set_env.sh of the same CANN installation: it puts the libraries this one needs on the path",
        ) from error


def describe(code: int) -> str:
    """An error code with its meaning, as far as it is one that kernels run into."""
    return f"{code} ({MEANINGS[code]})" if code in MEANINGS else str(code)
