/* SPDX-License-Identifier: Apache-2.0 */
#include "sdc/choice.h"

#include "base/alloc.h"

void sdc_text_free(char *text) {
    sdc__free(text);
}
