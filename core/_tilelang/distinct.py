"""Buffers of shared memory by names of their own, so that one kernel is one source text.

TileLang's plan of shared memory sorts buffers that live alike by name, and leaves those of one name in the order of a
hash table of addresses: the workspaces of reductions, all called `workspace`, and a macro's buffers where it is used
twice. Which of them gets which place, and so the text, then differs from process to process.
"""

from __future__ import annotations

from typing import Any

_PLAN = "tl.MergeSharedMemoryAllocations"
#: Attribute of a function: the alignment that copies and products need, in bytes, by name of the buffer.
_ALIGNMENTS = "tl.smem_alignment_map"


def distinct_names() -> Any:
    """A pass instrument that tells buffers of one name apart, in the order of their allocation, before the plan.

    Assumes: the plan is the pass `tl.MergeSharedMemoryAllocations`; the module that an instrument is shown before a
    pass is the one that the pass is given.
    """
    from tvm.ir.instrument import pass_instrument

    @pass_instrument
    class Distinct:
        def run_before_pass(self, mod: Any, info: Any) -> None:
            if info.name == _PLAN:
                for variable, function in list(mod.functions.items()):
                    renamed = _renamed(function)
                    if renamed is not None:
                        mod.update_func(variable, renamed)

    return Distinct()


def _renamed(function: Any) -> Any | None:
    """The function with shared buffers of different names; None when they are that already."""
    from tvm import tirx

    if not hasattr(function, "body"):
        return None
    shared: list[Any] = []
    taken: set[str] = set()

    def note(node: Any) -> None:
        if type(node).__name__ == "AllocBuffer":
            taken.add(str(node.buffer.data.name))
            if str(node.buffer.scope()).startswith("shared"):
                shared.append(node.buffer.data)

    tirx.stmt_functor.post_order_visit(function.body, note)
    seen: set[str] = set()
    others: dict[Any, Any] = {}
    for variable in shared:
        # The printer's name of what has none.
        name = str(variable.name) or "v"
        if name in seen:
            number = next(n for n in range(1, len(taken) + 2) if f"{name}_{n}" not in taken)
            taken.add(f"{name}_{number}")
            others[variable] = tirx.Var(f"{name}_{number}", variable.type_annotation)
        seen.add(name)
    if not others:
        return None
    renamed = function.with_body(tirx.stmt_functor.substitute(function.body, others), function.span)
    alignments = dict(function.attrs.get(_ALIGNMENTS, {}))
    for before, after in others.items():
        if before.name in alignments:
            alignments[after.name] = alignments[before.name]
    return renamed.with_attr(_ALIGNMENTS, alignments) if alignments else renamed
