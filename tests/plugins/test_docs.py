"""The documents say what the code does: every hook with its exact signature, every code, every variable."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import core.plugins
from core.doctor import CODES
from core.plugins import HOOK_NAMES, hookspecs

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = (ROOT / "docs" / "plugins.md").read_text()
DOCTOR = (ROOT / "docs" / "doctor.md").read_text()
TARGETS = (ROOT / "docs" / "targets.md").read_text()


def signature(hook: str) -> str:
    return f"{hook}{inspect.signature(getattr(hookspecs, hook))}".replace("'", "")


@pytest.mark.parametrize("hook", HOOK_NAMES)
def test_every_hook_is_documented_with_its_exact_signature(hook):
    assert f"\n    {signature(hook)}\n" in PLUGINS
    assert f"`{hook}`\n" in PLUGINS


def test_no_hook_is_documented_that_does_not_exist():
    assert set(re.findall(r"\btilehal_[a-z_]+\b(?=\()", PLUGINS)) == set(HOOK_NAMES)


def test_hooks_come_in_the_order_of_a_kernels_life():
    documented = re.findall(r"^### \w+: `(tilehal_\w+)`", PLUGINS, re.MULTILINE)
    assert tuple(documented) == HOOK_NAMES


@pytest.mark.parametrize("hook", HOOK_NAMES)
def test_every_specification_says_when_it_is_called(hook):
    text = inspect.getdoc(getattr(hookspecs, hook))
    assert "Called" in text


def test_a_hook_that_nothing_calls_is_said_to_be_for_later():
    declaring = {ROOT / "core" / "plugins" / name for name in ("hookspecs.py", "results.py")}
    sources = "".join(file.read_text() for file in (ROOT / "core").rglob("*.py") if file not in declaring)
    sections = re.split(r"^### \w+: `(tilehal_\w+)`", PLUGINS, flags=re.MULTILINE)
    later = [hook for hook, text in zip(sections[1::2], sections[2::2], strict=True) if "Nothing calls it yet" in text]
    assert later == [hook for hook in HOOK_NAMES if f'"{hook}"' not in sources]


def test_every_environment_variable_of_plugins_is_documented():
    used = set()
    for file in (ROOT / "core" / "plugins").glob("*.py"):
        used.update(re.findall(r'"(TILEHAL_[A-Z_]+)"', file.read_text()))
    # The cache's own are in docs/cache.md.
    assert used - {"TILEHAL_CACHE_DIR", "TILEHAL_DISABLE_CACHE"}
    assert all(f"| `{variable}` |" in PLUGINS for variable in used - {"TILEHAL_CACHE_DIR", "TILEHAL_DISABLE_CACHE"})


def test_every_code_of_doctor_is_in_the_table_as_it_is_in_the_code():
    rows = re.findall(r"^\| `([a-z-]+)` \| (\w+) \| (.+) \|$", DOCTOR, re.MULTILINE)
    assert rows == [(code, severity, meaning) for code, (severity, meaning) in CODES.items()]


def test_every_code_that_doctor_gives_is_a_known_one():
    given = set()
    for file in (ROOT / "core" / "doctor").glob("*.py"):
        given.update(re.findall(r'finding\(\s*"([a-z-]+)"', file.read_text()))
    assert given
    assert given <= set(CODES)


@pytest.mark.parametrize("text", [PLUGINS, TARGETS], ids=["plugins.md", "targets.md"])
def test_python_in_the_documents_is_python(text):
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    for block in blocks:
        compile(block, "docs", "exec")


def test_the_test_in_the_guide_works():
    (block,) = [block for block in re.findall(r"```python\n(.*?)```", PLUGINS, re.DOTALL) if "use_manager" in block]
    exec(compile(block, "docs/plugins.md", "exec"), {})


def test_the_public_names_are_really_there():
    missing = [name for name in core.plugins.__all__ if not hasattr(core.plugins, name)]
    assert missing == []


def test_a_package_that_registers_itself_does_not_pay_for_what_loads_it():
    code = "import sys, core.plugins; print([m for m in sys.modules if m.startswith(('core.plugins.', 'pluggy'))])"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (finished.stdout.strip(), finished.stderr) == ("[]", "")
