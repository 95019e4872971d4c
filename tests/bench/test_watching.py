"""What nvidia-smi says, read."""

from __future__ import annotations

from core.bench.watching import Watch, parse, summary


def test_a_line_is_read():
    reading = parse(" 1980, 612.34, 54, 0x0000000000000004\n", 7.0)
    assert reading is not None
    assert (reading.clock_mhz, reading.power_w, reading.temperature_c, reading.mask) == (1980, 612.34, 54, 4)


def test_anything_else_is_not():
    assert parse("No devices were found", 0.0) is None
    assert parse("1980, [N/A], 54, 0x0", 0.0) is None
    assert parse("", 0.0) is None


def test_reasons_are_shares_of_the_readings_under_load():
    lines = [
        "210, 70, 30, 0x1",
        "1980, 500, 50, 0x0",
        "1755, 700, 61, 0x4",
        "1700, 690, 60, 0x24",
        "1980, 600, 55, 0x0",
    ]
    readings = [parse(line, float(place)) for place, line in enumerate(lines)]
    found = summary([one for one in readings if one is not None])
    assert found == {
        "clock_mhz": [1700, 1980],
        "power_w": 700,
        "temperature_c": 61,
        "slowed_by": {"power limit": 0.5, "software thermal limit": 0.25},
    }
    assert summary([]) is None


def test_without_a_device_nothing_is_watched():
    watch = Watch(None)
    assert watch.why_not == "the device is not NVIDIA's"
    assert watch.summary(0.0) is None
    watch.close()
