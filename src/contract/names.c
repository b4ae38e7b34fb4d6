/* SPDX-License-Identifier: Apache-2.0
 *
 * Names seen in the wild: PyTorch's state dicts (also torchvision's and those under wrappers),
 * PyTorch's optimizer state by running number, Keras 2 and 3 HDF5 files, TensorFlow's object-based
 * and name-based checkpoints, Flax, and this project's own trainer.
 */
#include "contract/names.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"

/* A piece of a name; not NUL-terminated. */
struct piece {
    const char *s;
    size_t len;
};

static bool is_separator(char c) {
    return c == '/' || c == '.';
}

static bool same(struct piece p, const char *word) {
    return strlen(word) == p.len && memcmp(p.s, word, p.len) == 0;
}

static bool same_nocase(struct piece p, const char *word) {
    return strlen(word) == p.len && strncasecmp(p.s, word, p.len) == 0;
}

static bool starts(struct piece p, const char *word) {
    size_t len = strlen(word);
    return p.len >= len && memcmp(p.s, word, len) == 0;
}

static bool ends(struct piece p, const char *word) {
    size_t len = strlen(word);
    return p.len >= len && memcmp(p.s + p.len - len, word, len) == 0;
}

static bool all_digits(struct piece p) {
    for (size_t i = 0; i < p.len; i++)
        if (!isdigit((unsigned char)p.s[i]))
            return false;
    return p.len > 0;
}

/* Length of what follows the last colon if it is a word: the part of an element, as in
 * "blk.0.attn_q.weight:scale". */
static size_t element_part(struct piece p) {
    size_t n = 0;
    while (n < p.len && (islower((unsigned char)p.s[p.len - 1 - n]) || p.s[p.len - 1 - n] == '_'))
        n++;
    return n > 0 && n < p.len && p.s[p.len - 1 - n] == ':' ? n : 0;
}

/* The last component of name; *rest becomes what stands before its separator. Keras' ":0" and the
 * ":part" of an element's parts are not part of it. An empty piece at the end of the walk. */
static struct piece last_component(struct piece name, struct piece *rest) {
    size_t start = name.len;
    while (start > 0 && !is_separator(name.s[start - 1]))
        start--;
    struct piece p = {name.s + start, name.len - start};
    const char *colon = memchr(p.s, ':', p.len);
    size_t part = element_part(p);
    if (part)
        p.len -= part + 1;
    else if (colon && all_digits((struct piece){colon + 1, (size_t)(p.s + p.len - colon) - 1}))
        p.len = (size_t)(colon - p.s);
    *rest = (struct piece){name.s, start ? start - 1 : 0};
    return p;
}

static struct piece first_component(struct piece name) {
    size_t len = 0;
    while (len < name.len && !is_separator(name.s[len]))
        len++;
    return (struct piece){name.s, len};
}

/* name without its first component and separator; empty if there is only one. */
static struct piece after_first(struct piece name) {
    size_t skip = first_component(name).len;
    if (skip == name.len)
        return (struct piece){name.s + name.len, 0};
    return (struct piece){name.s + skip + 1, name.len - skip - 1};
}

/* ---- prefixes ---- */

static const struct {
    const char *word;
    enum sdc_part part;
} part_prefixes[] = {
    {"model", SDC_PART_MODEL},
    {"optimizer", SDC_PART_OPTIMIZER},
    {"loop", SDC_PART_LOOP},
    {"model_weights", SDC_PART_MODEL}, /* Keras 2 */
    {"optimizer_weights", SDC_PART_OPTIMIZER},
    {"model_state_dict", SDC_PART_MODEL}, /* keys of the PyTorch tutorials */
    {"optimizer_state_dict", SDC_PART_OPTIMIZER},
    {"state_dict", SDC_PART_MODEL},
    {"params", SDC_PART_MODEL}, /* Flax */
    {"batch_stats", SDC_PART_MODEL},
};

size_t sdc__name_part_prefix(const char *name, enum sdc_part *part) {
    struct piece whole = {name, strlen(name)};
    struct piece first = first_component(whole);
    *part = SDC_PART_NONE;
    if (after_first(whole).len == 0)
        return 0;
    for (size_t i = 0; i < sizeof part_prefixes / sizeof part_prefixes[0]; i++) {
        if (same(first, part_prefixes[i].word)) {
            *part = part_prefixes[i].part;
            return first.len + 1;
        }
    }
    return 0;
}

