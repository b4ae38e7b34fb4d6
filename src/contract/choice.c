/* SPDX-License-Identifier: Apache-2.0
 *
 * What a choice is, which combinations make sense, and what it says of a tensor.
 */
#include "sdc/choice.h"

#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "base/str.h"
#include "contract/choice_text.h"

#define USAGE(...) SDC_ERR(err, SDC_USAGE, __VA_ARGS__)

/* ---- life ---- */

void sdc_text_free(char *text) {
    sdc__free(text);
}

void sdc_choice_init(struct sdc_choice *c) {
    *c = (struct sdc_choice){.flips = 1, .rate = 1.0, .count = 1};
}

static void free_list(char **items, size_t n) {
    for (size_t i = 0; i < n; i++)
        sdc__free(items[i]);
    sdc__free(items);
}

void sdc_choice_release(struct sdc_choice *c) {
    for (size_t i = 0; i < c->n_at; i++)
        sdc__free(c->at[i].tensor);
    sdc__free(c->at);
    free_list(c->tensors, c->n_tensors);
    free_list(c->not_tensors, c->n_not_tensors);
    sdc_choice_init(c);
}

static bool copy_list(char ***to, size_t *n_to, char *const *from, size_t n) {
    if (n == 0)
        return true;
    *to = sdc__calloc(n, sizeof **to);
    if (!*to)
        return false;
    *n_to = n;
    for (size_t i = 0; i < n; i++)
        if (!((*to)[i] = sdc__strdup(from[i])))
            return false;
    return true;
}

static bool copy_at(struct sdc_choice *to, const struct sdc_choice *from) {
    if (from->n_at == 0)
        return true;
    to->at = sdc__calloc(from->n_at, sizeof *to->at);
    if (!to->at)
        return false;
    for (size_t i = 0; i < from->n_at; i++) {
        to->at[i] = from->at[i];
        to->at[i].tensor = sdc__strdup(from->at[i].tensor);
        to->n_at = i + 1;
        if (!to->at[i].tensor)
            return false;
    }
    return true;
}

enum sdc_status sdc_choice_copy(struct sdc_choice *to, const struct sdc_choice *from,
                                struct sdc_error *err) {
    struct sdc_choice copy = *from;
    copy.at = NULL;
    copy.tensors = copy.not_tensors = NULL;
    copy.n_at = copy.n_tensors = copy.n_not_tensors = 0;
    if (copy_at(&copy, from) &&
        copy_list(&copy.tensors, &copy.n_tensors, from->tensors, from->n_tensors) &&
        copy_list(&copy.not_tensors, &copy.n_not_tensors, from->not_tensors, from->n_not_tensors)) {
        *to = copy;
        return SDC_OK;
    }
    sdc_choice_release(&copy);
    return SDC_NOMEM(err, "a fault choice");
}

/* ---- checks ---- */

bool sdc_choice_takes_elements(const struct sdc_choice *c) {
    switch (c->op) {
    case SDC_OP_FLIP:
        return c->count > 1;
    case SDC_OP_MASK:
        return c->mask_length == 0;
    case SDC_OP_VALUE:
    case SDC_OP_SCALE:
    case SDC_OP_RANDOM:
    case SDC_OP_SWAP:
        return true;
    case SDC_OP_SET0:
    case SDC_OP_SET1:
    case SDC_OP_BURST:
        break;
    }
    return false;
}

/* What goes with the sites that are listed. */
static enum sdc_status check_at(const struct sdc_choice *c, struct sdc_error *err) {
    bool elements = sdc_choice_takes_elements(c);
    if (c->n_bits && !elements)
        return USAGE("bits: sites listed by at carry their bits themselves");
    if (c->n_at == 0)
        return USAGE("at: no site is listed");
    for (size_t i = 0; i < c->n_at; i++) {
        if (elements && c->at[i].has_bit)
            return USAGE("at: %.200s: op %s takes whole elements, so a bit cannot be named",
                         c->at[i].tensor, sdc__op_words[c->op]);
        if (!elements && !c->at[i].has_bit)
            return USAGE("at: %.200s: op %s needs a bit, such as @lsb:30", c->at[i].tensor,
                         sdc__op_words[c->op]);
    }
    return SDC_OK;
}

