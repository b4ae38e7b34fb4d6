/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/tail.h"

#include <stdio.h>

#include "base/alloc.h"
#include "ckpt/fmt.h"
#include "io/io.h"

/* Which tensors lie in the end of a file from `begin` on. */
struct touched {
    uint64_t n_whole;
    const char *in_part; /* one that begins before it */
    uint64_t elem;       /* its first element there */
};

/* Only tensors that lie in one piece are looked at. */
static struct touched touch(const struct sdc_ckpt *ckpt, unsigned file, uint64_t begin) {
    struct touched found = {0};
    for (size_t i = 0; i < ckpt->n; i++) {
        const struct sdc_ckpt_entry *e = &ckpt->entries[i];
        if (!e->packed || e->desc.n_elems == 0 || e->pieces[0].file != file)
            continue;
        const uint64_t size = sdc_dtype_bytes(e->desc.dtype), at = e->pieces[0].bit / 8;
        if (at >= begin) {
            found.n_whole++;
            continue;
        }
        const uint64_t first = (begin - at + size - 1) / size; /* that is zero as a whole */
        if (first < e->desc.n_elems && !found.in_part) {
            found.in_part = e->name;
            found.elem = first;
        }
    }
    return found;
}

static char *describe(const struct sdc_ckpt *ckpt, unsigned file, uint64_t n, uint64_t size) {
    const struct touched t = touch(ckpt, file, size - n);
    char part[512] = "", whole[64] = "";
    if (t.in_part)
        (void)snprintf(part, sizeof part, ", from element %llu of tensor %.400s on",
                       (unsigned long long)t.elem, t.in_part);
    if (t.n_whole)
        (void)snprintf(whole, sizeof whole, ", %llu tensor%s as a whole",
                       (unsigned long long)t.n_whole, t.n_whole == 1 ? "" : "s");
    return sdc__asprintf("the last %llu of the %llu bytes of %s are zero%s%s: a download or copy "
                         "that was interrupted leaves such a file%s",
                         (unsigned long long)n, (unsigned long long)size, ckpt->members[file]->name,
                         part, whole, t.in_part ? "" : ", and so do tensors that are zero");
}

enum sdc_status sdc__tails_find(struct sdc_ckpt *ckpt, struct sdc_tails *tails,
                                struct sdc_error *err) {
    enum sdc_status st = SDC_OK;
    *tails = (struct sdc_tails){.texts = sdc__calloc(ckpt->n_members, sizeof *tails->texts)};
    if (!tails->texts)
        return SDC_NOMEM(err, ckpt->path);
    for (unsigned i = 0; st == SDC_OK && i < ckpt->n_members; i++) {
        const struct sdc_file *f;
        uint64_t n = 0;
        st = sdc__ckpt_member(ckpt, i, &f, err);
        if (st == SDC_OK)
            st = sdc__file_zero_tail(f, UINT64_MAX, &n, err);
        if (st != SDC_OK || n < SDC_LONG_TAIL)
            continue;
        tails->texts[tails->n] = describe(ckpt, i, n, f->size);
        if (tails->texts[tails->n])
            tails->n++;
        else
            st = SDC_NOMEM(err, ckpt->path);
    }
    if (st != SDC_OK)
        sdc__tails_release(tails);
    return st;
}

void sdc__tails_release(struct sdc_tails *tails) {
    for (size_t i = 0; i < tails->n; i++)
        sdc__free(tails->texts[i]);
    sdc__free(tails->texts);
    *tails = (struct sdc_tails){0};
}
