"""How blocks go over the tiles of a matrix's rows: one each, or many, the next ones on their way meanwhile."""

from typing import Any

from core._tilelang import import_tilelang
from core.ops._rows import Rows

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)

_WARP = 32


def walk(rows: Rows, use: Any) -> Any:
    """A macro (block, sources, vectors, others) that runs the macro `use` on every tile of a block.

    `use(tiles, vectors, others, tile)` gets the rows of tile number `tile` of each of the matrices `sources` in
    fragments, zeros beyond the matrix; the `vectors`, as long as a row, which blocks that stay keep in shared memory;
    and `others` as they were handed on.
    """
    over = _walk_buffered if rows.buffers else _walk_ahead if rows.stay else _walk_once
    if not rows.resident:
        return over(rows, use)
    inner = over(rows, use)

    @T.macro
    def walk(block, sources, vectors, others):
        T.attr(None, "tl.min_blocks_per_sm", rows.resident)
        inner(block, sources, vectors, others)

    return walk


def _walk_once(rows: Rows, use: Any) -> Any:
    """A tile a block."""
    load = _load(rows)

    @T.macro
    def walk(block, sources, vectors, others):
        tiles = [T.alloc_fragment(rows.tile, rows.dtype) for _ in sources]
        load(sources, block, tiles)
        use(tiles, vectors, others, block)

    return walk


def _walk_ahead(rows: Rows, use: Any) -> Any:
    """Blocks that stay: the next tile is on its way to registers while `use` has this one."""
    load, keep = _load(rows), _keep(rows)

    @T.macro
    def walk(block, sources, vectors, others):
        tiles = [T.alloc_fragment(rows.tile, rows.dtype) for _ in sources]
        ahead = [T.alloc_fragment(rows.tile, rows.dtype) for _ in sources]
        kept = [T.alloc_shared((rows.width,), rows.dtype) for _ in vectors]
        load(sources, block, ahead)
        keep(vectors, kept)
        for turn in T.serial(T.ceildiv(rows.tiles - block, rows.workers)):
            tile = block + turn * rows.workers
            for k in list(range(len(sources))):
                T.copy(ahead[k], tiles[k])
            if tile + rows.workers < rows.tiles:
                load(sources, tile + rows.workers, ahead)
            use(tiles, kept, others, tile)

    return walk


def _walk_buffered(rows: Rows, use: Any) -> Any:
    """Blocks that stay: bulk copies bring the next `buffers` tiles to shared memory, for chips that have them.

    `full[s]` completes when the tile in buffer `s` is there: the warp that starts the copies arrives, one of its lanes
    after it has said how many bytes will come. A buffer is free when every thread has its elements in registers.
    """
    keep = _keep(rows)

    @T.macro
    def start(sources, tile, buffer, rings, full):
        if T.get_thread_binding() < _WARP:
            for k in list(range(len(sources))):
                for i in T.unroll(rows.block_M):
                    # A row is one piece of memory, and as such needs no descriptor. The last one comes again behind it.
                    row = T.min(tile * rows.block_M + i, rows.M - 1)
                    T.tma_copy(
                        sources[k][row, 0 : rows.N],
                        rings[k][buffer, i, :],
                        barrier=full[buffer],
                        leader_scope_threads=_WARP,
                    )
            T.mbarrier_arrive(full[buffer])

    @T.macro
    def walk(block, sources, vectors, others):
        tiles = [T.alloc_fragment(rows.tile, rows.dtype) for _ in sources]
        rings = [T.alloc_shared((rows.buffers, rows.block_M, rows.N), rows.dtype) for _ in sources]
        kept = [T.alloc_shared((rows.width,), rows.dtype) for _ in vectors]
        full = T.alloc_barrier([_WARP] * rows.buffers)
        count = T.ceildiv(rows.tiles - block, rows.workers)
        for first in T.unroll(rows.buffers):
            if first < count:
                start(sources, block + first * rows.workers, first, rings, full)
        keep(vectors, kept)
        for turn in T.serial(count):
            tile, buffer = block + turn * rows.workers, turn % rows.buffers
            T.mbarrier_wait_parity(full[buffer], turn // rows.buffers & 1)
            for k in list(range(len(sources))):
                for i, p, g, j in T.Parallel(*rows.tile):
                    tiles[k][i, p, g, j] = rows.inside(p, g, j, rings[k][buffer, i, rows.column(p, g, j)], 0)
            T.sync_threads()
            if turn + rows.buffers < count:
                start(sources, tile + rows.buffers * rows.workers, buffer, rings, full)
            use(tiles, kept, others, tile)

    return walk


def _load(rows: Rows) -> Any:
    """A macro (sources, tile, tiles): the rows of a tile, straight from the matrices."""

    @T.macro
    def load(sources, tile, tiles):
        for k in list(range(len(sources))):
            for i, p, g, j in T.Parallel(*rows.tile):
                tiles[k][i, p, g, j] = sources[k][tile * rows.block_M + i, rows.column(p, g, j)]

    return load


def _keep(rows: Rows) -> Any:
    """A macro (vectors, kept): vectors to shared memory; in registers, their conversions would stay there too."""

    @T.macro
    def keep(vectors, kept):
        for k in list(range(len(vectors))):
            for p, g, j in T.Parallel(*rows.row):
                kept[k][rows.column(p, g, j)] = vectors[k][rows.column(p, g, j)]

    return keep
