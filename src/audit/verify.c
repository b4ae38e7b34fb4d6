/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/verify.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "audit/seal.h"
#include "audit/tail.h"
#include "audit/walk.h"
#include "base/alloc.h"
#include "ckpt/fmt.h"

static uint64_t *counter(struct sdc_verify *out, enum sdc_finding_kind kind) {
    switch (kind) {
    case SDC_FINDING_DAMAGE:
        return &out->n_damage;
    case SDC_FINDING_NOT_CHECKED:
        return &out->n_not_checked;
    case SDC_FINDING_NONFINITE:
        return &out->n_nonfinite;
    case SDC_FINDING_NOTE:
        break;
    }
    return NULL;
}

enum sdc_status sdc__verify_find(struct sdc_verifying *v, enum sdc_finding_kind kind,
                                 const char *object, struct sdc_error *err, const char *fmt, ...) {
    struct sdc_verify *out = v->out;
    char text[SDC_ERROR_MESSAGE_SIZE];
    va_list args;
    if (out->n_findings == v->cap_findings) {
        size_t cap = v->cap_findings ? 2 * v->cap_findings : 16;
        struct sdc_finding *more = sdc__realloc(out->findings, cap, sizeof *more);
        if (!more)
            return SDC_NOMEM(err, "the findings");
        out->findings = more;
        v->cap_findings = cap;
    }
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    struct sdc_finding f = {.kind = kind, .text = sdc__strdup(text)};
    f.object = object ? sdc__strdup(object) : NULL;
    if (!f.text || (object && !f.object)) {
        sdc__free(f.text);
        sdc__free(f.object);
        return SDC_NOMEM(err, "the findings");
    }
    out->findings[out->n_findings++] = f;
    if (counter(out, kind))
        ++*counter(out, kind);
    return SDC_OK;
}

/* ---- structure ---- */

static bool is_damage(enum sdc_status st) {
    return st == SDC_INVALID || st == SDC_MISMATCH;
}

static enum sdc_status open(struct sdc_verifying *v, struct sdc_error *err) {
    struct sdc_error found;
    enum sdc_status st = sdc_ckpt_open(v->path, v->options->open, &v->ckpt, &found);
    if (is_damage(st))
        return sdc__verify_find(v, SDC_FINDING_DAMAGE, NULL, err, "%s", found.message);
    if (st != SDC_OK) {
        if (err)
            *err = found;
        return st;
    }
    v->out->opened = true;
    v->out->n_files = sdc_ckpt_files(v->ckpt);
    v->out->n_tensors = sdc_ckpt_count(v->ckpt);
    v->out->format = sdc__strdup(sdc_ckpt_format(v->ckpt));
    v->decoded = sdc__calloc(v->out->n_tensors, sizeof *v->decoded);
    v->compared = sdc__calloc(v->out->n_tensors, sizeof *v->compared);
    if (!v->out->format || !v->decoded || !v->compared)
        return SDC_NOMEM(err, v->path);
    static const char *const kinds[] = {
        [SDC_NOTE_INFO] = "", [SDC_NOTE_WARNING] = "warning: ", [SDC_NOTE_SECURITY] = "security: "};
    for (size_t i = 0; i < sdc_ckpt_notes(v->ckpt); i++) {
        struct sdc_ckpt_note note = sdc_ckpt_note(v->ckpt, i);
        SDC_TRY(
            sdc__verify_find(v, SDC_FINDING_NOTE, NULL, err, "%s%s", kinds[note.kind], note.text));
    }
    return SDC_OK;
}

/* ---- tensors behind filters and indices: can they be read ---- */

/* What lies at a place that was checked when opening has no form that could be damaged. A shape
 * without storage may be of any size. */
static bool has_form(const struct sdc_ckpt *ckpt, size_t i) {
    return sdc_ckpt_tensor(ckpt, i)->dtype_known && sdc_ckpt_stored_size(ckpt, i) > 0 &&
           (sdc_ckpt_recoded(ckpt, i) || ckpt->entries[i].n_pieces == 0);
}

struct decoding {
    struct sdc_verifying *v;
    const size_t *tensors;
};

static enum sdc_status nothing_init(void *user, void *slot, struct sdc_error *err) {
    (void)user;
    (void)slot;
    (void)err;
    return SDC_OK;
}

static void nothing_release(void *user, void *slot) {
    (void)user;
    (void)slot;
}

static void nothing_begin(void *user, void *slot, size_t k) {
    (void)user;
    (void)slot;
    (void)k;
}

static void nothing(void *user, void *slot, size_t k, uint64_t first, uint64_t n,
                    const void *data) {
    (void)user;
    (void)slot;
    (void)k;
    (void)first;
    (void)n;
    (void)data;
}

static enum sdc_status decoded(void *user, void *slot, size_t k, bool last, struct sdc_error *err) {
    const struct decoding *d = user;
    (void)slot;
    (void)err;
    if (last)
        d->v->decoded[d->tensors[k]] = true;
    return SDC_OK;
}

