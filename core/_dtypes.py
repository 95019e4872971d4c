"""Names of dtypes as TileLang has them, and what a name that is none of them may have meant."""

from __future__ import annotations

import difflib
import re

#: Those that hints list.
DTYPES = (
    *("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "bool"),
)
#: Other languages' names of them.
OTHER_NAMES = {
    **{"half": "float16", "fp16": "float16", "f16": "float16", "bf16": "bfloat16"},
    **{"float": "float32", "single": "float32", "fp32": "float32", "f32": "float32"},
    **{"double": "float64", "fp64": "float64", "f64": "float64", "fp8": "float8_e4m3fn", "float8": "float8_e4m3fn"},
    **{"int": "int32", "i8": "int8", "i32": "int32", "long": "int64", "i64": "int64", "short": "int16"},
}
#: A kind and a number of bits, as TVM takes any; vectors of them, which are spelt `float16x2`, too.
_KIND_AND_BITS = re.compile(r"(bfloat|float|uint|int)(\d+)(?:x\d+)?")
_BITS = {
    "bfloat": (16,),
    "float": (16, 32, 64),
    "int": (1, 2, 4, 8, 16, 32, 64),
    "uint": (1, 2, 4, 8, 16, 32, 64),
}


def has_odd_bits(name: str) -> bool:
    """Whether a text is spelt like a dtype with a number of bits that no chip has: `float61`, which TVM takes."""
    found = _KIND_AND_BITS.fullmatch(name)
    return found is not None and int(found[2]) not in _BITS[found[1]]


def meant_dtype(name: str) -> str:
    """What to do about a name that is no dtype, for a hint: the names that are near it, else all of them."""
    meant = OTHER_NAMES.get(name.lower())
    near = [meant] if meant else difflib.get_close_matches(name.lower(), DTYPES, 2, 0.7)
    return f"did you mean {' or '.join(near)}?" if near else f"the types are {', '.join(DTYPES)}"
