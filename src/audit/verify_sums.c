/* SPDX-License-Identifier: Apache-2.0
 *
 * Stored checksums: each recomputed over the bytes that it covers, and which tensors they cover.
 */
#include <stdlib.h>
#include <string.h>

#include "audit/verify.h"
#include "base/alloc.h"
#include "base/parallel.h"
#include "base/str.h"
#include "ckpt/fmt.h"
#include "io/crc.h"
#include "io/flate.h"
#include "io/io.h"

/* HDF5's sums are computed over a block in memory; larger ones (chunks have less than 4 GiB) piece
 * by piece. */
#define WHOLE ((uint64_t)8 * 1024 * 1024)
#define PIECE ((size_t)256 * 1024)

struct checking {
    struct sdc_verifying *v;
};

struct slot {
    struct sdc_file file; /* the one that was read last, number `member` */
    size_t member;
    unsigned char *buffer;    /* WHOLE, taken when needed */
    uint32_t computed, other; /* other: a second value that readers accept */
    uint32_t stored[2];
    bool computable;
    bool undecodable; /* what it covers does not inflate; found says why */
    struct sdc_error found;
};

static enum sdc_status member(struct checking *c, struct slot *s, unsigned i,
                              struct sdc_error *err) {
    if (s->file.fd >= 0 && s->member == i)
        return SDC_OK;
    sdc__file_close(&s->file);
    s->member = i;
    return sdc__file_open(sdc_ckpt_file(c->v->ckpt, i).path, SDC_FILE_READ, &s->file, err);
}

static uint32_t add_mod(uint32_t a, uint32_t b) {
    return (a + b) % 65535;
}

/* Fletcher-32 of a message from those of its pieces, all but the last of even length. Each half is
 * a sum modulo 65535, of which 0 and 65535 are the same; what is stored is never 0 unless all is.
 */
static enum sdc_status long_fletcher32(struct slot *s, const struct sdc_ckpt_sum *sum,
                                       struct sdc_error *err) {
    uint32_t low = 0, high = 0;
    for (uint64_t at = 0; at < sum->size; at += PIECE) {
        size_t n = sum->size - at < PIECE ? (size_t)(sum->size - at) : PIECE;
        SDC_TRY(sdc__file_read(&s->file, sum->offset + at, s->buffer, n, err));
        uint32_t piece = sdc__fletcher32(s->buffer, n), words = (uint32_t)((n + 1) / 2) % 65535;
        uint32_t carried = (uint32_t)((uint64_t)words * low % 65535);
        high = add_mod(add_mod(high, carried), piece >> 16);
        low = add_mod(low, piece & 0xffff);
    }
    low = low ? low : 65535;
    high = high ? high : 65535;
    s->computed = high << 16 | low;
    return SDC_OK;
}

static enum sdc_status compute_whole(struct slot *s, const struct sdc_ckpt_sum *sum,
                                     struct sdc_error *err) {
    if (!s->buffer)
        s->buffer = sdc__alloc((size_t)WHOLE, 1);
    if (!s->buffer)
        return SDC_NOMEM(err, sum->what);
    if (sum->size > WHOLE && sum->kind == SDC_SUM_LOOKUP3) {
        s->computable = false; /* metadata never are so large */
        return SDC_OK;
    }
    if (sum->size > WHOLE)
        SDC_TRY(long_fletcher32(s, sum, err));
    else
        SDC_TRY(sdc__file_read(&s->file, sum->offset, s->buffer, (size_t)sum->size, err));
    if (sum->kind == SDC_SUM_LOOKUP3) {
        s->computed = s->other = sdc__lookup3(s->buffer, (size_t)sum->size, 0);
        return SDC_OK;
    }
    if (sum->size <= WHOLE)
        s->computed = sdc__fletcher32(s->buffer, (size_t)sum->size);
    s->other = sdc__fletcher32_swapped(s->computed);
    return SDC_OK;
}

