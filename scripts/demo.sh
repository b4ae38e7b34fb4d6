#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The main job: a paired campaign by checkpoint alteration, DDP against Horovod, LeNet-5 on
# Fashion-MNIST, then its report. Interrupting and repeating it continues it.
set -euo pipefail
cd "$(dirname "$0")/.."
sdclab=build/release/sdclab
dir=paper-small.sdcrun

status=0
"$sdclab" campaign run examples/paper-small.yaml -o "$dir" || status=$?
[ "$status" -le 1 ] || exit "$status"
# the claims were just printed; say where the page is
page=$("$sdclab" report "$dir" | sed -n 's/^report *//p')
echo "the report, to open in a browser: file://$PWD/$page"
exit "$status"
