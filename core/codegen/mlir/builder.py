"""Building MLIR text in SSA form: values with types, regions, constants made once, source locations.

An operation is added by a function of `ops`, which checks the types and spells it; nothing else writes MLIR. A region
is a list of lines made under :meth:`Builder.region` and handed to the operation that owns it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath

from core.codegen.mlir.types import INDEX, Scalar, Type
from core.errors import Location


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA value."""

    name: str
    type: Type


@dataclass(slots=True)
class Region:
    """Lines of a region's only block."""

    lines: list[str] = field(default_factory=list)


class Builder:
    """Lines of one function, in the region being filled."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._constants: dict[tuple[str, str], Value] = {}
        self._constant_lines: list[str] = []
        self._names: dict[str, int] = {}
        self._known: list[dict[str, Value]] = [{}]
        self.location: Location | None = None
        #: Files and lines mentioned, in order of first use: `softmax.py` -> the path Python knows it by.
        self.files: dict[str, str] = {}
        self._aliases: dict[tuple[str, int], str] = {}

    # ------------------------------------------------------------------------------------------------ names

    def fresh(self, hint: str = "") -> str:
        """A new name: a number, or the hint (made unique)."""
        base = hint or ""
        count = self._names.get(base, 0)
        self._names[base] = count + 1
        return f"%{base}{count}" if not base or count else f"%{base}"

    # ------------------------------------------------------------------------------------------------ operations

    def add(self, text: str, result: Type | None = None, *, pure: bool = False, hint: str = "") -> Value:
        """Adds an operation with at most one result.

        Args:
            text: the operation without its result and location.
            result: the result's type; None adds no result (and the value returned must not be used).
            pure: the same text gives the same value: an earlier one in scope is returned instead.
        """
        if pure and result is not None:
            for known in reversed(self._known):
                if text in known:
                    return known[text]
        if result is None:
            self._lines.append(f"{text}{self._suffix()}")
            return Value("", INDEX)
        value = Value(self.fresh(hint), result)
        self._lines.append(f"{value.name} = {text}{self._suffix()}")
        if pure:
            self._known[-1][text] = value
        return value

    def add_structured(
        self, head: str, parts: Sequence[tuple[str, Region]], tail: str, results: Sequence[Type]
    ) -> tuple[Value, ...]:
        """Adds an operation with regions: `head`, then each region's opening text and lines, then `tail`."""
        prefix = ""
        values: tuple[Value, ...] = ()
        if results:
            name = self.fresh()
            prefix = f"{name}{f':{len(results)}' if len(results) > 1 else ''} = "
            names = [name] if len(results) == 1 else [f"{name}#{i}" for i in range(len(results))]
            values = tuple(Value(n, t) for n, t in zip(names, results, strict=True))
        suffix = self._suffix()
        for position, (opening, region) in enumerate(parts):
            self._lines.append(f"{prefix + head if position == 0 else ''}{opening}")
            self._lines += [f"  {line}" for line in region.lines]
        self._lines.append(f"{tail}{suffix}")
        return values

    @contextmanager
    def region(self) -> Iterator[Region]:
        """What is added inside goes to the region it yields."""
        region, outer = Region(), self._lines
        self._lines = region.lines
        self._known.append({})
        try:
            yield region
        finally:
            self._lines = outer
            self._known.pop()

    # ------------------------------------------------------------------------------------------------ constants

    def constant(self, value: bool | int | float, type_: Scalar) -> Value:
        """A scalar constant; one of each is made, at the top of the function."""
        text = _literal(value, type_)
        key = (text, type_.name)
        if key not in self._constants:
            name = self.fresh(_constant_hint(value, type_))
            spelled = text if type_.name == "i1" else f"{text} : {type_}"
            self._constant_lines.append(f"{name} = arith.constant {spelled}")
            self._constants[key] = Value(name, type_)
        return self._constants[key]

    def index(self, value: int) -> Value:
        """A constant of type `index`."""
        return self.constant(value, INDEX)

    # ------------------------------------------------------------------------------------------------ undoing

    def checkpoint(self) -> tuple[int, int]:
        """A point :meth:`rollback` can return to, in the region being filled."""
        return len(self._lines), len(self._known)

    def rollback(self, point: tuple[int, int]) -> None:
        """Forgets what was added to this region since the checkpoint. Constants stay: they harm nobody."""
        del self._lines[point[0] :]
        # What was found to be known may be among the lines forgotten.
        kept = {line.split(" = ", 1)[0] for line in self._lines if " = " in line}
        innermost = self._known[-1]
        for text in [text for text, value in innermost.items() if value.name not in kept]:
            del innermost[text]

    # ------------------------------------------------------------------------------------------------ text

    def _suffix(self) -> str:
        if self.location is None:
            return ""
        short = PurePath(str(self.location.file)).name
        self.files.setdefault(short, str(self.location.file))
        key = (short, self.location.line)
        if key not in self._aliases:
            self._aliases[key] = f"#line{self.location.line}" + (f"_{len(self._aliases)}" if self._taken(key) else "")
        return f" loc({self._aliases[key]})"

    def _taken(self, key: tuple[str, int]) -> bool:
        return any(line == key[1] and file != key[0] for file, line in self._aliases)

    def function(self, name: str, arguments: Sequence[str], attributes: str) -> str:
        """The text of the function whose body was built."""
        inner = "\n".join(f"    {line}" for line in (*self._constant_lines, *self._lines))
        head = ",\n      ".join(arguments)
        return f"  func.func @{name}(\n      {head})\n    attributes {{{attributes}}} {{\n{inner}\n    return\n  }}"

    def location_lines(self) -> list[str]:
        """Definitions of the location aliases that the function mentions."""
        return [f'{alias} = loc("{file}":{line}:0)' for (file, line), alias in self._aliases.items()]


def _literal(value: bool | int | float, type_: Scalar) -> str:
    if type_.name == "i1":
        return "true" if value else "false"
    if not type_.is_float:
        bits = type_.bits
        number = int(value) & ((1 << bits) - 1)
        return str(number - (1 << bits) if number >> (bits - 1) else number)
    number_ = float(value)
    if math.isfinite(number_) and type_.name == "f32":
        number_ = struct.unpack("f", struct.pack("f", number_))[0] if abs(number_) < 3.4028235e38 else number_
    if not math.isfinite(number_):
        return _bits_of_special(number_, type_)
    text = repr(number_)
    mantissa, _, exponent = text.partition("e")
    if "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}e{exponent}" if exponent else mantissa


def _bits_of_special(value: float, type_: Scalar) -> str:
    """Infinities and NaN have no decimal spelling: their bits in hexadecimal."""
    exponent = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000}[type_.name]
    quiet = {"f16": 0x0200, "bf16": 0x0040, "f32": 0x00400000, "f64": 0x0008000000000000}[type_.name]
    bits = exponent | (quiet if math.isnan(value) else 0)
    if value < 0:
        bits |= 1 << (type_.bits - 1)
    return f"0x{bits:0{type_.bits // 4}X}"


def _constant_hint(value: bool | int | float, type_: Scalar) -> str:
    if type_.name == "i1":
        return "true" if value else "false"
    if isinstance(value, int) and 0 <= value < 1_000_000:
        return f"c{value}_{type_.name}" if type_.name != "index" else f"c{value}"
    return "cst"
