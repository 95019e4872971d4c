"""What is changed in a module before it is lowered for the CPU: a closed list, each entry with its rule.

Everything else of the module is upstream MLIR and is left as it is. What no rule covers and upstream does not know is
refused by name, so nothing is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.errors import UnsupportedOp

#: The rules, as `k.provenance.rewrites` shows them.
ATTRIBUTES = "simulator: attributes of Huawei's compiler removed, llvm.emit_c_interface added"
ATOMIC = "simulator: hivm.hir.store with atomic -> loops of memref.atomic_rmw"
CUMSUM = "simulator: hfusion.cumsum -> loops of additions"
COPY = "simulator: memref.copy -> linalg.copy (after bufferization)"
PRODUCT = "simulator: linalg.matmul -> linalg.generic of the same sums in the same order, along rows for speed"
DIVISION = "simulator: integer division by zero gives some value, as on the device, where a CPU would stop (in LLVM IR)"

_FUNCTION_ATTRIBUTES = re.compile(r"attributes \{(?P<body>[^{}]*)\} \{$", re.MULTILINE)
_ATOMIC_STORE = re.compile(
    r"^(?P<indent> *)hivm\.hir\.store ins\((?P<value>%[\w#:]+) : (?P<value_type>[^\n]*?)\) "
    r"outs\((?P<memory>%[\w#:]+) : (?P<memory_type>[^\n]*?)\) atomic = <(?P<kind>\w+)>(?P<loc>[^\n]*)$",
    re.MULTILINE,
)
_CUMSUM = re.compile(
    r"^(?P<indent> *)(?P<result>%\w+) = hfusion\.cumsum (?P<value>%[\w#:]+) : (?P<type>tensor<[^>]*>) "
    r"cum_dims = \[(?P<dim>\d+)\] reverse = (?P<reverse>true|false) -> tensor<[^>]*>(?P<loc>[^\n]*)$",
    re.MULTILINE,
)
_COPY = re.compile(
    r"\bmemref\.copy (?P<source>%[\w#:]+), (?P<target>%[\w#:]+) : "
    r"(?P<source_type>memref<.*>) to (?P<target_type>memref<.*>)$",
    re.MULTILINE,
)
_MATMUL = re.compile(
    r"^(?P<indent> *)linalg\.matmul ins\((?P<a>%[\w#:]+), (?P<b>%[\w#:]+) : "
    r"(?P<a_type>memref<[^>]*>(?:>)?), (?P<b_type>memref<[^>]*>(?:>)?)\) "
    r"outs\((?P<c>%[\w#:]+) : (?P<c_type>memref<[^>]*>(?:>)?)\)$",
    re.MULTILINE,
)
_DIVISION = re.compile(
    r"^(?P<indent> *)(?P<result>%[\w.]+) = (?P<op>[su](?:div|rem)) (?P<type>i\d+) (?P<a>\S+), (?P<b>%[\w.]+)$",
    re.MULTILINE,
)
_VENDOR_OPERATION = re.compile(r"^ *(?:%[\w:, ]+ = )?(?P<name>(?:hivm|hfusion|hacc|annotation)\.[\w.]+)", re.MULTILINE)
#: Kinds of `memref.atomic_rmw`: of floats, of integers. NaN is ignored by the first two, as Ascend and LLVM do.
_KINDS = {
    "add": ("addf", "addi"),
    "max": ("maximumf", "maxs"),
    "min": ("minimumf", "mins"),
    "or": (None, "ori"),
}


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A module for the CPU, and the rules that were applied to it, by name and in order."""

    text: str
    rules: tuple[str, ...]


def rewrite(module: str, vendor_attributes: Iterable[str]) -> Rewritten:
    """Applies the rules that come before bufferization.

    Args:
        module: one module, as Huawei's compiler takes it.
        vendor_attributes: regular expressions of the attributes that only that compiler understands.

    Raises:
        UnsupportedOp: an operation of the vendor's that no rule covers.
    """
    rules = [ATTRIBUTES]
    text = module
    for pattern in vendor_attributes:
        text = re.sub(pattern, "", text)
    text = _FUNCTION_ATTRIBUTES.sub(_entry_attributes, text)
    names = _Names()
    text, atomics = _ATOMIC_STORE.subn(lambda match: _atomic(match, names), text)
    text, sums = _CUMSUM.subn(lambda match: _cumsum(match, names), text)
    rules += ([ATOMIC] if atomics else []) + ([CUMSUM] if sums else [])
    left = _VENDOR_OPERATION.search(text)
    if left is not None:
        raise UnsupportedOp(
            f"the simulator has no equivalent of {left['name']}",
            hint="compile this kernel with target='cpu' to check its values, or run it on the device",
        )
    return Rewritten(text, tuple(rules))


