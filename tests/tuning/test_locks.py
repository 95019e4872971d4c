"""Locks between processes and threads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from core.errors import TuningError
from core.tuning.locks import acquire, alone, device_lock_path, hold_device
from tests.packaging.layout import ROOT

HOLD = """
import sys, time
from core.tuning.locks import acquire
from pathlib import Path
assert acquire(Path(sys.argv[1])) is not None
print("held", flush=True)
time.sleep(60)
"""


def test_one_holder_at_a_time_and_the_file_goes_with_the_last(tmp_path):
    path = tmp_path / "folder" / "one.lock"
    with alone(path) as mine, alone(path) as other:
        assert (mine, other) == (True, False)
    assert not path.exists()
    with alone(path) as mine:
        assert mine


def test_a_holder_that_is_killed_lets_go(tmp_path):
    path = tmp_path / "one.lock"
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as holder:
        assert holder.stdout.readline() == "held\n"
        assert acquire(path) is None
        holder.kill()
    held = acquire(path)
    assert held is not None
    os.close(held)


def test_who_only_loads_the_machine_shares_it_and_who_times_does_not(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEHAL_LOCK_DIR", str(tmp_path))

    def refused():
        raise TimeoutError

    with hold_device("cpu", shared=True), hold_device("cpu", shared=True), pytest.raises(TimeoutError):
        hold_device("cpu", while_waiting=refused).__enter__()
    with hold_device("cpu"):
        with pytest.raises(TimeoutError), hold_device("cpu", shared=True, while_waiting=refused):
            pass
        with hold_device("cuda:0", while_waiting=refused):
            pass


def test_a_device_is_the_same_whatever_number_a_process_sees_it_under(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEHAL_LOCK_DIR", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    third = device_lock_path("cuda:3")
    assert third != device_lock_path("cuda:0") == device_lock_path("cuda")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,0")
    assert device_lock_path("cuda:0") == device_lock_path("cuda") == third


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TuningError, match=r"the lock file .* cannot be used"), alone(tmp_path / "file" / "x.lock"):
        pass


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(TuningError):
        acquire(tmp_path / "link")
    assert not (tmp_path / "target").exists()
