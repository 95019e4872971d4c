"""A kernel reaches another process whatever it was defined in, with the source that TileLang parses."""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys

import pytest

import core
from core.errors import KernelError
from core.tuning.workers.shipping import pack
from tests.packaging.layout import ROOT
from tests.tuning.tuned_kernels import right, twice

RECEIVE = """
import pickle, sys
sys.path.insert(0, {root!r})
import torch
from core.tuning.workers.shipping import unpack
for name in sys.argv[1:]:
    with open(name, "rb") as file:
        factory = unpack(pickle.load(file))
    kernel = factory.compile(64, block=16, target="cpu")
    a = torch.randn(4, 64)
    print((kernel(a) - 2 * a).abs().max().item(), factory.name)
"""

#: A script with everything that makes a kernel hard to send: annotations kept as text, a name that only they use, a
#: macro, a helper of the same file.
SCRIPT = """
from __future__ import annotations
import pickle, sys
sys.path.insert(0, {root!r})
import core
import tilelang.language as T
from core.tuning.workers.shipping import pack

BATCH = 4

@T.macro
def doubled(x):
    return x * 2

def blocks(extent, block):
    return T.ceildiv(extent, block)

@core.kernel(out=["B"])
def scripted(M: int, *, block: int = core.tile("M")):
    @T.prim_func
    def main(A: T.Tensor((BATCH, M), "float32"), B: T.Tensor((BATCH, M), "float32")):
        with T.Kernel(blocks(M, block), BATCH, threads=64) as (bx, by):
            for i in T.Parallel(block):
                B[by, bx * block + i] = doubled(A[by, bx * block + i])
    return main

if __name__ == "__main__":
    with open(sys.argv[1], "wb") as file:
        pickle.dump(pack(scripted, same_machine=False), file)
"""


def test_what_can_be_imported_goes_by_name():
    parcel = pack(twice)
    assert (parcel.how, parcel.where, parcel.attribute) == ("name", "tests.tuning.tuned_kernels", "twice")
    assert pack(right).how == "name"


def test_a_fresh_process_gets_a_script_s_kernel_by_value_and_a_loaded_file_s_by_file(tmp_path):
    script, loaded = tmp_path / "script.py", tmp_path / "loaded.py"
    source = SCRIPT.format(root=str(ROOT))
    script.write_text(source)
    loaded.write_text(source.replace("from __future__ import annotations", ""))
    subprocess.run([sys.executable, str(script), str(tmp_path / "0")], check=True)
    spec = importlib.util.spec_from_file_location("loaded", loaded)
    module = sys.modules["loaded"] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        (tmp_path / "1").write_bytes(pickle.dumps(pack(module.scripted)))
        (tmp_path / "2").write_bytes(pickle.dumps(pack(module.scripted, same_machine=False)))
    finally:
        del sys.modules["loaded"]
    by_value, by_file, far = (pickle.loads((tmp_path / name).read_bytes()) for name in "012")
    assert (by_value.how, list(by_value.sources)) == ("value", [str(script)])
    assert (by_file.how, by_file.where) == ("file", str(loaded))
    assert far.how == "value"
    script.unlink()  # the other process may be on another machine
    command = [sys.executable, "-c", RECEIVE.format(root=str(ROOT)), *(str(tmp_path / name) for name in "012")]
    finished = subprocess.run(command, capture_output=True, text=True, cwd="/")
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.split() == ["0.0", "scripted"] * 3


def test_what_cannot_be_sent_is_said(tmp_path):
    with open(tmp_path / "file", "w") as file:

        @core.kernel
        def holding(M: int, *, block: int = core.tile("M")):
            return file

        with pytest.raises(KernelError, match="'holding' cannot be sent to another process"):
            pack(holding)
