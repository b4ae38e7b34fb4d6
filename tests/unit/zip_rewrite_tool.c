/* SPDX-License-Identifier: Apache-2.0
 *
 * Rewrites an archive for comparison with Python's zipfile.
 *
 *     zip_rewrite_tool FROM TO (MEMBER AT HEXBYTES | MEMBER with FILE)...
 *
 * Patches of a member are given next to each other, in ascending order.
 */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "ckpt/zip_rewrite.h"

#define MAX 4096

static struct sdc_zip_change changes[MAX];
static struct sdc_zip_patch patches[MAX];
static struct sdc_file contents[MAX];

static enum sdc_status collect(const struct sdc_zip *zip, int argc, char **argv, size_t *n,
                               struct sdc_error *err) {
    for (int i = 3; i + 2 < argc; i += 3) {
        const struct sdc_zip_member *m = sdc__zip_find(zip, argv[i]);
        if (!m || *n >= MAX)
            return SDC_ERR(err, SDC_USAGE, "no member %s", argv[i]);
        size_t index = (size_t)(m - zip->members), k = (size_t)(i / 3 - 1);
        struct sdc_zip_change *c = &changes[*n ? *n - 1 : 0];
        if (*n == 0 || c->member != index) {
            c = &changes[(*n)++];
            *c = (struct sdc_zip_change){.member = index, .patches = &patches[k]};
        }
        if (strcmp(argv[i + 1], "with") == 0) {
            SDC_TRY(sdc__file_open(argv[i + 2], SDC_FILE_READ, &contents[k], err));
            c->content = &contents[k];
            continue;
        }
        unsigned long long at;
        patches[k].n = (unsigned)strlen(argv[i + 2]) / 2;
        if (!sdc__parse_u64(argv[i + 1], &at) ||
            !sdc__hex_decode(argv[i + 2], patches[k].n, patches[k].bytes))
            return SDC_ERR(err, SDC_USAGE, "%s %s", argv[i + 1], argv[i + 2]);
        patches[k].at = at;
        c->n_patches++;
    }
    return SDC_OK;
}

int main(int argc, char **argv) {
    struct sdc_file from = SDC_FILE_INIT, to = SDC_FILE_INIT;
    struct sdc_zip zip = SDC_ZIP_INIT;
    struct sdc_error err;
    size_t n = 0;
    enum sdc_status st;
    if (argc < 6)
        return 2;
    SDC_TRY_OUT(st, sdc__file_open(argv[1], SDC_FILE_READ, &from, &err));
    SDC_TRY_OUT(st, sdc__file_open(argv[2], SDC_FILE_NEW, &to, &err));
    SDC_TRY_OUT(st, sdc__file_copy(&from, &to, &err));
    SDC_TRY_OUT(st, sdc__zip_open(&from, 0, from.size, &zip, &err));
    SDC_TRY_OUT(st, collect(&zip, argc, argv, &n, &err));
    st = sdc__zip_rewrite(&from, &zip, changes, n, &to, &err);
out:
    if (st != SDC_OK)
        printf("%s %s\n", sdc_status_name(st), err.message);
    sdc__zip_release(&zip);
    sdc__file_close(&from);
    sdc__file_close(&to);
    return st != SDC_OK;
}
