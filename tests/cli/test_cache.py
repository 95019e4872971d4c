"""`tilehal cache`."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.cli import main
from core.cli.main import run
from core.compiler.cache import Cache
from tests.compiler.cache_samples import builder, finish, key, lowered_kernel, start

#: Another process fills the cache, so that nothing in it is in use here.
FILL = """
    cache = Cache(Path(args[0]))
    for name, target in (("softmax", "cuda:h200"), ("gemm", "metax:c500")):
        lowered = lowered_kernel(name, target)
        cache.lowered(key(name), lambda: lowered)
        cache.built(key(name + " built"), lowered, builder(lowered, bytes(1500)))
"""


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TILEHAL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TILEHAL_CACHE_LIMIT", raising=False)
    monkeypatch.delenv("TILEHAL_DISABLE_CACHE", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def filled(root) -> Path:
    finish(start(FILL, root))
    return root


@pytest.fixture
def tilehal(capsys):
    """Runs a command line; gives its exit status, what it printed as words, and its JSON if it is some."""

    def call(line: str, status: int = 0):
        assert run(shlex.split(f"cache {line}")) == status
        captured = capsys.readouterr()
        text = captured.out + captured.err
        return json.loads(captured.out) if "--json" in line else " ".join(text.split())

    return call


def test_list_has_a_line_for_each_entry(filled, tilehal):
    printed = tilehal("list")
    assert f"{key('softmax')[:12]} softmax cuda:h200 cpp lowered" in printed
    assert f"{key('gemm built')[:12]} gemm metax:c500 cpp built" in printed
    assert f"4 entries, {_size(filled)} of 4.0 GiB in {filled}" in printed


def test_list_by_target_and_stage(filled, tilehal):
    assert [entry["kernel"] for entry in tilehal("list --target metax --stage built --json")] == ["gemm"]
    assert tilehal("list --target met --json") == []
    assert "there is no such stage" in tilehal("list --stage burnt", status=main.ERROR_STATUS)


def test_json_has_what_python_has(filled, tilehal):
    assert tilehal("list --json") == json.loads(json.dumps([entry.to_json() for entry in Cache(filled).entries()]))
    stats = tilehal("info --json")
    assert (stats["entries"], stats["limit_bytes"]) == ({"lowered": 2, "built": 2, "files": 0}, 4 * 2**30)


def test_list_of_nothing(root, tilehal):
    assert tilehal("list") == f"0 entries, 0 B of 4.0 GiB in {root}"
    assert not root.exists()


def test_info_of_one_entry_shows_its_files(filled, tilehal):
    printed = tilehal(f"info {key('gemm built')[:8]}")
    for part in ("kernel gemm", "target metax:c500", "made by g++ 12.2", "file kernel.so 1.5 KiB", key("gemm built")):
        assert part in printed
    assert tilehal(f"info {key('gemm built')[:8]} --json")["files"]["kernel.so"] == 1500


def test_info_of_the_whole_cache(filled, tilehal, monkeypatch):
    assert f"folder {filled} used yes limit 4.0 GiB lowered entries 2" in tilehal("info")
    monkeypatch.setenv("TILEHAL_DISABLE_CACHE", "1")
    assert "used no: TILEHAL_DISABLE_CACHE is set" in tilehal("info")


def test_a_key_must_name_one_entry(filled, tilehal):
    assert "no entry" in tilehal("info 000000", status=main.ERROR_STATUS)
    assert "4 entries" in tilehal("info ''", status=main.ERROR_STATUS)


def test_clear_by_target_key_and_age(filled, tilehal):
    assert tilehal("clear --older-than 1h --json") == {"entries": 0, "size_bytes": 0, "in_use": 0}
    assert tilehal("clear --target metax --json")["entries"] == 2
    assert tilehal(f"clear {key('softmax')[:10]}").startswith("removed 1 entry, ")
    (left,) = Cache(filled).entries()
    old = time.time() - 8 * 86400
    os.utime(left.folder / "manifest.json", (old, old))
    assert tilehal("clear --older-than 7d --json")["entries"] == 1
    assert "is not an age" in tilehal("clear --older-than soon", status=main.ERROR_STATUS)


def test_clear_keeps_what_is_in_use_and_says_so(root, tilehal):
    lowered = lowered_kernel()
    built, _ = Cache(root).built(key("b"), lowered, builder(lowered))
    assert tilehal("clear") == "removed 0 entries, 0 B; 1 entry in use kept (--force removes them too)"
    assert built.path("library").exists()
    tilehal("clear --force")
    assert not built.path("library").exists()


def test_verify_tells_sound_from_damaged(filled, tilehal):
    assert tilehal("verify") == "4 entries checked, all sound"
    (entry,) = [entry for entry in Cache(filled).entries() if entry.key == key("gemm built")]
    (entry.folder / "kernel.so").write_bytes(bytes(1499))
    printed = tilehal("verify", status=1)
    assert f"{entry.key[:12]} built gemm: kernel.so has 1499 bytes instead of 1500" in printed
    assert "4 entries checked, 1 damaged" in printed
    assert [found["key"] for found in tilehal("verify --json", status=1)["damaged"]] == [entry.key]


def test_path_is_for_scripts(filled, tilehal):
    assert tilehal("path") == str(filled)
    assert (Path(tilehal(f"path {key('gemm')[:9]}")) / "source.cpp").read_text() == "void softmax() {}"
    assert tilehal("path --json") == {"path": str(filled)}


def test_a_limit_nobody_can_read_is_an_error_not_a_guess(root, tilehal, monkeypatch):
    monkeypatch.setenv("TILEHAL_CACHE_LIMIT", "plenty")
    assert "TILEHAL_CACHE_LIMIT='plenty' is not a size" in tilehal("list", status=main.ERROR_STATUS)


def test_needs_neither_torch_nor_tilelang(root):
    code = (
        "import sys; from core.cli.main import run; run(['cache', 'list']);"
        "print([name for name in ('torch', 'tilelang', 'tvm') if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1] == "[]"


def _size(root: Path) -> str:
    total = sum(path.stat().st_size for path in (root / "v1").rglob("*") if path.is_file() and "lock" not in path.name)
    return f"{total / 1024:.1f} KiB"
