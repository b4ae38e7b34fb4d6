/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a checkpoint that is altered in place and restored: if the alteration is done, undo
 * must give back every byte; if it is refused, no byte may have changed. Damaged files that open
 * are the interesting ones: overlapping tensors, checksums that were wrong before, odd layouts.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "fuzz.h"
#include "io/io.h"
#include "sdc/alter.h"
#include "sdc/ckpt.h"

static char folder[64], path[96], record[128];

static void make_folder(void) {
    const char *at = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    (void)snprintf(folder, sizeof folder, "%s/sdc-fuzz-%d", at, (int)getpid());
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        abort();
    (void)snprintf(path, sizeof path, "%s/a", folder);
    (void)snprintf(record, sizeof record, "%s/a.record", folder);
}

static void remove_folder(void) {
    if (sdc__remove_tree(folder, NULL) != SDC_OK)
        fprintf(stderr, "%s is left\n", folder);
}

static bool holds(const uint8_t *data, size_t size) {
    struct sdc_buf now = SDC_BUF_INIT;
    bool same = sdc__read_whole(path, SIZE_MAX / 2, &now, NULL) == SDC_OK && now.len == size &&
                (size == 0 || memcmp(now.data, data, size) == 0);
    sdc__buf_release(&now);
    return same;
}

/* Storage that is written anew comes back in values, not bytes. */
static bool any_recoded(void) {
    struct sdc_ckpt *c = NULL;
    bool found = false;
    if (sdc_ckpt_open(path, NULL, &c, NULL) != SDC_OK)
        return false;
    for (size_t i = 0; i < sdc_ckpt_count(c); i++)
        found = found || sdc_ckpt_recoded(c, i);
    sdc_ckpt_close(c);
    return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!*folder) {
        make_folder();
        (void)atexit(remove_folder);
    }
    if (sdc__write_whole(path, data, size, false, NULL) != SDC_OK || any_recoded())
        return 0;
    if (sdc__remove_file(record, NULL) != SDC_OK)
        return 0;
    struct sdc_choice choice;
    struct sdc_alter_options options = {
        .record_path = record, .no_sync = true, .seed = size + (size > 8 ? data[size / 2] : 0)};
    struct sdc_alter_result result;
    struct sdc_undo_result undone;
    sdc_choice_init(&choice);
    choice.flips = 1 + size % 5;
    enum sdc_status st = sdc_alter(path, &choice, &options, &result, NULL);
    if (st == SDC_OK) {
        if (result.altered > 0 && holds(data, size))
            abort();
        if (sdc_undo(record, path, true, &undone, NULL) != SDC_OK)
            abort();
        sdc_text_free(undone.file);
        sdc_alter_result_release(&result);
    }
    if (!holds(data, size))
        abort();
    sdc_choice_release(&choice);
    return 0;
}