def rewrite_buffers(module: str) -> Rewritten:
    """The rules after bufferization, which makes copies of its own. Without the first a run-time library is needed."""
    text, copies = _COPY.subn(
        lambda m: f"linalg.copy ins({m['source']} : {m['source_type']}) outs({m['target']} : {m['target_type']})",
        module,
    )
    products = _MATMUL.sub(_product, text)
    return Rewritten(products, (*((COPY,) if copies else ()), *((PRODUCT,) if products != text else ())))


def _product(match: re.Match[str]) -> str:
    """The named operation's own body, over (row, k, column): the processor then works on several columns at once."""
    indent, total = match["indent"], _shape(match["c_type"])[1]
    elements = [_shape(match[name])[1] for name in ("a_type", "b_type")]
    is_float = "f" in total
    if any(("f" in element) != is_float or _bits(element) > _bits(total) for element in elements):
        return match[0]  # other conversions than to a wider type of the kind are left to the named operation
    multiply, add = ("arith.mulf", "arith.addf") if is_float else ("arith.muli", "arith.addi")
    lines = [
        f"{indent}linalg.generic {{indexing_maps = [affine_map<(i, k, j) -> (i, k)>, affine_map<(i, k, j) -> (k, j)>, "
        'affine_map<(i, k, j) -> (i, j)>], iterator_types = ["parallel", "reduction", "parallel"]} '
        f"ins({match['a']}, {match['b']} : {match['a_type']}, {match['b_type']}) "
        f"outs({match['c']} : {match['c_type']}) {{"
    ]
    factors = []
    lines.append(f"{indent}^bb0(%x0: {elements[0]}, %x1: {elements[1]}, %sum: {total}):")
    for number, element in enumerate(elements):
        factors.append(f"%x{number}")
        if element != total:
            factors[-1] = f"%wide{number}"
            extend = "arith.extf" if is_float else "arith.extsi"
            lines.append(f"{indent}  {factors[-1]} = {extend} %x{number} : {element} to {total}")
    lines += [
        f"{indent}  %product = {multiply} {factors[0]}, {factors[1]} : {total}",
        f"{indent}  %next = {add} %sum, %product : {total}",
        f"{indent}  linalg.yield %next : {total}",
        f"{indent}}}",
    ]
    return "\n".join(lines)


def rewrite_divisions(ir: str) -> Rewritten:
    """The rule for LLVM IR: lanes outside a tile's valid part hold zeros, and are divided by like the others."""
    text, count = _DIVISION.subn(_safe_division, ir)
    return Rewritten(text, (DIVISION,) if count else ())


def _safe_division(match: re.Match[str]) -> str:
    indent, result, op, type_, a, b = (match[name] for name in ("indent", "result", "op", "type", "a", "b"))
    name = f"%sim.{result[1:]}"
    lines = [f"{name}.zero = icmp eq {type_} {b}, 0"]
    if op[0] == "u":
        lines.append(f"{name}.by = select i1 {name}.zero, {type_} 1, {type_} {b}")
        lines.append(f"{result} = {op} {type_} {a}, {name}.by")
    else:
        # The most negative number by -1 traps too; the quotient by -1 is the negated number, and wraps.
        lines.append(f"{name}.minus = icmp eq {type_} {b}, -1")
        lines.append(f"{name}.unsafe = or i1 {name}.zero, {name}.minus")
        lines.append(f"{name}.by = select i1 {name}.unsafe, {type_} 1, {type_} {b}")
        if op == "srem":
            lines.append(f"{result} = srem {type_} {a}, {name}.by")
        else:
            lines.append(f"{name}.quotient = sdiv {type_} {a}, {name}.by")
            lines.append(f"{name}.negated = sub {type_} 0, {a}")
            lines.append(f"{result} = select i1 {name}.minus, {type_} {name}.negated, {type_} {name}.quotient")
    return "\n".join(f"{indent}{line}" for line in lines)


def _entry_attributes(match: re.Match[str]) -> str:
    kept = [part.strip() for part in match["body"].split(",") if part.strip()]
    return f"attributes {{{', '.join([*kept, 'llvm.emit_c_interface'])}}} {{"


