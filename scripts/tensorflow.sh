#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs TensorFlow (1.6 GB) into .venv-tensorflow, for the slow test that alters real checkpoints and
# lets TensorFlow itself judge them. Does nothing when it is there. Usage: scripts/tensorflow.sh
set -euo pipefail
cd "$(dirname "$0")/.."

wanted=tensorflow-cpu==2.15.1 # the last for numpy 1 that reads and writes with both optimizers of Keras
venv=.venv-tensorflow
if [ ! -x $venv/bin/python ] || [ "$(cat $venv/sdclab-packages 2>/dev/null)" != "$wanted" ]; then
    /usr/bin/python3 -m venv --clear $venv
    $venv/bin/pip install --quiet --disable-pip-version-check "$wanted"
    echo "$wanted" >$venv/sdclab-packages
fi
$venv/bin/python -c 'import tensorflow; print("TensorFlow", tensorflow.__version__)' 2>/dev/null
