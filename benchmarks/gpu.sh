#!/usr/bin/env bash
# Everything that needs a GPU, in one run of at most 8 minutes: `benchmarks/gpu.sh [OPTION...]`, options as for gpu.py.
#
# For a machine with Python, torch and a GPU but no package index: put the wheels that it lacks into .whl, which git
# ignores with `echo /.whl/ >> .git/info/exclude`; they are unpacked into a temporary folder. For Python 3.12:
#   pip download --no-deps --only-binary=:all: --python-version 3.12 --platform manylinux_2_28_x86_64 \
#     --platform manylinux2014_x86_64 -d .whl recbole==1.2.1 colorlog texttable 'pandas<3' 'pyyaml<7' thop
set -euo pipefail
cd "$(dirname "$0")/.."

if compgen -G ".whl/*.whl" >/dev/null; then
  site=$(mktemp -d)
  trap 'rm -rf "$site"' EXIT
  python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$site" .whl/*.whl
  export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH}
fi
status=0
timeout 480 python3 benchmarks/gpu.py "$@" || status=$?
exit "$status"
