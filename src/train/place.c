/* SPDX-License-Identifier: Apache-2.0 */
#include "train/place.h"

#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "sdc/choice.h"

enum sdc_status sdc_place_join(struct sdc_place *place, const struct sdc_comm_ops *comm,
                               unsigned size, unsigned timeout_ms, struct sdc_error *err) {
    struct sdc_comm *ends[SDC_MAX_RANKS] = {NULL};
    SDC_TRY(sdc_comm_group_new(comm, size, SIZE_MAX, timeout_ms, ends, err));
    place->comm = comm;
    place->size = size;
    while (!ends[place->rank])
        place->rank++;
    place->end = ends[place->rank];
    return SDC_OK;
}

void sdc_place_leave(struct sdc_place *place) {
    if (place->comm)
        sdc_comm_group_free(&place->end, 1);
    *place = (struct sdc_place){.size = 1};
}

bool sdc_place_lost(const struct sdc_place *place) {
    return place->comm && sdc_comm_lost(place->end);
}

enum sdc_status sdc_place_agree(struct sdc_place *place, enum sdc_status status, bool *flag,
                                struct sdc_error *err) {
    unsigned who;
    unsigned char mine = flag && *flag, all[SDC_MAX_RANKS];
    if (!place->comm)
        return status;
    struct sdc_error ignored;
    enum sdc_status st = sdc_comm_agree(place->end, status, err, &who, err);
    if (st == SDC_OK || !flag || sdc_comm_lost(place->end))
        return st;
    if (sdc_comm_gather(place->end, &mine, 1, all, &ignored) == SDC_OK)
        *flag = all[who];
    return st;
}

static enum sdc_status receive_text(struct sdc_place *place, char **text, uint64_t *len,
                                    struct sdc_error *err) {
    SDC_TRY(sdc_comm_broadcast(place->end, 0, len, sizeof *len, err));
    enum sdc_status st = SDC_OK;
    if (place->rank != 0) {
        *text = sdc__calloc((size_t)*len + 1, 1);
        st = *text ? SDC_OK : SDC_NOMEM(err, "a run description");
    }
    SDC_TRY(sdc_place_agree(place, st, NULL, err));
    return sdc_comm_broadcast(place->end, 0, *text, (size_t)*len, err);
}

enum sdc_status sdc_place_share_run(struct sdc_place *place, enum sdc_status status,
                                    struct sdc_run *run, struct sdc_error *err) {
    char *text = NULL;
    uint64_t len = 0;
    if (!place->comm)
        return status;
    if (status == SDC_OK && place->rank == 0)
        status = sdc_run_to_json(run, &text, err);
    if (text)
        len = strlen(text);
    status = sdc_place_agree(place, status, NULL, err);
    if (status == SDC_OK)
        status = receive_text(place, &text, &len, err);
    if (status == SDC_OK) {
        if (place->rank != 0)
            status =
                sdc_run_from_json(text, (size_t)len, "the run description of rank 0", run, err);
        status = sdc_place_agree(place, status, NULL, err);
    }
    if (place->rank == 0)
        sdc_text_free(text);
    else
        sdc__free(text);
    return status;
}
