"""A candidate compiled in one place runs in another that has neither the cache nor a compiler."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
import torch

import core
from core.compiler.build import Builder
from core.errors import BuildFailed, ToolchainNotFound
from core.tuning.workers.compiling import built, compile_candidate, with_artifact
from core.tuning.workers.jobs import CompileJob, Subject
from core.tuning.workers.shipping import pack
from tests.tuning.tuned_kernels import twice

TILES = {"block": 32, "threads": 128}


@pytest.fixture
def subject():
    return Subject(pack(twice), {"M": 100}, core.chip("cpu"))


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Goes to another machine: `elsewhere()` leaves a cache and the compiler behind."""
    monkeypatch.setenv("TILEHAL_CACHE_DIR", str(tmp_path / "here"))

    def go():
        monkeypatch.setenv("TILEHAL_CACHE_DIR", str(tmp_path / "there"))

        def missing(*_):
            raise ToolchainNotFound("no compiler on this machine")

        monkeypatch.setattr(Builder, "build", missing)

    return go


def test_the_binary_travels(subject, elsewhere):
    reply = pickle.loads(pickle.dumps(compile_candidate(CompileJob(subject, TILES, 60.0, ship=True))))
    assert reply.compile_s > 0
    elsewhere()
    with pytest.raises(ToolchainNotFound):
        built(subject, TILES)
    with pytest.raises(ToolchainNotFound):  # of another kind of processor
        with_artifact(subject, TILES, replace(reply.artifact, machine="pdp11"))
    kernel = with_artifact(subject, TILES, reply.artifact)
    a = torch.randn(100)
    assert torch.equal(kernel(a), 2 * a)
    assert kernel.provenance.binary_cached


def test_what_was_only_lowered_is_built_by_whoever_runs_it(subject, tmp_path, monkeypatch):
    monkeypatch.setenv("TILEHAL_CACHE_DIR", str(tmp_path))
    usual = Builder.build

    def missing(*_):
        raise ToolchainNotFound("no compiler on this machine")

    monkeypatch.setattr(Builder, "build", missing)
    reply = compile_candidate(CompileJob(subject, TILES, 60.0, ship=True))
    assert reply.artifact.built is None
    with pytest.raises(ToolchainNotFound):
        compile_candidate(CompileJob(subject, TILES, 60.0))
    monkeypatch.setattr(Builder, "build", usual)
    a = torch.randn(100)
    assert torch.equal(with_artifact(subject, TILES, reply.artifact)(a), 2 * a)


def test_a_binary_of_other_source_is_not_taken(subject):
    one = compile_candidate(CompileJob(subject, TILES, 60.0, ship=True)).artifact
    with pytest.raises(BuildFailed, match="built from other source"):
        built(subject, {**TILES, "block": 16}).adopt(one.built)
