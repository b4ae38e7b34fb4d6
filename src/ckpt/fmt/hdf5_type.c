/* SPDX-License-Identifier: Apache-2.0
 *
 * HDF5 datatypes as ours, by their properties and never by comparison with named types, so that a
 * bfloat16 of any library is found.
 */
#include "ckpt/fmt/hdf5.h"

#include <stdio.h>
#include <string.h>

/* sign position, exponent position and size, mantissa position and size, bias */
static const struct float_layout {
    enum sdc_dtype dtype;
    size_t size, spos, epos, esize, mpos, msize, bias;
    const char *word;
} floats[] = {{SDC_DTYPE_F64, 8, 63, 52, 11, 0, 52, 1023, "H5T_IEEE_F64"},
              {SDC_DTYPE_F32, 4, 31, 23, 8, 0, 23, 127, "H5T_IEEE_F32"},
              {SDC_DTYPE_F16, 2, 15, 10, 5, 0, 10, 15, "H5T_IEEE_F16"},
              {SDC_DTYPE_BF16, 2, 15, 7, 8, 0, 7, 127, "H5T_FLOAT_BFLOAT16"}};

/* The library's words for the two byte orders end in these. */
static const char *order_word(H5T_order_t order) {
    return order == H5T_ORDER_LE ? "LE" : order == H5T_ORDER_BE ? "BE" : NULL;
}

static bool uses_all_bits(hid_t type) {
    return H5Tget_precision(type) == H5Tget_size(type) * 8 && H5Tget_offset(type) == 0;
}

static enum sdc_status locked_type(struct sdc_ckpt_entry *e, struct sdc_error *err,
                                   const char *word, size_t size) {
    SDC_TRY(sdc__entry_text(&e->dtype_text, err, "%s of %zu bytes", word, size));
    return sdc__entry_lock(e, err, "type %s: not alterable yet", e->dtype_text);
}

static enum sdc_status known_type(struct sdc_ckpt_entry *e, struct sdc_error *err,
                                  enum sdc_dtype dtype, H5T_order_t order, const char *word) {
    e->desc.dtype = dtype;
    e->desc.dtype_known = true;
    e->big_endian = order == H5T_ORDER_BE && sdc_dtype_bytes(dtype) > 1;
    return sdc__entry_text(&e->dtype_text, err, "%s%s", word, order_word(order));
}

static enum sdc_status classify_integer(hid_t type, struct sdc_ckpt_entry *e,
                                        struct sdc_error *err) {
    static const enum sdc_dtype known[2][4] = {
        {SDC_DTYPE_U8, SDC_DTYPE_U16, SDC_DTYPE_U32, SDC_DTYPE_U64},
        {SDC_DTYPE_I8, SDC_DTYPE_I16, SDC_DTYPE_I32, SDC_DTYPE_I64}};
    static const char *const words[2][4] = {
        {"H5T_STD_U8", "H5T_STD_U16", "H5T_STD_U32", "H5T_STD_U64"},
        {"H5T_STD_I8", "H5T_STD_I16", "H5T_STD_I32", "H5T_STD_I64"}};
    size_t size = H5Tget_size(type);
    H5T_order_t order = H5Tget_order(type);
    H5T_sign_t sign = H5Tget_sign(type);
    for (int i = 0; i < 4; i++)
        if (size == (size_t)1 << i && uses_all_bits(type) && order_word(order) &&
            (sign == H5T_SGN_NONE || sign == H5T_SGN_2))
            return known_type(e, err, known[sign == H5T_SGN_2][i], order,
                              words[sign == H5T_SGN_2][i]);
    return locked_type(e, err, "integer of unusual layout", size);
}

static enum sdc_status classify_float(hid_t type, struct sdc_ckpt_entry *e, struct sdc_error *err) {
    struct float_layout f = {.size = H5Tget_size(type)};
    H5T_order_t order = H5Tget_order(type);
    bool got = H5Tget_fields(type, &f.spos, &f.epos, &f.esize, &f.mpos, &f.msize) >= 0;
    f.bias = H5Tget_ebias(type);
    for (size_t i = 0; got && i < sizeof floats / sizeof *floats; i++) {
        const struct float_layout *k = &floats[i];
        if (k->size == f.size && k->spos == f.spos && k->epos == f.epos && k->esize == f.esize &&
            k->mpos == f.mpos && k->msize == f.msize && k->bias == f.bias && uses_all_bits(type) &&
            H5Tget_norm(type) == H5T_NORM_IMPLIED && order_word(order))
            return known_type(e, err, k->dtype, order, k->word);
    }
    return locked_type(e, err, "floating-point number of unknown layout", f.size);
}