size_t sdc__name_wrapper_prefix(const char *name) {
    static const char *const wrappers[] = {"module.", "_orig_mod."};
    size_t used = 0;
    for (size_t i = 0; i < sizeof wrappers / sizeof wrappers[0];) {
        size_t len = strlen(wrappers[i]);
        if (strncmp(name + used, wrappers[i], len) == 0 && name[used + len]) {
            used += len;
            i = 0;
        } else {
            i++;
        }
    }
    return used;
}

char *sdc__name_unwrapped(const char *name) {
    enum sdc_part part;
    size_t prefix = sdc__name_part_prefix(name, &part);
    size_t skip = sdc__name_wrapper_prefix(name + prefix);
    char *copy = sdc__strdup(name);
    if (copy && skip)
        memmove(copy + prefix, name + prefix + skip, strlen(name + prefix + skip) + 1);
    return copy;
}

char *sdc__name_plain(const char *name) {
    static const char *const behind[] = {"/.ATTRIBUTES/VARIABLE_VALUE", ":0"};
    char *plain = sdc__name_unwrapped(name);
    for (size_t i = 0; plain && i < sizeof behind / sizeof behind[0]; i++) {
        size_t len = strlen(plain), cut = strlen(behind[i]);
        if (len > cut && strcmp(plain + len - cut, behind[i]) == 0)
            plain[len - cut] = '\0';
    }
    return plain;
}

/* ---- TensorFlow ---- */

/* Where `what` begins in name, or its end. */
static size_t find(struct piece name, const char *what) {
    size_t len = strlen(what);
    for (size_t i = 0; i + len <= name.len; i++)
        if (memcmp(name.s + i, what, len) == 0)
            return i;
    return name.len;
}

/* The key of an object-based checkpoint without the attribute that holds the value:
 * "fc1/kernel/.ATTRIBUTES/VARIABLE_VALUE". */
static struct piece without_attribute(struct piece name) {
    return (struct piece){name.s, find(name, "/.ATTRIBUTES/")};
}

/* "fc1/kernel/.OPTIMIZER_SLOT/optimizer/m" */
static bool has_slot(struct piece name, struct piece *parameter) {
    *parameter = (struct piece){name.s, find(name, "/.OPTIMIZER_SLOT/")};
    return parameter->len < name.len;
}

static const char *const optimizer_words[] = {"sgd",   "adam",   "adamw",    "rmsprop", "adagrad",
                                              "nadam", "adamax", "adadelta", "ftrl",    "lion"};

static bool is_optimizer(struct piece p) {
    for (size_t i = 0; i < sizeof optimizer_words / sizeof *optimizer_words; i++)
        if (same_nocase(p, optimizer_words[i]))
            return true;
    return false;
}

/* ---- roles ---- */

struct role_word {
    const char *word;
    enum sdc_role role;
};

/* Last components that alone tell a parameter or buffer of a network. */
static const struct role_word parameter_words[] = {
    {"weight", SDC_ROLE_WEIGHT},
    {"kernel", SDC_ROLE_WEIGHT},
    {"depthwise_kernel", SDC_ROLE_WEIGHT},
    {"pointwise_kernel", SDC_ROLE_WEIGHT},
    {"recurrent_kernel", SDC_ROLE_WEIGHT},
    {"embeddings", SDC_ROLE_WEIGHT},
    {"bias", SDC_ROLE_BIAS},
    {"gamma", SDC_ROLE_NORM_SCALE},
    {"beta", SDC_ROLE_NORM_SHIFT},
    {"running_mean", SDC_ROLE_RUNNING_MEAN},
    {"running_var", SDC_ROLE_RUNNING_VAR},
    {"moving_mean", SDC_ROLE_RUNNING_MEAN},
    {"moving_variance", SDC_ROLE_RUNNING_VAR},
    {"num_batches_tracked", SDC_ROLE_COUNTER},
};

/* State of an optimizer, as its own component. The four letters follow the optimizer's name. */
static const struct role_word state_words[] = {
    {"momentum", SDC_ROLE_MOMENTUM}, {"momentum_buffer", SDC_ROLE_MOMENTUM},
    {"velocity", SDC_ROLE_MOMENTUM}, {"exp_avg", SDC_ROLE_ADAM_M},
    {"exp_avg_sq", SDC_ROLE_ADAM_V}, {"adam_m", SDC_ROLE_ADAM_M},
    {"adam_v", SDC_ROLE_ADAM_V},     {"adam-m", SDC_ROLE_ADAM_M},
    {"adam-v", SDC_ROLE_ADAM_V},     {"m", SDC_ROLE_ADAM_M},
    {"v", SDC_ROLE_ADAM_V},          {"mu", SDC_ROLE_ADAM_M},
    {"nu", SDC_ROLE_ADAM_V},
};

