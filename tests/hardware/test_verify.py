"""Comparing a descriptor with what a device answers."""

from __future__ import annotations

from core.hardware import load_chips, verify

H200 = load_chips("backends.cuda")[0]


def test_each_figure_is_the_same_different_undescribed_or_not_asked():
    checks = verify(
        H200,
        {
            "units.sm.count": 132,
            "memories.global.capacity_bytes": 150109880320,
            "units.sm.clock_hz": 1980 * 1000 * 1000,
            "limits.grid_dim": [2147483647, 65535, 65535],
            "memories.l2.bandwidth_bytes_per_s": 5e12,
            "memories.nowhere.capacity_bytes": 1,
            "codegen.arch": "sm_90a",
        },
    )
    verdicts = {check.path: check.verdict for check in checks}
    assert verdicts["units.sm.count"] == "same"
    assert verdicts["units.sm.clock_hz"] == "same"
    assert verdicts["limits.grid_dim"] == "same"
    assert verdicts["codegen.arch"] == "same"
    assert verdicts["memories.global.capacity_bytes"] == "differs"
    assert verdicts["memories.l2.bandwidth_bytes_per_s"] == "undescribed"
    assert verdicts["memories.nowhere.capacity_bytes"] == "undescribed"
    assert verdicts["memories.shared.banks"] == "not asked"


def test_counts_must_agree_exactly_and_rates_to_a_thousandth():
    def verdict(path, value):
        return verify(H200, {path: value})[0].verdict

    assert verdict("units.sm.count", 131) == "differs"
    assert verdict("rates.matrix.float16.ops_per_s", 989.4e12) == "same"
    assert verdict("rates.matrix.float16.ops_per_s", 985e12) == "differs"
