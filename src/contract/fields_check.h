/* SPDX-License-Identifier: Apache-2.0
 *
 * What reading and checking of structs by tables share: places for messages, and the rules of one
 * field. Internal to contract/fields*.c.
 */
#ifndef SDC_CONTRACT_FIELDS_CHECK_H
#define SDC_CONTRACT_FIELDS_CHECK_H

#include "contract/fields.h"

/* A step of the path to a value: the text itself (what), a key or an index. */
struct sdc__place {
    const struct sdc__place *up;
    const char *what, *key;
    size_t index;
};

#define SDC__PLACE_SIZE 512

/* "run description x.json: load[1].path"; returns text. */
const char *sdc__place_text(const struct sdc__place *at, char text[SDC__PLACE_SIZE]);

/* "PLACE: expected one of 'a', 'b', found 'c'" */
enum sdc_status sdc__not_one_of(const struct sdc__words *words, const char *found,
                                const struct sdc__place *at, enum sdc_status status,
                                struct sdc_error *err);

/* The rules of the field over the value in the struct; nested objects are not looked into. */
enum sdc_status sdc__field_check(const struct sdc__field *f, const void *root, const void *object,
                                 const struct sdc__place *at, enum sdc_status status,
                                 struct sdc_error *err);

/* Frees what this field of the object owns. */
void sdc__field_release(const struct sdc__field *f, const void *root, void *object);

/* Number of items of an array field; 0 where its pointer is NULL. */
size_t sdc__field_count(const struct sdc__field *f, const void *root, const void *object);

#endif
