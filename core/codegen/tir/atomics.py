"""Values of atomics in the type of what they update.

TileLang converts the value of an atomic on tiles; one of an element is given on in its own type, and the generated code
takes its bits where two elements go at once: a bfloat16 was added as if it were a float16.
"""

from __future__ import annotations

from typing import Any

#: What the atomics of one element begin and end with; their arguments are a pointer and a value.
_ATOMIC = "tl.atomic_"
_ELEMENT = "_elem_op"
#: These take two pointers.
_SEVERAL = ("x2", "x4")
#: This takes no value.
_LOAD = "tl.atomic_load_elem_op"


def convert_values(prim_func: Any) -> tuple[Any, int]:
    """The function with the value of each atomic of one element cast to the element's type; how many it was.

    Assumes: the first argument is a `tl.access_ptr` of a load from the buffer, the second the value.
    """
    from tvm import tirx

    changed = 0

    def rewrite(call: Any) -> Any:
        nonlocal changed
        name = str(getattr(call.op, "name", ""))
        if not name.startswith(_ATOMIC) or not name.endswith(_ELEMENT) or name == _LOAD:
            return None
        if any(name.removeprefix(_ATOMIC).startswith(f"add{several}") for several in _SEVERAL):
            return None
        pointer, value, *rest = call.args
        element = pointer.args[0].dtype if getattr(pointer, "args", None) else value.dtype
        if str(element) == str(value.dtype):
            return None
        changed += 1
        arguments = [pointer, tirx.Cast(element, value), *rest]
        return tirx.Call(call.dtype, call.op, arguments, annotations=call.annotations, span=call.span)

    body = tirx.stmt_functor.ir_transform(prim_func.body, None, rewrite, ["tirx.Call"])
    return (prim_func.with_body(body, prim_func.span), changed) if changed else (prim_func, 0)
