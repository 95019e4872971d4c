"""Many processes and threads in one cache, and processes that die in the middle."""

from __future__ import annotations

import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from core.compiler.cache import Cache, session
from tests.compiler.cache_samples import builder, finish, key, lowered_kernel, start

#: Lowers and builds one kernel, notes each time it really does, and prints what it got.
COMPILE = """
    root, log, go = map(Path, args)
    cache = Cache(root)

    def note(what):
        with log.open("a") as stream:
            stream.write(what + "\\n")
        time.sleep(0.3)

    def lower():
        note("lower")
        return lowered_kernel()

    def build(folder):
        note("build")
        return builder(lowered)(folder)

    print("ready", flush=True)
    while not go.exists():
        time.sleep(0.005)
    lowered, _ = cache.lowered(key("a"), lower)
    built, hit = cache.built(key("b"), lowered, build)
    print(hit, built.path("library").read_bytes(), lowered == lowered_kernel())
"""

#: Dies half-way through a build, its own process group and all.
DIE_IN_BUILD = """
    cache = Cache(Path(args[0]))

    def build(folder):
        (folder / "kernel.so").write_bytes(b"half of a librar")
        os.kill(os.getpid(), 9)

    cache.built(key("b"), lowered_kernel(), build)
"""

#: Dies after everything is written and sealed, at the last moment before it would appear.
DIE_IN_PUBLISH = """
    from core.compiler.cache import entry

    entry.publish = lambda work, final: os.kill(os.getpid(), 9)
    lowered = lowered_kernel()
    Cache(Path(args[0])).built(key("b"), lowered, builder(lowered))
"""


def test_eight_processes_that_want_one_kernel_build_it_once(tmp_path):
    log, go = tmp_path / "log", tmp_path / "go"
    processes = [start(COMPILE, tmp_path / "cache", log, go) for _ in range(8)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    go.touch()
    printed = [finish(process).split(" ", 1) for process in processes]
    assert sorted(log.read_text().split()) == ["build", "lower"]
    assert sorted(hit for hit, _ in printed) == ["False"] + ["True"] * 7
    assert {rest for _, rest in printed} == {"b'ELF' True\n"}
    assert Cache(tmp_path / "cache").verify() == []


def test_eight_threads_that_want_one_kernel_build_it_once(tmp_path):
    cache = Cache(tmp_path)
    lowered = lowered_kernel()
    barrier = threading.Barrier(8)
    calls = []

    def build(folder: Path):
        calls.append(folder)
        time.sleep(0.05)
        return builder(lowered)(folder)

    def want(_: int) -> tuple[bytes, bool]:
        barrier.wait()
        built, hit = cache.built(key("b"), lowered, build)
        return built.path("library").read_bytes(), hit

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(want, range(8)))
    assert len(calls) == 1
    assert sorted(results) == [(b"ELF", False)] + [(b"ELF", True)] * 7


def test_different_kernels_do_not_wait_for_each_other(tmp_path):
    cache = Cache(tmp_path)
    inside = threading.Barrier(2, timeout=20)

    def lower():
        inside.wait()  # passes only when both are being made at the same time
        return lowered_kernel()

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda name: cache.lowered(key(name), lower), "ab"))
    assert [hit for _, hit in results] == [False, False]


def test_a_build_may_look_other_kernels_up(tmp_path):
    cache = Cache(tmp_path)
    lowered = lowered_kernel()

    def build(folder: Path):
        cache.folder(key("helper"), lambda d: (d / "runtime.o").touch())
        return builder(lowered)(folder)

    assert cache.built(key("b"), lowered, build)[1] is False


@pytest.mark.parametrize("script", [DIE_IN_BUILD, DIE_IN_PUBLISH])
def test_a_process_killed_while_it_writes_leaves_no_entry(tmp_path, script):
    root = tmp_path / "cache"
    finish(start(script, root), status=-9)
    cache = Cache(root)
    assert cache.entries() == []
    lowered = lowered_kernel()
    started = time.monotonic()
    built, hit = cache.built(key("b"), lowered, builder(lowered))
    assert (hit, built.path("library").read_bytes()) == (False, b"ELF")
    assert time.monotonic() - started < 60  # its lock died with it


