/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of a name map and how they are applied; the parts of sdc/name_map.h.
 */
#ifndef SDC_CONTRACT_NAME_RULES_H
#define SDC_CONTRACT_NAME_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "sdc/name_map.h"

/* What becomes of the axes. */
struct sdc__axis_rule {
    unsigned n_view;             /* 0: the source's own shape */
    int64_t view[SDC_MAX_RANK];  /* one may be -1 */
    unsigned n_axes;             /* 0: as they are */
    unsigned axes[SDC_MAX_RANK]; /* of the target, as numpy.transpose takes it */
    bool transpose;              /* two axes, swapped */
    bool collapse;               /* the target may have another shape of the same elements */
};

struct sdc__name_rule {
    bool layer;      /* renames a layer for the built-in maps */
    bool literal;    /* '*' of from is an ordinary character */
    bool to_literal; /* and of to */
    char *from, *to; /* owned; to NULL: no counterpart */
    char *place;     /* "x.map line 3"; owned */
    struct sdc__axis_rule axes;
};

enum sdc__builtin { SDC__TORCH_KERAS, SDC__KERAS_TORCH };

struct sdc_name_map {
    struct sdc__name_rule *rules;
    size_t n_rules, cap_rules;
    enum sdc__builtin builtins[2];
    size_t n_builtins;
};

/* Reads rules of a text into the map. SDC_INVALID names the line. */
enum sdc_status sdc__name_rules_parse(struct sdc_name_map *map, const char *text, size_t len,
                                      const char *what, struct sdc_error *err) SDC_MUST_CHECK;
void sdc__name_rule_release(struct sdc__name_rule *rule);

/* True if the rule fits the name; *to is then its target, owned, or NULL for '-'. false in *ok: no
 * memory. */
bool sdc__name_rule_match(const struct sdc__name_rule *rule, const char *name, char **to, bool *ok);

/* Fills link->axes for the pair, or link->why. */
enum sdc_status sdc__name_fit(const struct sdc_tensor_desc *from, const struct sdc_tensor_desc *to,
                              const struct sdc__axis_rule *rule, struct sdc_name_link *link,
                              struct sdc_error *err) SDC_MUST_CHECK;
/* "[6,1,5,5]" */
void sdc__shape_text(const uint64_t *shape, unsigned rank, char *text, size_t size);

/* Links of every tensor of `from` that has none yet (to is SDC_NAME_NONE and why is NULL) and that
 * the built-in map knows; the others are left as they are. whole: see below. */
enum sdc_status sdc__name_layers_link(const struct sdc_name_map *map, enum sdc__builtin builtin,
                                      const struct sdc_tensor_desc *const from[], size_t n_from,
                                      bool whole, const struct sdc_tensor_desc *const to[],
                                      size_t n_to, struct sdc_name_link *links,
                                      struct sdc_error *err) SDC_MUST_CHECK;

/* sdc_name_map_resolve; whole: `from` is all of a checkpoint. Else layers are found by name alone,
 * since some of a layer's shapes tell less than all of them. */
enum sdc_status sdc__name_map_resolve(const struct sdc_name_map *map,
                                      const struct sdc_tensor_desc *const from[], size_t n_from,
                                      bool whole, const struct sdc_tensor_desc *const to[],
                                      size_t n_to, struct sdc_name_links *links,
                                      struct sdc_error *err) SDC_MUST_CHECK;

#endif