/* The sum covers what the bytes inflate to. */
static enum sdc_status inflate(struct slot *s, const struct sdc_ckpt_sum *sum,
                               struct sdc_error *err) {
    struct sdc_inflate *in;
    if (!s->buffer)
        s->buffer = sdc__alloc((size_t)WHOLE, 1);
    if (!s->buffer)
        return SDC_NOMEM(err, sum->what);
    SDC_TRY(sdc__inflate_new(&s->file, sum->offset, sum->size, &in, err));
    enum sdc_status st = SDC_OK;
    for (uint64_t left = sum->inflated_size; st == SDC_OK && left > 0;) {
        size_t n = left < PIECE ? (size_t)left : PIECE;
        st = sdc__inflate_read(in, s->buffer, n, err);
        if (st == SDC_OK)
            s->computed = sdc__crc32(s->computed, s->buffer, n);
        left -= n;
    }
    if (st == SDC_OK)
        st = sdc__inflate_end(in, err);
    sdc__inflate_free(in);
    if (st != SDC_INVALID)
        return st;
    s->undecodable = true;
    s->found = *err;
    return SDC_OK;
}

static enum sdc_status compute(struct slot *s, const struct sdc_ckpt_sum *sum,
                               struct sdc_error *err) {
    enum sdc_crc crc = sum->kind == SDC_SUM_CRC32 ? SDC_CRC32 : SDC_CRC32C;
    if (sum->kind == SDC_SUM_FLETCHER32 || sum->kind == SDC_SUM_LOOKUP3)
        return compute_whole(s, sum, err);
    s->computed = sum->initial;
    if (sum->deflated && sum->kind == SDC_SUM_CRC32)
        SDC_TRY(inflate(s, sum, err));
    else
        SDC_TRY(sdc__crc_file(crc, &s->file, sum->offset, sum->size, &s->computed, err));
    if (sum->kind == SDC_SUM_CRC32C_MASKED)
        s->computed = sdc__crc_mask(s->computed);
    s->other = s->computed;
    return SDC_OK;
}

static enum sdc_status read_stored(struct checking *c, struct slot *s,
                                   const struct sdc_ckpt_sum *sum, struct sdc_error *err) {
    for (unsigned i = 0; i < sum->n_places; i++) {
        unsigned char b[4];
        SDC_TRY(member(c, s, sum->places[i].file, err));
        SDC_TRY(sdc__file_read(&s->file, sum->places[i].offset, b, sizeof b, err));
        s->stored[i] = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    }
    return SDC_OK;
}

static enum sdc_status work(void *user, void *slot, uint64_t task, struct sdc_error *err) {
    struct checking *c = user;
    struct slot *s = slot;
    const struct sdc_ckpt_sum *sum = sdc_ckpt_sum(c->v->ckpt, (size_t)task);
    s->undecodable = false;
    s->computable =
        !sum->unknown && sum->n_places > 0 && (!sum->deflated || sum->kind == SDC_SUM_CRC32);
    if (!s->computable)
        return SDC_OK;
    SDC_TRY(read_stored(c, s, sum, err));
    SDC_TRY(member(c, s, sum->file, err));
    return compute(s, sum, err);
}

static enum sdc_status commit(void *user, void *slot, uint64_t task, struct sdc_error *err) {
    struct checking *c = user;
    const struct slot *s = slot;
    const struct sdc_ckpt_sum *sum = sdc_ckpt_sum(c->v->ckpt, (size_t)task);
    struct sdc_verify *out = c->v->out;
    if (!s->computable) {
        out->n_sums_unknown++;
        return SDC_OK;
    }
    unsigned wrong = 0;
    while (!s->undecodable && wrong < sum->n_places &&
           (s->stored[wrong] == s->computed || s->stored[wrong] == s->other))
        wrong++;
    c->v->sum_sound[task] = wrong == sum->n_places;
    if (wrong == sum->n_places)
        return SDC_OK;
    out->n_sums_wrong++;
    if (out->n_sums_wrong > SDC_VERIFY_MANY) {
        out->n_damage++;
        return SDC_OK;
    }
    if (s->undecodable)
        return sdc__verify_find(c->v, SDC_FINDING_DAMAGE, sum->what, err, "%s", s->found.message);
    return sdc__verify_find(
        c->v, SDC_FINDING_DAMAGE, sum->what, err,
        "checksum: stored %s %08x at byte %llu of %s, computed %08x over bytes %llu to %llu of %s",
        sdc_sum_kind_name(sum->kind), s->stored[wrong],
        (unsigned long long)sum->places[wrong].offset,
        sdc_ckpt_file(c->v->ckpt, sum->places[wrong].file).name, s->computed,
        (unsigned long long)sum->offset, (unsigned long long)(sum->offset + sum->size),
        sdc_ckpt_file(c->v->ckpt, sum->file).name);
}