enum sdc_status sdc_choice_check(const struct sdc_choice *c, struct sdc_error *err) {
    static const char *const how[] = {"flips", "exhaustive", "at", "rate"};
    bool attempts = c->sample == SDC_SAMPLE_ATTEMPTS;
    if (c->mode != SDC_CHOICE_FLIPS && c->flips_given)
        return USAGE("flips: a number to draw does not go with %s", how[c->mode]);
    if (c->mode != SDC_CHOICE_FLIPS && c->sample_given)
        return USAGE("sample: a way to draw does not go with %s", how[c->mode]);
    if (c->rate_given && c->mode != SDC_CHOICE_RATE && !(attempts && c->mode == SDC_CHOICE_FLIPS))
        return USAGE("rate: does not go with %s", how[c->mode]);
    if (c->compat == SDC_COMPAT_HDF5_CORRUPTER && c->mode == SDC_CHOICE_FLIPS && !attempts)
        return USAGE("sample: compat hdf5-corrupter draws by attempts");
    if (c->op == SDC_OP_MASK && c->mask == 0)
        return USAGE("op: mask: no bit is set");
    if ((c->op == SDC_OP_FLIP || c->op == SDC_OP_BURST) && (c->count < 1 || c->count > 64))
        return USAGE("op: %s: %u bits, expected 1 to 64", sdc__op_words[c->op], c->count);
    if (c->n_bits && sdc_choice_takes_elements(c) && c->op != SDC_OP_FLIP)
        return USAGE("bits: op %s takes whole elements, so bits cannot be chosen",
                     sdc__op_words[c->op]);
    if (c->not_result && c->op == SDC_OP_SWAP)
        return USAGE("not-result: does not go with op swap, whose result is drawn");
    return c->mode == SDC_CHOICE_AT ? check_at(c, err) : SDC_OK;
}

/* ---- what it says of types and tensors ---- */

/* The places where a mask of this length fits into the type. */
static uint64_t places(unsigned length, unsigned width) {
    if (length > width)
        return 0;
    unsigned n = width - length + 1;
    return n >= 64 ? UINT64_MAX : ((uint64_t)1 << n) - 1;
}

uint64_t sdc_choice_bits(const struct sdc_choice *c, enum sdc_dtype dtype) {
    bool any = c->compat == SDC_COMPAT_HDF5_CORRUPTER && sdc_dtype_kind(dtype) != SDC_KIND_FLOAT;
    uint64_t bits = sdc_bits_mask(c->bits, any ? 0 : c->n_bits, dtype);
    if (c->op == SDC_OP_MASK && c->mask_length)
        return bits & places(c->mask_length, sdc_dtype_bits(dtype));
    return bits;
}

unsigned sdc_choice_sites(const struct sdc_choice *c, enum sdc_dtype dtype) {
    unsigned bits = (unsigned)__builtin_popcountll(sdc_choice_bits(c, dtype));
    unsigned width = sdc_dtype_bits(dtype);
    if (!sdc_choice_takes_elements(c))
        return bits;
    if (c->op == SDC_OP_FLIP)
        return bits >= c->count;
    return c->op != SDC_OP_MASK || width >= 64 || !(c->mask >> width);
}

/* A tensor whose bytes are those of others too is drawn from only where it is called by its name.
 */
static bool may_draw(const struct sdc_choice *c, const struct sdc_tensor_desc *t) {
    return !t->shared || c->mode == SDC_CHOICE_AT ||
           sdc_tensor_is_named(t, (const char *const *)c->tensors, c->n_tensors);
}

bool sdc_choice_admits(const struct sdc_choice *c, const struct sdc_tensor_desc *t) {
    const char *const *tensors = (const char *const *)c->tensors;
    const char *const *without = (const char *const *)c->not_tensors;
    return t->dtype_known && !t->locked && may_draw(c, t) &&
           (!c->roles || c->roles >> t->role & 1) && (!c->parts || c->parts >> t->part & 1) &&
           (!c->dtypes || c->dtypes >> t->dtype & 1) &&
           (!c->n_tensors || sdc_tensor_matches(t, tensors, c->n_tensors)) &&
           !sdc_tensor_matches(t, without, c->n_not_tensors);
}
