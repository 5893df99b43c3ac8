#!/usr/bin/env python3
"""Check the include rule and a few rules of form over include/kwker and src.

usage: check_includes.py [ROOT]      (ROOT: the repository, by default the one this file is in)

Prints one line per problem; exit status 1 if there is any, 2 if ROOT holds no such tree.
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

# What each layer may include besides itself: everything to its right in
#     serve -> generate -> speculate -> model -> quant -> kernels -> cpu -> base
# with simd on base alone, sampling on kernels, and io, which makes models from files, beside speculate.
_KERNELS = {"simd", "cpu", "base"}
_MODEL = {"quant", "kernels"} | _KERNELS
_GENERATE = {"speculate", "sampling", "model"} | _MODEL
ALLOWED = {
    "base": set(),
    "cpu": {"base"},
    "simd": {"base"},
    "kernels": _KERNELS,
    "sampling": {"kernels"} | _KERNELS,
    "quant": {"kernels"} | _KERNELS,
    "model": _MODEL,
    "io": {"model"} | _MODEL,
    "speculate": {"sampling", "model"} | _MODEL,
    "generate": _GENERATE,
    "serve": {"generate"} | _GENERATE,
}
# Bindings end outside these trees.
FORBIDDEN = re.compile(r"(torch|ATen|c10|pybind11|nanobind)/|Python\.h$")

INCLUDE = re.compile(r'\s*#\s*include\s*(["<])([^">]+)[">]')
MAX_LINES = 600


class Include(NamedTuple):
    line: int
    quoted: bool
    path: str


def layer_of(path: str) -> str | None:
    """The layer of "kwker/<layer>/..."; None for headers right in kwker/, which may include everything."""
    parts = path.split("/")
    return parts[1] if len(parts) > 2 else None


def own_layer(file: Path, root: Path, includes: list[Include]) -> str | None:
    """A header's layer is its folder; a source's is that of its own header, which is what it includes first.

    A source without one (it shares a header with others, or has a private one) has no layer.
    """
    if file.is_relative_to(root / "include"):
        return layer_of(file.relative_to(root / "include").as_posix())
    first = includes[0].path if includes else ""
    return layer_of(first) if first.startswith("kwker/") else None


def check_include(include: Include, file: Path, root: Path, layer: str | None) -> str | None:
    """The problem with one include, if any."""
    if FORBIDDEN.match(include.path):
        return f"{include.path}: torch and Python belong in the bindings"
    if include.path.startswith("kwker/"):
        if not (root / "include" / include.path).is_file():
            return f"{include.path} does not exist"
        other = layer_of(include.path)
        allowed = ALLOWED.get(layer or "", set())
        if layer is None or other == layer or other in allowed:
            return None
        return f"{layer} must not include {include.path}"
    if not include.quoted:
        return None
    if "/" not in include.path and file.is_relative_to(root / "src") and (root / "src" / include.path).is_file():
        return None  # a private header of the sources
    return f'"{include.path}": expected "kwker/..."'


def check_file(file: Path, root: Path) -> list[str]:
    """The problems of one file, each as "path:line: what"."""
    name = file.relative_to(root).as_posix()
    lines = file.read_text(encoding="utf-8").splitlines()
    matches = ((number, INCLUDE.match(line)) for number, line in enumerate(lines, 1))
    includes = [Include(number, m[1] == '"', m[2]) for number, m in matches if m]

    problems = []
    if len(lines) > MAX_LINES:
        problems.append(f"{name}:{len(lines)}: longer than {MAX_LINES} lines")
    if file.suffix == ".hpp":
        # Kernel headers are included once per instruction set, so a second inclusion must not be empty.
        wants_once = not file.name.endswith(".inl.hpp")
        if wants_once != any(line.strip() == "#pragma once" for line in lines):
            problems.append(f"{name}:1: {'lacks' if wants_once else 'must not have'} #pragma once")
    layer = own_layer(file, root, includes)
    if layer is not None and layer not in ALLOWED:
        problems.append(f"{name}:1: unknown layer {layer}")
        return problems
    found = ((include.line, check_include(include, file, root, layer)) for include in includes)
    return problems + [f"{name}:{line}: {problem}" for line, problem in found if problem]


def main(arguments: list[str]) -> int:
    root = Path(arguments[0] if arguments else Path(__file__).parent.parent).resolve()
    files = [f for tree in ("include/kwker", "src") for f in sorted((root / tree).rglob("*.[hc]*")) if f.is_file()]
    if not files:
        print(f"{root} holds no include/kwker and src", file=sys.stderr)
        return 2
    problems = [problem for file in files for problem in check_file(file, root)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
