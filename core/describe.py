"""`python -m core.describe` is `tilehal describe`."""

from __future__ import annotations

import sys

from core.cli.main import run

if __name__ == "__main__":
    sys.exit(run(["describe", *sys.argv[1:]]))
