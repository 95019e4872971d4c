"""Launching a built kernel through the CUDA driver: compiled where there was a C compiler, interpreted where not."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import LaunchError, ShapeMismatch
from core.runtime.compiled import CannotLoad, MakeDirect, load
from core.runtime.extents import GridExtents, check_grid
from core.runtime.plan import DriverPlan
from core.runtime.refusals import NO_TENSOR_MAP_HINT
from core.runtime.signature import ScalarArgument, Signature

if TYPE_CHECKING:
    from core.runtime.interpreted import PlannedKernel


class DriverLauncher:
    """Calls a kernel's launch with what the binder has checked; `call` takes a whole call at once, unchecked.

    Attributes:
        call, make_direct: the compiled check and launch in one (see :class:`core.runtime.compiled.CompiledCall`), or
            None.
        how: how calls are launched, for `k.provenance.launch`.

    Raises:
        DeviceUnavailable: there is no driver.
    """

    __slots__ = (
        "_blocking",
        "_grids",
        "_limits",
        "_refuses_empty",
        "_signature",
        "_takes",
        "call",
        "how",
        "make_direct",
    )

    def __init__(
        self,
        signature: Signature,
        plan: DriverPlan,
        image: bytes,
        library: Path | None,
        interpreter: Callable[[], PlannedKernel],
        *,
        limits: Sequence[int],
    ) -> None:
        self._signature = signature
        self._blocking = os.environ.get("TILEHAL_LAUNCH_BLOCKING") == "1"
        self._limits = tuple(limits)
        self._refuses_empty = plan.maps_parameters
        self._grids = GridExtents(signature, [launch.grid for launch in plan.launches])
        self.call: Callable[..., Any] | None = None
        self.make_direct: MakeDirect | None = None
        self._takes: Callable[..., Any]
        try:
            if library is None:
                raise CannotLoad("no C compiler when it was built")
            compiled = load(library, signature, "cuda", image)
        except CannotLoad as reason:
            self._takes = interpreter()
            self.how = f"the CUDA driver, interpreted: {reason}"
        else:
            self._takes = compiled.raw
            self.how = "the CUDA driver, compiled"
            if not self._blocking:
                self.call, self.make_direct = compiled.call, compiled.make_direct

    def __call__(self, *arguments: Any, symbols: dict[str, int] | None = None, stream: int | None = None) -> None:
        import torch

        for grid in self._grids(arguments, symbols):
            check_grid(self._signature.name, grid, self._limits)
        if self._refuses_empty:
            self._refuse_empty_tensors(arguments)
        device = next((a.device for a in arguments if isinstance(a, torch.Tensor)), None)
        index = device.index if device is not None else torch.cuda.current_device()
        if stream is None:
            stream = torch.cuda.current_stream(index).cuda_stream
        values = [a.data_ptr() if isinstance(a, torch.Tensor) else a for a in arguments]
        found = symbols or {}
        try:
            self._takes(index, stream, *values, *(found[name] for name in self._signature.symbols))
        except RuntimeError as error:
            if "no bulk tensor copy" not in str(error):
                raise
            raise LaunchError(f"{self._signature.name}: {error}", hint=NO_TENSOR_MAP_HINT) from error
        if self._blocking:
            torch.cuda.synchronize(index)

    def _refuse_empty_tensors(self, arguments: Sequence[Any]) -> None:
        for index, (declared, argument) in enumerate(zip(self._signature.arguments, arguments, strict=True)):
            if not isinstance(declared, ScalarArgument) and argument.numel() == 0:
                raise ShapeMismatch(
                    f"{self._signature.name}: argument {index} ({declared.name}) has no elements"
                    f" {tuple(argument.shape)}, and a bulk tensor copy (TMA) cannot describe that",
                    hint="do not call it for empty inputs, or copy that tensor with T.copy(..., disable_tma=True)",
                )