static const struct role_word loop_words[] = {
    {"step", SDC_ROLE_COUNTER},
    {"steps", SDC_ROLE_COUNTER},
    {"global_step", SDC_ROLE_COUNTER},
    {"save_counter", SDC_ROLE_COUNTER},
    {"epoch", SDC_ROLE_COUNTER},
    {"last_epoch", SDC_ROLE_COUNTER},
    {"iteration", SDC_ROLE_COUNTER},
    {"iterations", SDC_ROLE_COUNTER},
    {"iter", SDC_ROLE_COUNTER},
    {"count", SDC_ROLE_COUNTER},
    {"counter", SDC_ROLE_COUNTER},
    {"_step_count", SDC_ROLE_COUNTER},
    {"rng", SDC_ROLE_RNG},
    {"rng_state", SDC_ROLE_RNG},
    {"seed", SDC_ROLE_RNG},
    {"generator", SDC_ROLE_RNG},
    {"random_state", SDC_ROLE_RNG},
    {"cursor", SDC_ROLE_CURSOR},
    {"sampler", SDC_ROLE_CURSOR},
    {"position", SDC_ROLE_CURSOR},
};

#define FIND(table, p, role) find_word((table), sizeof(table) / sizeof((table)[0]), (p), (role))

static bool find_word(const struct role_word *table, size_t n, struct piece p,
                      enum sdc_role *role) {
    for (size_t i = 0; i < n; i++) {
        if (same(p, table[i].word)) {
            *role = table[i].role;
            return true;
        }
    }
    return false;
}

/* Also the compound names of recurrent and attention layers: weight_ih_l0, in_proj_bias. */
static bool parameter_role(struct piece p, enum sdc_role *role) {
    if (FIND(parameter_words, p, role))
        return true;
    if (starts(p, "weight_") || ends(p, "_weight") || ends(p, "_kernel"))
        *role = SDC_ROLE_WEIGHT;
    else if (starts(p, "bias_") || ends(p, "_bias"))
        *role = SDC_ROLE_BIAS;
    else
        return false;
    return true;
}

/* "bn1", "layer_norm", "BatchNorm_0", "ln_f", "batch_normalization_3"; not "subnet", "normal". */
static bool says_norm(struct piece p) {
    for (size_t i = 0; i + 4 <= p.len; i++) {
        struct piece tail = {p.s + i, p.len - i};
        if (strncasecmp(tail.s, "norm", 4) == 0 &&
            !(tail.len >= 6 && strncasecmp(tail.s, "normal", 6) == 0 &&
              !(tail.len >= 9 && strncasecmp(tail.s, "normaliz", 8) == 0)))
            return true;
    }
    /* short words only as a whole, between underscores and digits */
    for (size_t i = 0; i < p.len;) {
        size_t j = i;
        while (j < p.len && isalpha((unsigned char)p.s[j]))
            j++;
        struct piece token = {p.s + i, j - i};
        if (same_nocase(token, "bn") || same_nocase(token, "ln") || same_nocase(token, "gn"))
            return true;
        i = j + 1;
    }
    return false;
}

/* Whether the module (all of a name but its last component) is a normalisation. */
static bool module_is_norm(struct piece module) {
    struct piece rest, p = last_component(module, &rest);
    struct piece number = {NULL, 0};
    while (rest.len && all_digits(p)) { /* a place in a sequence has no name of its own */
        number = p;
        p = last_component(rest, &rest);
    }
    /* the residual networks' projection is convolution 0, normalisation 1 */
    if (number.s && same(number, "1") && (same(p, "downsample") || same(p, "shortcut")))
        return true;
    return says_norm(p);
}

