"""docs/environment.md lists every environment variable that the code reads."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
READ = re.compile(r"""(?:getenv\(|from_environment\(|environ(?:\.get\(|\[))\s*["'](KWKER_\w+)["']""")


def test_every_variable_is_documented() -> None:
    documented = set(re.findall(r"`(KWKER_\w+)`", (ROOT / "docs" / "environment.md").read_text()))
    folders = ("include", "src", "python", "tests", "tools", "examples", "benchmarks")
    files = [
        file for folder in folders for file in (ROOT / folder).rglob("*") if file.suffix in (".cpp", ".hpp", ".py")
    ]
    read = {name for file in files for name in READ.findall(file.read_text())}
    assert "KWKER_MAX_ISA" in read
    assert read <= documented
