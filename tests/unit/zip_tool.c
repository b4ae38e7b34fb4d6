/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints what the zip reader finds, or the error, for comparison with Python's zipfile.
 *
 *     zip_tool list|salvage FILE [BASE LENGTH]
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "ckpt/zip.h"

static const char *const kinds[] = {[SDC_ZIP_NONE] = "none",
                                    [SDC_ZIP_OTHER] = "other",
                                    [SDC_ZIP_TORCH] = "torch",
                                    [SDC_ZIP_KERAS] = "keras",
                                    [SDC_ZIP_NPZ] = "npz"};

static void print(const struct sdc_zip *z) {
    printf("prefix %" PRIu64 " directory %" PRIu64 " trailing %" PRIu64 " zip64 %d shadowed %zu\n",
           z->prefix, z->directory, z->trailing, z->zip64, z->n_shadowed);
    for (size_t i = 0; i < z->n; i++) {
        const struct sdc_zip_member *m = &z->members[i];
        printf("%u %08x %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %u %d %d", m->method,
               m->crc, m->stored, m->size, m->header, m->data, m->descriptor_len, m->shadowed,
               m->whole);
        printf(" %" PRIu64 " %" PRIu64 " %s\n", m->n_crc_places > 0 ? m->crc_places[0] : 0,
               m->n_crc_places > 1 ? m->crc_places[1] : 0, m->name);
    }
}

int main(int argc, char **argv) {
    struct sdc_file f;
    struct sdc_error err;
    struct sdc_zip z;
    unsigned char head[64];
    unsigned long long base = 0, length;
    if (argc < 3 || sdc__file_open(argv[2], SDC_FILE_READ, &f, &err) != SDC_OK)
        return 2;
    length = f.size;
    if (argc == 5 && !(sdc__parse_u64(argv[3], &base) && sdc__parse_u64(argv[4], &length)))
        return 2;
    size_t n = f.size < sizeof head ? (size_t)f.size : sizeof head;
    if (sdc__file_read(&f, 0, head, n, &err) != SDC_OK)
        return 2;
    printf("kind %s\n", kinds[sdc__zip_kind(&f, head, n)]);
    enum sdc_status st = strcmp(argv[1], "salvage") == 0
                             ? sdc__zip_salvage(&f, base, length, UINT64_MAX, &z, &err)
                             : sdc__zip_open(&f, base, length, &z, &err);
    if (st == SDC_OK)
        print(&z);
    else
        printf("%s %s\n", sdc_status_name(st), err.message);
    if (st == SDC_OK)
        sdc__zip_release(&z);
    sdc__file_close(&f);
    return st != SDC_OK;
}
