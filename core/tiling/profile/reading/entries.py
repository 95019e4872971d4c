"""The entries of a profile, each read off one statement or expression."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil, prod

from core.program import walk
from core.program.evaluate import evaluate
from core.program.expressions import constant_int, dtype_bits
from core.program.lifetimes import buffer_uses
from core.program.liveness import NEVER, liveness
from core.program.nodes import (
    Buffer,
    Copy,
    Expr,
    Gemm,
    Im2Col,
    Launch,
    Region,
    Scope,
    Var,
)
from core.tiling.profile.formula import Formula, axis, formula_of, names_in
from core.tiling.profile.reading.elements import index_instructions, loads, operations, parallel_variables
from core.tiling.profile.reading.order import different, divisors
from core.tiling.profile.records import (
    Estimate,
    GlobalAccess,
    Loop,
    MatrixProduct,
    OnChipBuffer,
    Reduction,
    SharedAccess,
    VectorWork,
)


@dataclass
class Entries:
    """What one launch does, as it is found.

    Attributes:
        environment: values of symbolic dimensions and scalar parameters.
        unknown: what could not be read off, one sentence each.
        names: the formula of every variable in scope; `origins` what those depend on that have none.
        bound: by variables bound inside of parallel loops, the parallel variables they depend on; `divided` are those
            of them that do not grow evenly with these.
        fills: names of the shared tiles that the parallel loop around does nothing but fill from global memory.
        scattered: the elements of the parallel loop around are found and loaded one by one.
    """

    launch: Launch
    environment: dict[Var | str, int]
    unknown: dict[str, None]
    names: dict[Var | str, Formula] = field(default_factory=dict)
    origins: dict[Var, frozenset[str]] = field(default_factory=dict)
    bound: dict[Var, frozenset[Var]] = field(default_factory=dict)
    divided: set[Var] = field(default_factory=set)
    fills: tuple[str, ...] = ()
    scattered: bool = False
    loops: list[Loop] = field(default_factory=list)
    accesses: list[GlobalAccess] = field(default_factory=list)
    shared: list[SharedAccess] = field(default_factory=list)
    products: list[MatrixProduct] = field(default_factory=list)
    vector: list[VectorWork] = field(default_factory=list)
    reductions: list[Reduction] = field(default_factory=list)
    real_loops: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.names.update(self.environment)
        for index, (var, _) in enumerate(self.launch.grid):
            self.names[var] = axis(index)
        gemms = [stmt for stmt in walk.statements(self.launch.body) if isinstance(stmt, Gemm)]
        self.accumulators = {id(stmt.c.buffer.storage) for stmt in gemms}
        # What is computed from an accumulator element by element has its layout too (a softmax's probabilities).
        self.accumulators |= {id(stmt.a.buffer.storage) for stmt in gemms if stmt.a.buffer.scope is Scope.FRAGMENT}
        self.operands = {id(region.buffer.storage) for stmt in gemms for region in (stmt.a, stmt.b, stmt.c)}

    # -- Numbers -----------------------------------------------------------------------------------------------------

    def number(self, expr: Expr, what: str) -> int:
        value = evaluate(expr, self.environment)
        if value is None:
            self.unknown[f"{what} depends on a value that was not given: taken as 1"] = None
            return 1
        return max(0, value)

    def formula(self, expr: Expr, what: str) -> Formula:
        formula = formula_of(expr, self.names)
        if formula is None:
            self.unknown[f"{what} depends on data: taken as 1"] = None
            return 1
        return formula

    def varies(self, exprs: Iterable[Expr]) -> tuple[str, ...]:
        """Names of the grid axes and loops that expressions depend on."""
        found: set[str] = set()
        for expr in exprs:
            for inner in walk.subexpressions(expr):
                if isinstance(inner, Var):
                    found |= self.origins.get(inner, frozenset())
                    found |= names_in(self.names.get(inner, 0))
        return tuple(sorted(found))

    def buffers(self) -> tuple[OnChipBuffer, ...]:
        found = []
        wanted = liveness(self.launch)
        for use in buffer_uses(self.launch, self.environment):
            if use.buffer.scope in (Scope.GLOBAL, Scope.BARRIER):
                continue
            if use.bytes is None:
                self.unknown[f"the size of {use.buffer.name} depends on a value that was not given"] = None
            live = wanted.get(id(use.buffer.storage), NEVER)
            found.append(
                OnChipBuffer(
                    name=use.buffer.name,
                    scope=use.scope,
                    bytes=use.bytes or 0,
                    versions=use.versions,
                    first=-1 if use.first is None else use.first,
                    last=-1 if use.last is None else use.last,
                    idle_first=-1 if live.idle is None else live.idle[0],
                    idle_last=-1 if live.idle is None else live.idle[1],
                    steps=-1 if live.steps is None else live.steps,
                    operand=id(use.buffer.storage) in self.operands,
                )
            )
        return tuple(found)

    # -- Tiles -------------------------------------------------------------------------------------------------------

    def extents(self, region: Region) -> tuple[int, ...]:
        """Extents of a region, no more in any dimension than the buffer has."""
        found = []
        for extent, size in zip(region.extents, region.buffer.shape, strict=True):
            limit = evaluate(size, self.environment)
            length = self.number(extent, "a tile's extent")
            found.append(length if limit is None else min(length, limit))
        return tuple(found)

    def window(self, stmt: Im2Col) -> tuple[int, ...]:
        """Of an image tensor, the elements that a tile of pixels and terms is: pixels fill rows, then images."""
        *_, pixels, terms = self.extents(stmt.dst)
        *_, height, width, channels = self.extents(stmt.src)
        lines = ceil(pixels / max(1, width))
        images = ceil(lines / max(1, height))
        return images, min(lines, max(1, height)), min(pixels, max(1, width)), min(terms, max(1, channels))

    def is_accumulator(self, value: object) -> bool:
        return isinstance(value, Region) and id(value.buffer.storage) in self.accumulators

    def copy(self, src: Region, dst: Region, loop: int, receivers: int = 1) -> None:
        if src.buffer.scope is Scope.GLOBAL:
            self.access(src, "read", dst.buffer, self.is_accumulator(dst), loop, receivers)
        else:
            self.touch(src, "read", dst.buffer.scope, loop)
        if dst.buffer.scope is Scope.GLOBAL:
            self.access(dst, "write", src.buffer, self.is_accumulator(src), loop)
        else:
            self.touch(dst, "write", src.buffer.scope, loop)
        on_chip = src.buffer.scope is not Scope.GLOBAL and dst.buffer.scope is not Scope.GLOBAL
        if src.buffer.dtype != dst.buffer.dtype:
            self.add("convert", dst.buffer.dtype, loop, prod(self.extents(src)))
        elif on_chip and Scope.SHARED not in (src.buffer.scope, dst.buffer.scope):
            self.add("arithmetic", dst.buffer.dtype, loop, prod(self.extents(src)))

    def touch(self, region: Region, mode: str, other: Scope, loop: int) -> None:
        """A tile of global memory, or of shared memory that threads read or write."""
        if region.buffer.scope is Scope.GLOBAL:
            self.access(region, mode, None, False, loop)
        elif region.buffer.scope is Scope.SHARED and other is not Scope.GLOBAL:
            size = prod(self.extents(region)) * dtype_bits(region.buffer.dtype) / 8
            self.shared.append(SharedAccess("read" if mode == "read" else "write", size, loop))

    def access(
        self, region: Region, mode: str, other: Buffer | None, accumulator: bool, loop: int, receivers: int = 1
    ) -> None:
        self.box(region.buffer, mode, self.extents(region), region.mins, other, accumulator, loop, receivers)

    def box(
        self,
        buffer: Buffer,
        mode: str,
        extents: tuple[int, ...],
        address: tuple[Expr, ...],
        other: Buffer | None,
        accumulator: bool,
        loop: int,
        receivers: int = 1,
        window: bool = False,
    ) -> None:
        varies = self.varies(address)
        shares, neighbours = self.sharing(address, varies)
        self.accesses.append(
            GlobalAccess(
                tensor=buffer.storage.name,
                mode=mode,
                bits=dtype_bits(buffer.dtype),
                extents=extents,
                shape=tuple(evaluate(size, self.environment) or 0 for size in buffer.shape),
                varies=varies,
                shares=shares,
                neighbours=neighbours,
                onchip=other.scope.value if other is not None else "local",
                buffer=other.storage.name if other is not None else "",
                accumulator=accumulator,
                receivers=receivers,
                loop=loop,
                symbolic_rows=any(constant_int(stride) is None for stride in buffer.strides),
                window=window,
                fills=self.fills if mode == "read" else (),
            )
        )

    def sharing(self, mins: tuple[Expr, ...], varies: tuple[str, ...]) -> tuple[tuple[int, ...], float]:
        """`GlobalAccess.shares` and `GlobalAccess.neighbours` of an address."""
        names = dict(self.names)
        names.update(dict.fromkeys(parallel_variables(mins, {}), 0))
        formulas = [formula_of(expr, names) for expr in mins]
        plain = tuple(int(f"axis{index}" in varies) for index in range(len(self.launch.grid)))
        known = [formula for formula in formulas if formula is not None]
        if len(known) < len(formulas):
            return plain, 0.0
        divided = [divisors(formula) for formula in known]
        if all(found is not None for found in divided):
            shares = list(plain)
            for found in divided:
                for index, divisor in (found or {}).items():
                    shares[index] = max(1, divisor)
            return tuple(shares), 0.0
        grid = tuple(self.number(extent, "a grid axis") for _, extent in self.launch.grid)
        return plain, Estimate(different(known, grid, self.loops))

    def product(self, stmt: Gemm, loop: int) -> None:
        self.products.append(
            MatrixProduct(
                m=stmt.m,
                n=stmt.n,
                k=stmt.k,
                a_dtype=stmt.a.buffer.dtype,
                b_dtype=stmt.b.buffer.dtype,
                accumulator_dtype=stmt.c.buffer.dtype,
                a_scope=stmt.a.buffer.scope.value,
                b_scope=stmt.b.buffer.scope.value,
                transpose_a=stmt.transpose_a,
                transpose_b=stmt.transpose_b,
                policy=stmt.policy,
                a_buffer=stmt.a.buffer.storage.name,
                b_buffer=stmt.b.buffer.storage.name,
                in_flight=stmt.annotations.get("wg_wait", 0) == -1,
                loop=loop,
            )
        )
        for region, mode in ((stmt.a, "read"), (stmt.b, "read"), (stmt.c, "write")):
            if region.buffer.scope is Scope.GLOBAL:
                self.touch(region, mode, Scope.LOCAL, loop)

    def reduction(self, src: Region, dim: int, dtype: str, loop: int) -> None:
        extents = self.extents(src)
        length = extents[dim]
        rows = prod(extents[:dim]) * prod(extents[dim + 1 :] if dim != -1 else ())
        self.reductions.append(Reduction(dtype, rows, length, id(src.buffer.storage) in self.accumulators, loop))
        if src.buffer.scope is Scope.SHARED:
            size = prod(extents) * dtype_bits(src.buffer.dtype) / 8
            self.shared.append(SharedAccess("read", size, loop))

    # -- Elements ----------------------------------------------------------------------------------------------------

    def add(self, kind: str, dtype: str, loop: int, elements: int) -> None:
        self.vector.append(VectorWork(kind, dtype, elements, loop, bool(self.fills)))

    def element(
        self, buffer: Buffer, indices: tuple[Expr, ...], mode: str, loop: int, parallel: Mapping[Var, int]
    ) -> None:
        """One element per iteration of the surrounding parallel loops."""
        if buffer.scope is Scope.SHARED:
            used = parallel_variables(indices, self.bound)
            size = prod(extent for var, extent in parallel.items() if var in used)
            kind = "read" if mode == "read" else "write"
            self.shared.append(SharedAccess(kind, size * dtype_bits(buffer.dtype) / 8, loop))
        if buffer.scope is not Scope.GLOBAL:
            return
        self.box(buffer, mode, self.spread(buffer, indices, parallel), indices, None, False, loop)

    def spread(self, buffer: Buffer, indices: tuple[Expr, ...], parallel: Mapping[Var, int]) -> tuple[int, ...]:
        """Extents of the box that elements of a buffer lie in: each variable fills dimensions from the last one on.

        What a dimension has no room for goes to the next one that the variable leads through (pixels fill rows, then
        images), unless it is less than the dimension once more: extents stay products of what each variable gives.
        """
        used = [parallel_variables((index,), self.bound) & parallel.keys() for index in indices]
        left = {var: float(extent) for var, extent in parallel.items()}
        extents = [1] * len(indices)
        for place in reversed(range(len(indices))):
            limit = evaluate(buffer.shape[place], self.environment)
            for var in used[place]:
                part = left[var]
                if limit is not None and (part >= 2 * limit or not any(var in others for others in used[:place])):
                    part = min(part, limit)
                extents[place] *= max(1, round(part))
                left[var] /= max(1.0, part)
        return tuple(extents)

    def expression(self, root: Expr, loop: int, parallel: Mapping[Var, int]) -> None:
        for load in loads(root):
            self.element(load.buffer, load.indices, "read", loop, parallel)
        for kind, dtype, elements in operations(root, parallel, self.bound):
            self.add(kind, dtype, loop, elements)
        if self.scattered:
            self.index(root, loop, parallel)

    def index(self, root: Expr, loop: int, parallel: Mapping[Var, int]) -> None:
        """Instructions that find out where elements lie, each in the innermost loop that it differs in.

        Threads lie along the innermost variable. What depends on it alone is computed once by each of them where all
        elements of a thread have it in common, other things for each of a thread's elements; what does not depend on a
        loop, before it.
        """
        counts: dict[tuple[int, bool], int] = {}
        *_, inner = parallel
        threads = prod(self.launch.threads or (1,))
        in_common = threads % max(1, parallel[inner]) == 0 or parallel[inner] % threads == 0
        for expr, count in index_instructions(root, self.bound, self.divided):
            place, own = loop, set(self.varies((expr,)))
            while place in self.real_loops and f"loop{place}" not in own:
                place = self.loops[place].parent
            key = place, in_common and parallel_variables((expr,), self.bound) == {inner}
            counts[key] = counts.get(key, 0) + count
        for (place, once), count in counts.items():
            elements = parallel[inner] if once else prod(parallel.values())
            fills = bool(self.fills) and place == loop
            self.vector.append(VectorWork("index", "int32", count * elements, place, fills))


def receivers(copy: Copy) -> int:
    """Blocks of the cluster that a copy serves."""
    mask = copy.annotations.get("cluster_mask")
    return max(1, mask.bit_count()) if isinstance(mask, int) else 1
