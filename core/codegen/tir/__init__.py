"""Rewrites of a kernel's TIR for the families that hand it to TileLang's own pass pipeline.

`docs/program.md` says what each form means. Where the stock lowering of a form silently does something else, the kernel
is rewritten here so that the meaning holds, or refused with the user's line. Each rewrite is listed in
`kernel.provenance.rewrites`; `differences` lists them without touching the kernel.
"""

from core.codegen.tir.differences import Difference, Remedy, Rule, differences
from core.codegen.tir.effective import effective
from core.codegen.tir.legalise import Legalised, legalise

__all__ = ["Difference", "Legalised", "Remedy", "Rule", "differences", "effective", "legalise"]
