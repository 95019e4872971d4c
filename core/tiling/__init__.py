"""Tile parameters, tile-size rules and the choice between them."""

from core.tiling.candidates import candidates
from core.tiling.constraints import whole_waves
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
from core.tiling.ranking import Ranking, rank
from core.tiling.rules import KernelShape, Rejection, TileRule, Tiles
from core.tiling.verdict import Candidate, Verdict

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
