"""What a backend or an extension says about tiles: values worth considering, measured tables, and what is forbidden."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from core.tiling.parameters import TileParameter, Value

if TYPE_CHECKING:
    from core.tiling.prediction import Prediction
    from core.tiling.profile import Profile

Tiles = Mapping[str, Value]


def tiles_in_words(tiles: Tiles) -> str:
    """Tiles for a message: `block_M=128, threads=256`."""
    return ", ".join(f"{name}={value}" for name, value in tiles.items())


@dataclass(frozen=True, slots=True)
class KernelShape:
    """What a rule knows of the kernel before it is traced with real tiles.

    Attributes:
        name: the factory's name.
        operator: `gemm`, `attention` (two gemms and a reduction), `reduction` or `elementwise`, read off a trace.
        dimensions: extent of every integer argument of the factory (`M`, `N`, `K`), elements.
        dtypes: dtypes of the tensor parameters, in order.
        parameters: the tile parameters by name.
        options: the backend's options that the kernel is compiled with (`options=`), by name.
        gathers: threads may have to find the elements of its tiles one by one: it fills a tile from windows of images
            (`T.im2col`) or in a `T.Parallel` loop whose neighbours need not be neighbours in memory, read off a trace.
    """

    name: str
    operator: str
    dimensions: Mapping[str, int]
    dtypes: tuple[str, ...]
    parameters: Mapping[str, TileParameter]
    options: Mapping[str, Any] = field(default_factory=dict)
    gathers: bool = False


@dataclass(frozen=True, slots=True)
class TileRule:
    """A rule of a backend or an extension.

    A *key* is a dimension's name, `split_<dimension>`, a choice's name, or a role (`stages`, `threads`, `swizzle`,
    `warp_policy`, `unroll`, `buffers`, `workers`). Keys the kernel does not have are ignored.

    Attributes:
        name: shown in `kernel.config` as what chose a value.
        reason: why, in one sentence, for whoever reads the rule.
        values: by key, the values worth considering on this chip. Candidates are the product over all keys; several
            rules' values for one key are joined.
        prefer: configurations (whole or partial) that are tried before anything the cost model ranks, most wanted
            first: a measured table. Parameters a configuration leaves out are ranked by the cost model.
        forbid: returns why a configuration (by key) is not allowed on this chip, or None.
        leave_out: returns why a configuration, though possible, is not worth considering, or None: a variant's
            parameter that another variant does not have, accumulators that would not stay in registers. Where nothing
            else is there to consider (the user may have asked for it) it leaves nothing out.
        inspect: as `forbid`, by what the candidate does, read off its profile: how warps share each matrix product, how
            its operands lie. Asked of the candidates that `forbid` lets pass, once their profiles are known.
        weigh: a factor on the cost model's predicted time (1.0 agrees with it), for what the model cannot see.
        replaces: names of rules of lower priority that this one stands for.
    """

    name: str
    reason: str
    values: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    prefer: tuple[Tiles, ...] = ()
    forbid: Callable[[KernelShape, Tiles], str | None] | None = None
    leave_out: Callable[[KernelShape, Tiles], str | None] | None = None
    inspect: Callable[[KernelShape, Tiles, Profile], str | None] | None = None
    weigh: Callable[[KernelShape, Tiles, Prediction], float] | None = None
    replaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejection:
    """A candidate that was not used, and why."""

    tiles: Tiles
    reason: str
