"""Where kernels are built when the cache cannot be used: temporary folders that live as long as the process."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from core.errors import BuildFailed

_FOLDERS: dict[Path, int] = {}


def new_folder() -> Path:
    """An empty folder of this process's own, removed when it ends.

    Raises:
        BuildFailed: there is no place for one either.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix="tilehal-"))
    except OSError as error:
        raise BuildFailed(
            f"there is no folder to build in: neither the cache nor {tempfile.gettempdir()} can be written ({error})",
            hint="free some space, or set TILEHAL_CACHE_DIR or TMPDIR to a folder that can be written",
            details={"transient": True},
        ) from error
    _FOLDERS[folder] = os.getpid()
    return folder


def keep(folder: Path) -> None:
    """Leaves the folder in place when the process ends, if anything is in it: an error message refers to that."""
    if any(folder.iterdir()):
        _FOLDERS.pop(folder, None)


@atexit.register
def _remove() -> None:
    for folder, pid in _FOLDERS.items():
        # A child made by fork inherits the list, and not the right to delete.
        if pid == os.getpid():
            shutil.rmtree(folder, ignore_errors=True)
