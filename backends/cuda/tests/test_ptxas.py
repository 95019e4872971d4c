"""Reading ptxas: the figures of each entry function, whatever the architecture prints."""

from backends.cuda import ptxas

HOPPER = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'main_kernel' for 'sm_90a'
ptxas info    : Function properties for main_kernel
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 1024 bytes smem
ptxas info    : Compile time = 59.839 ms
"""

SPILLING_PAIR = """\
ptxas info    : Compiling entry function 'first' for 'sm_80'
ptxas info    : Function properties for first
    968 bytes stack frame, 24 bytes spill stores, 32 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 968 bytes cumulative stack size, 360 bytes cmem[0]
ptxas info    : Compiling entry function 'second' for 'sm_80'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, 4096 bytes smem, 360 bytes cmem[0]
"""


def test_a_hopper_kernel() -> None:
    usage = ptxas.parse(HOPPER)["main_kernel"]
    assert usage == ptxas.EntryUsage("main_kernel", "sm_90a", 168, 1024, 0, 0, 0)


def test_each_entry_has_its_own_figures_and_no_shared_memory_is_zero() -> None:
    usage = ptxas.parse(SPILLING_PAIR)
    assert usage["first"] == ptxas.EntryUsage("first", "sm_80", 255, 0, 968, 24, 32)
    assert usage["second"] == ptxas.EntryUsage("second", "sm_80", 10, 4096, 0, 0, 0)


def test_text_that_is_not_a_report_gives_nothing() -> None:
    assert ptxas.parse("nvcc warning : something") == {}
