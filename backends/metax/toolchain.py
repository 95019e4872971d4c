"""mxcc, MACA's compiler, and the architecture to build for: what `macainfo` says of the device, else the chip's."""

from __future__ import annotations

import os
import subprocess
from functools import lru_cache

from backends.metax.detect import architectures, find_tool
from backends.metax.dialect import MACA
from core.codegen.simt import compiler_toolchain
from core.compiler import Toolchain
from core.hardware import Chip

#: Overrides the architecture, as in the vendor's own tools.
ARCHITECTURE_VARIABLE = "MACA_ARCH"
_TIMEOUT_S = 5.0


def architecture(chip: Chip) -> str:
    """The name for `--offload-arch`: `MACA_ARCH`, else the device's when it is this chip, else the descriptor's.

    A C550 reports xcore1002 and is compiled for as that on such a machine: an image for xcore1000 has been seen not to
    load. Elsewhere the family's name is used.
    """
    asked = os.environ.get(ARCHITECTURE_VARIABLE, "").strip().lower()
    if asked:
        return asked
    names = {chip.architecture, str(chip.codegen["arch"]), *chip.aliases}
    here = next((isa for isa in device_architectures() if isa in names), None)
    return here or str(chip.codegen["arch"])


@lru_cache(maxsize=1)
def device_architectures() -> tuple[str, ...]:
    """Architectures of the devices here, as `macainfo` lists them; empty without the tool or a device."""
    tool = find_tool("macainfo")
    if tool is None:
        return ()
    try:
        done = subprocess.run(
            [tool], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(architectures(done.stdout))


def mxcc_toolchain(chip: Chip) -> Toolchain:
    """Name, version and path of mxcc, with the architecture it will build for. Raises ToolchainNotFound."""
    return compiler_toolchain(MACA, architecture(chip))
