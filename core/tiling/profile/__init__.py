"""Profiles: what a kernel does, as numbers, and the profiles of hundreds of candidates from a handful of traces.

`records` says what a profile holds, `reading` reads one off the tile-level view, `family` makes those of candidates
that were never traced; `formula` and `trips` count loops that depend on the block, `flat` takes a profile apart into
its structure and its numbers.
"""

from core.tiling.profile.reading import profile
from core.tiling.profile.records import (
    GlobalAccess,
    LaunchProfile,
    Loop,
    MatrixProduct,
    OnChipBuffer,
    Profile,
    Reduction,
    SharedAccess,
    VectorWork,
)

__all__ = [
    "GlobalAccess",
    "LaunchProfile",
    "Loop",
    "MatrixProduct",
    "OnChipBuffer",
    "Profile",
    "Reduction",
    "SharedAccess",
    "VectorWork",
    "profile",
]
