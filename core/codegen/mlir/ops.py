"""The operations the family emits, one function each: arguments are checked, the text is spelled here only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from core.codegen.mlir.builder import Builder, Region, Value
from core.codegen.mlir.types import (
    I1,
    INDEX,
    MemRef,
    Scalar,
    Static,
    Tensor,
    element_of,
    shaped_like,
)

#: A size or offset: known now, or an SSA value of type `index`.
Extent: TypeAlias = int | Value

# -- arith, math: on scalars and, element by element, on tensors -----------------------------------------------------


def _same(a: Value, b: Value) -> None:
    if a.type != b.type:
        raise TypeError(f"operands of types {a.type} and {b.type}")


def arith(b: Builder, name: str, x: Value, y: Value) -> Value:
    """`arith.<name>` of two operands of one type."""
    _same(x, y)
    return b.add(f"arith.{name} {x.name}, {y.name} : {x.type}", x.type, pure=True)


def negf(b: Builder, x: Value) -> Value:
    return b.add(f"arith.negf {x.name} : {x.type}", x.type, pure=True)


def compare(b: Builder, predicate: str, x: Value, y: Value) -> Value:
    """`arith.cmpf` or `arith.cmpi`, by the operands' type."""
    _same(x, y)
    name = "cmpf" if element_of(x.type).is_float else "cmpi"
    return b.add(f"arith.{name} {predicate}, {x.name}, {y.name} : {x.type}", shaped_like(x.type, I1), pure=True)


def select(b: Builder, condition: Value, x: Value, y: Value) -> Value:
    """`arith.select`; a tensor is selected element by element, so the condition has its shape."""
    _same(x, y)
    if condition.type != shaped_like(x.type, I1):
        raise TypeError(f"a condition of type {condition.type} for {x.type}")
    types = f"{condition.type}, {x.type}" if isinstance(x.type, Tensor) else str(x.type)
    return b.add(f"arith.select {condition.name}, {x.name}, {y.name} : {types}", x.type, pure=True)


def convert(b: Builder, name: str, x: Value, element: Scalar) -> Value:
    """`arith.<name>` from one element type to another."""
    to = shaped_like(x.type, element)
    return b.add(f"arith.{name} {x.name} : {x.type} to {to}", to, pure=True)


def math(b: Builder, name: str, *args: Value) -> Value:
    """`math.<name>` of operands of one type."""
    for other in args[1:]:
        _same(args[0], other)
    operands = ", ".join(arg.name for arg in args)
    return b.add(f"math.{name} {operands} : {args[0].type}", args[0].type, pure=True)


def index_cast(b: Builder, x: Value, to: Scalar) -> Value:
    """Between `index` and an integer type; nothing when it is already that."""
    if x.type == to:
        return x
    return b.add(f"arith.index_cast {x.name} : {x.type} to {to}", to, pure=True)


# -- index arithmetic on what may be known ---------------------------------------------------------------------------


def index_value(b: Builder, x: Extent) -> Value:
    return b.index(x) if isinstance(x, int) else x


def add_index(b: Builder, x: Extent, y: Extent) -> Extent:
    if isinstance(x, int) and isinstance(y, int):
        return x + y
    if x == 0:
        return y
    if y == 0:
        return x
    return arith(b, "addi", index_value(b, x), index_value(b, y))


def sub_index(b: Builder, x: Extent, y: Extent) -> Extent:
    if isinstance(x, int) and isinstance(y, int):
        return x - y
    if y == 0:
        return x
    return arith(b, "subi", index_value(b, x), index_value(b, y))


def mul_index(b: Builder, x: Extent, y: Extent) -> Extent:
    if isinstance(x, int) and isinstance(y, int):
        return x * y
    if x == 1:
        return y
    if y == 1:
        return x
    if x == 0 or y == 0:
        return 0
    return arith(b, "muli", index_value(b, x), index_value(b, y))


def min_index(b: Builder, x: Extent, y: Extent) -> Extent:
    if isinstance(x, int) and isinstance(y, int):
        return min(x, y)
    return x if x == y else arith(b, "minsi", index_value(b, x), index_value(b, y))


