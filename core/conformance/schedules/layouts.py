"""Which warp holds which part of a fragment.

Products decide: a warp of a product holds the rows and columns that the instruction gives it. Everything that walks
along such a fragment (element-wise loops, copies, reductions) takes over the division of the dimension they share. A
fragment no product has a say in is divided by rows. Each warp has storage of its own, so that what a warp does not hold
reads as NaN, and rows that several warps hold exist once in each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from core.conformance.schedules import tree
from core.conformance.schedules.tree import Assign, Body, Copy, Node, Parallel, Product, Reduce, Tensor
from core.errors import UnsupportedOp

Indices = np.ndarray[Any, Any]
Division = dict[int, Indices]  # warp -> the indices it holds
Axis = tuple[Tensor, int]

#: Rows of a warp and of a warpgroup in one instruction.
_WARP_ROWS, _GROUP_ROWS, _GROUP = 16, 64, 4
_MINIMUM_COLUMNS = 8


@dataclass(frozen=True, eq=False)
class Layout:
    """Per dimension, the indices each warp holds; `of_product`: as a product's instruction has it."""

    divisions: tuple[Division, ...]
    of_product: bool = False
    _writers: dict[tuple[int, ...], frozenset[int]] = field(default_factory=dict)

    def part(self, warp: int) -> tuple[Indices, ...] | None:
        """What a warp holds; None where it holds nothing."""
        if any(warp not in division for division in self.divisions):
            return None
        return tuple(division[warp] for division in self.divisions)

    def writers(self, group: tuple[int, ...]) -> frozenset[int]:
        """Of the warps that hold the same, the first: it alone writes a copy to memory."""
        if group not in self._writers:
            parts = {warp: self.part(warp) for warp in group}
            self._writers[group] = first_holders({warp: part for warp, part in parts.items() if part is not None})
        return self._writers[group]


def first_holders(parts: dict[int, tuple[Indices, ...]]) -> frozenset[int]:
    """Of the warps with equal parts, the first."""
    first: dict[bytes, int] = {}
    for warp, part in parts.items():
        first.setdefault(b"|".join(indices.tobytes() for indices in part), warp)
    return frozenset(first.values())


