#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that are missing for `demo` or `test`; without the right to, prints the line
# that does.
set -euo pipefail

python=${PYTHON:-python3}
packages=(g++ nlohmann-json3-dev)
if [[ ${1:?usage: system_packages.sh demo|test} == test ]]; then
  packages+=(ccache clang clang-tidy libbenchmark-dev libeigen3-dev libgtest-dev)
fi
# A Python from elsewhere brings these itself.
"$python" -c 'import ensurepip, venv' 2>/dev/null || packages+=(python3 python3-venv)
"$python" -c 'import os, sysconfig
raise SystemExit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null || packages+=(python3-dev)

if ! command -v dpkg-query >/dev/null; then
  echo "This is no Debian or Ubuntu: please see to it that these are there: ${packages[*]}" >&2
  exit 0
fi
missing=()
for package in "${packages[@]}"; do
  [[ $(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null) == ii* ]] || missing+=("$package")
done

if ((${#missing[@]} > 0)); then
  as_root=()
  if ((EUID != 0)); then
    if ! sudo -n true 2>/dev/null; then
      echo "Packages are missing. Please run this, then make again:" >&2
      echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
      exit 1
    fi
    as_root=(sudo -n)
  fi
  echo "installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

if (($(g++ -dumpversion | cut -d. -f1) < 12)); then
  echo "g++ 12 or newer is needed, found $(g++ -dumpversion)" >&2
  exit 1
fi
"$python" -c 'import sys
raise SystemExit(sys.version_info < (3, 11) and f"Python 3.11 or newer is needed, found {sys.version.split()[0]}")'
