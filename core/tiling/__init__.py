"""Tile parameters, tile-size rules and the choice between them."""

from core.tiling.candidates import Candidate, candidates
from core.tiling.constraints import whole_waves
from core.tiling.engine import rank, rank_for
from core.tiling.factory import KernelFactory, kernel
from core.tiling.parameters import (
    TileParameter,
    Value,
    buffers,
    choice,
    split,
    stages,
    swizzle,
    threads,
    tile,
    unroll,
    warp_policy,
    workers,
)
from core.tiling.prediction import Prediction
from core.tiling.profile import LaunchProfile, MatrixProduct, Profile
from core.tiling.ranking import Ranking, Verdict
from core.tiling.rules import KernelShape, Rejection, TileRule, Tiles

__all__ = [
    "Candidate",
    "KernelFactory",
    "KernelShape",
    "LaunchProfile",
    "MatrixProduct",
    "Prediction",
    "Profile",
    "Ranking",
    "Rejection",
    "TileParameter",
    "TileRule",
    "Tiles",
    "Value",
    "Verdict",
    "buffers",
    "candidates",
    "choice",
    "kernel",
    "rank",
    "rank_for",
    "split",
    "stages",
    "swizzle",
    "threads",
    "tile",
    "unroll",
    "warp_policy",
    "whole_waves",
    "workers",
]