def partition(m: int, n: int, warps: int, policy: int) -> tuple[int, int] | None:
    """Warps along the rows and along the columns of a product of warpgroups; None where there is no division.

    Args:
        policy: 0 as square as can be, 1 rows first, 2 columns first.
    """

    def fits(rows: int) -> bool:
        columns = warps // rows
        return (
            rows * columns == warps
            and rows % _GROUP == 0
            and m % (rows * _WARP_ROWS) == 0
            and n % (columns * _MINIMUM_COLUMNS) == 0
        )

    choices = [rows for rows in range(_GROUP, warps + 1, _GROUP) if fits(rows)]
    if not choices:
        return None
    if policy == 1:
        rows = max(choices)
    elif policy == 2:
        rows = min(choices)
    else:

        def lopsided(rows: int) -> float:
            height, width = m / (rows * _WARP_ROWS), n / (warps // rows * _MINIMUM_COLUMNS)
            return abs(height / width - m / n)

        rows = min(choices, key=lopsided)
    return rows, warps // rows


def product_divisions(product: Product) -> tuple[Division, Division]:
    """Rows and columns of each warp of a product.

    Raises:
        UnsupportedOp: the warps that get there are no whole warpgroups, or cannot share the tile.
    """
    warps = len(product.group)
    counts = partition(product.m, product.n, warps, product.policy) if warps % _GROUP == 0 else None
    if counts is None:
        raise UnsupportedOp(
            f"a product of {product.m} x {product.n} cannot be shared by the {warps} warps that get here",
            hint="a warpgroup is 4 warps of 16 rows each; see the policy and the tile",
            location=product.location,
        )
    across, along = counts
    blocks = product.m // across // _WARP_ROWS
    columns = product.n // along
    rows_of: Division = {}
    columns_of: Division = {}
    for position, warp in enumerate(product.group):
        row, column = position % across, position // across
        bases = [(row // _GROUP * blocks + i) * _GROUP_ROWS + row % _GROUP * _WARP_ROWS for i in range(blocks)]
        rows_of[warp] = np.concatenate([np.arange(base, base + _WARP_ROWS) for base in bases])
        columns_of[warp] = np.arange(column * columns, (column + 1) * columns)
    return rows_of, columns_of


def assign_layouts(body: Body) -> None:
    """Sets the layout of every fragment and the iterations of every `T.Parallel`.

    Raises:
        UnsupportedOp: two statements want a fragment divided in two ways.
    """
    solver = _Solver()
    nodes = list(_walk(body))
    for node in nodes:
        solver.relate(node)
    solver.solve()
    of_products = [fragment for fragment in solver.fragments if solver.division((fragment, 0)) is not None]
    for fragment in solver.fragments:
        if all(solver.division((fragment, dimension)) is None for dimension in range(len(fragment.extents))):
            solver.default(fragment)
            solver.solve()
    for fragment in solver.fragments:
        solver.finish(fragment, fragment in of_products)
    for node in nodes:
        if isinstance(node, Parallel):
            _iterations(node, solver)


def _walk(body: Body) -> Iterator[Node]:
    for node in body:
        yield node
        if isinstance(node, Parallel):
            continue
        for inner in ("body", "then", "otherwise"):
            yield from _walk(getattr(node, inner, ()))


class _Solver:
    """Divisions of the dimensions of fragments, and which of them are the same."""

    def __init__(self) -> None:
        self.fragments: list[Tensor] = []
        self._users: dict[int, set[int]] = {}
        self._parents: dict[tuple[int, int], Axis] = {}
        self._axes: dict[tuple[int, int], Axis] = {}
        self._divisions: dict[tuple[int, int], Division] = {}
        self._seeds: list[tuple[Axis, Division, Node]] = []

    # -- facts -------------------------------------------------------------------------------------------------------

    def relate(self, node: Node) -> None:
        """Takes down what a statement says about fragments."""
        match node:
            case Product():
                rows, columns = product_divisions(node)
                everything = {warp: np.arange(node.k) for warp in node.group}
                for place, divisions in ((node.c, (rows, columns)), (node.a, (rows, everything))):
                    if place.tensor.is_fragment:
                        if place.extents != place.tensor.extents:
                            raise UnsupportedOp(
                                f"a product with a part of the fragment {place.tensor.name} is not modelled",
                                hint="use a fragment of its own",
                                location=node.location,
                            )
                        self._use(place.tensor, node.group)
                        for axis, division in enumerate(divisions):
                            self._seeds.append(((place.tensor, len(place.extents) - 2 + axis), division, node))
            case Copy():
                self._pair(node)
            case Reduce():
                self._use(node.source.tensor, node.group)
                self._use(node.target.tensor, node.group)
                if node.source.tensor.is_fragment and node.target.tensor.is_fragment:
                    kept = [d for d in range(len(node.source.extents)) if d != node.dim]
                    same_rank = len(node.source.extents) == len(node.target.extents)
                    for position, dimension in enumerate(kept):
                        mine = dimension if same_rank else position
                        self._same((node.source.tensor, dimension), (node.target.tensor, mine))
            case tree.Fill():
                self._use(node.target.tensor, node.group)
            case Parallel():
                for slot in node.slots:
                    axes = list(parallel_axes(node, slot))
                    for other in axes[1:]:
                        self._same(axes[0], other)
                for assign in _assignments(node.body):
                    self._use(assign.tensor, node.group)

    def _pair(self, node: Copy) -> None:
        self._use(node.source.tensor, node.group)
        self._use(node.target.tensor, node.group)
        if not (node.source.tensor.is_fragment and node.target.tensor.is_fragment):
            return
        for mine, other in node.pairs:
            if node.source.extents[mine] == node.source.tensor.extents[mine]:
                self._same((node.source.tensor, mine), (node.target.tensor, other))

    def _use(self, tensor: Tensor, group: Sequence[int]) -> None:
        if tensor.is_fragment:
            if tensor not in self.fragments:
                self.fragments.append(tensor)
            self._users.setdefault(id(tensor), set()).update(group)

    def _same(self, one: Axis, other: Axis) -> None:
        a, b = self._root(one), self._root(other)
        if _key(a) != _key(b):
            self._parents[_key(b)] = a

    def _root(self, axis: Axis) -> Axis:
        while _key(axis) in self._parents:
            axis = self._parents[_key(axis)]
        return axis

    # -- the answer --------------------------------------------------------------------------------------------------

    def solve(self) -> None:
        """Spreads what products and defaults say over equal dimensions."""
        for axis, division, node in self._seeds:
            root = _key(self._root(axis))
            known = self._divisions.setdefault(root, {})
            for warp, indices in division.items():
                if warp in known and not np.array_equal(known[warp], indices):
                    raise UnsupportedOp(
                        f"the fragment {axis[0].name} would have to be divided among the warps in two ways",
                        hint="use one policy for products that share a fragment, or copy through shared memory",
                        location=node.location,
                    )
                known[warp] = indices

    def division(self, axis: Axis) -> Division | None:
        return self._divisions.get(_key(self._root(axis)))

    def default(self, fragment: Tensor) -> None:
        """Divides a fragment no product has a say in: by rows if there are enough, and each warp has it all if not."""
        warps = sorted(self._users[id(fragment)])
        rows = fragment.extents[0]
        split = len(fragment.extents) > 1 and rows % len(warps) == 0
        pieces = np.split(np.arange(rows), len(warps)) if split else [np.arange(rows)] * len(warps)
        division = dict(zip(warps, pieces, strict=True))
        self._seeds.append(((fragment, 0), division, Node(location=fragment.location)))

    def finish(self, fragment: Tensor, of_product: bool) -> None:
        """A dimension nobody divided is whole in every warp that holds the fragment."""
        holders = {warp for d in range(len(fragment.extents)) for warp in self.division((fragment, d)) or ()}
        holders = holders or self._users[id(fragment)]
        fragment.layout = Layout(
            tuple(
                self.division((fragment, d)) or {warp: np.arange(extent) for warp in holders}
                for d, extent in enumerate(fragment.extents)
            ),
            of_product,
        )


def _key(axis: Axis) -> tuple[int, int]:
    return id(axis[0]), axis[1]


# -- T.Parallel ------------------------------------------------------------------------------------------------------


def _assignments(body: Body) -> Iterator[Assign]:
    for node in body:
        if isinstance(node, Assign):
            yield node
        for inner in ("body", "then", "otherwise"):
            yield from _assignments(getattr(node, inner, ()))


def parallel_axes(node: Parallel, slot: int) -> Iterator[Axis]:
    """Dimensions of fragments that a loop of `T.Parallel` walks along, element by element."""
    for assign in _assignments(node.body):
        if assign.tensor.is_fragment:
            for dimension, index in enumerate(assign.indices):
                if index.variable == slot:
                    yield assign.tensor, dimension
        yield from _loaded_axes(assign.value, slot)


def _loaded_axes(expression: tree.Expression, slot: int) -> Iterator[Axis]:
    for access in expression.accesses:
        for dimension, index in enumerate(access.indices):
            if access.tensor.is_fragment and index.variable == slot:
                yield access.tensor, dimension


def _iterations(node: Parallel, solver: _Solver) -> None:
    """Gives each warp its iterations."""
    divisions: list[Division | None] = []
    for slot, extent in zip(node.slots, node.extents, strict=True):
        axes = [axis for axis in parallel_axes(node, slot) if axis[0].extents[axis[1]] == extent]
        divisions.append(axes[0][0].layout.divisions[axes[0][1]] if axes and axes[0][0].layout else None)
    if not any(division is not None for division in divisions):
        pieces = np.array_split(np.arange(node.extents[0]), len(node.group))
        divisions[0] = dict(zip(node.group, pieces, strict=True))
    for warp in node.group:
        part: list[Indices] = []
        for extent, division in zip(node.extents, divisions, strict=True):
            if division is None:
                part.append(np.arange(extent))
            elif warp in division:
                part.append(division[warp])
        if len(part) == len(node.extents) and all(len(indices) for indices in part):
            node.parts[warp] = tuple(part)
    node.writers = first_holders(node.parts)
