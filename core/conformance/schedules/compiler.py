"""What TileLang's compiler adds to a kernel scheduled by hand: barriers between accesses of a group, proxy fences.

Modelled on its passes `ThreadSync` and `InjectFenceProxy` (release 0.1.15). A barrier stands in front of a statement
that gets at shared memory which a statement before it in the same group, or in the iteration before, got at, when one
of the two writes. Two branches of one `if` are never compared: between groups the kernel's own barriers count. A fence
stands in front of a copy or product of the async proxy when, in the order of the text, the last access to shared
memory was a thread's write.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Flag, auto
from typing import TypeGuard

from core.conformance.schedules import tree
from core.conformance.schedules.tree import Body, Branch, Copy, Expression, Loop, Node, Parallel, Product, Tensor, While


@dataclass(frozen=True)
class _Use:
    """An access of a statement to a shared buffer; `None` as the buffer is a barrier inside the statement."""

    tensor: Tensor | None
    write: bool = False
    bulk_load: bool = False
    threads: bool = False  # by threads, element by element; else by the copy engine or the matrix unit, by address


_BARRIER = _Use(None)


def add_barriers(body: Body) -> None:
    """Sets `synchronised`."""
    _summary(body, loop=False)


def _summary(body: Body, loop: bool) -> list[_Use]:
    """Marks a sequence, and gives what those around it see: accesses before its first barrier and after its last."""
    uses = [(node, list(_uses(node))) for node in body]
    open_uses: list[_Use] = []
    for node, mine in uses:
        # A loop over such instructions conflicts with itself, in the pass's eyes.
        if _conflicts(open_uses, mine) or (_moves_matrices(node) and node.target.tensor.is_shared):
            node.synchronised = True
        if node.synchronised:
            open_uses = []
        open_uses = _after(open_uses, mine)
    if loop:
        for node, mine in uses:
            if node.synchronised or not open_uses:
                break
            if _conflicts(open_uses, mine):
                node.synchronised = True
                break
            if _BARRIER in mine:
                break
    head: list[_Use] = []
    tail: list[_Use] = []
    for node, mine in uses:
        for use in ([_BARRIER] if node.synchronised else []) + mine:
            if use is _BARRIER:
                if _BARRIER not in head:
                    head.append(use)
                tail = []
            elif _BARRIER in head:
                tail.append(use)
            else:
                head.append(use)
    return head + tail


def _conflicts(earlier: list[_Use], mine: list[_Use]) -> bool:
    for use in mine:
        if use is _BARRIER:
            return False
        for other in earlier:
            if use.tensor is None or other.tensor is None:
                continue
            # All dynamic shared memory is one buffer to the pass, and it compares elements with elements and addresses
            # with addresses only: an element and an address always conflict.
            apart = use.threads == other.threads and use.tensor.storage != other.tensor.storage
            if not apart and (use.write or other.write) and not (use.bulk_load and other.bulk_load):
                return True
    return False


def _after(earlier: list[_Use], mine: list[_Use]) -> list[_Use]:
    for position in range(len(mine) - 1, -1, -1):
        if mine[position] is _BARRIER:
            return mine[position + 1 :]
    return earlier + mine


def _uses(node: Node) -> Iterator[_Use]:
    """What a statement does to shared memory, in order; inner sequences are marked on the way."""
    match node:
        case tree.BlockBarrier() | tree.NamedBarrier(waits=True):
            yield _BARRIER  # whoever meets there
        case Copy():
            bulk = node.bulk or (node.source.tensor.is_global and not node.no_bulk)
            by_threads = not is_async(node) and not _moves_matrices(node)
            if node.source.tensor.is_shared:
                yield _Use(node.source.tensor, threads=by_threads)
            if node.target.tensor.is_shared:
                yield _Use(node.target.tensor, write=True, bulk_load=bulk, threads=by_threads)
        case Product():
            for place in (node.a, node.b):
                if place.tensor.is_shared:
                    yield _Use(place.tensor)
        case tree.Fill() if node.target.tensor.is_shared:
            yield _Use(node.target.tensor, write=True, threads=True)
        case tree.Assign():
            yield from _loads(node.value)
            if node.tensor.is_shared:
                yield _Use(node.tensor, write=True, threads=True)
        case tree.Bind():
            yield from _loads(node.value)
        case Parallel():
            for inner in node.body:
                yield from _uses(inner)
        case Loop():
            yield from _summary(node.body, loop=True)
        case While():
            yield from _loads(node.condition)
            yield from _summary(node.body, loop=False)
        case Branch():
            yield from _loads(node.condition)
            yield from _summary(node.then, loop=False)
            yield from _summary(node.otherwise, loop=False)


def _moves_matrices(node: Node) -> TypeGuard[Copy]:
    """Whether `stmatrix` or `ldmatrix` moves a whole fragment, laid out for products, of 16-bit elements in memory."""
    if not isinstance(node, Copy):
        return False
    for own, other in ((node.source, node.target), (node.target, node.source)):
        fragment, memory = own.tensor, other.tensor
        if fragment.is_fragment and memory.is_shared and fragment.layout is not None:
            whole = fragment.extents == own.extents == other.extents
            # A store fills its buffer, a load may take a part.
            whole = whole and (other is node.source or memory.extents == other.extents)
            return fragment.layout.of_product and whole and memory.item_bytes == 2 and len(fragment.extents) == 2
    return False


def _loads(expression: Expression) -> Iterator[_Use]:
    for access in expression.accesses:
        if access.tensor.is_shared:
            yield _Use(access.tensor, threads=True)


# -- proxy fences ----------------------------------------------------------------------------------------------------


class _Proxy(Flag):
    """Which accesses to shared memory may have been the last."""

    NONE = auto()
    THREADS = auto()
    ASYNC = auto()


def add_fences(body: Body) -> None:
    """Sets `fenced`."""
    _flow(body, _Proxy.NONE)


def _flow(body: Body, state: _Proxy) -> _Proxy:
    for node in body:
        state = _step(node, state)
    return state


def _step(node: Node, state: _Proxy) -> _Proxy:
    match node:
        case tree.Fence():
            return _Proxy.NONE
        case Branch():
            return _flow(node.then, state) | _flow(node.otherwise, state)
        case Loop() | While():
            entry = state
            for _ in range(3):  # a join of three values settles at once
                state = entry | _flow(node.body, state)
            return state
        case Parallel():
            return _flow(node.body, state)
    if is_async(node):
        node.fenced = node.fenced or _Proxy.THREADS in state
        # A copy is issued by one thread, inside an `if`: to the pass, the others may come from anywhere.
        return _Proxy.ASYNC if isinstance(node, Product) else _Proxy.ASYNC | state
    if any(use.write for use in _uses(node)):
        return _Proxy.THREADS
    return state


def is_async(node: Node) -> bool:
    """Whether the copy engine or the matrix unit gets at shared memory."""
    if isinstance(node, Product):
        return True
    if not isinstance(node, Copy):
        return False
    scopes = (node.source.tensor, node.target.tensor)
    across = any(t.is_shared for t in scopes) and any(t.is_global for t in scopes)
    return node.bulk or (across and not node.no_bulk)
