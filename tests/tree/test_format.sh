#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every C file is as clang-format 14 with .clang-format leaves it.
cd "${SDC_SOURCE_DIR:?}" || exit 1
command -v clang-format >/dev/null || { echo "skipped: clang-format is not installed"; exit 77; }
find bench include src tests -name '*.[ch]' | xargs clang-format --dry-run -Werror 2>&1 | grep -E 'error|warning' | head -20
exit "$((${PIPESTATUS[1]} != 0))"
