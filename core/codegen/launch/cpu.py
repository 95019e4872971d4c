"""The call of a CPU kernel's own C function, in the place where a device kernel has its launches."""

from __future__ import annotations

from collections.abc import Sequence

from core.codegen.launch.values import Values, c_type
from core.runtime.plan import UnusablePlan
from core.runtime.signature import Signature


def call_source(signature: Signature, types: Sequence[str]) -> str:
    """C with `tilehal_values` and `tilehal_launch(entry, values)`, which gives the kernel's message or null.

    Args:
        types: dtype of each argument of the function (`handle` for a pointer): parameters, then symbolic dimensions.

    Raises:
        UnusablePlan: an argument has no C type.
    """
    values = Values(signature)
    fields = [f"p{index}" for index in range(len(signature.arguments))] + list(values.symbols.values())
    if len(fields) != len(types):
        raise UnusablePlan(f"a function of {len(types)} arguments for {len(fields)} parameters and dimensions")
    spelled = ["void *" if dtype == "handle" else c_type(dtype) for dtype in types]
    lines = []
    for symbol, field in values.symbols.items():
        kind = spelled[fields.index(field)]
        if kind != "int64_t":
            message = f"{symbol} is too large: the kernel counts it as {kind.removesuffix('_t')}"
            lines.append(f'    if (v->{field} != ({kind})v->{field}) return strcpy(tilehal_error, "{message}");\n')
    passed = ", ".join(f"({kind})v->{field}" for kind, field in zip(spelled, fields, strict=True))
    return (
        '#include <stddef.h>\n#include <string.h>\n#include "integers.h"\n\n'
        "#define TILEHAL_WRONG_ARGUMENT (-3)\nstatic __thread char tilehal_error[256];\n\n"
        f"{values.structure()}"
        "static const char *tilehal_launch(void *entry, const tilehal_values *v) {\n"
        f"    typedef const char *(*function)({', '.join(spelled) or 'void'});\n"
        f"{''.join(lines)}"
        f"{'' if fields else '    (void)v;' + chr(10)}"
        f"    return ((function)entry)({passed});\n"
        "}\n\n"
    )