static enum sdc_status undecodable(void *user, size_t k, const struct sdc_error *found,
                                   struct sdc_error *err) {
    const struct decoding *d = user;
    const char *name = sdc_ckpt_tensor(d->v->ckpt, d->tensors[k])->name;
    return sdc__verify_find(d->v,
                            is_damage(found->status) ? SDC_FINDING_DAMAGE : SDC_FINDING_NOT_CHECKED,
                            name, err, "%s", found->message);
}

static enum sdc_status decode(struct sdc_verifying *v, struct sdc_error *err) {
    const size_t n = sdc_ckpt_count(v->ckpt);
    size_t *tensors = sdc__alloc(n, sizeof *tensors), n_recoded = 0;
    if (!tensors)
        return SDC_NOMEM(err, v->path);
    for (size_t i = 0; i < n; i++)
        if (has_form(v->ckpt, i))
            tensors[n_recoded++] = i;
    struct decoding d = {.v = v, .tensors = tensors};
    const struct sdc_walk walk = {.ckpt = v->ckpt,
                                  .tensors = tensors,
                                  .n = n_recoded,
                                  .threads = v->options->threads,
                                  .user = &d,
                                  .slot_init = nothing_init,
                                  .slot_release = nothing_release,
                                  .begin = nothing_begin,
                                  .elements = nothing,
                                  .chunk = decoded,
                                  .unreadable = undecodable};
    enum sdc_status st = n_recoded > 0 ? sdc__walk(&walk, err) : SDC_OK;
    sdc__free(tensors);
    return st;
}

/* ---- NaN and infinity ---- */

static enum sdc_status find_nonfinite(struct sdc_verifying *v, struct sdc_error *err) {
    const struct sdc_scan_options options = {.max_sites = 1, .threads = v->options->threads};
    struct sdc_scan scan;
    SDC_TRY(sdc_scan(v->ckpt, &options, &scan, err));
    enum sdc_status st = SDC_OK;
    for (size_t i = 0; st == SDC_OK && i < scan.n; i++) {
        const struct sdc_scan_tensor *t = &scan.tensors[i];
        const char *name = sdc_ckpt_tensor(v->ckpt, t->tensor)->name;
        if (t->unreadable) {
            st = sdc__verify_find(v, SDC_FINDING_NOT_CHECKED, name, err, "%s", t->unreadable);
            continue;
        }
        if (t->n_nan + t->n_inf == 0)
            continue;
        st = sdc__verify_find(v, SDC_FINDING_NONFINITE, name, err, "%llu NaN, %llu Inf",
                              (unsigned long long)t->n_nan, (unsigned long long)t->n_inf);
        if (st == SDC_OK && t->n_nonfinite > 0) {
            struct sdc_finding *f = &v->out->findings[v->out->n_findings - 1];
            f->has_elem = true;
            f->first_elem = f->last_elem = t->nonfinite[0].elem;
        }
    }
    sdc_scan_release(&scan);
    return st;
}

/* ---- the ends of files ---- */

static enum sdc_status note_tails(struct sdc_verifying *v, struct sdc_error *err) {
    struct sdc_tails tails;
    SDC_TRY(sdc__tails_find(v->ckpt, &tails, err));
    enum sdc_status st = SDC_OK;
    for (size_t i = 0; st == SDC_OK && i < tails.n; i++)
        st = sdc__verify_find(v, SDC_FINDING_NOTE, NULL, err, "warning: %s", tails.texts[i]);
    sdc__tails_release(&tails);
    return st;
}

/* ---- the whole ---- */

static enum sdc_status look(struct sdc_verifying *v, struct sdc_error *err) {
    SDC_TRY(open(v, err));
    if (v->ckpt) {
        SDC_TRY(sdc__verify_sums(v, err));
        SDC_TRY(decode(v, err));
        SDC_TRY(note_tails(v, err));
    }
    SDC_TRY(sdc__verify_seal(v, err));
    if (!v->ckpt)
        return SDC_OK;
    SDC_TRY(sdc__verify_cover(v, err));
    return v->options->finite ? find_nonfinite(v, err) : SDC_OK;
}

enum sdc_status sdc_verify(const char *path, const struct sdc_verify_options *options,
                           struct sdc_verify *verify, struct sdc_error *err) {
    struct sdc_verifying v = {.path = path, .options = options, .out = verify};
    *verify = (struct sdc_verify){0};
    enum sdc_status st = look(&v, err);
    sdc_ckpt_close(v.ckpt);
    sdc__free(v.sum_sound);
    sdc__free(v.decoded);
    sdc__free(v.compared);
    if (st != SDC_OK)
        sdc_verify_release(verify);
    return st;
}

void sdc_verify_release(struct sdc_verify *verify) {
    for (size_t i = 0; i < verify->n_findings; i++) {
        sdc__free(verify->findings[i].object);
        sdc__free(verify->findings[i].text);
    }
    sdc__free(verify->findings);
    sdc__free(verify->format);
    sdc__free(verify->seal_path);
    *verify = (struct sdc_verify){0};
}
