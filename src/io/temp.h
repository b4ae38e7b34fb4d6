/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of temporaries, for the files of this layer that make some.
 */
#ifndef SDC_IO_TEMP_H
#define SDC_IO_TEMP_H

#include "io/io.h"

#define SDC_TEMP_TRIES 1000

/* A fresh name in this folder; NULL: no memory. Free with sdc__free. */
char *sdc__temp_name(const char *folder) SDC_MUST_CHECK;

#endif
