"""What stands in the way of CUDA: a torch without it, seen without importing torch."""

from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from backends.cuda import diagnose


@pytest.mark.parametrize(
    ("version", "fault"),
    [
        ("cuda: Optional[str] = None\n", "built without CUDA"),
        ("cuda: Optional[str] = '13.0'\n", None),
        ("hip = None\n", None),
    ],
)
def test_a_torch_without_cuda_is_seen(monkeypatch, tmp_path: Path, version: str, fault: str | None) -> None:
    (tmp_path / "version.py").write_text(version)
    spec = ModuleSpec("torch", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(diagnose, "find_spec", lambda name: spec)
    found = diagnose._torch_fault()
    assert (found is None) if fault is None else (found is not None and fault in found)


def test_no_torch_is_seen(monkeypatch) -> None:
    monkeypatch.setattr(diagnose, "find_spec", lambda name: None)
    assert diagnose._torch_fault() == "torch is not installed"
