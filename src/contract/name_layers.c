/* SPDX-License-Identifier: Apache-2.0
 *
 * The built-in maps between PyTorch and Keras: tensors by layer and place in the layer.
 *
 * Orders of axes: PyTorch (out, in, spatial...), also of transposed convolutions (in, out, ...);
 * Keras (spatial..., in, out) and (spatial..., out, in); depthwise PyTorch (in * multiplier, 1,
 * spatial...) with groups = in, Keras (spatial..., in, multiplier). torch.nn documentation 1.13;
 * keras.layers documentation 2.11 and 3.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "contract/name_rules.h"
#include "contract/names.h"

enum kernel { NO_KERNEL, DENSE_OR_CONV, DEPTHWISE, EMBEDDING };

/* What a tensor is within the network. */
struct place {
    char *layer;         /* components joined by '.'; owned; NULL: not known */
    enum sdc_role role;  /* of the parameter */
    enum sdc_role state; /* of the optimizer's state; OTHER for the model */
    enum sdc_part part;
    enum kernel kernel; /* as far as the Keras side tells */
    size_t desc;
};

/* A layer of one side: its places are a run of the sorted array. */
struct layer {
    const char *name; /* borrowed from the first place */
    size_t first, n;
    char *signature; /* shapes of the model's places in PyTorch's order; owned; NULL: not known */
};

struct side {
    const struct sdc_tensor_desc *const *descs;
    bool keras;
    struct place *places; /* only those with a layer; sorted by layer, part, state, role */
    size_t n_places;
    struct layer *layers; /* sorted by name */
    size_t n_layers;
};

/* ---- places ---- */

/* "layers/conv1" and "conv1/net/conv1" are "conv1"; "layer1.0.conv1" stays. NULL: no memory. */
static char *plain_layer(const char *name) {
    struct sdc_buf text = SDC_BUF_INIT;
    const char *first = name, *last = name;
    size_t first_len = 0, last_len = 0, n = 0;
    for (const char *p = name; *p;) {
        size_t len = strcspn(p, "/.");
        bool container = (len == 6 && memcmp(p, "layers", 6) == 0) ||
                         (len == 29 && memcmp(p, "_layer_checkpoint_dependencies", 29) == 0);
        if (len && !container) {
            sdc__buf_printf(&text, "%s%.*s", n ? "." : "", (int)len, p);
            if (n++ == 0) {
                first = p;
                first_len = len;
            }
            last = p;
            last_len = len;
        }
        p += len;
        p += *p != '\0';
    }
    /* Keras 2 puts a layer's variables, named by their path, under the layer's name */
    if (n > 1 && first_len == last_len && memcmp(first, last, last_len) == 0) {
        sdc__buf_release(&text);
        return sdc__strndup(first, first_len);
    }
    return sdc__buf_take(&text);
}

static bool has(const char *text, const char *word) {
    return strstr(text, word) != NULL;
}

static enum kernel kernel_kind(const struct sdc_tensor_desc *t, const char *layer) {
    const char *last = strrchr(layer, '.');
    last = last ? last + 1 : layer;
    if (has(t->name, "depthwise_kernel") || strncmp(last, "depthwise_", 10) == 0)
        return DEPTHWISE;
    if (has(t->name, "embeddings") || strncmp(last, "embedding", 9) == 0)
        return EMBEDDING;
    return DENSE_OR_CONV;
}

/* Weight and shift of a normalisation without a telling name look like a weight and a bias. */
static enum sdc_role plain_role(enum sdc_role role, unsigned rank) {
    if (role == SDC_ROLE_WEIGHT && rank == 1)
        return SDC_ROLE_NORM_SCALE;
    return role == SDC_ROLE_NORM_SHIFT ? SDC_ROLE_BIAS : role;
}

static bool is_state(enum sdc_role role) {
    return role == SDC_ROLE_MOMENTUM || role == SDC_ROLE_ADAM_M || role == SDC_ROLE_ADAM_V;
}

static bool is_parameter(enum sdc_role role) {
    return role == SDC_ROLE_WEIGHT || role == SDC_ROLE_BIAS || role == SDC_ROLE_NORM_SCALE ||
           role == SDC_ROLE_RUNNING_MEAN || role == SDC_ROLE_RUNNING_VAR;
}

