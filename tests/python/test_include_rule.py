"""tools/check_includes.py: passes on this tree, and finds each thing it is there to find."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GOOD = {
    "include/kwker/base/view.hpp": "#pragma once\n#include <vector>\n",
    "include/kwker/cpu/isa.hpp": '#pragma once\n#include "kwker/base/view.hpp"\n',
    "include/kwker/model/config.hpp": '#pragma once\n#include "kwker/base/view.hpp"\n#include "kwker/cpu/isa.hpp"\n',
    "include/kwker/simd/avx2.inl.hpp": "// Included once per instruction set.\n",
    "include/kwker/kernels/sum.inl.hpp": '#include "kwker/simd/avx2.inl.hpp"\n',
    "include/kwker/decoder.hpp": '#pragma once\n#include "kwker/model/config.hpp"\n',
    "src/json.hpp": "#pragma once\n#include <nlohmann/json.hpp>\n",
    "src/config.cpp": '#include "kwker/model/config.hpp"\n\n#include "json.hpp"\n#include "kwker/base/view.hpp"\n',
}


def run(root: Path) -> tuple[int, str]:
    command = [sys.executable, str(ROOT / "tools" / "check_includes.py"), str(root)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return result.returncode, result.stdout


def write_tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")


def test_this_tree() -> None:
    assert run(ROOT) == (0, "")


def test_good_tree(tmp_path: Path) -> None:
    write_tree(tmp_path, GOOD)
    assert run(tmp_path) == (0, "")


def test_no_tree(tmp_path: Path) -> None:
    assert run(tmp_path) == (2, "")


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("include/kwker/base/a.hpp", '#include "kwker/cpu/isa.hpp"', "2: base must not include kwker/cpu/isa.hpp"),
        ("include/kwker/base/a.hpp", "#include <kwker/cpu/isa.hpp>", "2: base must not include kwker/cpu/isa.hpp"),
        ("include/kwker/simd/a.hpp", '#include "kwker/cpu/isa.hpp"', "2: simd must not include kwker/cpu/isa.hpp"),
        (
            "include/kwker/sampling/a.hpp",
            '  #  include "kwker/model/config.hpp"  // why',
            "2: sampling must not include kwker/model/config.hpp",
        ),
        (
            "src/isa.cpp",
            '#include "kwker/cpu/isa.hpp"\n#include "kwker/model/config.hpp"',
            "3: cpu must not include kwker/model/config.hpp",
        ),
        ("include/kwker/new/a.hpp", "", "1: unknown layer new"),
        ("include/kwker/cpu/a.hpp", '#include "isa.hpp"', '2: "isa.hpp": expected "kwker/..."'),
        ("include/kwker/cpu/a.hpp", '#include "../base/view.hpp"', '2: "../base/view.hpp": expected "kwker/..."'),
        ("include/kwker/cpu/a.hpp", '#include "kwker/cpu/none.hpp"', "2: kwker/cpu/none.hpp does not exist"),
        ("src/a.cpp", '#include "none.hpp"', '2: "none.hpp": expected "kwker/..."'),
        ("src/a.cpp", '#include "../src/json.hpp"', '2: "../src/json.hpp": expected "kwker/..."'),
        *(
            ("src/a.cpp", f"#include <{header}>", f"2: {header}: torch and Python belong in the bindings")
            for header in ("torch/extension.h", "ATen/ATen.h", "c10/core/Device.h", "pybind11/pybind11.h", "Python.h")
        ),
        ("src/a.cpp", "\n" * 600, "602: longer than 600 lines"),
    ],
)
def test_bad_include(tmp_path: Path, name: str, text: str, problem: str) -> None:
    write_tree(tmp_path, GOOD | {name: f"#pragma once\n{text}\n"})
    assert run(tmp_path) == (1, f"{name}:{problem}\n")


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("include/kwker/base/a.hpp", "// Nothing.\n", "lacks #pragma once"),
        ("src/a.hpp", "// #pragma once\n", "lacks #pragma once"),
        ("include/kwker/kernels/a.inl.hpp", "#pragma once\n", "must not have #pragma once"),
    ],
)
def test_bad_pragma(tmp_path: Path, name: str, text: str, problem: str) -> None:
    write_tree(tmp_path, GOOD | {name: text})
    assert run(tmp_path) == (1, f"{name}:1: {problem}\n")