static enum sdc_status check_all(struct sdc_verifying *v, struct sdc_error *err) {
    struct checking c = {.v = v};
    const unsigned threads = sdc__parallel_threads(v->options->threads, v->out->n_sums);
    struct slot *slots = sdc__calloc(threads, sizeof *slots);
    if (!slots)
        return SDC_NOMEM(err, v->path);
    for (unsigned i = 0; i < threads; i++)
        slots[i].file = (struct sdc_file)SDC_FILE_INIT;
    struct sdc_parallel p = {.n_tasks = v->out->n_sums,
                             .threads = threads,
                             .work = work,
                             .commit = commit,
                             .user = &c,
                             .slots = slots,
                             .slot_size = sizeof *slots};
    enum sdc_status st = sdc__parallel_run(&p, err);
    for (unsigned i = 0; i < threads; i++) {
        sdc__file_close(&slots[i].file);
        sdc__free(slots[i].buffer);
    }
    sdc__free(slots);
    return st;
}

enum sdc_status sdc__verify_sums(struct sdc_verifying *v, struct sdc_error *err) {
    struct sdc_error found;
    enum sdc_status st = sdc_ckpt_find_sums(v->ckpt, &found);
    if (st == SDC_INVALID || st == SDC_MISMATCH)
        SDC_TRY(sdc__verify_find(v, SDC_FINDING_DAMAGE, NULL, err, "%s", found.message));
    else if (st != SDC_OK) {
        if (err)
            *err = found;
        return st;
    }
    v->out->n_sums = sdc_ckpt_sums(v->ckpt);
    v->sum_sound = sdc__calloc((size_t)v->out->n_sums, sizeof *v->sum_sound);
    if (!v->sum_sound)
        return SDC_NOMEM(err, v->path);
    return v->out->n_sums > 0 ? check_all(v, err) : SDC_OK;
}

/* ---- what they cover ---- */

/* Covered bytes of one file, sorted by where they begin; reach: the furthest end so far. */
struct range {
    unsigned file;
    uint64_t begin, end, reach;
};

static int by_begin(const void *a, const void *b) {
    const struct range *x = a, *y = b;
    return x->file != y->file ? (x->file > y->file) - (x->file < y->file)
                              : (x->begin > y->begin) - (x->begin < y->begin);
}