static enum sdc_status make_place(const struct sdc_tensor_desc *t, size_t desc, struct place *p,
                                  struct sdc_error *err) {
    char layer[SDC_MAX_NAME + 1];
    *p = (struct place){.part = t->part, .state = SDC_ROLE_OTHER, .desc = desc};
    sdc_tensor_layer(t->name, layer, sizeof layer);
    if (t->part == SDC_PART_MODEL) {
        p->role = plain_role(t->role, t->rank);
    } else if (t->part == SDC_PART_OPTIMIZER && is_state(t->role)) {
        char *parameter = sdc__name_parameter(t->name);
        enum sdc_part part;
        if (!parameter)
            return SDC_NOMEM(err, "a name map");
        sdc_tensor_classify(parameter, t->dtype, t->rank, &part, &p->role);
        p->role = *parameter ? plain_role(p->role, t->rank) : SDC_ROLE_OTHER;
        p->state = t->role;
        sdc__free(parameter);
    } else {
        return SDC_OK;
    }
    if (!is_parameter(p->role))
        return SDC_OK;
    p->layer = plain_layer(layer);
    if (!p->layer)
        return SDC_NOMEM(err, "a name map");
    p->kernel = p->role == SDC_ROLE_WEIGHT ? kernel_kind(t, p->layer) : NO_KERNEL;
    return SDC_OK;
}

static int compare_kind(const struct place *x, const struct place *y) {
    if (x->part != y->part)
        return x->part < y->part ? -1 : 1;
    if (x->state != y->state)
        return x->state < y->state ? -1 : 1;
    return x->role == y->role ? 0 : x->role < y->role ? -1 : 1;
}

static int compare_places(const void *a, const void *b) {
    const struct place *x = a, *y = b;
    int order = strcmp(x->layer, y->layer);
    if (order == 0)
        order = compare_kind(x, y);
    return order ? order : (x->desc > y->desc) - (x->desc < y->desc);
}

/* ---- axes ---- */

/* Between (out, in, spatial...) and (spatial..., in, out). */
static void kernel_axes(unsigned rank, bool to_keras, struct sdc__axis_rule *rule) {
    rule->n_axes = rank;
    for (unsigned d = 0; d + 2 < rank; d++)
        rule->axes[to_keras ? d : d + 2] = to_keras ? d + 2 : d;
    rule->axes[to_keras ? rank - 2 : 1] = to_keras ? 1 : rank - 2;
    rule->axes[to_keras ? rank - 1 : 0] = to_keras ? 0 : rank - 1;
}

/* Between (in * multiplier, 1, spatial...) and (spatial..., in, multiplier); keras: the latter. */
static void depthwise_axes(const struct sdc_tensor_desc *keras, bool to_keras,
                           struct sdc__axis_rule *rule) {
    unsigned rank = keras->rank;
    rule->n_axes = rank;
    for (unsigned d = 0; d < rank; d++)
        rule->axes[d] = to_keras ? (d + 2) % rank : (d + rank - 2) % rank;
    rule->collapse = true;
    if (!to_keras)
        return;
    rule->n_view = rank;
    for (unsigned d = 0; d < rank; d++)
        rule->view[d] = (int64_t)keras->shape[(d + rank - 2) % rank];
}

static struct sdc__axis_rule axes_of(const struct place *keras_place,
                                     const struct sdc_tensor_desc *keras, bool to_keras) {
    struct sdc__axis_rule rule = {0};
    if (keras->rank < 2 || keras->rank > SDC_MAX_RANK)
        return rule;
    if (keras_place->kernel == DENSE_OR_CONV)
        kernel_axes(keras->rank, to_keras, &rule);
    else if (keras_place->kernel == DEPTHWISE && keras->rank > 2)
        depthwise_axes(keras, to_keras, &rule);
    return rule;
}

/* Whether the shapes are those of a depthwise kernel and of no other. */
static bool is_depthwise(const struct sdc_tensor_desc *keras, const struct sdc_tensor_desc *torch) {
    unsigned rank = keras->rank;
    return rank == torch->rank && rank > 2 && keras->shape && torch->shape &&
           keras->shape[rank - 2] > 1 && torch->shape[1] == 1 &&
           torch->shape[0] == keras->shape[rank - 2] * keras->shape[rank - 1];
}

/* ---- layers ---- */

