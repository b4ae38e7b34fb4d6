/* SPDX-License-Identifier: Apache-2.0
 *
 * Changes elements of a copy of a checkpoint by the functions that a format gives, mends every
 * stored checksum by computing it anew, and tells the notes:
 *
 *     hdf5_tool alter FILE COPY mend|stale TENSOR ELEMENT RAW [TENSOR ELEMENT RAW]...
 *     hdf5_tool notes FILE [--unclean] [--as GLOB TYPE]
 *     hdf5_tool read FILE TENSOR FIRST N [THREADS]    elements as hex
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/fmt.h"
#include "io/crc.h"

static struct sdc_error err;

#define DIE_UNLESS(expr)                                                                           \
    do {                                                                                           \
        if ((expr) != SDC_OK) {                                                                    \
            printf("%s %s\n", sdc_status_name(err.status), err.message);                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static uint64_t number(const char *text) {
    unsigned long long n = 0;
    if (!sdc__parse_u64(text, &n)) {
        printf("USAGE %s\n", text);
        exit(2);
    }
    return n;
}

static void mend(const struct sdc_ckpt *c, unsigned level, struct sdc_file *f) {
    for (size_t i = 0; i < sdc_ckpt_sums(c); i++) {
        const struct sdc_ckpt_sum *s = sdc_ckpt_sum(c, i);
        if (s->level != level || s->file != 0 || s->unknown || s->deflated)
            continue;
        unsigned char *data = sdc__alloc((size_t)s->size, 1), p[4];
        DIE_UNLESS(sdc__file_read(f, s->offset, data, (size_t)s->size, &err));
        uint32_t sum = s->kind == SDC_SUM_FLETCHER32 ? sdc__fletcher32(data, (size_t)s->size)
                       : s->kind == SDC_SUM_LOOKUP3  ? sdc__lookup3(data, (size_t)s->size, 0)
                                                     : sdc__crc32(0, data, (size_t)s->size);
        for (int k = 0; k < 4; k++)
            p[k] = (unsigned char)(sum >> 8 * k & 0xff);
        for (unsigned k = 0; k < s->n_places; k++)
            DIE_UNLESS(sdc__file_write(f, s->places[k].offset, p, 4, &err));
        sdc__free(data);
    }
}

static int by_edit(const void *a, const void *b) {
    const struct sdc_ckpt_edit *x = a, *y = b;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return (x->elem > y->elem) - (x->elem < y->elem);
}

static void alter(char **v, int n) {
    struct sdc_ckpt *c;
    struct sdc_file from, to;
    struct sdc_ckpt_edit edits[64];
    size_t n_edits = 0;
    DIE_UNLESS(sdc_ckpt_open(v[0], NULL, &c, &err));
    DIE_UNLESS(sdc__file_open(v[0], SDC_FILE_READ, &from, &err));
    DIE_UNLESS(sdc__file_open(v[1], SDC_FILE_NEW, &to, &err));
    DIE_UNLESS(sdc__file_copy(&from, &to, &err));
    for (int i = 3; i + 2 < n; i += 3) {
        struct sdc_ckpt_edit e = {.elem = number(v[i + 1]), .raw = number(v[i + 2])};
        struct sdc_span span;
        unsigned char bytes[8];
        if (!sdc_ckpt_find(c, v[i], &e.tensor)) {
            printf("NOT_FOUND %s\n", v[i]);
            exit(1);
        }
        if (sdc_ckpt_recoded(c, e.tensor)) {
            edits[n_edits++] = e;
            continue;
        }
        DIE_UNLESS(sdc_ckpt_map(c, e.tensor, e.elem, &span, &err));
        sdc_num_store(sdc_ckpt_tensor(c, e.tensor)->dtype, e.raw, bytes, span.big_endian);
        if (span.file == 0) {
            DIE_UNLESS(sdc__file_write(&to, span.offset, bytes, span.size, &err));
            continue;
        }
        struct sdc_file other; /* of the set, in place */
        DIE_UNLESS(sdc__file_open(sdc_ckpt_file(c, span.file).path, SDC_FILE_UPDATE, &other, &err));
        DIE_UNLESS(sdc__file_write(&other, span.offset, bytes, span.size, &err));
        sdc__file_close(&other);
    }
    if (n_edits) {
        qsort(edits, n_edits, sizeof *edits, by_edit);
        DIE_UNLESS(c->ops->recode(c, 0, edits, n_edits, &to, &err));
    }
    for (unsigned level = 0; strcmp(v[2], "mend") == 0 && level < 3; level++)
        mend(c, level, &to);
    for (size_t i = 0; i < sdc_ckpt_notes(c); i++)
        puts(sdc_ckpt_note(c, i).text);
    sdc__file_close(&to);
    sdc__file_close(&from);
    sdc_ckpt_close(c);
}

