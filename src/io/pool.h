/* SPDX-License-Identifier: Apache-2.0
 *
 * A file of a pool as file.c sees it.
 */
#ifndef SDC_IO_POOL_H
#define SDC_IO_POOL_H

#include "io/io.h"

/* Opens it again if it was closed, and keeps it open until let. Thread-safe. */
enum sdc_status sdc__pooled_hold(struct sdc_pooled *p, const char *path, int *fd,
                                 struct sdc_error *err) SDC_MUST_CHECK;
void sdc__pooled_let(struct sdc_pooled *p);
/* It has this lock from now on, each time it is opened again. */
void sdc__pooled_locked(struct sdc_pooled *p, bool exclusive);
void sdc__pooled_close(struct sdc_pooled *p);

#endif
