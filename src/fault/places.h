/* SPDX-License-Identifier: Apache-2.0
 *
 * Drawn sites by their places, eight bytes each, and the faults of any run of them: for lists, and
 * for those who take many millions of faults run by run and never hold all of them.
 *
 *     sdc__places_draw(support, &choice, &rng, &places, &err);
 *     for (size_t at = 0, end; at < places.n; at = end) {
 *         end = sdc__places_cut(&places, at, SOME);
 *         sdc__places_faults(&places, at, end, &list);
 *         sdc__drawing_add(&drawing, list.faults, list.n, &err);
 *     }
 *
 * gives the faults of sdc_fault_list_draw with the same stream, in their order.
 */
#ifndef SDC_FAULT_PLACES_H
#define SDC_FAULT_PLACES_H

#include "fault/support.h"

struct sdc_places {
    const struct sdc_support *s; /* borrowed */
    uint64_t *numbers;           /* ascending; owned; NULL: every place there is */
    size_t n;
    double *weights; /* by group; owned; NULL: none */
    bool attempts;   /* what is flipped twice is as it was */
};

/* Is the choice drawn by places? Else (listed sites, attempts, every site that is left of a reduced
 * support) by lists alone. */
bool sdc__places_serve(const struct sdc_support *s, const struct sdc_choice *choice);
/* As sdc_fault_list_draw. places is untouched on failure. */
enum sdc_status sdc__places_draw(const struct sdc_support *s, const struct sdc_choice *choice,
                                 struct sdc_rng *rng, struct sdc_places *places,
                                 struct sdc_error *err) SDC_MUST_CHECK;
void sdc__places_release(struct sdc_places *places);
/* Where a run of about n places from `at` on may end, which is after `at`: it is in one tensor, and
 * no element, of types under 8 bits no eight elements, have places on both sides. */
size_t sdc__places_cut(const struct sdc_places *places, size_t at, size_t n);
/* The faults of the places from `first` to before `end`, both of them cuts, added to a list with
 * room for as many. From several threads at a time. */
void sdc__places_faults(const struct sdc_places *places, size_t first, size_t end,
                        struct sdc_fault_list *list);

/* ---- lists in the making ---- */

/* With room for as many faults as it can get. */
struct sdc_building {
    const struct sdc_support *s;
    struct sdc_fault_list *list;
    bool attempts;
    const double *weights; /* by group; NULL: none */
};

enum sdc_status sdc__list_room(struct sdc_fault_list *list, size_t n,
                               struct sdc_error *err) SDC_MUST_CHECK;
/* SDC_LIMIT where these are too many for one list. */
enum sdc_status sdc__check_sites(uint64_t sites, struct sdc_error *err) SDC_MUST_CHECK;
/* Does the operator flip the bits it is given? */
bool sdc__op_flips(enum sdc_op op);
/* Adds a site after all earlier ones in (tensor, elem); the same element gets one more bit. */
void sdc__append_site(struct sdc_building *b, const struct sdc_support_tensor *t, uint64_t elem,
                      unsigned bit);
/* Numbers, ascending, become places in their stead, ascending too; room: for n, may be NULL where a
 * tensor is one group. */
enum sdc_status sdc__to_places(const struct sdc_support *s, uint64_t *numbers, uint64_t *room,
                               size_t n, struct sdc_error *err) SDC_MUST_CHECK;

#endif