/* The sizes of a kernel in PyTorch's order; of others as they are. */
static void torch_shape(const struct place *p, const struct sdc_tensor_desc *t, bool keras,
                        struct sdc_buf *text) {
    uint64_t shape[SDC_MAX_RANK];
    char shown[SDC_MAX_RANK * 21 + 3];
    unsigned rank = t->rank <= SDC_MAX_RANK ? t->rank : SDC_MAX_RANK;
    for (unsigned d = 0; d < rank; d++)
        shape[d] = t->shape[d];
    if (keras && rank > 2 && p->kernel == DEPTHWISE) {
        shape[0] = t->shape[rank - 2] * t->shape[rank - 1];
        shape[1] = 1;
        memcpy(shape + 2, t->shape, (rank - 2) * sizeof *shape);
    } else if (keras && rank > 1 && p->kernel == DENSE_OR_CONV) {
        shape[0] = t->shape[rank - 1];
        shape[1] = t->shape[rank - 2];
        memcpy(shape + 2, t->shape, (rank - 2) * sizeof *shape);
    }
    sdc__shape_text(shape, rank, shown, sizeof shown);
    sdc__buf_printf(text, "%s%s", sdc_role_name(p->role), shown);
}

static enum sdc_status make_signature(const struct side *side, struct layer *layer,
                                      struct sdc_error *err) {
    struct sdc_buf text = SDC_BUF_INIT;
    for (size_t i = layer->first; i < layer->first + layer->n; i++) {
        const struct place *p = &side->places[i];
        const struct sdc_tensor_desc *t = side->descs[p->desc];
        if (p->part != SDC_PART_MODEL)
            continue;
        if (!t->shape && t->rank) {
            sdc__buf_release(&text);
            return SDC_OK;
        }
        torch_shape(p, t, side->keras, &text);
    }
    if (text.len == 0 && !text.failed)
        return SDC_OK;
    layer->signature = sdc__buf_take(&text);
    return layer->signature ? SDC_OK : SDC_NOMEM(err, "a name map");
}

static enum sdc_status make_layers(struct side *side, struct sdc_error *err) {
    side->layers = sdc__calloc(side->n_places, sizeof *side->layers);
    if (!side->layers)
        return SDC_NOMEM(err, "a name map");
    for (size_t i = 0; i < side->n_places; i++) {
        if (i == 0 || strcmp(side->places[i].layer, side->places[i - 1].layer) != 0)
            side->layers[side->n_layers++] =
                (struct layer){.name = side->places[i].layer, .first = i};
        side->layers[side->n_layers - 1].n++;
    }
    for (size_t i = 0; i < side->n_layers; i++)
        SDC_TRY(make_signature(side, &side->layers[i], err));
    return SDC_OK;
}

static void side_release(struct side *side) {
    for (size_t i = 0; i < side->n_layers; i++)
        sdc__free(side->layers[i].signature);
    for (size_t i = 0; i < side->n_places; i++)
        sdc__free(side->places[i].layer);
    sdc__free(side->places);
    sdc__free(side->layers);
}

/* links: of the descs, or NULL; those that are linked or refused already stay out. */
static enum sdc_status side_init(struct side *side, const struct sdc_tensor_desc *const descs[],
                                 size_t n, bool keras, struct sdc_error *err) {
    *side = (struct side){.descs = descs, .keras = keras};
    side->places = sdc__calloc(n, sizeof *side->places);
    if (!side->places)
        return SDC_NOMEM(err, "a name map");
    for (size_t i = 0; i < n; i++) {
        struct place *p = &side->places[side->n_places];
        SDC_TRY(make_place(descs[i], i, p, err));
        side->n_places += p->layer != NULL;
    }
    qsort(side->places, side->n_places, sizeof *side->places, compare_places);
    return make_layers(side, err);
}

static int compare_layer_name(const void *key, const void *item) {
    return strcmp(key, ((const struct layer *)item)->name);
}

static const struct layer *find_layer(const struct side *side, const char *name) {
    return bsearch(name, side->layers, side->n_layers, sizeof *side->layers, compare_layer_name);
}

/* ---- which layer is which ---- */

enum ruling { NO_RULING, LEFT_OUT, NOT_THERE };

struct pairing {
    const struct sdc_name_map *map;
    const struct side *from, *to;
    const struct layer **partners; /* of each layer of from; NULL: none */
    char **whys;                   /* owned; for those without */
    enum ruling *rulings;          /* of a rule for the layer that gives it none */
};

/* The name of a layer after the rules of the map; *to is NULL without a rule. */
static enum sdc_status renamed(const struct pairing *p, const char *name, char **to, bool *left_out,
                               struct sdc_error *err) {
    *to = NULL;
    *left_out = false;
    for (size_t k = 0; p->map && k < p->map->n_rules; k++) {
        bool ok;
        char *target;
        const struct sdc__name_rule *rule = &p->map->rules[k];
        if (!rule->layer || !sdc__name_rule_match(rule, name, &target, &ok))
            continue;
        if (!ok)
            return SDC_NOMEM(err, "a name map");
        if (!target) {
            *left_out = true;
            return SDC_OK;
        }
        *to = plain_layer(target);
        sdc__free(target);
        return *to ? SDC_OK : SDC_NOMEM(err, "a name map");
    }
    return SDC_OK;
}