def max_index(b: Builder, x: Extent, y: Extent) -> Extent:
    if isinstance(x, int) and isinstance(y, int):
        return max(x, y)
    return x if x == y else arith(b, "maxsi", index_value(b, x), index_value(b, y))


def ceildiv_index(b: Builder, x: Extent, divisor: int) -> Extent:
    """`ceil(x / divisor)` for a positive divisor."""
    if divisor == 1:
        return x
    if isinstance(x, int):
        return -(-x // divisor)
    return arith(b, "ceildivsi", x, b.index(divisor))


def _operand(x: Extent) -> str:
    return str(x) if isinstance(x, int) else x.name


def _static(x: Extent) -> Static:
    return x if isinstance(x, int) else None


def _list(items: Sequence[Extent]) -> str:
    return f"[{', '.join(map(_operand, items))}]"


# -- tensors ---------------------------------------------------------------------------------------------------------


def empty(b: Builder, shape: Sequence[int], element: Scalar) -> Value:
    """A tensor of unspecified contents."""
    type_ = Tensor(tuple(shape), element)
    return b.add(f"tensor.empty() : {type_}", type_, pure=True)


def fill(b: Builder, value: Value, shape: Sequence[int]) -> Value:
    """A tensor with `value` in every element."""
    if not isinstance(value.type, Scalar):
        raise TypeError(f"a fill with {value.type}")
    out = empty(b, shape, value.type)
    text = f"linalg.fill ins({value.name} : {value.type}) outs({out.name} : {out.type}) -> {out.type}"
    return b.add(text, out.type, pure=True)


def broadcast(b: Builder, value: Value, shape: Sequence[int], missing: Sequence[int]) -> Value:
    """`value` repeated along the dimensions `missing` of `shape`."""
    source = _tensor(value)
    kept = tuple(extent for position, extent in enumerate(shape) if position not in missing)
    if source.shape != kept:
        raise TypeError(f"{source} cannot be broadcast to {tuple(shape)} along {tuple(missing)}")
    out = empty(b, shape, source.element)
    text = (
        f"linalg.broadcast ins({value.name} : {value.type}) outs({out.name} : {out.type}) "
        f"dimensions = [{', '.join(map(str, missing))}]"
    )
    return b.add(text, out.type, pure=True)


def transpose(b: Builder, value: Value, permutation: Sequence[int]) -> Value:
    """Dimension `d` of the result is dimension `permutation[d]` of `value`."""
    source = _tensor(value)
    if list(permutation) == list(range(len(source.shape))):
        return value
    out = empty(b, [source.static_shape[p] for p in permutation], source.element)
    text = (
        f"linalg.transpose ins({value.name} : {value.type}) outs({out.name} : {out.type}) "
        f"permutation = [{', '.join(map(str, permutation))}]"
    )
    return b.add(text, out.type, pure=True)


def iota(b: Builder, extent: int, element: Scalar) -> Value:
    """0, 1, ..., extent - 1."""
    out = empty(b, [extent], element)
    with b.region() as region:
        index = b.add("linalg.index 0 : index", INDEX)
        b.add(f"linalg.yield {index_cast(b, index, element).name} : {element}")
    maps = 'indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]'
    head = f"linalg.generic {{{maps}}} outs({out.name} : {out.type}) {{"
    region.lines.insert(0, f"^bb0({b.fresh()}: {element}):")
    return b.add_structured(head, [("", region)], f"}} -> {out.type}", [out.type])[0]


def reduce(
    b: Builder, value: Value, init: Value, dimensions: Sequence[int], combine: Callable[[Value, Value], Value]
) -> Value:
    """Combines the elements along `dimensions` with `init`, in any order."""
    element = element_of(value.type)
    item, total = Value(b.fresh(), element), Value(b.fresh(), element)
    with b.region() as region:
        b.add(f"linalg.yield {combine(item, total).name} : {element}")
    head = (
        f"linalg.reduce ins({value.name} : {value.type}) outs({init.name} : {init.type}) "
        f"dimensions = [{', '.join(map(str, dimensions))}]"
    )
    opening = f" ({item.name}: {element}, {total.name}: {element}) {{"
    return b.add_structured(head, [(opening, region)], "}", [init.type])[0]


def extract(b: Builder, tensor: Value, indices: Sequence[Extent]) -> Value:
    """One element."""
    operands = ", ".join(index_value(b, i).name for i in indices)
    return b.add(f"tensor.extract {tensor.name}[{operands}] : {tensor.type}", element_of(tensor.type), pure=True)


def insert(b: Builder, value: Value, tensor: Value, indices: Sequence[Extent]) -> Value:
    """The tensor with one element replaced."""
    if value.type != element_of(tensor.type):
        raise TypeError(f"{value.type} into {tensor.type}")
    operands = ", ".join(index_value(b, i).name for i in indices)
    return b.add(f"tensor.insert {value.name} into {tensor.name}[{operands}] : {tensor.type}", tensor.type)


def extract_slice(
    b: Builder, tensor: Value, offsets: Sequence[Extent], sizes: Sequence[Extent], strides: Sequence[int]
) -> Value:
    """A box of a tensor, of the same rank."""
    source = _tensor(tensor)
    if all(o == 0 for o in offsets) and list(sizes) == list(source.shape) and all(s == 1 for s in strides):
        return tensor
    result = Tensor(tuple(_static(size) for size in sizes), source.element)
    text = f"tensor.extract_slice {tensor.name}{_list(offsets)} {_list(sizes)} {_list(strides)} : {source} to {result}"
    return b.add(text, result, pure=True)


def insert_slice(b: Builder, value: Value, tensor: Value, offsets: Sequence[Extent], strides: Sequence[int]) -> Value:
    """The tensor with a box replaced by `value`, of the same rank and static shape."""
    source, target = _tensor(value), _tensor(tensor)
    sizes = list(source.static_shape)
    if all(o == 0 for o in offsets) and sizes == list(target.shape) and all(s == 1 for s in strides):
        return value
    return insert_box(b, value, tensor, offsets, sizes, strides)


def insert_box(
    b: Builder,
    value: Value,
    tensor: Value,
    offsets: Sequence[Extent],
    sizes: Sequence[Extent],
    strides: Sequence[int],
) -> Value:
    """As :func:`insert_slice`, for sizes that may be SSA values."""
    text = (
        f"tensor.insert_slice {value.name} into {tensor.name}{_list(offsets)} {_list(sizes)} {_list(strides)} : "
        f"{value.type} into {tensor.type}"
    )
    return b.add(text, tensor.type, pure=True)


def reshape(b: Builder, value: Value, shape: Sequence[int]) -> Value:
    """The elements of a tensor in row-major order under another static shape."""
    source = _tensor(value)
    result = Tensor(tuple(shape), source.element)
    if result == source:
        return value
    groups = _groups(result.static_shape, source.static_shape)
    if groups is not None:
        text = (
            f"tensor.expand_shape {value.name} {_reassociation(groups)} output_shape {list(shape)} : "
            f"{source} into {result}"
        )
        return b.add(text, result, pure=True)
    groups = _groups(source.static_shape, result.static_shape)
    if groups is not None:
        text = f"tensor.collapse_shape {value.name} {_reassociation(groups)} : {source} into {result}"
        return b.add(text, result, pure=True)
    size = Tensor((len(shape),), Scalar("i64"))
    wanted = b.add(f"arith.constant dense<{list(shape)}> : {size}", size, pure=True)
    text = f"tensor.reshape {value.name}({wanted.name}) : ({source}, {size}) -> {result}"
    return b.add(text, result, pure=True)


def _groups(fine: tuple[int, ...], coarse: tuple[int, ...]) -> list[list[int]] | None:
    """Which dimensions of `fine` make up each of `coarse`; None when they do not line up."""
    groups: list[list[int]] = []
    position = 0
    for number, extent in enumerate(coarse):
        group: list[int] = []
        product = 1
        while position < len(fine) and (product < extent or not group):
            group.append(position)
            product *= fine[position]
            position += 1
        if product != extent or not group:
            return None
        if number == len(coarse) - 1:
            while position < len(fine) and fine[position] == 1:
                group.append(position)
                position += 1
        groups.append(group)
    return groups if position == len(fine) and groups else None


def _reassociation(groups: list[list[int]]) -> str:
    return "[" + ", ".join(f"[{', '.join(map(str, group))}]" for group in groups) + "]"


def matmul(b: Builder, x: Value, y: Value, total: Value, attributes: str = "") -> Value:
    """`total + x @ y`."""
    text = (
        f"linalg.matmul {attributes}ins({x.name}, {y.name} : {x.type}, {y.type}) "
        f"outs({total.name} : {total.type}) -> {total.type}"
    )
    return b.add(text, total.type, pure=True)


def _tensor(value: Value) -> Tensor:
    if not isinstance(value.type, Tensor):
        raise TypeError(f"{value.name} is {value.type}, not a tensor")
    return value.type


# -- memory ----------------------------------------------------------------------------------------------------------


def reinterpret(b: Builder, memory: Value, offset: Extent, sizes: Sequence[Extent], strides: Sequence[Extent]) -> Value:
    """A strided window of a one-dimensional memref."""
    element = element_of(memory.type)
    result = MemRef(tuple(map(_static, sizes)), element, tuple(map(_static, strides)), _static(offset))
    text = (
        f"memref.reinterpret_cast {memory.name} to offset: [{_operand(offset)}], sizes: {_list(sizes)}, "
        f"strides: {_list(strides)} : {memory.type} to {result}"
    )
    return b.add(text, result, pure=True)


def subview(b: Builder, memory: Value, offsets: Sequence[Extent], sizes: Sequence[Extent]) -> Value:
    """A box of a memref, at unit steps."""
    source = memory.type
    if not isinstance(source, MemRef):
        raise TypeError(f"{memory.name} is {source}, not a memref")
    if all(o == 0 for o in offsets) and list(sizes) == list(source.shape):
        return memory
    strides = source.strides
    if strides is None:
        packed: list[int] = []
        for extent in reversed(source.shape[1:]):
            assert extent is not None
            packed.insert(0, extent * (packed[0] if packed else 1))
        strides = (*packed, 1)
    start: Static = source.offset
    for offset, stride in zip(offsets, strides, strict=True):
        if offset == 0:
            continue
        start = (
            start + offset * stride if isinstance(offset, int) and start is not None and stride is not None else None
        )
    result = MemRef(tuple(map(_static, sizes)), source.element, tuple(strides), start)
    ones = [1] * len(offsets)
    text = f"memref.subview {memory.name}{_list(offsets)} {_list(sizes)} {_list(ones)} : {source} to {result}"
    return b.add(text, result)


def alloc(b: Builder, shape: Sequence[int], element: Scalar) -> Value:
    """New on-chip memory."""
    type_ = MemRef(tuple(shape), element)
    return b.add(f"memref.alloc() : {type_}", type_)


def fill_memory(b: Builder, value: Value, memory: Value) -> None:
    b.add(f"linalg.fill ins({value.name} : {value.type}) outs({memory.name} : {memory.type})")


def copy_memory(b: Builder, source: Value, target: Value) -> None:
    b.add(f"memref.copy {source.name}, {target.name} : {source.type} to {target.type}")


def to_tensor(b: Builder, memory: Value) -> Value:
    """The contents of memory that nothing else will write."""
    source = memory.type
    if not isinstance(source, MemRef):
        raise TypeError(f"{memory.name} is {source}, not a memref")
    type_ = Tensor(source.shape, source.element)
    return b.add(f"bufferization.to_tensor {memory.name} restrict writable : {source}", type_)


def materialize(b: Builder, value: Value, memory: Value) -> None:
    """Writes a tensor to memory."""
    b.add(
        f"bufferization.materialize_in_destination {value.name} in writable {memory.name} : "
        f"({value.type}, {memory.type}) -> ()"
    )


def load(b: Builder, memory: Value, index: Extent) -> Value:
    """One element of a one-dimensional memref."""
    return b.add(f"memref.load {memory.name}[{index_value(b, index).name}] : {memory.type}", element_of(memory.type))


def store(b: Builder, value: Value, memory: Value, index: Extent) -> None:
    b.add(f"memref.store {value.name}, {memory.name}[{index_value(b, index).name}] : {memory.type}")


# -- control flow ----------------------------------------------------------------------------------------------------


def for_loop(
    b: Builder,
    start: Extent,
    end: Extent,
    inits: Sequence[Value],
    body: Callable[[Value, tuple[Value, ...]], Sequence[Value]],
) -> tuple[Value, ...]:
    """`scf.for` by 1 over `index`; `body` takes the counter and the carried values and returns their next ones."""
    counter = Value(b.fresh(), INDEX)
    arguments = tuple(Value(b.fresh(), init.type) for init in inits)
    with b.region() as region:
        carried = body(counter, arguments)
        _check_types(carried, inits)
        if inits:
            b.add(f"scf.yield {_names(carried)} : {_types(carried)}")
    bounds = f"{index_value(b, start).name} to {index_value(b, end).name} step {b.index(1).name}"
    text = f"scf.for {counter.name} = {bounds}"
    if inits:
        pairs = ", ".join(f"{a.name} = {i.name}" for a, i in zip(arguments, inits, strict=True))
        text += f" iter_args({pairs}) -> ({_types(inits)})"
    return b.add_structured(f"{text} {{", [("", region)], "}", [init.type for init in inits])


def if_else(
    b: Builder,
    condition: Value,
    then: Callable[[], Sequence[Value]],
    otherwise: Callable[[], Sequence[Value]] | None = None,
) -> tuple[Value, ...]:
    """`scf.if`; both arms return values of the same types."""
    if condition.type != I1:
        raise TypeError(f"a condition of type {condition.type}")
    with b.region() as first:
        yielded = then()
        if yielded:
            b.add(f"scf.yield {_names(yielded)} : {_types(yielded)}")
    parts: list[tuple[str, Region]] = [("", first)]
    if otherwise is not None:
        with b.region() as second:
            others = otherwise()
            _check_types(others, yielded)
            if others:
                b.add(f"scf.yield {_names(others)} : {_types(others)}")
        if second.lines:
            parts.append(("} else {", second))
    elif yielded:
        raise TypeError("an if that yields needs both arms")
    head = f"scf.if {condition.name}" + (f" -> ({_types(yielded)})" if yielded else "") + " {"
    return b.add_structured(head, parts, "}", [value.type for value in yielded])


def while_loop(
    b: Builder,
    inits: Sequence[Value],
    condition: Callable[[tuple[Value, ...]], Value],
    body: Callable[[tuple[Value, ...]], Sequence[Value]],
) -> tuple[Value, ...]:
    """`scf.while` that carries `inits`."""
    before = tuple(Value(b.fresh(), init.type) for init in inits)
    with b.region() as tested:
        test = condition(before)
        operands = f" {_names(before)} : {_types(before)}" if before else ""
        b.add(f"scf.condition({test.name}){operands}")
    after = tuple(Value(b.fresh(), init.type) for init in inits)
    with b.region() as repeated:
        carried = body(after)
        _check_types(carried, inits)
        b.add(f"scf.yield {_names(carried)} : {_types(carried)}" if carried else "scf.yield")
    pairs = ", ".join(f"{a.name} = {i.name}" for a, i in zip(before, inits, strict=True))
    head = "scf.while" + (f" ({pairs})" if inits else "") + f" : ({_types(inits)}) -> ({_types(inits)}) {{"
    if after:
        arguments = ", ".join(f"{value.name}: {value.type}" for value in after)
        repeated.lines.insert(0, f"^bb0({arguments}):")
    return b.add_structured(head, [("", tested), ("} do {", repeated)], "}", [init.type for init in inits])


def _names(values: Sequence[Value]) -> str:
    return ", ".join(value.name for value in values)


def _types(values: Sequence[Value]) -> str:
    return ", ".join(str(value.type) for value in values)


def _check_types(values: Sequence[Value], expected: Sequence[Value]) -> None:
    got, want = [str(v.type) for v in values], [str(v.type) for v in expected]
    if got != want:
        raise TypeError(f"yields {got}, expected {want}")
