/* SPDX-License-Identifier: Apache-2.0 */
#include "sdc/outcome.h"

#include <stddef.h>
#include <string.h>

struct label {
    const char *text, *meaning;
};

#define LABEL(name, text, meaning) {text, meaning},
static const struct label result_labels[] = {SDC_RESULT_MAP(LABEL)};
static const struct label exposure_labels[] = {SDC_EXPOSURE_MAP(LABEL)};
static const struct label numeric_labels[] = {SDC_NUMERIC_MAP(LABEL)};
static const struct label trajectory_labels[] = {SDC_TRAJECTORY_MAP(LABEL)};
static const struct label quality_labels[] = {SDC_QUALITY_MAP(LABEL)};
static const struct label replicas_labels[] = {SDC_REPLICAS_MAP(LABEL)};

static const struct {
    const char *name;
    const struct label *labels;
    int n;
} axes[] = {
    [SDC_AXIS_RESULT] = {"result", result_labels, SDC_RESULT_COUNT},
    [SDC_AXIS_EXPOSURE] = {"exposure", exposure_labels, SDC_EXPOSURE_COUNT},
    [SDC_AXIS_NUMERIC] = {"numeric", numeric_labels, SDC_NUMERIC_COUNT},
    [SDC_AXIS_TRAJECTORY] = {"trajectory", trajectory_labels, SDC_TRAJECTORY_COUNT},
    [SDC_AXIS_QUALITY] = {"quality", quality_labels, SDC_QUALITY_COUNT},
    [SDC_AXIS_REPLICAS] = {"replicas", replicas_labels, SDC_REPLICAS_COUNT},
};

const char *sdc_axis_name(enum sdc_axis axis) {
    return axes[axis].name;
}

int sdc_axis_count(enum sdc_axis axis) {
    return axes[axis].n;
}

const char *sdc_label_text(enum sdc_axis axis, int value) {
    return axes[axis].labels[value].text;
}

const char *sdc_label_meaning(enum sdc_axis axis, int value) {
    return axes[axis].labels[value].meaning;
}

bool sdc_label_parse(enum sdc_axis axis, const char *text, int *value) {
    for (int i = 0; i < axes[axis].n; i++) {
        if (strcmp(axes[axis].labels[i].text, text) == 0) {
            *value = i;
            return true;
        }
    }
    return false;
}

int sdc_outcome_get(const struct sdc_outcome *o, enum sdc_axis axis) {
    switch (axis) {
    case SDC_AXIS_RESULT:
        return (int)o->result;
    case SDC_AXIS_EXPOSURE:
        return (int)o->exposure;
    case SDC_AXIS_NUMERIC:
        return (int)o->numeric;
    case SDC_AXIS_TRAJECTORY:
        return (int)o->trajectory;
    case SDC_AXIS_QUALITY:
        return (int)o->quality;
    default:
        return (int)o->replicas;
    }
}

bool sdc_outcome_is_collapse(const struct sdc_outcome *o) {
    return o->result == SDC_RESULT_DONE &&
           (o->numeric == SDC_NUMERIC_NONFINITE_NOW || o->numeric == SDC_NUMERIC_NONFINITE_SOON ||
            o->numeric == SDC_NUMERIC_NONFINITE_LATE);
}
