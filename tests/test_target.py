"""What a target string means: a vendor, a chip, the machine's best device; and what an error about one says."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import core.capabilities
from core.compiler.artifacts import Toolchain
from core.errors import (
    BackendHookError,
    BackendLoadError,
    DescriptorError,
    DeviceUnavailable,
    TargetNotFound,
    TileHALError,
)
from core.hardware import Chip, MemorySpace
from core.plugins import DetectedDevice, Finding, Manager, hookimpl, local_entry
from core.target import TargetTypeError, chip, resolve, targets
from tests.plugins.fakes import FakeVendor


def device(chip: str, evidence: str, priority: int = 100) -> DetectedDevice:
    return DetectedDevice(chip, 0, evidence, priority=priority)


def plugins(*vendors: FakeVendor) -> Manager:
    return Manager([local_entry(v.vendor, v, distribution=f"tilehal-{v.vendor}", version="1.0") for v in vendors])


CPU = FakeVendor("cpu", "host", devices=[device("host", "/proc/cpuinfo: 2 cores", priority=0)])


class Broken(FakeVendor):
    @hookimpl
    def tilehal_detect(self):
        raise OSError("libacme.so: version mismatch")


class WithoutDriver(FakeVendor):
    @hookimpl
    def tilehal_diagnose(self, chip):
        return [Finding("acme-no-driver", "info", "/dev/acme does not exist", blocks=("run",))]


class TestNames:
    @pytest.mark.parametrize(
        "spelling",
        ["acme:two", "ACME:Two", " acme : two ", "tilehal:acme:two", "TileHAL:Acme:TWO", "acme:two "],
    )
    def test_spellings_of_one_chip(self, spelling):
        found = resolve(spelling, manager=plugins(FakeVendor("acme", "one", "two")))
        assert (found.vendor, found.chip.name, str(found)) == ("acme", "two", "acme:two")
        assert found.requested == spelling

    def test_an_alias_means_the_chip(self):
        assert resolve("acme:SM_9", manager=plugins(FakeVendor("acme", "one", aliases=["sm_9"]))).chip.name == "one"

    def test_a_chip_that_is_named_is_not_looked_for_on_this_machine(self):
        vendor = Broken("acme", "one")
        found = resolve("acme:one", manager=plugins(vendor))
        assert found.device is None

    def test_a_resolved_target_and_a_chip_are_targets(self):
        manager = plugins(FakeVendor("acme", "one", "two"))
        found = resolve("acme:two", manager=manager)
        assert resolve(found, manager=manager) is found
        assert resolve(found.chip, manager=manager).chip is found.chip

    def test_chip_gives_the_descriptor(self):
        assert chip("acme:two", manager=plugins(FakeVendor("acme", "one", "two"))).title == "TWO"


class TestVendorAlone:
    def test_the_first_detected_device_decides(self):
        vendor = FakeVendor(
            "acme", "one", "two", devices=[device("two", "acme-smi: Two"), device("one", "acme-smi: One")]
        )
        found = resolve("acme", manager=plugins(vendor))
        assert found.chip.name == "two"
        assert found.device is vendor.devices[0]
        assert found.reason == "detected: acme-smi: Two"

    def test_without_a_device_it_is_the_default_chip_and_says_so(self):
        found = resolve("acme", manager=plugins(FakeVendor("acme", "one", "two")))
        assert (found.chip.name, found.device) == ("one", None)
        assert "no device of acme was detected" in found.reason

    def test_a_detector_that_fails_is_an_error_not_the_default_chip(self):
        with pytest.raises(BackendHookError, match="libacme"):
            resolve("acme", manager=plugins(Broken("acme", "one")))

    def test_a_detected_chip_nobody_describes_is_an_error(self):
        vendor = FakeVendor("acme", "one", devices=[device("three", "acme-smi: Three")])
        with pytest.raises(TargetNotFound, match=r"'three'.*which it does not describe") as caught:
            resolve("acme", manager=plugins(vendor))
        assert "acme:one" in caught.value.hint


class TestAuto:
    def test_the_accelerator_wins_over_the_cpu(self):
        found = resolve(
            "auto", manager=plugins(CPU, FakeVendor("acme", "one", devices=[device("one", "acme-smi: One")]))
        )
        assert str(found) == "acme:one"
        assert "acme: one (acme-smi: One)" in found.reason

    def test_without_accelerators_it_is_the_cpu_and_says_what_was_asked(self):
        found = resolve("auto", manager=plugins(CPU, FakeVendor("acme", "one")))
        assert str(found) == "cpu:host"
        assert "acme: no device" in found.reason

    def test_two_vendors_that_claim_the_machine_are_an_error_naming_both(self):
        one = FakeVendor("acme", "one", devices=[device("one", "torch.cuda: Acme One")])
        two = FakeVendor("zenith", "z1", devices=[device("z1", "torch.cuda: Acme One")])
        with pytest.raises(TargetNotFound) as caught:
            resolve("auto", manager=plugins(CPU, one, two))
        assert "tilehal-acme 1.0" in caught.value.message
        assert "tilehal-zenith 1.0" in caught.value.message
        assert caught.value.hint == "say which: target='acme' or target='zenith'"

    def test_a_higher_priority_settles_it(self):
        one = FakeVendor("acme", "one", devices=[device("one", "acme driver", priority=110)])
        two = FakeVendor("zenith", "z1", devices=[device("z1", "generic")])
        assert str(resolve("auto", manager=plugins(one, two))) == "acme:one"

    def test_falling_to_the_cpu_past_a_broken_backend_is_never_silent(self):
        with pytest.warns(RuntimeWarning, match="acme.*libacme"):
            found = resolve("auto", manager=plugins(CPU, Broken("acme", "one")))
        assert "libacme" in found.reason

    def test_nothing_at_all_says_what_each_detector_answered_and_why(self):
        with pytest.raises(TargetNotFound, match=r"acme: no device \(/dev/acme does not exist\); zenith: no device"):
            resolve("auto", manager=plugins(WithoutDriver("acme"), FakeVendor("zenith")))


class TestWhatIf:
    class Vendor(FakeVendor):
        @hookimpl
        def tilehal_chips(self):
            shared = MemorySpace(name="shared", owner="block", scopes=("shared",), capacity_bytes=65536)
            return [Chip(vendor="acme", name="one", title="One", memories=(shared,))]

    def test_a_change_makes_another_chip(self):
        found = resolve("acme:one+shared=128KiB", manager=plugins(self.Vendor("acme")))
        assert found.chip.memory("shared").capacity_bytes == 131072
        assert str(found) == "acme:one+shared=128KiB"

    def test_no_device_is_a_what_if_chip(self):
        vendor = self.Vendor("acme", devices=[device("one", "acme-smi")])
        found = resolve("acme+shared=128KiB", manager=plugins(vendor))
        assert found.device is None
        with pytest.raises(DeviceUnavailable, match="what-if"):
            found.require_device(manager=plugins(vendor))

    def test_an_unknown_figure_is_an_error(self):
        with pytest.raises(DescriptorError):
            resolve("acme:one+sharred=1KiB", manager=plugins(self.Vendor("acme")))


class TestDevices:
    def test_the_device_of_a_named_chip_is_found_when_asked_for(self):
        vendor = FakeVendor("acme", "one", "two", devices=[device("two", "acme-smi: Two")])
        manager = plugins(vendor)
        assert resolve("acme:two", manager=manager).require_device(manager=manager).evidence == "acme-smi: Two"

    def test_without_any_device_the_backend_says_why(self):
        manager = plugins(WithoutDriver("acme"))
        with pytest.raises(DeviceUnavailable, match=r"found no device \(/dev/acme does not exist\)"):
            resolve("acme", manager=manager).require_device(manager=manager)

    def test_another_chip_than_the_one_here_is_unavailable_and_says_what_was_found(self):
        vendor = FakeVendor("acme", "one", "two", devices=[device("two", "acme-smi: Two")])
        manager = plugins(vendor)
        with pytest.raises(
            DeviceUnavailable, match=r"acme:one is not on this machine.*two \(acme-smi: Two\)"
        ) as caught:
            resolve("acme:one", manager=manager).require_device(manager=manager)
        assert "simulate=True" in caught.value.hint

    def test_the_torch_device_of_a_chip_that_torch_cannot_address_is_an_error_and_never_the_cpu(self):
        addressed = plugins(FakeVendor("acme", "one", devices=[DetectedDevice("one", 3, "smi", torch_device="npu:3")]))
        assert resolve("acme:one", manager=addressed).require_torch_device(manager=addressed) == "npu:3"
        unaddressed = plugins(FakeVendor("acme", "one", devices=[device("one", "acme-smi: One")]))
        with pytest.raises(DeviceUnavailable, match=r"cannot address acme:one \(acme-smi: One\)"):
            resolve("acme:one", manager=unaddressed).require_torch_device(manager=unaddressed)


class TestErrors:
    def error(self, target, *vendors) -> TileHALError:
        with pytest.raises(TileHALError) as caught:
            resolve(target, manager=plugins(*(vendors or (CPU, FakeVendor("acme", "h200", "h100")))))
        return caught.value

    def test_an_unknown_vendor_lists_what_is_installed_and_what_is_near(self):
        error = self.error("acne")
        assert isinstance(error, TargetNotFound)
        assert "installed: acme, cpu" in error.message
        assert error.hint == "did you mean acme?"

    @pytest.mark.parametrize(
        ("said", "meant"),
        [
            ("nvidia", "cuda"),
            ("GPU", "cuda or metax"),
            ("nvidia:h200", "cuda:h200"),
            ("huawei", "ascend"),
            ("npu", "ascend"),
            ("maca", "metax"),
            ("nvidia:b999", "cuda"),
        ],
    )
    def test_a_trade_name_means_its_vendor(self, said, meant):
        vendors = (CPU, FakeVendor("cuda", "h200"), FakeVendor("metax", "c500"), FakeVendor("ascend", "910b3"))
        assert self.error(said, *vendors).hint == f"did you mean {meant}?"

    def test_a_trade_name_of_a_vendor_that_is_not_installed_names_the_vendor(self):
        assert "install the package of the vendor 'ascend'" in self.error("npu", CPU).hint

    def test_a_vendor_is_found_under_its_makers_name(self):
        class Titled(FakeVendor):
            @hookimpl
            def tilehal_chips(self):
                return [Chip(vendor="acme", name="one", title="Roadrunner One")]

        assert self.error("roadrunner", CPU, Titled("acme")).hint == "did you mean acme?"

    def test_a_chip_without_its_vendor_is_completed(self):
        assert self.error("h200").hint.startswith("did you mean acme:h200")

    def test_an_unknown_chip_lists_the_chips_and_the_nearest(self):
        error = self.error("acme:h20")
        assert "it knows acme:h200, acme:h100" in error.message
        assert "acme:h200" in error.hint

    def test_a_failed_backend_is_listed_with_its_cause(self):
        bad = SimpleNamespace(tilehal_detect=hookimpl(lambda: []))
        manager = Manager(
            [local_entry("acme", FakeVendor("acme")), local_entry("metal_x", bad, distribution="bad-dist")]
        )
        with pytest.raises(TargetNotFound, match=r"failed: metal_x: bad-dist 0.*does not implement tilehal_chips"):
            resolve("nosuch", manager=manager)
        with pytest.raises(BackendLoadError, match="does not implement tilehal_chips"):
            resolve("metal_x", manager=manager)

    @pytest.mark.parametrize("target", ["", "  ", ":h200", "tilehal:", "+shared=1KiB", "auto:h200"])
    def test_no_vendor_is_an_error_that_shows_the_syntax(self, target):
        error = self.error(target)
        assert isinstance(error, TargetNotFound)
        assert '"<vendor>:<chip>"' in error.hint

    def test_a_torch_device_string_is_explained(self):
        assert "torch device" in self.error("acme:0").hint

    def test_tilelangs_own_syntax_is_translated(self):
        assert 'write the chip after a colon: "acme:sm_90"' in self.error("acme -arch=sm_90").hint

    def test_tilelangs_own_targets_are_explained(self):
        assert "target of TileLang itself" in self.error("hip").hint

    @pytest.mark.parametrize("target", [None, 7, b"cpu", ["cpu"], {"kind": "cuda"}])
    def test_another_type_is_a_type_error_too(self, target):
        error = self.error(target)
        assert isinstance(error, TargetTypeError)
        assert isinstance(error, TypeError)

    def test_a_torch_device_is_explained(self):
        import torch

        assert "where tensors are" in self.error(torch.device("cpu")).hint

    def test_everything_left_out_is_said(self):
        manager = Manager([local_entry("acme", FakeVendor("acme"))], selection=[])
        with pytest.raises(TargetNotFound, match="TILEHAL_LOAD_PLUGINS leaves it out"):
            resolve("acme", manager=manager)


class TestCapabilities:
    class Full(FakeVendor):
        findings: tuple[Finding, ...] = ()

        @hookimpl
        def tilehal_lower(self, chip, program, options): ...

        @hookimpl
        def tilehal_toolchain(self, chip):
            return Toolchain("acc", "9.1")

        @hookimpl
        def tilehal_build(self, chip, lowered, request): ...

        @hookimpl
        def tilehal_launcher(self, chip, built): ...

        @hookimpl
        def tilehal_simulator(self, chip, lowered, request): ...

        @hookimpl
        def tilehal_diagnose(self, chip):
            return self.findings

    def stages(self, info):
        return [bool(info.compile), bool(info.build), bool(info.run), bool(info.simulate)]

    def test_a_backend_that_only_describes_can_do_nothing_and_says_which_hook_is_missing(self):
        (info,) = targets(manager=plugins(FakeVendor("acme")))
        assert self.stages(info) == [False] * 4
        assert info.compile.reason == "tilehal-acme 1.0 does not implement tilehal_lower"

    def test_a_backend_without_a_launcher_builds_and_does_not_run(self):
        vendor = self.Full("acme", devices=[device("one", "acme-smi")])
        vendor.tilehal_launcher = vendor.tilehal_simulator = None
        (info,) = targets(manager=plugins(vendor))
        assert self.stages(info) == [True, True, False, False]
        assert info.run.reason == "tilehal-acme 1.0 does not implement tilehal_launcher"

    def test_running_needs_the_device(self):
        here, elsewhere = targets(manager=plugins(self.Full("acme", "one", "two", devices=[device("one", "acme-smi")])))
        assert self.stages(here) == [True] * 4
        assert (here.build.reason, here.run.reason) == ("acc 9.1", "acme-smi")
        assert self.stages(elsewhere) == [True, True, False, True]
        assert elsewhere.run.reason == "no TWO was detected on this machine"
        assert (here.default, elsewhere.default) == (True, False)

    def test_a_finding_blocks_its_stage_and_what_needs_it(self):
        vendor = self.Full("acme", devices=[device("one", "acme-smi")])
        vendor.findings = (Finding("acme-cc-missing", "error", "no acc on PATH", blocks=("build",)),)
        (info,) = targets(manager=plugins(vendor))
        assert self.stages(info) == [True, False, False, True]
        assert info.build.reason == info.run.reason == "no acc on PATH"

    def test_without_tilelang_nothing_compiles(self, monkeypatch):
        monkeypatch.setattr(core.capabilities, "find_spec", lambda name: None)
        (info,) = targets(manager=plugins(self.Full("acme")))
        assert self.stages(info) == [False] * 4
        assert info.simulate.reason == "tilelang is not installed"

    def test_a_backend_that_cannot_be_used_has_its_line(self):
        bad = SimpleNamespace(tilehal_detect=hookimpl(lambda: []))
        manager = Manager(
            [local_entry("bad", bad, distribution="tilehal-bad"), local_entry("acme", FakeVendor("acme"))]
        )
        good, failed = sorted(targets(manager=manager), key=lambda info: info.target)
        assert (failed.target, failed.backend) == ("bad", "tilehal-bad 0")
        assert "does not implement tilehal_chips" in failed.compile.reason
        assert good.target == "acme:one"

    def test_a_hook_that_fails_promises_nothing(self):
        class Fails(self.Full):
            @hookimpl
            def tilehal_diagnose(self, chip):
                raise OSError("no /dev/acme")

        (info,) = targets(manager=plugins(Fails("acme")))
        assert self.stages(info) == [False] * 4
        assert "no /dev/acme" in info.compile.reason

    def test_as_json(self):
        (info,) = targets(manager=plugins(FakeVendor("acme")))
        data = info.to_json()
        assert data["target"] == "acme:one"
        assert data["run"] == {"possible": False, "reason": "tilehal-acme 1.0 does not implement tilehal_lower"}