static enum sdc_role model_role(struct piece name, enum sdc_dtype dtype, unsigned rank,
                                bool *known) {
    struct piece module, p = last_component(name, &module);
    enum sdc_role role = SDC_ROLE_OTHER;
    *known = parameter_role(p, &role);
    bool norm = module_is_norm(module);
    if (*known) {
        if (rank == 1 && norm && role == SDC_ROLE_WEIGHT)
            role = SDC_ROLE_NORM_SCALE;
        else if (rank == 1 && norm && role == SDC_ROLE_BIAS)
            role = SDC_ROLE_NORM_SHIFT;
        return role;
    }
    if (norm && same(p, "scale")) /* Flax */
        return SDC_ROLE_NORM_SCALE;
    if (norm && same(p, "mean"))
        return SDC_ROLE_RUNNING_MEAN;
    if (norm && same(p, "var"))
        return SDC_ROLE_RUNNING_VAR;
    if (same(p, "w") || same(p, "W"))
        return SDC_ROLE_WEIGHT;
    if (same(p, "b"))
        return SDC_ROLE_BIAS;
    struct piece layer, vars = last_component(module, &layer);
    if (same(vars, "vars") && all_digits(p)) { /* Keras 3: by position only */
        static const enum sdc_role of_norm[] = {SDC_ROLE_NORM_SCALE, SDC_ROLE_NORM_SHIFT,
                                                SDC_ROLE_RUNNING_MEAN, SDC_ROLE_RUNNING_VAR};
        *known = true;
        if (module_is_norm(layer) && p.len == 1 && p.s[0] <= '3')
            return of_norm[p.s[0] - '0'];
        if (sdc_dtype_kind(dtype) != SDC_KIND_FLOAT)
            return SDC_ROLE_OTHER; /* the seed of a dropout layer, say */
        return rank >= 2 ? SDC_ROLE_WEIGHT : rank == 1 && same(p, "1") ? SDC_ROLE_BIAS : role;
    }
    return role;
}

/* Is there a component that is or begins with the optimizer's name? */
static bool under(struct piece name, const char *optimizer) {
    size_t len = strlen(optimizer);
    while (name.len) {
        struct piece p = last_component(name, &name);
        if (p.len >= len && strncasecmp(p.s, optimizer, len) == 0)
            return true;
    }
    return false;
}

static enum sdc_role optimizer_role(struct piece name, enum sdc_dtype dtype, unsigned rank) {
    enum sdc_role role;
    struct piece rest, last = last_component(name, &rest);
    bool found = FIND(state_words, last, &role);
    if (!found && FIND(loop_words, last, &role))
        return role;
    if (!found && ends(last, "_momentum")) /* Keras 3: conv2d_kernel_momentum */
        found = FIND(state_words, ((struct piece){"momentum", 8}), &role);
    if (!found && ends(last, "_velocity"))
        found = FIND(state_words, ((struct piece){"velocity", 8}), &role);
    struct piece left = rest;
    while (!found && left.len) { /* Keras 2.11: Adam/m/conv2d/kernel */
        last = last_component(left, &left);
        found = FIND(state_words, last, &role);
    }
    if (!found) {
        bool integer =
            sdc_dtype_kind(dtype) == SDC_KIND_SINT || sdc_dtype_kind(dtype) == SDC_KIND_UINT;
        return integer && rank == 0 ? SDC_ROLE_COUNTER : SDC_ROLE_OTHER;
    }
    if (same(last, "m") && under(name, "sgd"))
        return SDC_ROLE_MOMENTUM;
    /* Keras calls Adam's two moments momentum and velocity */
    if (role == SDC_ROLE_MOMENTUM && under(name, "adam"))
        return ends(last, "velocity") ? SDC_ROLE_ADAM_V : SDC_ROLE_ADAM_M;
    return role;
}

static enum sdc_role loop_role(struct piece name) {
    enum sdc_role role;
    while (name.len) {
        struct piece p = last_component(name, &name);
        if (FIND(loop_words, p, &role))
            return role;
    }
    return SDC_ROLE_OTHER;
}

/* Slots of TensorFlow's name-based checkpoints: "fc1/kernel/Adam_1". */
static bool named_slot(struct piece name, struct piece *parameter, enum sdc_role *role) {
    static const struct role_word slots[] = {
        {"Adam", SDC_ROLE_ADAM_M},        {"Adam_1", SDC_ROLE_ADAM_V},
        {"Momentum", SDC_ROLE_MOMENTUM},  {"RMSProp", SDC_ROLE_OTHER},
        {"RMSProp_1", SDC_ROLE_MOMENTUM}, {"Adagrad", SDC_ROLE_OTHER}};
    struct piece rest, last = last_component(name, parameter);
    enum sdc_role of_parameter;
    return FIND(slots, last, role) &&
           parameter_role(last_component(*parameter, &rest), &of_parameter);
}

