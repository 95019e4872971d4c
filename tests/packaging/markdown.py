"""Reading the documentation, and running what it shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def run(code: str, script: Path) -> None:
    """Runs code as a script of its own at that path, where TileLang reads the kernels' source.

    In this process: one that imports torch and TileLang again takes seconds.
    """
    script.write_text(code)
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(script)}
    exec(compile(code, str(script), "exec", dont_inherit=True), names)
