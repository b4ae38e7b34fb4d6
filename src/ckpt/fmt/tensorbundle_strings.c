/* SPDX-License-Identifier: Apache-2.0
 *
 * Checksums of tensors of strings (tensorflow, tensor_bundle.cc, WriteStringTensor):
 *
 *     varint64 lengths; u32 masked CRC-32C of the lengths; the bytes of all strings
 *
 * Both sums take each length as a u32 (u64 where it needs more), not as the varint in the file, so
 * the lengths are summed here and the rest is an ordinary range of bytes.
 */
#include "base/alloc.h"
#include "ckpt/fmt/tensorbundle.h"
#include "ckpt/proto.h"
#include "io/crc.h"

#define WINDOW ((size_t)64 * 1024)

enum sdc_status sdc__tb_keep_strings(struct sdc_ckpt *ckpt, const struct sdc_tb_strings *strings,
                                     struct sdc_error *err) {
    struct sdc_tb_state *s = ckpt->priv;
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 4;
        struct sdc_tb_strings *more = sdc__realloc(s->strings, cap, sizeof *more);
        if (!more)
            return SDC_NOMEM(err, ckpt->path);
        s->strings = more;
        s->cap = cap;
    }
    struct sdc_tb_strings *to = &s->strings[s->n];
    *to = *strings;
    to->what = sdc__strdup(strings->what);
    if (!to->what)
        return SDC_NOMEM(err, ckpt->path);
    s->n++;
    return SDC_OK;
}

/* Sums the lengths; *at becomes their end. False: they do not fit the tensor's bytes. */
static enum sdc_status sum_lengths(const struct sdc_file *f, const struct sdc_tb_strings *s,
                                   unsigned char *window, uint64_t *at, uint32_t *crc, bool *fits,
                                   struct sdc_error *err) {
    uint64_t total = 0;
    size_t have = 0, next = 0;
    *at = 0;
    *crc = 0;
    *fits = true;
    for (uint64_t i = 0; i < s->n && *fits; i++) {
        unsigned char raw[8];
        uint64_t len;
        size_t begin;
        if (have - next < 10 && *at + (have - next) < s->size) { /* a varint may be cut */
            uint64_t left = s->size - *at;
            have = left < WINDOW ? (size_t)left : WINDOW;
            next = 0;
            SDC_TRY(sdc__file_read(f, s->offset + *at, window, have, err));
        }
        begin = next;
        *fits = sdc__varint(window, have, &next, 10, &len) &&
                !__builtin_add_overflow(total, len, &total);
        if (!*fits)
            break;
        *at += next - begin;
        const bool wide = len > UINT32_MAX;
        sdc_num_store(wide ? SDC_DTYPE_U64 : SDC_DTYPE_U32, len, raw, false);
        *crc = sdc__crc32c(*crc, raw, wide ? 8 : 4);
    }
    *fits = *fits && s->size - *at >= 4 && s->size - *at - 4 == total;
    return SDC_OK;
}

static enum sdc_status add_sum(struct sdc_ckpt *ckpt, const struct sdc_tb_strings *s,
                               unsigned char *window, struct sdc_error *err) {
    const struct sdc_file *f;
    uint64_t at;
    uint32_t crc;
    bool fits;
    SDC_TRY(sdc__ckpt_member(ckpt, s->file, &f, err));
    SDC_TRY(sum_lengths(f, s, window, &at, &crc, &fits, err));
    if (!fits)
        return SDC_ERR_AT(err, SDC_INVALID, s->offset,
                          "%s: %s: the lengths of its strings do not add up to its %llu bytes",
                          f->path, s->what, (unsigned long long)s->size);
    struct sdc_ckpt_sum sum = {.kind = SDC_SUM_CRC32C_MASKED,
                               .what = s->what,
                               .file = s->file,
                               .offset = s->offset + at,
                               .size = s->size - at,
                               .initial = crc,
                               .n_places = 1,
                               .places = {{.offset = s->crc_at}}};
    return sdc__ckpt_add_sum(ckpt, &sum, err);
}

enum sdc_status sdc__tb_find_sums(struct sdc_ckpt *ckpt, struct sdc_error *err) {
    struct sdc_tb_state *state = ckpt->priv;
    enum sdc_status st = SDC_OK;
    if (state->n == 0)
        return SDC_OK;
    unsigned char *window = sdc__alloc(WINDOW, 1);
    if (!window)
        return SDC_NOMEM(err, ckpt->path);
    while (state->n > 0 && st == SDC_OK) { /* once each, also after a failure */
        struct sdc_tb_strings *s = &state->strings[state->n - 1];
        st = add_sum(ckpt, s, window, err);
        sdc__free(s->what);
        state->n--;
    }
    sdc__free(window);
    return st;
}

void sdc__tb_close(struct sdc_ckpt *ckpt) {
    struct sdc_tb_state *s = ckpt->priv;
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++)
        sdc__free(s->strings[i].what);
    sdc__free(s->strings);
    sdc__free(s);
}