/* As h5py stores booleans: an enumeration over int8 with FALSE = 0 and TRUE = 1. */
static bool is_bool(hid_t type) {
    int8_t f = -1, t = -1;
    hid_t super = H5Tget_super(type);
    bool ok = super >= 0 && H5Tget_class(super) == H5T_INTEGER && H5Tget_size(super) == 1 &&
              H5Tget_nmembers(type) == 2 && H5Tenum_valueof(type, "FALSE", &f) >= 0 &&
              H5Tenum_valueof(type, "TRUE", &t) >= 0 && f == 0 && t == 1;
    if (super >= 0)
        (void)H5Tclose(super);
    return ok;
}

enum sdc_status sdc__h5_classify_type(hid_t type, const char *path, struct sdc_ckpt_entry *e,
                                      struct sdc_error *err) {
    size_t size = H5Tget_size(type);
    switch (H5Tget_class(type)) {
    case H5T_INTEGER:
        return classify_integer(type, e, err);
    case H5T_FLOAT:
        return classify_float(type, e, err);
    case H5T_ENUM:
        if (!is_bool(type))
            return locked_type(e, err, "enumeration", size);
        e->desc.dtype = SDC_DTYPE_BOOL;
        e->desc.dtype_known = true;
        return sdc__entry_text(&e->dtype_text, err, "enum FALSE, TRUE");
    case H5T_STRING:
        return H5Tis_variable_str(type) > 0 ? locked_type(e, err, "variable-length string", size)
                                            : locked_type(e, err, "string", size);
    case H5T_TIME:
        return locked_type(e, err, "time", size);
    case H5T_BITFIELD:
        return locked_type(e, err, "bit field", size);
    case H5T_OPAQUE:
        return locked_type(e, err, "opaque", size);
    case H5T_COMPOUND:
        return locked_type(e, err, "compound", size);
    case H5T_REFERENCE:
        return locked_type(e, err, "reference", size);
    case H5T_VLEN:
        return locked_type(e, err, "variable-length sequence", size);
    case H5T_ARRAY:
        return locked_type(e, err, "array", size);
    default:
        return sdc__h5_fail(err, SDC_INVALID, path, e->name);
    }
}

static hid_t make_float(const struct float_layout *k) {
    hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    /* in this order: no step may make the type inconsistent with the next */
    if (type < 0 || H5Tset_fields(type, k->spos, k->epos, k->esize, k->mpos, k->msize) < 0 ||
        H5Tset_precision(type, k->size * 8) < 0 || H5Tset_size(type, k->size) < 0 ||
        H5Tset_ebias(type, k->bias) < 0) {
        if (type >= 0)
            (void)H5Tclose(type);
        return H5I_INVALID_HID;
    }
    return type;
}

static hid_t make_bool(void) {
    static const int8_t values[2] = {0, 1};
    hid_t type = H5Tenum_create(H5T_STD_I8LE);
    if (type < 0 || H5Tenum_insert(type, "FALSE", &values[0]) < 0 ||
        H5Tenum_insert(type, "TRUE", &values[1]) < 0) {
        if (type >= 0)
            (void)H5Tclose(type);
        return H5I_INVALID_HID;
    }
    return type;
}

hid_t sdc__h5_make_type(enum sdc_dtype dtype) {
    switch (dtype) {
    case SDC_DTYPE_F64:
        return H5Tcopy(H5T_IEEE_F64LE);
    case SDC_DTYPE_F32:
        return H5Tcopy(H5T_IEEE_F32LE);
    case SDC_DTYPE_F16:
        return make_float(&floats[2]);
    case SDC_DTYPE_BF16:
        return make_float(&floats[3]);
    case SDC_DTYPE_I64:
        return H5Tcopy(H5T_STD_I64LE);
    case SDC_DTYPE_I32:
        return H5Tcopy(H5T_STD_I32LE);
    case SDC_DTYPE_I16:
        return H5Tcopy(H5T_STD_I16LE);
    case SDC_DTYPE_I8:
        return H5Tcopy(H5T_STD_I8LE);
    case SDC_DTYPE_U64:
        return H5Tcopy(H5T_STD_U64LE);
    case SDC_DTYPE_U32:
        return H5Tcopy(H5T_STD_U32LE);
    case SDC_DTYPE_U16:
        return H5Tcopy(H5T_STD_U16LE);
    case SDC_DTYPE_U8:
        return H5Tcopy(H5T_STD_U8LE);
    case SDC_DTYPE_BOOL:
        return make_bool();
    default:
        return H5I_INVALID_HID;
    }
}

void sdc__hdf5_library(char *text, size_t size) {
    unsigned major = 0, minor = 0, release = 0;
    H5get_libversion(&major, &minor, &release);
    snprintf(text, size, "HDF5 built %d.%d.%d, running %u.%u.%u", H5_VERS_MAJOR, H5_VERS_MINOR,
             H5_VERS_RELEASE, major, minor, release);
}