/* A name without a part prefix that is an optimizer's all the same. */
static bool optimizer_by_name(struct piece name, enum sdc_dtype dtype, unsigned rank,
                              enum sdc_role *role) {
    struct piece rest, last = last_component(name, &rest), first = first_component(name);
    if (named_slot(name, &rest, role))
        return true;
    bool own = same(last, "exp_avg") || same(last, "exp_avg_sq") || same(last, "momentum_buffer");
    /* "Adam/m/fc1/kernel", Keras' names of its variables */
    bool keras = first.len < name.len && name.s[first.len] == '/' && is_optimizer(first);
    bool power = same(name, "beta1_power") || same(name, "beta2_power");
    if (own || keras || power)
        *role = optimizer_role(name, dtype, rank);
    return own || keras || power;
}

void sdc_tensor_classify(const char *name, enum sdc_dtype dtype, unsigned rank, enum sdc_part *part,
                         enum sdc_role *role) {
    size_t skip = sdc__name_part_prefix(name, part);
    struct piece rest = without_attribute((struct piece){name + skip, strlen(name + skip)});
    struct piece parameter;
    bool known;
    if (has_slot(rest, &parameter))
        *part = SDC_PART_OPTIMIZER;
    switch (*part) {
    case SDC_PART_MODEL:
        *role = model_role(rest, dtype, rank, &known);
        return;
    case SDC_PART_OPTIMIZER:
        *role = optimizer_role(rest, dtype, rank);
        return;
    case SDC_PART_LOOP:
        *role = loop_role(rest);
        return;
    default:
        break;
    }
    if (optimizer_by_name(rest, dtype, rank, role)) {
        *part = SDC_PART_OPTIMIZER;
        return;
    }
    *role = model_role(rest, dtype, rank, &known);
    if (known)
        *part = SDC_PART_MODEL;
    else
        *role = loop_role(rest);
}

/* ---- layers ---- */

/* What is left of an optimizer state's name: the name of the parameter, or nothing. */
static struct piece parameter_of_state(struct piece name) {
    enum sdc_role role;
    struct piece slot;
    if (has_slot(name, &slot) || named_slot(name, &slot, &role))
        name = slot;
    while (same_nocase(first_component(name), "training") || is_optimizer(first_component(name)))
        name = after_first(name);
    if (FIND(state_words, first_component(name), &role) && after_first(name).len)
        name = after_first(name);
    struct piece rest, last = last_component(name, &rest);
    if (FIND(state_words, last, &role) || FIND(loop_words, last, &role))
        name = rest;
    last = last_component(name, &rest);
    return parameter_role(last, &role) ? name : (struct piece){NULL, 0};
}

void sdc_tensor_layer(const char *name, char *layer, size_t size) {
    if (size == 0)
        return;
    enum sdc_part part;
    enum sdc_role role;
    sdc_tensor_classify(name, SDC_DTYPE_F32, 1, &part, &role);
    enum sdc_part prefix_part;
    const char *inner = name + sdc__name_part_prefix(name, &prefix_part);
    inner += sdc__name_wrapper_prefix(inner);
    struct piece p = without_attribute((struct piece){inner, strlen(inner)}), module = {NULL, 0};
    if (part == SDC_PART_OPTIMIZER)
        p = parameter_of_state(p);
    if (part == SDC_PART_MODEL || (part == SDC_PART_OPTIMIZER && p.len)) {
        struct piece rest, last = last_component(p, &module);
        struct piece vars = last_component(module, &rest);
        if (all_digits(last) && same(vars, "vars"))
            module = rest;
        /* Keras 2 has the layer's name twice: conv2d/conv2d/kernel */
        size_t half = module.len / 2;
        if (module.len % 2 && module.s[half] == '/' &&
            memcmp(module.s, module.s + half + 1, half) == 0)
            module.len = half;
    }
    if (module.len == 0)
        module = part == SDC_PART_MODEL ? (struct piece){inner, strlen(inner)}
                                        : (struct piece){name, strlen(name)};
    size_t len = module.len < size - 1 ? module.len : size - 1;
    memcpy(layer, module.s, len);
    layer[len] = '\0';
}

char *sdc__name_parameter(const char *name) {
    enum sdc_part part;
    const char *inner = name + sdc__name_part_prefix(name, &part);
    inner += sdc__name_wrapper_prefix(inner);
    struct piece p = parameter_of_state(without_attribute((struct piece){inner, strlen(inner)}));
    return sdc__strndup(p.len ? p.s : "", p.len);
}
