/* SPDX-License-Identifier: Apache-2.0
 *
 * PyTorch's optimizers number their state. The names of the parameters are in the optimizer's
 * groups from 2.6 on, if it was given them; else in the model's state dict of the same file, in the
 * same order (torch/optim/optimizer.py, state_dict).
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "base/str.h"
#include "ckpt/fmt/torch.h"

/* Length of what leads to the last component, with its '/'. */
static size_t parent(const char *name) {
    const char *slash = strrchr(name, '/');
    return slash ? (size_t)(slash - name) + 1 : 0;
}

/* A parameter, that is, of a model, and no buffer. */
static bool is_parameter(const struct sdc_torch_tensor *x) {
    enum sdc_part part;
    enum sdc_role role;
    sdc_tensor_classify(x->name, x->type.dtype, x->rank, &part, &role);
    return part == SDC_PART_MODEL && role != SDC_ROLE_RUNNING_MEAN &&
           role != SDC_ROLE_RUNNING_VAR && role != SDC_ROLE_COUNTER;
}

/* The i-th tensor's number and slot if it is "OPTIMIZER/state/NUMBER/SLOT". */
static bool is_state(const struct sdc_torch *t, const char *name, uint64_t *number,
                     const char **slot) {
    size_t len = strlen(t->optimizer);
    const char *at = name + len;
    if (strncmp(name, t->optimizer, len) != 0)
        return false;
    if (len > 0 && *at++ != '/')
        return false;
    if (strncmp(at, "state/", 6) != 0)
        return false;
    const char *digits = at + 6, *end = strchr(digits, '/');
    char text[24];
    unsigned long long value;
    if (!end || (size_t)(end - digits) >= sizeof text)
        return false;
    memcpy(text, digits, (size_t)(end - digits));
    text[end - digits] = '\0';
    if (!sdc__parse_u64(text, &value) || value >= t->n_params)
        return false;
    *number = value;
    *slot = end + 1;
    return true;
}

/* Parameters of the first container that holds any, in the order of the file; false unless there
 * are exactly as many as the optimizer has. */
static bool find_parameters(const struct sdc_torch *t, size_t *of) {
    uint64_t n = 0;
    const char *first = NULL;
    for (size_t i = 0; i < t->n; i++) {
        const struct sdc_torch_tensor *x = &t->tensors[i];
        const size_t len = parent(x->name);
        if (x->alias_of != i || !is_parameter(x) ||
            (first && (parent(first) != len || strncmp(first, x->name, len) != 0)))
            continue;
        first = first ? first : x->name;
        if (n < t->n_params)
            of[n] = i;
        n++;
    }
    return n == t->n_params;
}

static bool same_shape(const struct sdc_torch_tensor *x, const struct sdc_torch_tensor *y) {
    return x->rank == y->rank &&
           (x->rank == 0 || memcmp(x->shape, y->shape, x->rank * sizeof *x->shape) == 0);
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* No name stands for two parameters. */
static enum sdc_status names_differ(const struct sdc_torch *t, bool *differ,
                                    struct sdc_error *err) {
    const size_t n = (size_t)t->n_params;
    char **sorted = sdc__alloc(n, sizeof *sorted);
    if (!sorted)
        return SDC_NOMEM(err, t->ckpt->path);
    memcpy(sorted, t->param_names, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_text);
    *differ = true;
    for (size_t i = 1; i < n; i++)
        *differ = *differ && strcmp(sorted[i - 1], sorted[i]) != 0;
    sdc__free(sorted);
    return SDC_OK;
}

/* of: the model's parameters by their numbers; *agrees if they can be those of the optimizer. */
static enum sdc_status match_model(const struct sdc_torch *t, size_t **of, bool *agrees,
                                   struct sdc_error *err) {
    uint64_t number;
    const char *slot;
    *agrees = false;
    if (t->n_params > t->n)
        return SDC_OK;
    *of = sdc__alloc((size_t)t->n_params, sizeof **of);
    if (!*of)
        return SDC_NOMEM(err, t->ckpt->path);
    *agrees = find_parameters(t, *of);
    for (size_t i = 0; *agrees && i < t->n; i++) /* every slot of more than one number */
        if (is_state(t, t->tensors[i].name, &number, &slot) && t->tensors[i].rank > 0)
            *agrees = same_shape(&t->tensors[i], &t->tensors[(*of)[number]]);
    return SDC_OK;
}

static enum sdc_status add_alias(struct sdc_torch *t, const struct sdc_torch_tensor *x,
                                 const char *parameter, const char *slot, struct sdc_error *err) {
    enum sdc_status st = SDC_OK;
    char *name =
        sdc__asprintf("%s%s%s/%s", t->optimizer, *t->optimizer ? "/" : "", parameter, slot);
    if (!name)
        return SDC_NOMEM(err, t->ckpt->path);
    if (strlen(name) <= SDC_MAX_NAME)
        st = sdc__entry_alias(&t->ckpt->entries[x->entry], name, err);
    sdc__free(name);
    return st;
}

enum sdc_status sdc__torch_name_states(struct sdc_torch *t, struct sdc_error *err) {
    uint64_t number;
    const char *slot;
    bool agrees = false;
    size_t *of = NULL;
    if (!t->optimizer)
        return SDC_OK;
    enum sdc_status st =
        t->param_names ? names_differ(t, &agrees, err) : match_model(t, &of, &agrees, err);
    for (size_t i = 0; agrees && st == SDC_OK && i < t->n; i++) {
        const struct sdc_torch_tensor *x = &t->tensors[i];
        if (x->alias_of != i || !is_state(t, x->name, &number, &slot))
            continue;
        const char *model = of ? t->tensors[of[number]].name : NULL;
        st = add_alias(t, x, model ? model + parent(model) : t->param_names[number], slot, err);
    }
    sdc__free(of);
    return st;
}
