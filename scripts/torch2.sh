#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs PyTorch 2 from PyPI (with CUDA libraries, 6.6 GB) into .venv-torch2, for the slow test that
# alters distributed checkpoints and lets torch.distributed.checkpoint itself load them. Does nothing
# when it is there. Usage: scripts/torch2.sh
set -euo pipefail
cd "$(dirname "$0")/.."

wanted="torch==2.9.1 numpy==2.4.6"
venv=.venv-torch2
if [ ! -x $venv/bin/python ] || [ "$(cat $venv/sdclab-packages 2>/dev/null)" != "$wanted" ]; then
    /usr/bin/python3 -m venv --clear $venv
    # shellcheck disable=SC2086
    $venv/bin/pip install --quiet --no-cache-dir --disable-pip-version-check $wanted
    echo "$wanted" >$venv/sdclab-packages
fi
$venv/bin/python -c 'import torch; print("PyTorch", torch.__version__)' 2>/dev/null
