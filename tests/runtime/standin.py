"""A CUDA driver that writes down its launches, for tests without a device; see standin_driver.c."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from core.codegen.host import find_c_compiler
from core.errors import ToolchainNotFound

SOURCE = Path(__file__).with_name("standin_driver.c")


def c_compiler() -> list[str]:
    """A C compiler's command; skips the test where there is none."""
    try:
        return list(find_c_compiler().command)
    except ToolchainNotFound as error:
        pytest.skip(error.message)


class Driver:
    """A folder with the stand-in as libcuda.so.1, and the environment that makes a child process load it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        command = [*c_compiler(), "-O1", "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(SOURCE)]
        subprocess.run(command, check=True)

    def environment(self, arguments: dict[str, str], **settings: str) -> dict[str, str]:
        """Args: arguments: the letters of each entry point's parameters, see standin_driver.c."""
        path = os.pathsep.join(filter(None, (str(self.folder), os.environ.get("LD_LIBRARY_PATH"))))
        texts = "".join(f";{name}={letters}" for name, letters in arguments.items()) + ";"
        return {
            **os.environ,
            "LD_LIBRARY_PATH": path,
            "STANDIN_LOG": str(self.log),
            "STANDIN_ARGUMENTS": texts,
            **settings,
        }

    def calls(self) -> list[str]:
        """What the driver was asked since the last time, and forgets it."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return Driver(tmp_path_factory.mktemp("standin"))
