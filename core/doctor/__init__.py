"""What is wrong with this installation, found out without trusting any of it.

Reads package metadata, and runs whatever could raise, hang or end the process in child processes with a time limit. It
imports neither torch nor tilelang itself, and works when neither can be imported.
"""

from __future__ import annotations

from core.doctor.codes import CODES
from core.doctor.examine import examine
from core.doctor.report import BackendReport, ImportReport, PluginReport, Report

__all__ = ["CODES", "BackendReport", "ImportReport", "PluginReport", "Report", "examine"]
