/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan of an alteration: which elements of a file, at which offsets, and the file it was made
 * for. Looks at the file, never changes it.
 */
#ifndef SDC_ALTER_ALTER_PLAN_H
#define SDC_ALTER_ALTER_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "alter/bulk.h"
#include "io/io.h"
#include "sdc/alter.h"
#include "sdc/ckpt.h"

/* Which file, in which state: a plan holds for these bytes only. */
struct sdc_stamp {
    dev_t device;
    ino_t inode;
    off_t size;
    mode_t mode;
    struct timespec changed;
};
enum sdc_status sdc__stamp_take(const struct sdc_file *f, struct sdc_stamp *stamp,
                                struct sdc_error *err) SDC_MUST_CHECK;
/* SDC_BUSY if f is another file or was written to since. */
enum sdc_status sdc__stamp_check(const struct sdc_file *f, const struct sdc_stamp *stamp,
                                 struct sdc_error *err) SDC_MUST_CHECK;
/* Is it the file of this name now, in whatever state? */
bool sdc__stamp_names(const struct sdc_stamp *stamp, const char *path);

struct sdc_plan {
    struct sdc_ckpt *ckpt;    /* open, with the sums of all planned elements found */
    struct sdc_stamp *stamps; /* of each file of the checkpoint; owned */
    bool is_set;
    size_t n_recoded; /* changes in storage that has to be written anew */
    char format[32];
    uint64_t support_sites, removed_sites;
    uint64_t n_sites;
    uint64_t attempts, happened;
    /* Many sites without a record: not NULL, and no changes are listed. With what it borrows. */
    struct sdc_bulk *bulk;
    struct sdc_support *support;
    const struct sdc_tensor_desc **descs;
    /* One block with the texts it points to, so that sdc__free(changes) frees all; sorted by
     * (tensor, element). Until the file's values are read old_raw is 0, and new_raw what the fault
     * carries as its value, or the value that is taken from another element. */
    struct sdc_record_change *changes;
    unsigned *files; /* of each change, the number of its file; owned */
    size_t n_changes;
};

enum sdc_status sdc__plan_make(const char *path, const struct sdc_choice *choice,
                               const struct sdc_alter_options *options, struct sdc_plan *plan,
                               struct sdc_error *err) SDC_MUST_CHECK;
/* The changes of these faults, with room for their texts; n_sites and the like from the list. */
enum sdc_status sdc__plan_list(struct sdc_plan *plan, const struct sdc_fault_list *list,
                               struct sdc_error *err) SDC_MUST_CHECK;
void sdc__plan_release(struct sdc_plan *plan);

#endif
