#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what building, testing and running sdclab needs: Debian packages by name, and a virtual
# environment (.venv) with the few Python packages that Debian 12 lacks. Does nothing, and needs no
# network, when all is there. Usage: scripts/deps.sh build|test|all
set -euo pipefail
cd "$(dirname "$0")/.."

what=${1:-all}
case "$what" in build | test | all) ;; *) echo "usage: scripts/deps.sh build|test|all" >&2; exit 2 ;; esac

# name: why
build_packages=(
    gcc libc6-dev make cmake ninja-build pkg-config      # compiler and build
    libdnnl-dev                                          # oneDNN, kernels of the trainer
    openmpi-bin libopenmpi-dev                           # ranks as processes, on one machine or several
    libhdf5-dev zlib1g-dev                               # HDF5 checkpoints, gzip data sets
    libjansson-dev libyaml-dev                           # JSON, campaign specs
    libsqlite3-dev                                       # the campaign store
    libxxhash-dev librandom123-dev                       # digests, counter-based random numbers
    libsnappy-dev                                        # compressed blocks of TensorFlow's index
    liblzf-dev                                           # lzf filter of HDF5 files
    libgsl-dev                                           # distributions and quantiles
    gnuplot-nox                                          # figures of the report
    dataset-fashion-mnist                                # the data of the main job
)
test_packages=(
    libcmocka-dev                                        # unit tests
    python3 python3-venv python3-pip                     # test scripts
    python3-numpy python3-h5py python3-torch             # independent readers, reference numerics
    python3-jsonschema python3-yaml                      # schema validation
    python3-xxhash                                       # a second computation of state digests
    slurm-wlm munge                                      # the trainer under srun
    hdf5-tools                                           # h5repack, for test files
    chromium                                             # the report in a real browser
    python3-websocket                                    # talks to the browser
    binutils                                             # nm, for the symbol check
    clang-format                                         # the format check, make format
    sqlite3                                              # reads the store from outside
)
pip_packages=(
    safetensors==0.4.5                                   # the reference reader
    ml-dtypes==0.5.3                                     # 8-bit and smaller types; the last for numpy 1.24
    gguf==0.19.0                                         # writes, reads and dequantises GGUF
)

packages=("${build_packages[@]}")
[ "$what" = build ] || packages+=("${test_packages[@]}")

missing=()
for p in "${packages[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
done
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ]; then
        sudo=()
    elif command -v sudo >/dev/null; then
        sudo=(sudo)
    else
        echo "sdclab needs these Debian packages, and neither root nor sudo is at hand:" >&2
        echo "  ${missing[*]}" >&2
        echo "Have them installed (apt-get install), then run this again." >&2
        exit 4
    fi
    echo "installing ${#missing[@]} Debian packages: ${missing[*]}" >&2
    "${sudo[@]}" apt-get update -qq || echo "apt-get update failed; trying with the lists at hand" >&2
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null || {
        echo "apt-get could not install: ${missing[*]}" >&2
        exit 4
    }
fi

if [ "$what" != build ]; then
    stamp=.venv/sdclab-packages
    wanted="${pip_packages[*]}"
    if [ ! -x .venv/bin/python ] || [ "$(cat $stamp 2>/dev/null)" != "$wanted" ]; then
        # Debian's interpreter: another Python on the PATH would not see Debian's torch and h5py
        /usr/bin/python3 -m venv --clear --system-site-packages .venv
        .venv/bin/pip install --quiet --disable-pip-version-check "${pip_packages[@]}" || {
            echo "pip could not install: $wanted" >&2
            exit 4
        }
        echo "$wanted" >$stamp
    fi
fi
