"""Every report that can be reproduced without hardware has its specification, here or where its part is tested."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

#: Row of the list of users' reports: the test that answers it, where it is not in this folder.
ELSEWHERE = {
    8: "tests/doctor/test_files.py::test_a_vendor_that_ships_files_of_the_compiler",
    11: "tests/test_target.py::test_two_vendors_that_claim_the_machine_are_an_error_naming_both",
    12: "tests/test_target.py::test_nothing_at_all_says_what_each_detector_answered_and_why",
    13: "tests/plugins/test_isolation.py::test_its_target_raises_with_the_cause_and_others_work",
    16: "tests/plugins/test_versions.py::test_the_code_is_not_imported",
    18: "tests/plugins/test_isolation.py::test_the_real_exception_is_chained",
    25: "tests/packaging/test_apache_tvm.py::test_tvm_first_and_compiling_says_what_happened_and_what_to_do",
    26: "tests/doctor/test_imports.py::test_an_import_that_aborts_the_process",
    28: "tests/packaging/test_light_imports.py::test_a_light_module_loads_nothing_heavy",
    50: "tests/test_corpus_cpu.py::test_silent_difference_has_its_honest_value_on_the_cpu",
    62: "tests/compiler/test_keys.py::test_two_chips_that_make_the_same_tvm_target_do_not_collide",
}
#: Rows that reproduce without hardware.
REPRODUCIBLE = (2, 8, 11, 12, 13, 16, 18, 25, 26, 28, 29, 32, 39, 40, 42, 45, 49, 50, 54, 57, 60, 62, 69)


def rows_here() -> set[int]:
    texts = (path.read_text() for path in HERE.glob("test_*.py"))
    return {int(row) for text in texts for row in re.findall(r"^def test_row_(\d+)_", text, re.MULTILINE)}


def test_every_reproducible_row_is_answered():
    assert set(REPRODUCIBLE) == rows_here() | set(ELSEWHERE)


@pytest.mark.parametrize("row", ELSEWHERE)
def test_the_test_that_answers_it_exists(row):
    file, _, name = ELSEWHERE[row].partition("::")
    assert re.search(rf"^ *def {name}\(", (ROOT / file).read_text(), re.MULTILINE)
