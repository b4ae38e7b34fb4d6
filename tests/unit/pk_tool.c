/* SPDX-License-Identifier: Apache-2.0
 *
 * A pickle as nested JSON arrays, for scripts:
 *
 *     pk_tool tree FILE [OFFSET [SIZE]]     {"end": N, "tree": ..., "globals": [...]}
 *     pk_tool memory FILE                   the same, parsed from memory
 *     pk_tool count FILE                    {"end": N, "nodes": N}
 *     pk_tool damage FILE                   {"read": N, "refused": N}: each byte changed to each
 *                                           other value, and each prefix
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "ckpt/pickle.h"
#include "io/io.h"

#define DEEP 200

static struct sdc_buf out = SDC_BUF_INIT;

static void put_text(struct sdc_jw *w, const struct sdc_pk *pk, uint32_t id) {
    size_t len;
    uint64_t place, n;
    const char *text = sdc__pk_text(pk, id, &len);
    char *hex = text ? malloc(2 * len + 1) : NULL;
    if (hex)
        sdc__hex_encode(text, len, hex);
    sdc__jw_str(w, hex);
    free(hex);
    if (sdc__pk_place(pk, id, &place, &n)) {
        sdc__jw_u64(w, place);
        sdc__jw_u64(w, n);
    }
}

static void put(struct sdc_jw *w, const struct sdc_pk *pk, uint32_t id, int deep);

static void put_items(struct sdc_jw *w, const struct sdc_pk *pk, uint32_t id, int deep) {
    struct sdc_pk_iter it = sdc__pk_items(pk, id);
    uint32_t item;
    sdc__jw_arr(w);
    while (sdc__pk_next(&it, &item))
        put(w, pk, item, deep);
    sdc__jw_arr_end(w);
}

static void put(struct sdc_jw *w, const struct sdc_pk *pk, uint32_t id, int deep) {
    int64_t i;
    double f;
    uint32_t of;
    enum sdc_pk_kind kind = sdc__pk_kind(pk, id);
    if (deep > DEEP) {
        sdc__jw_str(w, "deep");
        return;
    }
    sdc__jw_arr(w);
    sdc__jw_str(w, sdc__pk_kind_name(kind));
    if (sdc__pk_int(pk, id, &i))
        sdc__jw_i64(w, i);
    else if (kind == SDC_PK_FLOAT && sdc__pk_float(pk, id, &f))
        sdc__jw_f64(w, f);
    else if (kind == SDC_PK_STR || kind == SDC_PK_BYTES || kind == SDC_PK_LONG)
        put_text(w, pk, id);
    else if (kind == SDC_PK_GLOBAL)
        sdc__jw_str(w, sdc__pk_global(pk, id));
    else if (kind == SDC_PK_TUPLE || kind == SDC_PK_LIST || kind == SDC_PK_SET ||
             kind == SDC_PK_DICT)
        put_items(w, pk, id, deep + 1);
    if (kind == SDC_PK_CALL || kind == SDC_PK_OBJECT)
        sdc__jw_str(w, sdc__pk_callee(pk, id));
    if (sdc__pk_args(pk, id, &of))
        put(w, pk, of, deep + 1);
    if (kind == SDC_PK_CALL || kind == SDC_PK_OBJECT) {
        put_items(w, pk, id, deep + 1);
        if (sdc__pk_state(pk, id, &of))
            put(w, pk, of, deep + 1);
    }
    sdc__jw_arr_end(w);
}

static void print(const struct sdc_pk *pk, uint64_t end, bool tree) {
    struct sdc_jw w = sdc__jw(&out);
    sdc__jw_obj(&w);
    sdc__jw_ku64(&w, "end", end);
    sdc__jw_ku64(&w, "nodes", sdc__pk_nodes(pk));
    if (tree) {
        sdc__jw_key(&w, "tree");
        put(&w, pk, sdc__pk_root(pk), 0);
        sdc__jw_key(&w, "globals");
        sdc__jw_arr(&w);
        for (size_t i = 0; i < sdc__pk_globals(pk); i++)
            sdc__jw_str(&w, sdc__pk_global_at(pk, i));
        sdc__jw_arr_end(&w);
    }
    sdc__jw_obj_end(&w);
    puts(out.data);
    sdc__buf_release(&out);
}

/* What becomes of one variant: a tree that can be walked, or a refusal that says where. */
static void try(const void *data, size_t len, uint64_t *read, uint64_t *refused) {
    struct sdc_error err = {.offset = -1};
    struct sdc_pk *pk = NULL;
    const struct sdc_pk_source source = {.memory = data, .size = len};
    if (sdc__pk_parse(&source, &pk, NULL, &err) == SDC_OK) {
        struct sdc_jw w = sdc__jw(&out);
        put(&w, pk, sdc__pk_root(pk), 0);
        sdc__buf_release(&out);
        ++*read;
    } else if (err.offset >= 0 || err.status == SDC_UNSUPPORTED) {
        ++*refused;
    }
    sdc__pk_free(pk);
}

static int damage(const char *path) {
    struct sdc_buf b = SDC_BUF_INIT;
    uint64_t read = 0, refused = 0;
    if (sdc__read_whole(path, 1u << 20, &b, NULL) != SDC_OK)
        return 1;
    for (size_t i = 0; i < b.len; i++) {
        for (int v = 1; v < 256; v++) {
            b.data[i] = (char)(b.data[i] ^ v);
            try(b.data, b.len, &read, &refused);
            b.data[i] = (char)(b.data[i] ^ v);
        }
        char *cut = malloc(i + 1); /* so that a read past its end is seen */
        if (cut) {
            memcpy(cut, b.data, i);
            try(cut, i, &read, &refused);
        }
        free(cut);
    }
    printf("{\"read\": %llu, \"refused\": %llu}\n", (unsigned long long)read,
           (unsigned long long)refused);
    sdc__buf_release(&b);
    return 0;
}

int main(int argc, char **argv) {
    struct sdc_error err;
    struct sdc_file f = SDC_FILE_INIT;
    struct sdc_buf whole = SDC_BUF_INIT;
    struct sdc_pk *pk = NULL;
    unsigned long long offset = 0, size = 0;
    uint64_t end = 0;
    if (argc < 3 || (argc > 3 && !sdc__parse_u64(argv[3], &offset)) ||
        (argc > 4 && !sdc__parse_u64(argv[4], &size))) {
        fprintf(stderr, "usage: pk_tool tree|memory|count|damage FILE [OFFSET [SIZE]]\n");
        return 2;
    }
    if (strcmp(argv[1], "damage") == 0)
        return damage(argv[2]);
    enum sdc_status st = sdc__file_open(argv[2], SDC_FILE_READ, &f, &err);
    struct sdc_pk_source source = {
        .file = &f, .offset = offset, .size = argc > 4 ? size : f.size - offset};
    if (st == SDC_OK && strcmp(argv[1], "memory") == 0) {
        st = sdc__read_whole(argv[2], 1u << 30, &whole, &err);
        source = (struct sdc_pk_source){.memory = whole.data, .size = whole.len};
    }
    if (st == SDC_OK)
        st = sdc__pk_parse(&source, &pk, &end, &err);
    if (st == SDC_OK)
        print(pk, end, strcmp(argv[1], "count") != 0);
    else
        printf("{\"error\": \"%s\", \"offset\": %lld, \"message\": \"%s\"}\n", sdc_status_name(st),
               (long long)err.offset, err.message);
    sdc__pk_free(pk);
    sdc__buf_release(&whole);
    sdc__file_close(&f);
    return st == SDC_OK ? 0 : 1;
}
