/* SPDX-License-Identifier: Apache-2.0
 *
 * Which tensor of one checkpoint is which of another, and where each element went: names, order of
 * axes, shapes. For carrying faults to another framework's file and for comparing such files. Knows
 * descriptors only, never files' contents: two tensors that correspond may hold different values.
 *
 * Without a map, tensors correspond by name: equal, or equal without what wrappers and formats add
 * (a part's prefix such as "model/" or "state_dict/", "module.", "_orig_mod.", Keras' ":0",
 * TensorFlow's "/.ATTRIBUTES/VARIABLE_VALUE"), and then have one shape.
 *
 * A map is text, one rule a line; '#' begins a comment:
 *
 *     FROM -> TO [axes=2,3,1,0 | axes=oihw-hwio | transpose] [view=-1,16,5,5]
 *     layer FROM -> TO
 *
 * FROM is a whole name in the first checkpoint, as in the file or without wrappers; each '*' stands
 * for any text and each '*' of TO for what the same '*' of FROM stood for; {1} stands for the first
 * of them, and may come again. A name in double quotes may hold blanks, and its '*' and {1} are
 * ordinary characters. TO is a name in the second checkpoint, or
 * '-': has no counterpart. The first rule that fits a name counts.
 *
 * axes says from which axis each axis of the target comes, as numpy.transpose takes it: a target of
 * PyTorch's (O, I, H, W) with axes=2,3,1,0 has (H, W, I, O). Letters say the same: oihw-hwio.
 * transpose swaps two axes. view gives the source another shape first (one size may be -1, worked
 * out), and then the target may be any shape that holds the same elements in C order: the first
 * dense layer after a flattened 16x5x5 map, stored (out, 400) by PyTorch and (400, out) by Keras,
 * corresponds by view=-1,16,5,5 axes=2,3,1,0.
 *
 * Two maps are built in, "torch-keras" and "keras-torch": kernels change axes (convolutions of one
 * to three dimensions, depthwise ones, dense ones), embeddings and vectors do not; weight is
 * kernel or gamma, running_mean moving_mean, and so on, optimizer state with its parameter. Layers
 * correspond by name (after `layer` rules), else where exactly one layer on either side has their
 * shapes; several alike are refused, never guessed.
 *
 *     sdc_name_map_new(&map, &err);
 *     sdc_name_map_add(map, "lenet.map", &err);       rules of a file
 *     sdc_name_map_add(map, "torch-keras", &err);     then the built-in one for what is left
 *     sdc_name_map_resolve(map, from, n_from, to, n_to, &links, &err);
 *     size_t there = links.items[i].to;
 *     uint64_t elem = sdc_name_link_elem(&links.items[i], 17);
 *
 * A finished map may be used from several threads.
 */
#ifndef SDC_NAME_MAP_H
#define SDC_NAME_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdc/status.h"
#include "sdc/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sdc_name_map;

SDC_API enum sdc_status sdc_name_map_new(struct sdc_name_map **map,
                                         struct sdc_error *err) SDC_MUST_CHECK;
SDC_API void sdc_name_map_free(struct sdc_name_map *map); /* accepts NULL */
/* word: "torch-keras", "keras-torch", or the path of a file of rules. Rules count in the order in
 * which they were added, rules of files before built-in maps. SDC_INVALID names file and line;
 * after a failure the map holds what it held before. */
SDC_API enum sdc_status sdc_name_map_add(struct sdc_name_map *map, const char *word,
                                         struct sdc_error *err) SDC_MUST_CHECK;
/* what names the text in messages. */
SDC_API enum sdc_status sdc_name_map_add_text(struct sdc_name_map *map, const char *text,
                                              size_t len, const char *what,
                                              struct sdc_error *err) SDC_MUST_CHECK;

#define SDC_NAME_NONE ((size_t)-1)

/* An axis that both tensors have: index i along it moves i strides in either (in elements). */
struct sdc_name_axis {
    uint64_t size, from_stride, to_stride;
};

struct sdc_name_link {
    size_t to;     /* index into `to`; SDC_NAME_NONE: it has no counterpart */
    char *why;     /* then: in a few words, without the tensor's own name; else NULL; owned */
    bool left_out; /* then: a rule says so ('-'), for it or for its layer */
    bool ruled; /* a rule fits its name, or its layer and leads nowhere: what is said here is final
                 */
    bool reshaped; /* axes are those of another shape that the source was given first */
    struct sdc_name_axis *axes; /* slowest of the source first; owned; NULL: element i is element i
                                 */
    unsigned n_axes;
};

struct sdc_name_links {
    struct sdc_name_link *items; /* one for each of `from`, in their order; owned */
    size_t n;
};

/* map may be NULL: by name alone. A descriptor of `from` whose shape is NULL though its rank is not
 * 0 has an unknown shape (an old record's): it is worked out from the target's, and its layer is
 * found by name only. Types are not compared. A tensor without counterpart, one whose counterpart
 * is another's too, and shapes that do not fit are no errors: the link says why. SDC_NO_MEMORY.
 * links is filled on success only; release it then. */
SDC_API enum sdc_status
sdc_name_map_resolve(const struct sdc_name_map *map, const struct sdc_tensor_desc *const from[],
                     size_t n_from, const struct sdc_tensor_desc *const to[], size_t n_to,
                     struct sdc_name_links *links, struct sdc_error *err) SDC_MUST_CHECK;
SDC_API void sdc_name_links_release(struct sdc_name_links *links);

/* Whether a built-in map says that the other framework keeps no such tensor (PyTorch's
 * num_batches_tracked). from: t is of the first checkpoint, else of the second. */
SDC_API bool sdc_name_map_lone(const struct sdc_name_map *map, const struct sdc_tensor_desc *t,
                               bool from);

/* Flat C-order index of the same element on the other side. elem must be in range. */
SDC_API uint64_t sdc_name_link_elem(const struct sdc_name_link *link, uint64_t from_elem);
SDC_API uint64_t sdc_name_link_elem_back(const struct sdc_name_link *link, uint64_t to_elem);

/* Names of the built-in maps, for help texts; n of them. Static. */
SDC_API const char *const *sdc_name_map_builtins(size_t *n);

#ifdef __cplusplus
}
#endif
#endif
