"""Reading the documentation."""

from __future__ import annotations

import re


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