static enum sdc_status pair_by_name(struct pairing *p, size_t i, struct sdc_error *err) {
    const struct layer *l = &p->from->layers[i];
    char *name;
    bool left_out;
    SDC_TRY(renamed(p, l->name, &name, &left_out, err));
    p->partners[i] = left_out ? NULL : find_layer(p->to, name ? name : l->name);
    enum sdc_status st = SDC_OK;
    if (left_out || (name && !p->partners[i])) {
        p->rulings[i] = left_out ? LEFT_OUT : NOT_THERE;
        p->whys[i] = left_out ? sdc__asprintf("a rule leaves layer %s out", l->name)
                              : sdc__asprintf("there is no layer %s", name);
        st = p->whys[i] ? SDC_OK : SDC_NOMEM(err, "a name map");
    }
    sdc__free(name);
    return st;
}

struct signed_layer {
    const char *signature;
    size_t layer;
};

static int compare_signed(const void *a, const void *b) {
    const struct signed_layer *x = a, *y = b;
    int order = strcmp(x->signature, y->signature);
    return order ? order : (x->layer > y->layer) - (x->layer < y->layer);
}

/* The layers of a side that are not taken, by signature. NULL: no memory. */
static struct signed_layer *sign(const struct side *side, const bool *taken, size_t *n) {
    struct signed_layer *list = sdc__calloc(side->n_layers, sizeof *list);
    *n = 0;
    for (size_t i = 0; list && i < side->n_layers; i++)
        if (!taken[i] && side->layers[i].signature)
            list[(*n)++] = (struct signed_layer){side->layers[i].signature, i};
    if (list)
        qsort(list, *n, sizeof *list, compare_signed);
    return list;
}

static size_t run_length(const struct signed_layer *list, size_t n, size_t at) {
    size_t end = at + 1;
    while (end < n && strcmp(list[end].signature, list[at].signature) == 0)
        end++;
    return end - at;
}

/* Layers of the same shapes: one on either side are partners, more are refused. */
static enum sdc_status pair_runs(struct pairing *p, const struct signed_layer *a, size_t n_a,
                                 const struct signed_layer *b, size_t n_b, struct sdc_error *err) {
    for (size_t i = 0, j = 0; i < n_a;) {
        while (j < n_b && strcmp(b[j].signature, a[i].signature) < 0)
            j++;
        size_t in_a = run_length(a, n_a, i);
        size_t in_b =
            j < n_b && strcmp(b[j].signature, a[i].signature) == 0 ? run_length(b, n_b, j) : 0;
        if (in_a == 1 && in_b == 1)
            p->partners[a[i].layer] = &p->to->layers[b[j].layer];
        for (size_t k = i; (in_a > 1 || in_b > 1) && in_b && k < i + in_a; k++) {
            p->whys[a[k].layer] = sdc__asprintf(
                "%zu layers there have the shapes of layer %s (%s ...) and %zu here: "
                "say which in the map, 'layer %s -> %s'",
                in_b, p->from->layers[a[k].layer].name, p->to->layers[b[j].layer].name, in_a,
                p->from->layers[a[k].layer].name, p->to->layers[b[j].layer].name);
            if (!p->whys[a[k].layer])
                return SDC_NOMEM(err, "a name map");
        }
        i += in_a;
    }
    return SDC_OK;
}

static enum sdc_status pair_by_shape(struct pairing *p, struct sdc_error *err) {
    bool *taken_a = sdc__calloc(p->from->n_layers, sizeof *taken_a);
    bool *taken_b = sdc__calloc(p->to->n_layers, sizeof *taken_b);
    struct signed_layer *a = NULL, *b = NULL;
    size_t n_a, n_b;
    enum sdc_status st = SDC_NO_MEMORY;
    if (!taken_a || !taken_b)
        goto out;
    for (size_t i = 0; i < p->from->n_layers; i++) {
        taken_a[i] = p->partners[i] || p->whys[i];
        if (p->partners[i])
            taken_b[p->partners[i] - p->to->layers] = true;
    }
    a = sign(p->from, taken_a, &n_a);
    b = sign(p->to, taken_b, &n_b);
    if (a && b)
        st = pair_runs(p, a, n_a, b, n_b, err);
out:
    sdc__free(taken_a);
    sdc__free(taken_b);
    sdc__free(a);
    sdc__free(b);
    return st == SDC_NO_MEMORY ? SDC_NOMEM(err, "a name map") : st;
}

