/* SPDX-License-Identifier: Apache-2.0
 *
 * The published injector hdf5_corrupter (2020 to 2022): its configuration and its saved sequences,
 * read and made into a choice of faults or a list of them. What it does otherwise is in
 * docs/user/hdf5-corrupter.md.
 *
 *     SDC_TRY(sdc_corrupter_read("config.yaml", &config, err));
 *     SDC_TRY(sdc_corrupter_choose(&config, ckpt, &choice, err));
 *     if (config.sequence)
 *         SDC_TRY(sdc_corrupter_sequence(config.sequence, ckpt, seed, &list, &doubtful, err));
 *     sdc_corrupter_release(&config);
 */
#ifndef SDC_CLI_CORRUPTER_H
#define SDC_CLI_CORRUPTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdc/choice.h"
#include "sdc/ckpt.h"
#include "sdc/fault.h"

enum sdc_corrupter_mode { SDC_CORRUPTER_BITS, SDC_CORRUPTER_MASK, SDC_CORRUPTER_SCALE };

#define SDC_CORRUPTER_LAST UINT64_MAX /* last_bit: the last of the type */

/* Where a value was written; line 0: it was not. */
struct sdc_corrupter_place {
    int line, column;
};

struct sdc_corrupter_config {
    char *what;     /* path of the configuration, for messages; owned */
    char *file;     /* the file it is for; NULL: not named; owned */
    char *sequence; /* path of a saved sequence, from the configuration's folder; owned */
    bool saves;     /* a sequence was to be saved */
    enum sdc_corrupter_mode mode;
    bool percentage;              /* amount is a percentage of the entries; else a count */
    double amount;                /* of attempts */
    double probability;           /* of each */
    unsigned precision;           /* 16, 32, 64; 0: as stored */
    uint64_t first_bit, last_bit; /* from the sign, 0 */
    uint64_t bits_per_value;
    char mask[65]; /* '0' and '1', from the sign's side; "": none */
    double factor;
    bool allow_nan, sign_too, anywhere;
    char **locations; /* owned */
    size_t n_locations;
    struct sdc_corrupter_place at_amount, at_bits, at_burst, at_mask, at_factor, at_precision,
        at_locations;
};

/* SDC_INVALID as "FILE:LINE:COLUMN: message". Release it on success. */
enum sdc_status sdc_corrupter_read(const char *path, struct sdc_corrupter_config *config,
                                   struct sdc_error *err) SDC_MUST_CHECK;
void sdc_corrupter_release(struct sdc_corrupter_config *config);

/* Sets the words of the configuration in an initialised choice. SDC_INVALID where it names a
 * location, a width or bits that the checkpoint has not. */
enum sdc_status sdc_corrupter_choose(const struct sdc_corrupter_config *config,
                                     const struct sdc_ckpt *ckpt, struct sdc_choice *choice,
                                     struct sdc_error *err) SDC_MUST_CHECK;

/* Adds to the choice's tensors what a location takes: the tensor of that name, or else those whose
 * name goes on after it with '/' or '.'. SDC_INVALID suggests the nearest. */
enum sdc_status sdc_corrupter_locate(const struct sdc_ckpt *ckpt, const char *location,
                                     struct sdc_choice *choice,
                                     struct sdc_error *err) SDC_MUST_CHECK;

/* The flips of a saved sequence. Entries without indexes draw tensor and element of their own,
 * from the seed and their number. A bit that is flipped twice is as it was. *doubtful: entries of a
 * location that is a tensor but that the injector may as well have written for another tensor whose
 * name begins so. */
enum sdc_status sdc_corrupter_sequence(const char *path, struct sdc_ckpt *ckpt, uint64_t seed,
                                       struct sdc_fault_list *list, size_t *doubtful,
                                       struct sdc_error *err) SDC_MUST_CHECK;

#endif
