# SPDX-License-Identifier: Apache-2.0
# LeNet-5 on Fashion-MNIST reaches 87 % test accuracy within 3 epochs on 2 ranks.
set -euo pipefail
[ -d /usr/share/datasets/fashion-mnist ] || { echo "dataset-fashion-mnist is not installed"; exit 77; }
"$SDC_BINARY_DIR/sdclab-train" --model lenet5 --data fashion-mnist --ranks 2 --batch 64 --lr 0.05 \
    --momentum 0.9 --recipe "$1" --epochs 3 -o out --quiet --json | tee result.json
"$SDC_PYTHON" - <<'PY'
import json
r = json.load(open("result.json"))
assert r["reason"] == "completed", r
assert r["eval_samples"] == 10000, r
assert r["eval_correct"] >= 8700, r
PY
