/* SPDX-License-Identifier: Apache-2.0
 *
 * The links of groups and the texts in attributes. Links are told, never followed.
 */
#include "ckpt/fmt/hdf5_helper/helper.h"

#include <stdio.h>

#include "base/alloc.h"

#define MAX_NAMES ((hssize_t)1 << 20) /* of one attribute */
#define MAX_TEXT  ((size_t)65535)

/* ---- attributes of text, in every way that h5py has written them ---- */

static void add_text(struct sdc_buf *out, const char *text, size_t len, H5T_str_t pad) {
    while (pad == H5T_STR_SPACEPAD && len > 0 && text[len - 1] == ' ')
        len--;
    sdc__wire_put_text(out, text, len < MAX_TEXT ? len : MAX_TEXT);
}

static bool add_fixed(struct sdc_buf *out, hid_t attr, hid_t type, size_t n) {
    const size_t size = H5Tget_size(type);
    const H5T_str_t pad = H5Tget_strpad(type);
    if (size == 0 || size > SDC_WIRE_REPLY / (n ? n : 1))
        return false;
    char *all = sdc__alloc(n, size);
    bool ok = all && H5Aread(attr, type, all) >= 0;
    for (size_t i = 0; ok && i < n; i++)
        add_text(out, all + i * size, strnlen(all + i * size, size), pad);
    sdc__free(all);
    return ok;
}

static bool add_variable(struct sdc_buf *out, hid_t attr, hid_t type, hid_t space, size_t n) {
    char **all = sdc__calloc(n, sizeof *all);
    bool ok = all && H5Aread(attr, type, all) >= 0;
    for (size_t i = 0; ok && i < n && out->len < SDC_WIRE_REPLY; i++)
        add_text(out, all[i] ? all[i] : "", all[i] ? strlen(all[i]) : 0, H5T_STR_NULLTERM);
    if (ok)
        (void)H5Dvlen_reclaim(type, space, H5P_DEFAULT, all);
    sdc__free(all);
    return ok;
}

/* Appends the texts; false: no texts, or too many. */
static bool add_texts(struct sdc_buf *out, hid_t object, const char *name, size_t *n) {
    hid_t attr = H5Aopen(object, name, H5P_DEFAULT), type = -1, space = -1;
    bool ok = false;
    if (attr >= 0 && (type = H5Aget_type(attr)) >= 0 && (space = H5Aget_space(attr)) >= 0 &&
        H5Tget_class(type) == H5T_STRING) {
        hssize_t count = H5Sget_simple_extent_npoints(space);
        if (count >= 0 && count <= MAX_NAMES) {
            *n = (size_t)count;
            ok = *n == 0 || (H5Tis_variable_str(type) > 0 ? add_variable(out, attr, type, space, *n)
                                                          : add_fixed(out, attr, type, *n));
        }
    }
    if (space >= 0)
        (void)H5Sclose(space);
    if (type >= 0)
        (void)H5Tclose(type);
    if (attr >= 0)
        (void)H5Aclose(attr);
    return ok;
}

/* The list `name`, or its pieces name0, name1, ... into which Keras splits long ones. */
static void tell_names(hid_t group, const char *name, enum sdc_wire_names list) {
    char piece[64];
    struct sdc_buf texts = SDC_BUF_INIT, body = SDC_BUF_INIT;
    size_t total = 0, n = 0;
    bool any = false;
    if (H5Aexists(group, name) > 0) {
        any = add_texts(&texts, group, name, &n);
        total = n;
    } else {
        for (unsigned i = 0; i < 10000; i++) {
            (void)snprintf(piece, sizeof piece, "%s%u", name, i);
            if (H5Aexists(group, piece) <= 0 || !add_texts(&texts, group, piece, &n))
                break;
            total += n;
            any = true;
        }
    }
    if (any && !texts.failed && texts.len < SDC_WIRE_REPLY - 64) {
        sdc__wire_put(&body, list, 1);
        sdc__wire_put(&body, total, 4);
        sdc__buf_append(&body, texts.data, texts.len);
        helper_reply_buf(SDC_WIRE_NAMES, &body);
    }
    (void)H5Eclear2(H5E_DEFAULT);
    sdc__buf_release(&texts);
    sdc__buf_release(&body);
}