/* Is one of the ranges around these bytes? */
static bool inside(const struct range *ranges, size_t n, const struct sdc_span *span) {
    size_t low = 0, high = n;
    while (low < high) { /* the first that begins after the span */
        size_t mid = low + (high - low) / 2;
        const struct range *r = &ranges[mid];
        if (r->file < span->file || (r->file == span->file && r->begin <= span->offset))
            low = mid + 1;
        else
            high = mid;
    }
    return low > 0 && ranges[low - 1].file == span->file &&
           ranges[low - 1].reach >= span->offset + span->size;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Has one of the sound sums this name? For tensors whose elements have no places, such as strings.
 */
static bool named(const char *const *whats, size_t n, const char *tensor) {
    char *what = sdc__asprintf("tensor %s", tensor);
    bool yes = what && bsearch(&what, whats, n, sizeof *whats, by_text);
    sdc__free(what);
    return yes;
}

#define PROBES 64

static bool covered(struct sdc_verifying *v, size_t tensor, const struct range *ranges, size_t n,
                    const char *const *whats, bool inflated) {
    const struct sdc_tensor_desc *d = sdc_ckpt_tensor(v->ckpt, tensor);
    const char *recoded = sdc_ckpt_recoded(v->ckpt, tensor);
    if (d->n_elems == 0 || v->compared[tensor])
        return true;
    if (recoded) /* zlib's own Adler-32 was checked when decoding; a zip member has its CRC */
        return v->decoded[tensor] &&
               (strstr(recoded, "gzip") || (strstr(recoded, "deflate") && inflated));
    if (d->locked && named(whats, n, d->name))
        return true;
    uint64_t probes = d->n_elems < PROBES ? d->n_elems : PROBES;
    for (uint64_t i = 0; i < probes; i++) {
        struct sdc_span span;
        struct sdc_error ignored;
        uint64_t elem =
            probes < 2 ? 0 : (uint64_t)((long double)(d->n_elems - 1) * i / (probes - 1));
        if (sdc_ckpt_map(v->ckpt, tensor, elem, &span, &ignored) != SDC_OK ||
            !inside(ranges, n, &span))
            return false;
    }
    return true;
}

static enum sdc_status say_uncovered(struct sdc_verifying *v, const char *first,
                                     struct sdc_error *err) {
    struct sdc_verify *out = v->out;
    if (out->n_sums_unknown > 0)
        SDC_TRY(sdc__verify_find(v, SDC_FINDING_NOT_CHECKED, NULL, err,
                                 "%llu of %llu stored checksums were left out by the writer",
                                 (unsigned long long)out->n_sums_unknown,
                                 (unsigned long long)out->n_sums));
    if (!first)
        return SDC_OK;
    return sdc__verify_find(v, SDC_FINDING_NOT_CHECKED, first, err,
                            "%llu of %llu tensors, the first of which is this one, have no sound "
                            "stored checksum and no seal",
                            (unsigned long long)(out->n_tensors - out->n_covered),
                            (unsigned long long)out->n_tensors);
}

enum sdc_status sdc__verify_cover(struct sdc_verifying *v, struct sdc_error *err) {
    struct sdc_verify *out = v->out;
    if (out->seal == SDC_SEAL_MATCHES) {
        out->n_covered = out->n_tensors;
        return SDC_OK;
    }
    struct range *ranges = sdc__alloc((size_t)out->n_sums, sizeof *ranges);
    const char **whats = sdc__alloc((size_t)out->n_sums, sizeof *whats); /* n of them, too */
    size_t n = 0;
    bool inflated = false;
    if (!ranges || !whats) {
        sdc__free(ranges);
        sdc__free(whats);
        return SDC_NOMEM(err, v->path);
    }
    for (size_t i = 0; i < out->n_sums; i++) {
        const struct sdc_ckpt_sum *sum = sdc_ckpt_sum(v->ckpt, i);
        if (!v->sum_sound[i])
            continue;
        inflated |= sum->deflated;
        whats[n] = sum->what;
        ranges[n++] = (struct range){sum->file, sum->offset, sum->offset + sum->size, 0};
    }
    if (n > 1) {
        qsort(ranges, n, sizeof *ranges, by_begin);
        qsort(whats, n, sizeof *whats, by_text);
    }
    for (size_t i = 0; i < n; i++) {
        bool first = i == 0 || ranges[i - 1].file != ranges[i].file;
        ranges[i].reach =
            first || ranges[i].end > ranges[i - 1].reach ? ranges[i].end : ranges[i - 1].reach;
    }
    const char *uncovered = NULL;
    for (size_t i = 0; i < out->n_tensors; i++) {
        bool is = covered(v, i, ranges, n, whats, inflated);
        out->n_covered += is;
        uncovered = is || uncovered ? uncovered : sdc_ckpt_tensor(v->ckpt, i)->name;
    }
    sdc__free(ranges);
    sdc__free(whats);
    return say_uncovered(v, uncovered, err);
}
