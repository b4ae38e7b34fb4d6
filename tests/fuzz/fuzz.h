/* SPDX-License-Identifier: Apache-2.0
 *
 * The entry point that libFuzzer and the regression driver call; one target a program.
 */
#ifndef SDC_TESTS_FUZZ_H
#define SDC_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