/* ---- links ---- */

static enum sdc_status refuse(struct sdc_name_link *link, char *why, struct sdc_error *err) {
    link->why = why;
    return why ? SDC_OK : SDC_NOMEM(err, "a name map");
}

static enum sdc_status link_place(const struct pairing *p, const struct place *place, size_t layer,
                                  struct sdc_name_link *link, struct sdc_error *err) {
    const struct layer *partner = p->partners[layer];
    const struct side *to = p->to;
    const struct place *found = NULL;
    unsigned n = 0;
    link->ruled = p->rulings[layer] != NO_RULING;
    link->left_out = p->rulings[layer] == LEFT_OUT;
    if (!partner)
        return p->whys[layer] ? refuse(link, sdc__strdup(p->whys[layer]), err) : SDC_OK;
    for (size_t i = partner->first; i < partner->first + partner->n; i++)
        if (compare_kind(&to->places[i], place) == 0) {
            found = &to->places[i];
            n++;
        }
    if (n != 1)
        return refuse(link,
                      sdc__asprintf("layer %s has %s of its kind", partner->name,
                                    n ? "several tensors" : "no tensor"),
                      err);
    const struct sdc_tensor_desc *a = p->from->descs[place->desc], *b = to->descs[found->desc];
    /* how many of its outputs come from one input is in the shape alone */
    if (!to->keras && place->kernel == DEPTHWISE && !a->shape)
        return refuse(link, sdc__strdup("its shape is not known, and its kernel is depthwise"),
                      err);
    struct place keras = to->keras ? *found : *place;
    if (keras.kernel == DENSE_OR_CONV && is_depthwise(to->keras ? b : a, to->keras ? a : b))
        keras.kernel = DEPTHWISE;
    struct sdc__axis_rule rule = axes_of(&keras, to->keras ? b : a, to->keras);
    SDC_TRY(sdc__name_fit(a, b, &rule, link, err));
    if (!link->why)
        link->to = found->desc;
    return SDC_OK;
}

static enum sdc_status link_all(const struct pairing *p, struct sdc_name_link *links,
                                struct sdc_error *err) {
    for (size_t i = 0; i < p->from->n_layers; i++) {
        const struct layer *l = &p->from->layers[i];
        for (size_t k = l->first; k < l->first + l->n; k++) {
            struct sdc_name_link *link = &links[p->from->places[k].desc];
            if (link->to == SDC_NAME_NONE && !link->why)
                SDC_TRY(link_place(p, &p->from->places[k], i, link, err));
        }
    }
    return SDC_OK;
}

enum sdc_status sdc__name_layers_link(const struct sdc_name_map *map, enum sdc__builtin builtin,
                                      const struct sdc_tensor_desc *const from[], size_t n_from,
                                      bool whole, const struct sdc_tensor_desc *const to[],
                                      size_t n_to, struct sdc_name_link *links,
                                      struct sdc_error *err) {
    struct side a, b = {0};
    struct pairing p = {.map = map, .from = &a, .to = &b};
    enum sdc_status st;
    SDC_TRY_OUT(st, side_init(&a, from, n_from, builtin == SDC__KERAS_TORCH, err));
    SDC_TRY_OUT(st, side_init(&b, to, n_to, builtin == SDC__TORCH_KERAS, err));
    p.partners = sdc__calloc(a.n_layers, sizeof *p.partners);
    p.whys = sdc__calloc(a.n_layers, sizeof *p.whys);
    p.rulings = sdc__calloc(a.n_layers, sizeof *p.rulings);
    if (!p.partners || !p.whys || !p.rulings) {
        st = SDC_NOMEM(err, "a name map");
        goto out;
    }
    for (size_t i = 0; i < a.n_layers; i++)
        SDC_TRY_OUT(st, pair_by_name(&p, i, err));
    if (whole)
        SDC_TRY_OUT(st, pair_by_shape(&p, err));
    st = link_all(&p, links, err);
out:
    for (size_t i = 0; p.whys && i < a.n_layers; i++)
        sdc__free(p.whys[i]);
    sdc__free(p.whys);
    sdc__free(p.rulings);
    sdc__free(p.partners);
    side_release(&a);
    side_release(&b);
    return st;
}
