/* SPDX-License-Identifier: Apache-2.0
 *
 * Provenance of the native trainer.
 */
#include <gnu/libc-version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/platform.h"
#include "base/str.h"
#include "nn/nn.h"
#include "train/train.h"

#define MAX_FACTS 16

struct list {
    struct sdc_key_value *items;
    size_t n;
    bool failed;
};

static void add(struct list *l, const char *key, const char *value) {
    struct sdc_key_value *kv = &l->items[l->n++];
    kv->key = sdc__strdup(key);
    kv->value = sdc__strdup(value);
    l->failed |= !kv->key || !kv->value;
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const struct sdc_key_value *)a)->key, ((const struct sdc_key_value *)b)->key);
}

static void add_kernels(struct list *l, const char *kernels) {
    const struct sdc_nn_ops *ops;
    char text[256], key[64];
    for (size_t i = 0; (ops = sdc_nn_at(i)) != NULL; i++) {
        if (kernels && strcmp(kernels, sdc_nn_name(ops)) != 0)
            continue;
        sdc_nn_version(ops, text, sizeof text);
        snprintf(key, sizeof key, "kernels.%s", sdc_nn_name(ops));
        add(l, key, text);
    }
}

void sdc_train_facts_free(struct sdc_key_value *facts, size_t n) {
    for (size_t i = 0; facts && i < n; i++) {
        sdc__free(facts[i].key);
        sdc__free(facts[i].value);
    }
    sdc__free(facts);
}

enum sdc_status sdc_train_facts(const char *kernels, struct sdc_key_value **facts, size_t *n,
                                struct sdc_error *err) {
    struct list l = {.items = sdc__calloc(MAX_FACTS, sizeof *l.items)};
    if (!l.items)
        return SDC_NOMEM(err, "provenance");
    char text[512];
    add(&l, "sdclab", SDC_VERSION);
    add(&l, "compiler", __VERSION__);
    add(&l, "libc", gnu_get_libc_version());
    sdc__cpu_model(text, sizeof text);
    add(&l, "cpu.model", text);
    sdc__cpu_features(text, sizeof text);
    add(&l, "cpu.features", text);
    add_kernels(&l, kernels);
    /* after the kernels' library was asked for its version, that is, initialised */
    struct sdc_fpenv env = sdc__fpenv_read();
    sdc__fpenv_text(&env, text, sizeof text);
    add(&l, "float.environment", text);
    if (l.failed) {
        sdc_train_facts_free(l.items, l.n);
        return SDC_NOMEM(err, "provenance");
    }
    qsort(l.items, l.n, sizeof *l.items, by_key);
    *facts = l.items;
    *n = l.n;
    return SDC_OK;
}

enum sdc_status sdc_train_platform(char **text, struct sdc_error *err) {
    struct sdc_key_value *facts;
    size_t n;
    SDC_TRY(sdc_train_facts(NULL, &facts, &n, err));
    struct sdc_buf b = SDC_BUF_INIT;
    for (size_t i = 0; i < n; i++)
        sdc__buf_printf(&b, "%s%s=%s", i ? "; " : "", facts[i].key, facts[i].value);
    sdc_train_facts_free(facts, n);
    *text = sdc__buf_take(&b);
    return *text ? SDC_OK : SDC_NOMEM(err, "provenance");
}
