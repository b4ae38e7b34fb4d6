/* SPDX-License-Identifier: Apache-2.0
 *
 * The injector's configuration as a choice of faults.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "camp/spec_node.h"
#include "cli/corrupter.h"

#define BAD_AT(place, ...)                                                                         \
    sdc__spec_error(err, SDC_INVALID, c->what, (place).line, (place).column, __VA_ARGS__)

/* ---- locations ---- */

static enum sdc_status no_location(const struct sdc_ckpt *ckpt, const char *location,
                                   struct sdc_error *err) {
    const char *best = NULL;
    unsigned least = (unsigned)(strlen(location) / 3 + 1);
    for (size_t i = 0; i < sdc_ckpt_count(ckpt); i++) {
        const char *name = sdc_ckpt_tensor(ckpt, i)->name;
        unsigned distance = sdc__edit_distance(location, name);
        if (distance < least) {
            least = distance;
            best = name;
        }
    }
    /* what begins with it is what the injector would have taken */
    for (size_t i = 0; !best && *location && i < sdc_ckpt_count(ckpt); i++)
        if (strstr(sdc_ckpt_tensor(ckpt, i)->name, location))
            best = sdc_ckpt_tensor(ckpt, i)->name;
    return SDC_ERR(err, SDC_INVALID, "%s: neither a tensor nor a group is called '%.200s'%s%s%s",
                   sdc_ckpt_path(ckpt), location, best ? " (did you mean '" : "", best ? best : "",
                   best ? "'?)" : "");
}

/* Adds "LOCATION/" or "LOCATION." and a star if some tensor's name begins so. */
static enum sdc_status add_group(const struct sdc_ckpt *ckpt, const char *location,
                                 const char *separator, struct sdc_choice *choice, bool *found,
                                 struct sdc_error *err) {
    char *pattern = sdc__asprintf("%s%s*", location, separator);
    size_t len = pattern ? strlen(pattern) - 1 : 0;
    bool any = false;
    for (size_t i = 0; pattern && !any && i < sdc_ckpt_count(ckpt); i++)
        any = strncmp(sdc_ckpt_tensor(ckpt, i)->name, pattern, len) == 0;
    enum sdc_status st = pattern ? SDC_OK : SDC_NOMEM(err, "a location");
    if (any)
        st = sdc_choice_set(choice, "tensors", pattern, err);
    sdc__free(pattern);
    *found = *found || any;
    return st;
}

enum sdc_status sdc_corrupter_locate(const struct sdc_ckpt *ckpt, const char *location,
                                     struct sdc_choice *choice, struct sdc_error *err) {
    size_t len = strlen(location), skip = strspn(location, "/"), tensor;
    while (len > skip && location[len - 1] == '/')
        len--;
    char *plain = sdc__strndup(location + skip, len - skip);
    bool found = false;
    enum sdc_status st;
    if (!plain)
        return SDC_NOMEM(err, "a location");
    if (sdc_ckpt_find(ckpt, plain, &tensor)) {
        st = sdc_choice_set(choice, "tensors", sdc_ckpt_tensor(ckpt, tensor)->name, err);
        goto out;
    }
    bool whole = !*plain || plain[strlen(plain) - 1] == '.'; /* "" is the root */
    SDC_TRY_OUT(st, add_group(ckpt, plain, whole ? "" : "/", choice, &found, err));
    if (!whole)
        SDC_TRY_OUT(st, add_group(ckpt, plain, ".", choice, &found, err));
    if (!found)
        st = no_location(ckpt, plain, err);
out:
    sdc__free(plain);
    return st;
}

static enum sdc_status add_location(const struct sdc_corrupter_config *c,
                                    const struct sdc_ckpt *ckpt, const char *location,
                                    struct sdc_choice *choice, struct sdc_error *err) {
    enum sdc_status st = sdc_corrupter_locate(ckpt, location, choice, err);
    if (st != SDC_OK)
        sdc_error_prefix(err, "%s:%d:%d", c->what, c->at_locations.line, c->at_locations.column);
    return st;
}

/* ---- words ---- */

static enum sdc_status set(struct sdc_choice *choice, const char *key, struct sdc_error *err,
                           const char *fmt, ...) SDC_PRINTF(4, 5);