def test_what_a_killed_process_left_is_swept_when_it_is_old(tmp_path):
    root = tmp_path / "cache"
    finish(start(DIE_IN_BUILD, root), status=-9)
    (left,) = (root / "v1" / "sessions").iterdir()
    assert (left / "1-built-3e23e8160039" / "kernel.so").read_bytes() == b"half of a librar"
    cache = Cache(root)
    cache.maintain()
    assert left.exists()  # it may be wanted for a look
    old = time.time() - session.KEEP_S - 1
    os.utime(left, (old, old))
    cache.maintain()
    assert not left.exists()


def test_a_living_process_is_never_swept_however_old(tmp_path):
    root = tmp_path / "cache"
    script = """
        lowered = lowered_kernel()
        cache = Cache(Path(args[0]))
        def wait(folder):
            print(folder, flush=True)
            while not Path(args[1]).exists():
                time.sleep(0.01)
            return builder(lowered)(folder)
        print(cache.built(key("b"), lowered, wait)[0].path("library").read_bytes())
    """
    process = start(script, root, tmp_path / "go")
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    old = time.time() - session.KEEP_S - 1
    os.utime(folder.parent, (old, old))
    Cache(root).maintain()
    assert folder.is_dir()
    (tmp_path / "go").touch()
    assert finish(process) == "b'ELF'\n"


def test_a_cache_deleted_while_a_process_uses_it_is_begun_again(tmp_path):
    cache = Cache(tmp_path / "cache")
    lowered = lowered_kernel()
    for _ in range(2):
        built, hit = cache.built(key("b"), lowered, builder(lowered))
        assert (hit, built.path("library").read_bytes()) == (False, b"ELF")
        shutil.rmtree(tmp_path / "cache")


def test_a_process_that_ends_in_order_leaves_only_entries(tmp_path):
    root, log, go = tmp_path / "cache", tmp_path / "log", tmp_path / "go"
    go.touch()
    finish(start(COMPILE, root, log, go))
    assert list((root / "v1" / "sessions").iterdir()) == []
    assert {entry.stage for entry in Cache(root).entries()} == {"lowered", "built"}


def test_a_forked_child_does_not_end_its_parents_session(tmp_path):
    script = """
        lowered = lowered_kernel()
        cache = Cache(Path(args[0]))
        built, _ = cache.built(key("b"), lowered, builder(lowered))
        def build(folder):
            child = os.fork()
            if child == 0:
                # The child compiles as well, then ends with all of Python's exit functions.
                print(cache.built(key("b"), lowered, never)[1], cache.lowered(key("c"), lowered_kernel)[1], flush=True)
                sys.exit(0)
            os.waitpid(child, 0)
            return builder(lowered)(folder)
        print(cache.built(key("d"), lowered, build)[0].path("library").read_bytes())
    """
    assert finish(start(script, tmp_path)) == "True False\nb'ELF'\n"


def test_entries_used_by_another_living_process_survive_eviction_and_clear(tmp_path):
    script = """
        lowered = lowered_kernel()
        built, _ = Cache(Path(args[0])).built(key("b"), lowered, builder(lowered))
        print("ready", flush=True)
        while not Path(args[1]).exists():
            time.sleep(0.01)
        print(built.path("library").read_bytes())
    """
    root = tmp_path / "cache"
    process = start(script, root, tmp_path / "go")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    cache = Cache(root, limit_bytes=0)
    cache.maintain()
    assert cache.clear().in_use == 1
    (tmp_path / "go").touch()
    assert finish(process) == "b'ELF'\n"
    cache.maintain()
    assert cache.entries() == []


def test_a_kernel_built_by_one_process_serves_another(tmp_path):
    lowered = lowered_kernel()
    Cache(tmp_path).built(key("b"), lowered, builder(lowered))
    script = """
        built, hit = Cache(Path(args[0])).built(key("b"), lowered_kernel(), never)
        print(hit, built.lowered == lowered_kernel(), built.path("library").read_bytes())
    """
    assert finish(start(script, tmp_path)) == "True True b'ELF'\n"
