/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a zip archive: listing must answer or refuse, what is listed is inside the file, and
 * an archive whose first member was rewritten can be listed again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ckpt/zip_rewrite.h"
#include "fuzz.h"

#define MOST ((uint64_t)1 << 20)

static int same_file(const uint8_t *data, size_t size, struct sdc_file *f) {
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0)
        return -1;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (write(fd, data, size) != (ssize_t)size ||
        sdc__file_open(path, SDC_FILE_UPDATE, f, NULL) != SDC_OK)
        *f = (struct sdc_file)SDC_FILE_INIT;
    (void)close(fd);
    return f->fd < 0 ? -1 : 0;
}

static void check(const struct sdc_zip *z, uint64_t size) {
    for (size_t i = 0; i < z->n; i++) {
        const struct sdc_zip_member *m = &z->members[i];
        if (!m->whole)
            continue;
        if (m->data > size || m->stored > size - m->data || m->header >= m->data)
            abort();
        for (unsigned k = 0; k < m->n_crc_places; k++)
            if (m->crc_places[k] > size - 4)
                abort();
        if (z->by_name && !sdc__zip_find(z, m->name))
            abort();
    }
}

static void rewrite(const struct sdc_file *from, const struct sdc_zip *z, struct sdc_file *to) {
    const struct sdc_zip_member *m = &z->members[0];
    struct sdc_zip_patch patch = {.at = 0, .n = 1, .bytes = {0x55}};
    struct sdc_zip_change change = {.patches = &patch, .n_patches = 1};
    struct sdc_zip again;
    if (m->size == 0 || m->size > MOST || sdc__zip_check_inflated(m, MOST, "", NULL) != SDC_OK ||
        sdc__zip_rewrite(from, z, &change, 1, to, NULL) != SDC_OK)
        return;
    if (sdc__zip_open(to, 0, to->size, &again, NULL) != SDC_OK || again.n != z->n ||
        again.members[0].size != m->size)
        abort();
    sdc__zip_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sdc_file f = SDC_FILE_INIT, to = SDC_FILE_INIT;
    struct sdc_zip z;
    if (same_file(data, size, &f) == 0 && same_file(data, size, &to) == 0) {
        (void)sdc__zip_kind(&f, data, size < 64 ? size : 64);
        if (sdc__zip_salvage(&f, 0, f.size, MOST, &z, NULL) == SDC_OK) {
            check(&z, size);
            sdc__zip_release(&z);
        }
        if (sdc__zip_open(&f, 0, f.size, &z, NULL) == SDC_OK) {
            check(&z, size);
            if (z.n > 0)
                rewrite(&f, &z, &to);
            sdc__zip_release(&z);
        }
    }
    sdc__file_close(&f);
    sdc__file_close(&to);
    return 0;
}
