/* SPDX-License-Identifier: Apache-2.0
 *
 * The frame of a new file: contiguous little-endian datasets, a group for each '/' of a name, the
 * oldest file format that fits, no times, so that equal lists give equal bytes. Elements are not
 * written: the parent learns their places and puts them there.
 */
#include "ckpt/fmt/hdf5_helper/helper.h"

#include "base/alloc.h"

#define MAX_RANK 32

/* size, sign position, exponent position and size, mantissa position and size, bias */
static hid_t make_float(size_t size, size_t spos, size_t epos, size_t esize, size_t msize,
                        size_t bias) {
    hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    /* in this order: no step may make the type inconsistent with the next */
    if (type < 0 || H5Tset_fields(type, spos, epos, esize, 0, msize) < 0 ||
        H5Tset_precision(type, size * 8) < 0 || H5Tset_size(type, size) < 0 ||
        H5Tset_ebias(type, bias) < 0)
        return H5I_INVALID_HID;
    return type;
}

static hid_t make_bool(void) {
    static const int8_t values[2] = {0, 1};
    hid_t type = H5Tenum_create(H5T_STD_I8LE);
    if (type < 0 || H5Tenum_insert(type, "FALSE", &values[0]) < 0 ||
        H5Tenum_insert(type, "TRUE", &values[1]) < 0)
        return H5I_INVALID_HID;
    return type;
}

/* By our own word for it, "F32"; negative if there is none such. */
static hid_t make_type(const char *word, size_t len) {
    const struct {
        const char *word;
        hid_t type;
    } known[] = {{"F64", H5T_IEEE_F64LE}, {"F32", H5T_IEEE_F32LE}, {"I64", H5T_STD_I64LE},
                 {"I32", H5T_STD_I32LE},  {"I16", H5T_STD_I16LE},  {"I8", H5T_STD_I8LE},
                 {"U64", H5T_STD_U64LE},  {"U32", H5T_STD_U32LE},  {"U16", H5T_STD_U16LE},
                 {"U8", H5T_STD_U8LE}};
    char text[8] = "";
    if (len >= sizeof text)
        return H5I_INVALID_HID;
    memcpy(text, word, len);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(text, known[i].word) == 0)
            return H5Tcopy(known[i].type);
    if (strcmp(text, "F16") == 0)
        return make_float(2, 15, 10, 5, 10, 15);
    if (strcmp(text, "BF16") == 0)
        return make_float(2, 15, 7, 8, 7, 127);
    return strcmp(text, "BOOL") == 0 ? make_bool() : H5I_INVALID_HID;
}

struct lists {
    hid_t fapl, fcpl, lcpl, lcpl_utf8, dcpl;
};

static bool make_lists(struct lists *p) {
    p->fapl = helper_sparse_fapl();
    p->fcpl = H5Pcreate(H5P_FILE_CREATE);
    p->lcpl = H5Pcreate(H5P_LINK_CREATE);
    p->lcpl_utf8 = H5Pcreate(H5P_LINK_CREATE);
    p->dcpl = H5Pcreate(H5P_DATASET_CREATE);
    return p->fapl >= 0 && p->fcpl >= 0 && p->lcpl >= 0 && p->lcpl_utf8 >= 0 && p->dcpl >= 0 &&
           H5Pset_fclose_degree(p->fapl, H5F_CLOSE_STRONG) >= 0 &&
           H5Pset_libver_bounds(p->fapl, H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST) >= 0 &&
           H5Pset_obj_track_times(p->fcpl, false) >= 0 &&
           H5Pset_create_intermediate_group(p->lcpl, 1) >= 0 &&
           H5Pset_create_intermediate_group(p->lcpl_utf8, 1) >= 0 &&
           H5Pset_char_encoding(p->lcpl_utf8, H5T_CSET_UTF8) >= 0 &&
           H5Pset_obj_track_times(p->dcpl, false) >= 0 &&
           H5Pset_layout(p->dcpl, H5D_CONTIGUOUS) >= 0 &&
           H5Pset_alloc_time(p->dcpl, H5D_ALLOC_TIME_EARLY) >= 0 &&
           H5Pset_fill_time(p->dcpl, H5D_FILL_TIME_NEVER) >= 0;
}

static bool is_ascii(const char *s) {
    while (*s && (unsigned char)*s < 0x80)
        s++;
    return *s == '\0';
}

/* One dataset; its place is SDC_WIRE_NOWHERE if it has no elements. */
static bool make_set(hid_t file, const struct lists *p, struct sdc_wire *w, uint64_t *place) {
    hsize_t dims[MAX_RANK];
    size_t len;
    const char *text = sdc__wire_text(w, &len);
    size_t word_len;
    const char *word = sdc__wire_text(w, &word_len);
    const unsigned rank = (unsigned)sdc__wire_get(w, 1);
    for (unsigned i = 0; i < rank && i < MAX_RANK; i++)
        dims[i] = sdc__wire_get(w, 8);
    char *name = w->bad || rank > MAX_RANK ? NULL : sdc__strndup(text, len);
    if (!name)
        return false;
    hid_t set = -1, space = -1, type = make_type(word, word_len);
    if (type >= 0)
        space = rank ? H5Screate_simple((int)rank, dims, NULL) : H5Screate(H5S_SCALAR);
    if (space >= 0)
        set = H5Dcreate2(file, name, type, space, is_ascii(name) ? p->lcpl : p->lcpl_utf8, p->dcpl,
                         H5P_DEFAULT);
    haddr_t at = HADDR_UNDEF;
    if (set >= 0 && H5Dget_storage_size(set) > 0)
        at = H5Dget_offset(set);
    *place = at == HADDR_UNDEF ? SDC_WIRE_NOWHERE : at;
    bool ok = set >= 0;
    if (set >= 0)
        (void)H5Dclose(set);
    if (space >= 0)
        (void)H5Sclose(space);
    if (type >= 0)
        (void)H5Tclose(type);
    sdc__free(name);
    return ok;
}

static void tell_run(uint64_t position, const unsigned char *bytes, size_t len) {
    unsigned char body[8 + HELPER_PAGE];
    for (unsigned i = 0; i < 8; i++)
        body[i] = (unsigned char)(position >> 8 * i & 0xff);
    memcpy(body + 8, bytes, len);
    helper_reply(SDC_WIRE_EXTENT, body, 8 + len);
}

void helper_create(struct sdc_wire *w) {
    struct lists p = {-1, -1, -1, -1, -1};
    struct sdc_buf places = SDC_BUF_INIT, body = SDC_BUF_INIT;
    const size_t n = (size_t)sdc__wire_get(w, 4);
    hid_t file = -1;
    if (!make_lists(&p) || (file = H5Fcreate(SDC_WIRE_MAGIC, H5F_ACC_TRUNC, p.fcpl, p.fapl)) < 0) {
        helper_fail_hdf5("create");
        return;
    }
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        uint64_t at = 0;
        ok = make_set(file, &p, w, &at);
        sdc__wire_put(&places, at, 8);
    }
    ok = ok && sdc__wire_ends(w);
    if (!ok || H5Fclose(file) < 0) {
        helper_fail_hdf5("create");
        sdc__buf_release(&places);
        return;
    }
    if (places.failed || !helper_sparse_each(tell_run)) {
        helper_fail(SDC_FAIL_NO_MEMORY, "create");
    } else {
        sdc__wire_put(&body, helper_sparse_size(), 8);
        sdc__buf_append(&body, places.data, places.len);
        helper_reply_buf(SDC_WIRE_PLACES, &body);
    }
    sdc__buf_release(&places);
    sdc__buf_release(&body);
}