static enum sdc_status set(struct sdc_choice *choice, const char *key, struct sdc_error *err,
                           const char *fmt, ...) {
    char value[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(value, sizeof value, fmt, args);
    va_end(args);
    return sdc_choice_set(choice, key, value, err);
}

static enum sdc_status set_bits(const struct sdc_corrupter_config *c, struct sdc_choice *choice,
                                struct sdc_error *err) {
    const char *sign = c->sign_too && c->first_bit > 0 ? ",msb:0" : "";
    uint64_t last = c->last_bit == SDC_CORRUPTER_LAST ? 63 : c->last_bit;
    if (c->at_bits.line)
        SDC_TRY(set(choice, "bits", err, "msb:%llu-%llu%s", (unsigned long long)c->first_bit,
                    (unsigned long long)last, sign));
    if (c->bits_per_value > 1)
        return set(choice, "op", err, "flip=%llu", (unsigned long long)c->bits_per_value);
    return SDC_OK;
}

static enum sdc_status set_mask(const struct sdc_corrupter_config *c, struct sdc_choice *choice,
                                struct sdc_error *err) {
    uint64_t mask = 0;
    for (const char *p = c->mask; *p; p++)
        mask = mask << 1 | (*p == '1');
    return set(choice, "op", err, "mask=%llx/%zu", (unsigned long long)mask, strlen(c->mask));
}

static enum sdc_status set_operator(const struct sdc_corrupter_config *c, struct sdc_choice *choice,
                                    struct sdc_error *err) {
    switch (c->mode) {
    case SDC_CORRUPTER_MASK:
        return set_mask(c, choice, err);
    case SDC_CORRUPTER_SCALE:
        return set(choice, "op", err, "scale=%.17g", c->factor);
    case SDC_CORRUPTER_BITS:
        break;
    }
    return set_bits(c, choice, err);
}

/* ---- what the checkpoint has ---- */

/* Every float of the support has the width that the configuration says, and the bits. */
static enum sdc_status check_width(const struct sdc_corrupter_config *c,
                                   const struct sdc_tensor_desc *t, struct sdc_error *err) {
    unsigned bits = sdc_dtype_bits(t->dtype);
    if (sdc_dtype_kind(t->dtype) != SDC_KIND_FLOAT)
        return SDC_OK;
    if (c->precision && c->precision != bits)
        return BAD_AT(c->at_precision,
                      "float_precision: %u, but tensor %s is %s: values are altered as they are "
                      "stored, so name this width or auto",
                      c->precision, t->name, sdc_dtype_name(t->dtype));
    if (c->mode == SDC_CORRUPTER_BITS && c->at_bits.line &&
        (c->first_bit >= bits || (c->last_bit != SDC_CORRUPTER_LAST && c->last_bit >= bits)))
        return BAD_AT(
            c->at_bits, "bits %llu to %llu, but tensor %s is %s, whose bits are 0 (the sign) to %u",
            (unsigned long long)c->first_bit,
            (unsigned long long)(c->last_bit == SDC_CORRUPTER_LAST ? bits - 1 : c->last_bit),
            t->name, sdc_dtype_name(t->dtype), bits - 1);
    return SDC_OK;
}

/* Entries of the locations, after the check of each tensor. */
static enum sdc_status count_entries(const struct sdc_corrupter_config *c,
                                     const struct sdc_ckpt *ckpt, const struct sdc_choice *choice,
                                     uint64_t *n, struct sdc_error *err) {
    *n = 0;
    for (size_t i = 0; i < sdc_ckpt_count(ckpt); i++) {
        const struct sdc_tensor_desc *t = sdc_ckpt_tensor(ckpt, i);
        if (t->shared || !sdc_choice_admits(choice, t))
            continue;
        SDC_TRY(check_width(c, t, err));
        *n += t->n_elems;
    }
    return SDC_OK;
}

enum sdc_status sdc_corrupter_choose(const struct sdc_corrupter_config *c,
                                     const struct sdc_ckpt *ckpt, struct sdc_choice *choice,
                                     struct sdc_error *err) {
    uint64_t entries;
    SDC_TRY(sdc_choice_set(choice, "compat", "hdf5-corrupter", err));
    for (size_t i = 0; !c->anywhere && i < c->n_locations; i++)
        SDC_TRY(add_location(c, ckpt, c->locations[i], choice, err));
    SDC_TRY(set_operator(c, choice, err));
    if (!c->allow_nan)
        SDC_TRY(sdc_choice_set(choice, "not-result", "nan,inf", err));
    SDC_TRY(count_entries(c, ckpt, choice, &entries, err));
    double attempts = c->percentage ? floor(c->amount * (double)entries / 100) : c->amount;
    SDC_TRY(set(choice, "flips", err, "%.0f", attempts));
    return set(choice, "rate", err, "%.17g", c->probability);
}
