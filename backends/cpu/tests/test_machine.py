"""The CPU descriptor, from folders that imitate /proc and /sys."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.cpu.chips import chip_of, host_chip
from backends.cpu.detect import c_library_facts, tilehal_detect
from backends.cpu.machine import read_machine
from core.hardware import HardwareDescriptor, verify
from core.hardware.figures import numeric_figures

X86_FLAGS = "fpu sse2 pni ssse3 sse4_1 sse4_2 popcnt abm f16c fma avx avx2 bmi1 bmi2 avx512f avx512_vnni hypervisor"


@pytest.fixture
def machine_folder(tmp_path: Path) -> Path:
    """Two packages of two cores with two threads each, a last-level cache per package."""
    write(tmp_path, "proc/cpuinfo", f"processor\t: 0\nmodel name\t: ACME 9000\nflags\t\t: {X86_FLAGS}\n")
    write(tmp_path, "proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\n")
    write(tmp_path, "proc/self/cgroup", "0::/jobs/mine\n")
    for cpu in range(8):
        package, core = divmod(cpu % 4, 2)
        base = f"sys/devices/system/cpu/cpu{cpu}"
        write(tmp_path, f"{base}/topology/physical_package_id", str(package))
        write(tmp_path, f"{base}/topology/core_id", str(core))
        siblings = f"{cpu % 4},{cpu % 4 + 4}"
        write(tmp_path, f"{base}/topology/thread_siblings_list", siblings)
        package_cpus = f"{2 * package}-{2 * package + 1},{2 * package + 4}-{2 * package + 5}"
        for index, (level, kind, size, shared) in enumerate(
            [(1, "Data", "48K", siblings), (1, "Instruction", "32K", siblings), (2, "Unified", "2M", siblings),
             (3, "Unified", "32M", package_cpus)]
        ):  # fmt: skip
            folder = f"{base}/cache/index{index}"
            write(tmp_path, f"{folder}/level", str(level))
            write(tmp_path, f"{folder}/type", kind)
            write(tmp_path, f"{folder}/size", size)
            write(tmp_path, f"{folder}/coherency_line_size", "64")
            write(tmp_path, f"{folder}/shared_cpu_list", shared)
    return tmp_path


def write(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def describe(root: Path, cpus=range(8), architecture="x86_64"):
    return chip_of(read_machine(root, cpus=cpus, architecture=architecture))


def test_cores_caches_memory_and_features(machine_folder):
    chip = describe(machine_folder)
    assert chip.title == "ACME 9000"
    assert chip.main_unit.count == 4
    assert chip.main_unit.max_threads == 2
    assert chip.main_unit.lanes_per_wave == 16
    assert chip.memory("l1").capacity_bytes == 48 * 1024
    assert (chip.memory("l2").owner, chip.memory("l3").owner) == ("unit", "device")
    assert chip.memory("l3").capacity_bytes == 32 * 2**20
    assert chip.memory("global").capacity_bytes == 16 * 2**20
    assert "2 L3 caches" in chip.notes[0]
    assert {"avx512f", "avx512vnni", "sse4.2", "lzcnt", "fma"} <= set(chip.features)
    assert "hypervisor" not in chip.features


def test_the_affinity_and_the_control_group_decide_what_is_usable(machine_folder):
    assert describe(machine_folder, cpus=[0, 4]).main_unit.count == 1
    write(machine_folder, "sys/fs/cgroup/jobs/cpu.max", "150000 100000\n")
    chip = describe(machine_folder)
    assert chip.main_unit.count == 1
    assert "1.5 CPUs" in chip.notes[-1]


def test_an_unlimited_control_group_changes_nothing(machine_folder):
    write(machine_folder, "sys/fs/cgroup/jobs/mine/cpu.max", "max 100000\n")
    assert describe(machine_folder).main_unit.count == 4


def test_version_1_control_groups(machine_folder):
    write(machine_folder, "proc/self/cgroup", "3:cpu,cpuacct:/docker/x\n")
    write(machine_folder, "sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "200000")
    write(machine_folder, "sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us", "100000")
    assert describe(machine_folder).main_unit.count == 2


def test_the_clock_is_known_only_where_cpufreq_says_it(machine_folder):
    assert describe(machine_folder).main_unit.clock_hz is None
    write(machine_folder, "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3700000")
    assert describe(machine_folder).main_unit.clock_hz == 3.7e9


def test_arm_machines(machine_folder):
    write(machine_folder, "proc/cpuinfo", "processor : 0\nFeatures : fp asimd asimddp asimdhp bf16 i8mm\n")
    chip = describe(machine_folder, architecture="aarch64")
    assert chip.features == ("neon", "dotprod", "fullfp16", "bf16", "i8mm")
    assert chip.main_unit.lanes_per_wave == 4


def test_what_no_file_says_is_unknown(tmp_path):
    chip = describe(tmp_path, cpus=[0], architecture="riscv64")
    assert chip.main_unit.count is None
    assert chip.main_unit.lanes_per_wave is None
    assert chip.memory("global").capacity_bytes is None
    assert chip.features == ()
    assert chip.rates == ()


def test_every_figure_of_this_machine_names_the_file_it_was_read_from():
    chip = host_chip()
    assert isinstance(chip, HardwareDescriptor)
    for path, _ in numeric_figures(chip):
        assert chip.source_of(path).trust == "measured"
    assert chip.main_unit.count >= 1


def test_tiles_live_in_main_memory():
    chip = host_chip()
    assert [chip.memory_for_scope(scope).name for scope in ("global", "shared.dyn", "local.fragment")] == ["global"] * 3


def test_the_tvm_target_names_the_features():
    target = host_chip().tvm_target()
    assert target["kind"] == "llvm"
    assert all(feature.startswith("+") for feature in target.get("mattr", []))


def test_the_cpu_is_always_there_at_the_lowest_priority():
    [device] = tilehal_detect()
    assert (device.chip, device.torch_device, device.priority) == ("host", "cpu", 0)
    assert device.facts["memories.global.capacity_bytes"] == host_chip().memory("global").capacity_bytes


def test_only_figures_that_mean_what_the_descriptor_means_are_asked():
    """The C library's L3 may be the sum of all caches, where the descriptor has one."""
    assert "memories.l3.capacity_bytes" not in c_library_facts()
    assert all(check.verdict == "same" for check in verify(host_chip(), c_library_facts()) if check.found is not None)
