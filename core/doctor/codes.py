"""The stable codes of what doctor says by itself, in the order of docs/doctor.md. Backends have codes of their own."""

from __future__ import annotations

from typing import Any

from core.plugins.records import Finding, Severity

#: code: (severity, what it means). Codes are never reused for something else; programs may rely on them.
CODES: dict[str, tuple[Severity, str]] = {
    "host-not-installed": ("warning", "TileHAL runs from a folder without package metadata: no version can be checked"),
    "host-shadowed": ("error", "another `core` comes first on the path, so new processes do not find TileHAL"),
    "host-shadow-nearby": ("warning", "Python started in the current folder would import its `core` or `backends`"),
    "backends-shadowed": ("error", "a regular package or module `backends` hides the vendors' namespace"),
    "plugin-none": ("error", "no backend is installed, or TILEHAL_LOAD_PLUGINS leaves all of them out"),
    "plugin-failed": ("error", "a plugin's import raised, hung or ended the process, or its hooks were refused"),
    "plugin-incompatible": ("error", "a plugin was made for another version of TileHAL or TileLang; not imported"),
    "plugin-two-owners": ("error", "two packages own one vendor"),
    "plugin-speaks-for-owner": ("error", "an extension offers chips or devices, which only the owner of a vendor does"),
    "plugin-hook-failed": ("error", "a hook of a loaded backend raised or returned the wrong type"),
    "plugin-check-died": ("error", "checking a backend hung or ended its process: a hook, not the import, is at fault"),
    "plugin-shadowed": ("warning", "a second copy of a plugin's package further down the path is not used"),
    "plugin-left-out": ("info", "TILEHAL_LOAD_PLUGINS leaves an installed plugin out"),
    "plugin-selection-unknown": ("warning", "TILEHAL_LOAD_PLUGINS names something that is not installed"),
    "plugin-extends-nobody": ("warning", "an extension is for a vendor nobody owns, or for a chip its owner lacks"),
    "target-unknown": ("error", "the target given with --target cannot be resolved"),
    "import-missing": ("error", "a package TileHAL compiles with is not installed"),
    "import-failed": ("error", "importing a package TileHAL compiles with raises"),
    "import-died": ("error", "importing it ends the process, as a wrong apache-tvm-ffi does"),
    "import-timeout": ("error", "importing it does not come to an end"),
    "import-unowned": ("warning", "what is imported belongs to no installed distribution: leftovers, or PYTHONPATH"),
    "import-fork": ("warning", "what is imported comes from a distribution of another name: a fork"),
    "import-two-owners": ("error", "two distributions ship the same import package"),
    "import-from-source": ("info", "a package was installed from a folder, archive or repository, not a release"),
    "tvm-beside-tilelang": ("warning", "another `tvm` is installed: imported before tilelang, it breaks tilelang"),
    "tvm-inside-tilelang": ("error", "tilelang uses a TVM other than the one it ships"),
    "requirement-unmet": ("error", "an installed version is outside the range a package requires"),
    "file-overwritten": ("error", "a file is not what its distribution installed"),
    "file-shared": (
        "error",
        "two distributions list the same file: installing one overwrote it, removing one deletes it",
    ),
    "file-missing": ("error", "a file that a distribution installed is gone"),
    "plugin-ships-host-files": ("error", "a plugin's package ships files inside somebody else's import package"),
}


def finding(code: str, message: str, hint: str = "", **details: Any) -> Finding:
    """A finding of doctor's own, with the severity its code has."""
    return Finding(code, CODES[code][0], message, hint, details=details)
