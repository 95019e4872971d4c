"""The options of this backend (`core.compile(..., options={...})`), and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from core.errors import KernelError


@dataclass(frozen=True, slots=True)
class Settings:
    """Options a user may give.

    Attributes:
        multi_buffer: keep several copies of a buffer so that copies and computation overlap. None: on for kernels that
            use only cube or only vector cores, off for those that use both (users report wrong results and hangs).
        sub_block: split the vector work of a kernel that uses both core kinds over the two vector cores of an AI core.
        blockify: run the blocks in a loop inside the kernel, so that any number of them can be launched. None: when
            the grid is known to have more than 65,535 blocks.
        sync_solver: let the compiler place synchronisation with its graph solver.
        route: `mlir` or `ascendc`; None: `ascendc` for kernels written in TileLang's own Ascend dialect.
    """

    multi_buffer: bool | None = None
    sub_block: bool = True
    blockify: bool | None = None
    sync_solver: bool = False
    route: str | None = None

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Settings:
        """Raises KernelError for an option this backend does not have, or a value it cannot have."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(options) - known)
        if unknown:
            raise KernelError(
                f"the Ascend backend has no option {', '.join(map(repr, unknown))}",
                hint=f"its options are {', '.join(sorted(known))}, timeout_s; docs/ascend.md says what each does",
            )
        for name in ("multi_buffer", "sub_block", "blockify", "sync_solver"):
            value = options.get(name)
            if value is not None and not isinstance(value, bool):
                raise KernelError(f"option {name}={value!r} must be True or False")
        if options.get("route") not in (None, "mlir", "ascendc"):
            raise KernelError(f"option route={options['route']!r} must be 'mlir' or 'ascendc'")
        return cls(**options)
