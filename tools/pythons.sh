#!/bin/sh
# Install a wheel on each Python from 3.11 to 3.13 that this machine has (on PATH or of pyenv), in an environment of its own without torch, and run the everyday
# commands there: sh tools/pythons.sh WHEEL. A version that is not here is skipped with a line; a failure ends the script.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
wheel=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
for version in 3.11 3.12 3.13; do
  python=
  for each in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version".*/bin/python; do
    if [ -z "$python" ] && [ "$("$each" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true)" = "$version" ]; then
      python=$each
    fi
  done
  if [ -z "$python" ]; then
    echo "Python $version: not found, skipped."
    continue
  fi
  folder="$root/.venv-plain/$version"
  "$python" -m venv --clear "$folder"
  PIP_CONSTRAINT="$root/constraints.txt" "$folder/bin/python" -m pip install --quiet --no-compile pytest "$wheel"
  "$folder/bin/python" -c 'import importlib.util, sys; sys.exit("torch is installed" if importlib.util.find_spec("torch") else 0)'
  (cd "$folder" && bin/python -m pytest -q --noconftest -c /dev/null --rootdir "$root/tests/without_torch" "$root/tests/without_torch/test_everyday.py")
  echo "Python $version: the everyday commands work."
done
