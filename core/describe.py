"""`python -m core.describe` is `tilehal describe`."""

from __future__ import annotations

import gc
import sys

if __name__ == "__main__":
    # It ends within half a second, a seventh of which would go into looking for garbage among what is being loaded.
    gc.disable()
    from core.cli.main import main

    main(["describe", *sys.argv[1:]])
