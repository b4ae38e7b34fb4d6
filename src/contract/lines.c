/* SPDX-License-Identifier: Apache-2.0 */
#include "contract/lines.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "base/str.h"
#include "contract/fields_check.h"
#include "io/io.h"

#define BLOCK (1u << 16)

enum sdc_status sdc__line_parse(const char *line, size_t len, const char *what,
                                struct sdc_json **root, struct sdc_error *err) {
    if (len > SDC_MAX_JSON_LINE)
        return SDC_ERR(err, SDC_LIMIT, "%s: a line of %zu bytes, the limit is %u", what, len,
                       SDC_MAX_JSON_LINE);
    return sdc__json_parse(line, len, what, root, err);
}

enum sdc_status sdc__line_kind(const struct sdc_json *root, const char *what,
                               const struct sdc__words *kinds, int *kind, struct sdc_error *err) {
    const char *word;
    if (sdc__json_type(root) != SDC_JSON_OBJECT)
        return SDC_ERR(err, SDC_INVALID, "%s: expected an object, found %s", what,
                       sdc__json_type_name(root));
    const struct sdc_json *type = sdc__json_get(root, "type");
    if (!type)
        return SDC_ERR(err, SDC_INVALID, "%s: key 'type' is missing", what);
    struct sdc__place top = {.what = what}, at = {.up = &top, .key = "type"};
    if (sdc__json_as_str(type, "", &word, NULL) != SDC_OK)
        return SDC_ERR(err, SDC_INVALID, "%s: type: expected a string, found %s", what,
                       sdc__json_type_name(type));
    for (size_t i = 0; i < kinds->n; i++) {
        if (strcmp(kinds->words[i], word) == 0) {
            *kind = (int)i;
            return SDC_OK;
        }
    }
    return sdc__not_one_of(kinds, word, &at, SDC_INVALID, err);
}

struct splitter {
    const char *path;
    sdc__line_fn *take;
    void *user;
    size_t number; /* of the line that is being collected, from 1 */
};

/* Hands the complete lines of buf over and keeps the rest. */
static enum sdc_status hand_over(struct splitter *s, struct sdc_buf *buf, struct sdc_error *err) {
    size_t start = 0;
    const char *newline;
    while (start < buf->len &&
           (newline = memchr(buf->data + start, '\n', buf->len - start)) != NULL) {
        char what[512];
        size_t len = (size_t)(newline - (buf->data + start)) + 1;
        snprintf(what, sizeof what, "%.480s line %zu", s->path, s->number);
        SDC_TRY(s->take(s->user, buf->data + start, len, what, err));
        s->number++;
        start += len;
    }
    if (start) {
        memmove(buf->data, buf->data + start, buf->len - start);
        buf->len -= start;
        buf->data[buf->len] = '\0';
    }
    return SDC_OK;
}

enum sdc_status sdc__lines_read(const char *path, sdc__line_fn *take, void *user, bool *whole,
                                struct sdc_error *err) {
    struct sdc_file file = SDC_FILE_INIT;
    struct sdc_buf buf = SDC_BUF_INIT;
    struct splitter s = {.path = path, .take = take, .user = user, .number = 1};
    char *block = NULL;
    enum sdc_status st;
    SDC_TRY_OUT(st, sdc__file_open(path, SDC_FILE_READ, &file, err));
    block = sdc__alloc(BLOCK, 1);
    if (!block) {
        st = SDC_NOMEM(err, path);
        goto out;
    }
    /* up to the size at opening: a writer may still be appending */
    for (uint64_t offset = 0; offset < file.size;) {
        size_t n = file.size - offset < BLOCK ? (size_t)(file.size - offset) : BLOCK;
        SDC_TRY_OUT(st, sdc__file_read(&file, offset, block, n, err));
        sdc__buf_append(&buf, block, n);
        if (buf.failed) {
            st = SDC_NOMEM(err, path);
            goto out;
        }
        SDC_TRY_OUT(st, hand_over(&s, &buf, err));
        if (buf.len > SDC_MAX_JSON_LINE) {
            st = SDC_ERR(err, SDC_LIMIT, "%s line %zu: more than %u bytes", path, s.number,
                         SDC_MAX_JSON_LINE);
            goto out;
        }
        offset += n;
    }
    *whole = buf.len == 0;
out:
    sdc__free(block);
    sdc__buf_release(&buf);
    sdc__file_close(&file);
    return st;
}