static void notes(char **v, int n) {
    static const char *const kinds[] = {"info", "warning", "security"};
    struct sdc_ckpt_as as = {NULL, SDC_DTYPE_F32};
    struct sdc_ckpt_options o = {.as = &as};
    struct sdc_ckpt *c;
    for (int i = 1; i < n; i++) {
        if (strcmp(v[i], "--unclean") == 0)
            o.allow_unclean = true;
        if (strcmp(v[i], "--as") == 0 && i + 2 < n && sdc_dtype_parse(v[i + 2], &as.dtype)) {
            as.glob = v[i + 1];
            o.n_as = 1;
        }
    }
    DIE_UNLESS(sdc_ckpt_open(v[0], &o, &c, &err));
    for (size_t i = 0; i < sdc_ckpt_notes(c); i++)
        printf("%s: %s\n", kinds[sdc_ckpt_note(c, i).kind], sdc_ckpt_note(c, i).text);
    for (size_t i = 0; i < sdc_ckpt_count(c); i++)
        printf("tensor %s %s %s\n", sdc_ckpt_tensor(c, i)->name,
               sdc_ckpt_tensor(c, i)->dtype_known ? sdc_dtype_name(sdc_ckpt_tensor(c, i)->dtype)
                                                  : "?",
               sdc_ckpt_tensor(c, i)->locked ? sdc_ckpt_tensor(c, i)->locked : "");
    sdc_ckpt_close(c);
}

struct job {
    struct sdc_ckpt *c;
    size_t tensor;
    uint64_t first, n;
    unsigned char *out;
    enum sdc_status st;
    struct sdc_error err;
};

static void *run(void *user) {
    struct job *j = user;
    j->st = sdc_ckpt_read(j->c, j->tensor, j->first, j->n, j->out, &j->err);
    return NULL;
}

static void read_elements(char **v, int n) {
    struct sdc_ckpt *c;
    struct job jobs[16];
    pthread_t threads[16];
    const uint64_t first = number(v[2]), count = number(v[3]), n_jobs = n > 4 ? number(v[4]) : 1;
    size_t tensor;
    DIE_UNLESS(sdc_ckpt_open(v[0], NULL, &c, &err));
    if (!sdc_ckpt_find(c, v[1], &tensor))
        exit(1);
    const unsigned size = sdc_dtype_bytes(sdc_ckpt_tensor(c, tensor)->dtype);
    for (uint64_t i = 0; i < n_jobs && i < 16; i++) {
        jobs[i] = (struct job){.c = c, .tensor = tensor, .first = first, .n = count};
        jobs[i].out = sdc__alloc((size_t)count, size);
        if (pthread_create(&threads[i], NULL, run, &jobs[i]) != 0)
            exit(1);
    }
    for (uint64_t i = 0; i < n_jobs && i < 16; i++) {
        (void)pthread_join(threads[i], NULL);
        if (jobs[i].st != SDC_OK) {
            printf("%s %s\n", sdc_status_name(jobs[i].st), jobs[i].err.message);
            exit(1);
        }
        if (memcmp(jobs[i].out, jobs[0].out, (size_t)count * size) != 0)
            exit(1);
        if (i > 0)
            sdc__free(jobs[i].out);
    }
    for (uint64_t i = 0; i < count * size; i++)
        printf("%02x", jobs[0].out[i]);
    sdc__free(jobs[0].out);
    sdc_ckpt_close(c);
}

int main(int argc, char **argv) {
    if (argc >= 5 && strcmp(argv[1], "alter") == 0)
        alter(argv + 2, argc - 2);
    else if (argc >= 3 && strcmp(argv[1], "notes") == 0)
        notes(argv + 2, argc - 2);
    else if (argc >= 6 && strcmp(argv[1], "read") == 0)
        read_elements(argv + 2, argc - 2);
    else
        return 2;
    return 0;
}
