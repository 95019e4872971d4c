"""The numbers of one call as a C structure: a pointer or number per parameter, then the symbolic dimensions."""

from __future__ import annotations

from collections.abc import Mapping

from core.runtime.plan import UnusablePlan
from core.runtime.signature import ScalarArgument, Signature

#: C types of scalars that are passed by value, by dtype.
C_TYPES: Mapping[str, str] = {
    "bool": "uint8_t",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "float32": "float",
    "float64": "double",
}


def c_type(dtype: str) -> str:
    """The C type of a scalar. Raises UnusablePlan when there is none."""
    if dtype not in C_TYPES:
        raise UnusablePlan(f"a scalar of {dtype} is passed by value")
    return C_TYPES[dtype]


def bounds(dtype: str) -> tuple[str, str]:
    """Least and greatest value of an integer type, in C. A uint64 is held to the positive half of an int64."""
    if dtype == "bool":
        return "0", "1"
    bits = int(dtype.removeprefix("u").removeprefix("int"))
    if dtype.startswith("u"):
        return "0", "INT64_MAX" if bits == 64 else f"UINT{bits}_MAX"
    return f"INT{bits}_MIN", f"INT{bits}_MAX"


def overflow(dtype: str) -> str:
    """The least finite number, in C, that a floating-point type rounds to infinity."""
    return "0x1.ffffffp127" if dtype == "float32" else "INFINITY"


def is_float(argument: ScalarArgument) -> bool:
    return argument.dtype.startswith(("float", "bfloat"))


class Values:
    """Fields of the structure, and what each name of the signature is called in C."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.symbols = {symbol: f"d{index}" for index, symbol in enumerate(signature.symbols)}
        #: What an expression may name, as read through a pointer called `v`.
        self.names = {symbol: f"v->{field}" for symbol, field in self.symbols.items()}
        for index, argument in enumerate(signature.arguments):
            if isinstance(argument, ScalarArgument):
                c_type(argument.dtype)
                self.names[argument.name] = f"v->p{index}"

    def structure(self) -> str:
        """The declaration of `tilehal_values`."""
        fields = []
        for index, argument in enumerate(self.signature.arguments):
            if not isinstance(argument, ScalarArgument):
                kind = "void *"
            else:
                kind = "double " if is_float(argument) else "int64_t "
            fields.append(f"{kind}p{index};")
        fields += [f"int64_t {field};" for field in self.symbols.values()]
        return f"typedef struct {{ {' '.join(fields) or 'char none;'} }} tilehal_values;\n"

    @property
    def count(self) -> int:
        """Parameters and symbolic dimensions together."""
        return len(self.signature.arguments) + len(self.symbols)
