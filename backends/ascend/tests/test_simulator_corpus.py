"""Every kernel of the corpus through the simulator, for a 910B and a 950, against torch."""

from __future__ import annotations

import pytest
import torch

import core
from tests.kernels import Case, all_kernels, construct
from tests.kernels.silent import Silent, silent_cases
from tests.properties import first_of_each

CHIPS = ("ascend:910b3", "ascend:950pr_9589")
#: Kernels that are refused, and a part of the reason. docs/ascend.md says what each would take.
REFUSED = {
    "language.tickets[200]": "yields the old value",
    "language.doubles[300]": "no 64-bit floats",
    "gemm.gemm[nn-float16-float16-64x64x64]": "accumulate these in float32",
}
CASES = all_kernels()
SILENT = silent_cases()


@pytest.mark.parametrize(
    "case",
    first_of_each([case for case in CASES if case.name not in REFUSED], construct),
    ids=lambda case: case.name,
)
def test_agrees_with_torch_in_the_simulator(case: Case) -> None:
    # Both chips in one test: where their modules are alike the second run finds the first one's object.
    gen = torch.Generator().manual_seed(torch.initial_seed())
    for chip in CHIPS:
        inputs = case.inputs(gen)
        try:
            case.check(case.run(case.compile(chip, simulate=True), inputs), inputs)
        except AssertionError as error:
            error.add_note(chip)
            raise


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("case", [case for case in CASES if case.name in REFUSED], ids=lambda case: case.name)
def test_what_is_refused_says_why(case: Case, chip: str) -> None:
    with pytest.raises(core.UnsupportedOp, match=REFUSED[case.name]) as caught:
        case.compile(chip, simulate=True)
    assert caught.value.hint


@pytest.mark.parametrize("silent", SILENT, ids=lambda entry: entry.name)
def test_silent_differences_have_their_honest_value_or_are_refused_with_the_line(silent: Silent) -> None:
    case = silent.case
    inputs = case.inputs(torch.Generator().manual_seed(7))
    if silent.refusal:
        with pytest.raises(getattr(core, silent.refusal)) as caught:
            case.compile(CHIPS[0], simulate=True)
        assert caught.value.location is not None
        assert caught.value.hint
    else:
        case.check(case.run(case.compile(CHIPS[0], simulate=True), inputs), inputs)


def test_every_refusal_is_one_of_the_corpus() -> None:
    assert set(REFUSED) <= {case.name for case in CASES}
