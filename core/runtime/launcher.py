"""What a backend's `tilehal_launcher` and `tilehal_simulator` return."""

from __future__ import annotations

from typing import Any, Protocol


class Launcher(Protocol):
    """A compiled kernel, ready to run.

    Called with every parameter of the signature in order, outputs included, already checked against the signature:
    torch tensors on the right device, Python numbers for scalars, then the value of each symbolic dimension as an int
    through `symbols`. Runs asynchronously on `stream` (the vendor's stream handle as an int; None means torch's current
    stream of that device at the time of the call). Raises `LaunchError` when the runtime refuses the launch.

    It may have `call`, which takes a whole call at once, checks it, and gives the outputs or `core.runtime.MISS`;
    `make_direct`, which makes that the call of a kernel object (`core.runtime.compiled.CompiledCall`);
    `how`, a line that says how calls reach the device; and `explain(error)`, which turns a failed call into a
    `TileHALError`.

    A simulator may have an attribute `rewrites`, a tuple of one line per kind of change it made to the source; they are
    added to `k.provenance.rewrites`.
    """

    def __call__(self, *arguments: Any, symbols: dict[str, int] | None = None, stream: int | None = None) -> None: ...
