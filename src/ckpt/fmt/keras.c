/* SPDX-License-Identifier: Apache-2.0
 *
 * Keras 3 archives (.keras; keras/src/saving/saving_lib.py): a zip file with metadata.json,
 * config.json and the HDF5 file model.weights.h5, which Keras stores and never deflates. The HDF5
 * file is mapped where it lies in the archive, whose CRC-32 of it is mended after the checksums
 * inside.
 */
#include <string.h>

#include "base/alloc.h"
#include "ckpt/fmt/hdf5.h"
#include "ckpt/zip.h"
#include "io/flate.h"

#define WEIGHTS      "model.weights.h5"
#define MAX_INFLATED (UINT64_C(64) << 30)
#define BLOCK        ((size_t)256 * 1024)

static bool keras_sniff(const struct sdc_ckpt_source *source) {
    return source->file &&
           sdc__zip_kind(source->file, source->head, source->n_head) == SDC_ZIP_KERAS;
}

/* The member's checksum, which covers those of the HDF5 file inside. */
static enum sdc_status add_sum(struct sdc_ckpt *ckpt, const struct sdc_zip_member *m,
                               struct sdc_error *err) {
    if (m->size == 0 || (m->method != SDC_ZIP_STORED && m->method != SDC_ZIP_DEFLATED))
        return SDC_OK;
    char *what = sdc__asprintf("member %s", m->name);
    if (!what)
        return SDC_NOMEM(err, ckpt->path);
    struct sdc_ckpt_sum sum = {.kind = SDC_SUM_CRC32,
                               .what = what,
                               .offset = m->data,
                               .size = m->stored,
                               .deflated = m->method == SDC_ZIP_DEFLATED,
                               .inflated_size = m->size,
                               .n_places = m->n_crc_places,
                               .unknown = m->crc == 0,
                               .level = 1};
    for (unsigned i = 0; i < m->n_crc_places; i++)
        sum.places[i].offset = m->crc_places[i];
    enum sdc_status st = sdc__ckpt_add_sum(ckpt, &sum, err);
    sdc__free(what);
    return st;
}

static enum sdc_status note_archive(struct sdc_ckpt *ckpt, const struct sdc_zip *zip,
                                    struct sdc_error *err) {
    if (zip->prefix > 0)
        SDC_TRY(sdc__ckpt_add_note(ckpt, SDC_NOTE_WARNING, err, "%llu bytes before the archive",
                                   (unsigned long long)zip->prefix));
    if (zip->trailing > 0)
        SDC_TRY(sdc__ckpt_add_note(ckpt, SDC_NOTE_WARNING, err, "%llu bytes after the archive",
                                   (unsigned long long)zip->trailing));
    if (zip->n_shadowed > 0)
        SDC_TRY(sdc__ckpt_add_note(ckpt, SDC_NOTE_WARNING, err,
                                   "%zu members are hidden by later ones of the same name",
                                   zip->n_shadowed));
    return SDC_OK;
}

/* What a deflated member inflates to, in a file without a name. */
static enum sdc_status inflate(const struct sdc_file *from, const struct sdc_zip_member *m,
                               struct sdc_file *to, struct sdc_error *err) {
    struct sdc_inflate *in = NULL;
    unsigned char *block = sdc__alloc(BLOCK, 1);
    if (!block)
        return SDC_NOMEM(err, from->path);
    enum sdc_status st = sdc__file_temp(to, err);
    if (st == SDC_OK)
        st = sdc__inflate_new(from, m->data, m->stored, &in, err);
    for (uint64_t at = 0; st == SDC_OK && at < m->size;) {
        const size_t n = m->size - at < BLOCK ? (size_t)(m->size - at) : BLOCK;
        st = sdc__inflate_read(in, block, n, err);
        if (st == SDC_OK)
            st = sdc__file_write(to, at, block, n, err);
        at += n;
    }
    if (st == SDC_OK)
        st = sdc__inflate_end(in, err);
    if (st != SDC_OK)
        sdc_error_prefix(err, "member %s", m->name);
    sdc__inflate_free(in);
    sdc__free(block);
    return st;
}

static enum sdc_status open_weights(struct sdc_ckpt *ckpt, const struct sdc_zip_member *m,
                                    struct sdc_error *err) {
    struct sdc_file inflated = SDC_FILE_INIT;
    if (m->method == SDC_ZIP_STORED)
        return sdc__h5_open(ckpt, m->data, m->size, true, NULL, err);
    if (m->method != SDC_ZIP_DEFLATED)
        return SDC_ERR(err, SDC_UNSUPPORTED, "%s: member %s: compression method %u", ckpt->path,
                       m->name, m->method);
    SDC_TRY(sdc__zip_check_inflated(m, MAX_INFLATED, ckpt->path, err));
    enum sdc_status st = inflate(ckpt->file, m, &inflated, err);
    if (st == SDC_OK)
        st = sdc__h5_open(ckpt, 0, m->size, true, &inflated, err);
    sdc__file_close(&inflated);
    return st;
}

static enum sdc_status keras_open(struct sdc_ckpt *ckpt, const struct sdc_ckpt_source *source,
                                  struct sdc_error *err) {
    struct sdc_zip zip = SDC_ZIP_INIT;
    (void)source;
    SDC_TRY(sdc__zip_open(ckpt->file, 0, ckpt->file->size, &zip, err));
    const struct sdc_zip_member *m = sdc__zip_find(&zip, WEIGHTS);
    enum sdc_status st;
    if (!m) {
        st =
            sdc__zip_find(&zip, "model.weights.npz")
                ? SDC_ERR(err, SDC_UNSUPPORTED,
                          "%s: a Keras archive with model.weights.npz: pickled dictionaries, "
                          "which Keras itself refuses to load",
                          ckpt->path)
                : SDC_ERR(err, SDC_UNSUPPORTED,
                          "%s: a Keras archive without " WEIGHTS
                          ": its weights are in another member, take that out and look at it alone",
                          ckpt->path);
        goto out;
    }
    SDC_TRY_OUT(st, open_weights(ckpt, m, err));
    for (size_t i = 0; i < zip.n; i++)
        SDC_TRY_OUT(st, add_sum(ckpt, &zip.members[i], err));
    st = note_archive(ckpt, &zip, err);
out:
    sdc__zip_release(&zip);
    return st;
}

const struct sdc_ckpt_fmt_ops sdc__fmt_keras = {
    .name = "keras",
    .summary = "Keras archive (.keras) with HDF5 weights",
    .sniff = keras_sniff,
    .open = keras_open,
    .map = sdc__h5_map,
    .read = sdc__h5_read,
    .find_sums = sdc__h5_find_sums,
    .close = sdc__h5_close,
};