void helper_texts(hid_t file, struct sdc_wire *w) {
    struct sdc_buf body = SDC_BUF_INIT;
    size_t n = (size_t)sdc__wire_get(w, 4);
    for (size_t i = 0; i < n && !w->bad; i++) {
        hid_t object = H5Oopen_by_addr(file, (haddr_t)sdc__wire_get(w, 8));
        struct sdc_buf texts = SDC_BUF_INIT;
        size_t count = 0;
        bool one = object >= 0 && H5Aexists(object, "dtype") > 0 &&
                   add_texts(&texts, object, "dtype", &count) && count == 1 && !texts.failed;
        if (one)
            sdc__buf_append(&body, texts.data, texts.len);
        else
            sdc__wire_put_text(&body, "", 0);
        sdc__buf_release(&texts);
        (void)H5Eclear2(H5E_DEFAULT);
        if (object >= 0)
            (void)H5Oclose(object);
    }
    if (sdc__wire_ends(w))
        helper_reply_buf(SDC_WIRE_TEXT_LIST, &body);
    else
        helper_fail(SDC_FAIL_REQUEST, "texts");
    sdc__buf_release(&body);
}

/* ---- links ---- */

struct each {
    struct sdc_buf body, target;
};

/* The target of a soft or external link: "path", or "file: path". */
static bool get_target(hid_t group, const char *name, const H5L_info_t *info, struct sdc_buf *out) {
    const size_t size = info->u.val_size;
    char *value = size < MAX_TEXT ? sdc__calloc(size + 1, 1) : NULL;
    bool ok = value && H5Lget_val(group, name, value, size, H5P_DEFAULT) >= 0;
    if (ok && info->type == H5L_TYPE_EXTERNAL) {
        unsigned flags;
        const char *file = NULL, *path = NULL;
        ok = H5Lunpack_elink_val(value, size, &flags, &file, &path) >= 0;
        if (ok)
            sdc__buf_printf(out, "%s: %s", file, path);
    } else if (ok) {
        sdc__buf_puts(out, value);
    }
    sdc__free(value);
    return ok && !out->failed;
}

static herr_t on_link(hid_t group, const char *name, const H5L_info_t *info, void *user) {
    struct each *e = user;
    const size_t len = strlen(name);
    sdc__buf_clear(&e->body);
    sdc__buf_clear(&e->target);
    enum sdc_wire_link type = info->type == H5L_TYPE_HARD       ? SDC_LINK_HARD
                              : info->type == H5L_TYPE_SOFT     ? SDC_LINK_SOFT
                              : info->type == H5L_TYPE_EXTERNAL ? SDC_LINK_EXTERNAL
                                                                : SDC_LINK_OTHER;
    if (len > MAX_TEXT)
        return -1;
    if ((type == SDC_LINK_SOFT || type == SDC_LINK_EXTERNAL) &&
        !get_target(group, name, info, &e->target))
        return -1;
    sdc__wire_put(&e->body, type, 1);
    sdc__wire_put(&e->body, type == SDC_LINK_HARD ? info->u.address : 0, 8);
    sdc__wire_put_text(&e->body, name, len);
    sdc__wire_put_text(&e->body, e->target.data ? e->target.data : "",
                       e->target.len < MAX_TEXT ? e->target.len : MAX_TEXT);
    helper_reply_buf(SDC_WIRE_LINK, &e->body);
    return 0;
}

static bool tell_group(hid_t file, uint64_t addr, struct each *e) {
    hid_t group = H5Oopen_by_addr(file, (haddr_t)addr);
    if (group < 0 || H5Iget_type(group) != H5I_GROUP) {
        helper_fail_hdf5("a group");
        return false;
    }
    sdc__buf_clear(&e->body);
    sdc__wire_put(&e->body, addr, 8);
    helper_reply_buf(SDC_WIRE_GROUP, &e->body);
    H5O_info_t info;
    if (H5Oget_info2(group, &info, H5O_INFO_NUM_ATTRS) >= 0 && info.num_attrs > 0) {
        tell_names(group, "layer_names", SDC_NAMES_LAYERS);
        tell_names(group, "weight_names", SDC_NAMES_WEIGHTS);
    }
    hsize_t at = 0;
    herr_t rc = H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, &at, on_link, e);
    if (rc < 0)
        helper_fail_hdf5("the links of a group");
    (void)H5Oclose(group);
    return rc >= 0;
}

void helper_links(hid_t file, struct sdc_wire *w) {
    struct each e = {SDC_BUF_INIT, SDC_BUF_INIT};
    const size_t n = (size_t)sdc__wire_get(w, 4);
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        uint64_t addr = sdc__wire_get(w, 8);
        if (w->bad)
            break;
        ok = tell_group(file, addr, &e);
    }
    if (ok && sdc__wire_ends(w))
        helper_reply(SDC_WIRE_DONE, NULL, 0);
    else if (ok)
        helper_fail(SDC_FAIL_REQUEST, "links");
    sdc__buf_release(&e.body);
    sdc__buf_release(&e.target);
}