class _Names:
    """Value names that no module uses."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, purpose: str) -> str:
        self._count += 1
        return f"%sim_{purpose}_{self._count}"


def _shape(type_text: str) -> tuple[list[int | None], str]:
    """Extents (None where dynamic) and element type of a tensor or memref type."""
    inside = type_text[type_text.index("<") + 1 :].split(",")[0].rstrip(">")
    *extents, element = inside.split("x")
    return [None if extent == "?" else int(extent) for extent in extents], element


def _bits(element: str) -> int:
    return int(element.lstrip("bfi"))


def _loops(
    value: str, type_text: str, names: _Names, indent: str, dims: Sequence[int]
) -> tuple[list[str], list[str], list[str]]:
    """Lines that define the bounds, lines that open a loop over each of `dims`, and the loops' variables."""
    extents, _ = _shape(type_text)
    zero, one = names("zero"), names("one")
    bounds = [f"{indent}{zero} = arith.constant 0 : index", f"{indent}{one} = arith.constant 1 : index"]
    opening: list[str] = []
    variables: list[str] = []
    for dim in dims:
        bound, variable = names("bound"), names("i")
        if extents[dim] is None:
            position = names("dim")
            bounds.append(f"{indent}{position} = arith.constant {dim} : index")
            bounds.append(f"{indent}{bound} = tensor.dim {value}, {position} : {type_text}")
        else:
            bounds.append(f"{indent}{bound} = arith.constant {extents[dim]} : index")
        opening.append(f"{indent}scf.for {variable} = {zero} to {bound} step {one} {{")
        variables.append(variable)
    return bounds, opening, variables


def _atomic(match: re.Match[str], names: _Names) -> str:
    indent, value, value_type, memory = match["indent"], match["value"], match["value_type"], match["memory"]
    kinds = _KINDS.get(match["kind"])
    _, element = _shape(value_type)
    kind = None if kinds is None else kinds[0 if "f" in element else 1]
    if kind is None:
        raise UnsupportedOp(
            f"the simulator has no atomic {match['kind']} of {element}", hint="use an atomic add, max or min"
        )
    rank = len(_shape(value_type)[0])
    load = "tensor.extract" if value_type.startswith("tensor") else "memref.load"
    bounds, opening, variables = _loops(value, value_type, names, indent, range(rank))
    index = ", ".join(variables)
    item, old = names("item"), names("old")
    lines = [
        *bounds,
        *opening,
        f"{indent}{item} = {load} {value}[{index}] : {value_type}",
        f"{indent}{old} = memref.atomic_rmw {kind} {item}, {memory}[{index}] : ({element}, {match['memory_type']}) -> "
        f"{element}{match['loc']}",
        *[f"{indent}}}" for _ in opening],
    ]
    return "\n".join(lines)


def _cumsum(match: re.Match[str], names: _Names) -> str:
    """`sums[.., i, ..] = sums[.., i - 1, ..] + value[.., i, ..]` in the tensor's type, from the other end if asked."""
    indent, value, type_text, dim = match["indent"], match["value"], match["type"], int(match["dim"])
    extents, element = _shape(type_text)
    length = extents[dim]
    if length is None or any(extent is None for extent in extents):
        raise UnsupportedOp("the simulator has no cumulative sum over an extent that is not known")
    others = [d for d in range(len(extents)) if d != dim]
    order = [*others, dim]
    zero, one, last = names("zero"), names("one"), names("last")
    lines = [
        f"{indent}{zero} = arith.constant 0 : index",
        f"{indent}{one} = arith.constant 1 : index",
        f"{indent}{last} = arith.constant {length - 1} : index",
    ]
    variables = {d: names("i") for d in range(len(extents))}
    # The carried tensor starts as the input itself: its first element along `dim` is already the first sum.
    carried, results = [value], list[str]()
    for d in order:
        bound, inner = names("bound"), names("sums")
        result = names("result") if results else match["result"]
        lines.append(f"{indent}{bound} = arith.constant {extents[d]} : index")
        start = one if d == dim else zero
        lines.append(
            f"{indent}{result} = scf.for {variables[d]} = {start} to {bound} step {one} "
            f"iter_args({inner} = {carried[-1]}) -> ({type_text}) {{"
        )
        carried.append(inner)
        results.append(result)
    before, here = names("before"), names("here")
    if match["reverse"] == "true":
        lines.append(f"{indent}{here} = arith.subi {last}, {variables[dim]} : index")
        lines.append(f"{indent}{before} = arith.addi {here}, {one} : index")
        at = {**variables, dim: here}
    else:
        lines.append(f"{indent}{before} = arith.subi {variables[dim]}, {one} : index")
        at = variables
    here_index = ", ".join(at[d] for d in range(len(extents)))
    before_index = ", ".join(before if d == dim else at[d] for d in range(len(extents)))
    left, right, total, stored = names("left"), names("right"), names("total"), names("stored")
    add = "arith.addf" if "f" in element else "arith.addi"
    lines += [
        f"{indent}{left} = tensor.extract {carried[-1]}[{before_index}] : {type_text}",
        f"{indent}{right} = tensor.extract {carried[-1]}[{here_index}] : {type_text}",
        f"{indent}{total} = {add} {left}, {right} : {element}{match['loc']}",
        f"{indent}{stored} = tensor.insert {total} into {carried[-1]}[{here_index}] : {type_text}",
    ]
    for depth in reversed(range(len(results))):
        yielded = stored if depth == len(results) - 1 else results[depth + 1]
        lines += [f"{indent}scf.yield {yielded} : {type_text}", f"{indent}}}"]
    return "\n".join(lines)
