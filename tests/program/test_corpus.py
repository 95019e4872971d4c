"""The corpus of portable kernels through the interpreter: what the view says is what torch computes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from core.conformance.interpreter import interpret
from core.program import Program
from core.runtime.arguments import Binder
from tests.kernels import Case, all_kernels, construct
from tests.kernels.silent import silent_cases
from tests.properties import first_of_each

#: The interpreter takes about ten microseconds an operation: larger kernels are left to the backends' tests.
LIMIT = 4e5


def program(case: Case) -> Program:
    out_idx = case.kernel.out_idx if case.style == "lazy" else case.out_idx
    return Program(case.prim_func(), out_idx)


def cost(found: Program) -> float:
    """Operations and bytes of a call; symbolic and data-dependent kernels of the corpus are small."""
    footprint = found.footprint()
    return (footprint.flops or 0.0) + (footprint.bytes_read or 0.0)


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's memory as an array."""
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    if tensor.dtype.itemsize == 1 and tensor.dtype.is_floating_point:
        return tensor.view(torch.uint8).numpy().view(getattr(ml_dtypes, str(tensor.dtype).removeprefix("torch.")))
    return tensor.numpy()


def interpreted(found: Program):
    """A callable like a compiled kernel."""
    binder = Binder(found.signature, "cpu", found.parameter_locations)

    def call(*args):
        arguments, symbols, outputs = binder(args, {})
        arrays = [as_numpy(a) if isinstance(a, torch.Tensor) else a for a in arguments]
        interpret(found.view, arrays, symbols)
        return outputs

    return call


CASES = [
    *first_of_each(all_kernels(), construct),
    *(silent.case for silent in silent_cases() if not silent.refusal),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_view_of_a_kernel_computes_what_torch_does(case: Case) -> None:
    found = program(case)
    assert found.view.opaque == ()
    if cost(found) > LIMIT:
        return
    inputs = case.example()
    case.check(case.run(interpreted(found), inputs), inputs)


@pytest.mark.parametrize("silent", [s for s in silent_cases() if s.refusal], ids=lambda silent: silent.name)
def test_what_has_no_honest_value_is_refused(silent) -> None:
    from core import errors

    with pytest.raises(getattr(errors, silent.refusal)) as caught:
        _ = program(silent.case).view
    assert caught.value.location is not None
    assert caught.value.hint
