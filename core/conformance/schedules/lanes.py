"""Values that differ between the lanes of a warp."""

from __future__ import annotations

from typing import Any

import numpy as np

WARP = 32


class Lanes:
    """One value per lane. Arithmetic is element by element; `settle` makes it a number again where all agree."""

    __slots__ = ("values",)

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.values = values

    def settle(self, active: np.ndarray[Any, Any] | None) -> Any:
        """The value all active lanes agree on, or itself."""
        values = self.values if active is None else self.values[active]
        if values.size and (values == values[0]).all():
            return values[0].item()
        return self


def per_lane(function: Any, *arguments: Any) -> Any:
    """Applies a function to numbers, or lane by lane where an argument has one value per lane."""
    if any(isinstance(argument, Lanes) for argument in arguments):
        return Lanes(np.asarray(function(*(a.values if isinstance(a, Lanes) else a for a in arguments))))
    return function(*arguments)
