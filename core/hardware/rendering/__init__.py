"""Descriptors as tables for people, built with rich. Each function prints on a console it is given."""

from core.hardware.rendering.chip import print_chip as print_chip
from core.hardware.rendering.comparison import print_comparison as print_comparison
from core.hardware.rendering.sources import print_sources as print_sources
from core.hardware.rendering.verification import print_verification as print_verification
