"""How attention scheduled by hand for Hopper is cut and ordered, and what cannot be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core.errors import KernelError

#: Threads of a warpgroup, which wgmma and setmaxnreg act on.
GROUP = 128

#: Registers a thread keeps, by computing warpgroups: (loading, computing); together at most 64 Ki.
REGISTERS = {1: (24, 240), 2: (24, 240), 3: (32, 160)}


@dataclass(frozen=True)
class Schedule:
    """How the work is cut and ordered.

    Attributes:
        block_M, block_N: queries and keys of a tile.
        num_stages: tiles of keys, and of values, in flight.
        threads: of the computing warpgroups, each with 64 rows of `block_M`; 128 more load.
        workers: persistent blocks, which take piece after piece of work, the loads for one overlapping the end of the
            one before; 0 launches a block for each tile of queries.
        ping_pong: order the products of two warpgroups.
    """

    block_M: int
    block_N: int
    num_stages: int
    threads: int
    workers: int = 0
    ping_pong: bool = False

    def check(self, M: Any, N: Any) -> None:
        """Raises KernelError for what these schedules cannot do with `M` queries and `N` keys."""
        for name, extent in (("M", M), ("N", N)):
            if not isinstance(extent, int):
                raise KernelError(
                    f"attention: {name} is symbolic, and the variants by hand divide known numbers of queries and keys",
                    hint=f"give a number for {name}, or variant='pipelined'",
                )
        groups = self.threads // GROUP
        if self.threads % GROUP or groups not in REGISTERS or self.block_M != 64 * groups:
            raise KernelError(
                f"attention: {self.threads} threads for tiles of {self.block_M} queries: a warpgroup takes 64",
                hint=f"block_M of 64, 128 or 192 with {2 * self.block_M} threads, or variant='pipelined'",
            )
        if self.num_stages < 2:
            raise KernelError(
                f"attention: {self.num_stages} tile in flight: each product needs the keys of the next tile as well",
                hint="use num_stages=2 or more, or variant='pipelined'",
            )
        if self.ping_pong and groups != 2:
            raise KernelError(
                f"attention: ping_pong orders two warpgroups, and {self.threads} threads are {groups}",
                hint="use block_M=128 with threads=256, or variant='overlapped'",
            )
