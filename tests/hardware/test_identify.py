"""From the name a driver reports to the chip."""

from __future__ import annotations

import pytest

from core.hardware import chip_by_device_name, load_chips

CUDA = load_chips("backends.cuda")


@pytest.mark.parametrize(
    ("reported", "name"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("nvidia l40s", "l40s"),
    ],
)
def test_products_are_recognised(reported, name):
    assert chip_by_device_name(CUDA, reported).name == name


@pytest.mark.parametrize(
    "reported", ["NVIDIA H200 NVL", "NVIDIA GeForce RTX 4090 D", "NVIDIA A100 80GB PCIe", "MetaX C500", ""]
)
def test_a_longer_or_shorter_name_is_another_product(reported):
    assert chip_by_device_name(CUDA, reported) is None
