/* SPDX-License-Identifier: Apache-2.0 */
#include "io/flate.h"

#include <string.h>
#include <zlib.h>

#include "base/alloc.h"

#define BLOCK 262144u

static void *z_alloc(void *opaque, unsigned n, unsigned size) {
    (void)opaque;
    return sdc__alloc(n, size);
}

static void z_free(void *opaque, void *block) {
    (void)opaque;
    sdc__free(block);
}

/* ---- inflating ---- */

struct sdc_inflate {
    z_stream z;
    const struct sdc_file *file;
    uint64_t at, left; /* of the range, not yet read */
    uint64_t done;     /* inflated bytes handed out */
    bool ended;
    unsigned char in[BLOCK];
};

enum sdc_status sdc__inflate_new(const struct sdc_file *file, uint64_t offset, uint64_t len,
                                 struct sdc_inflate **in, struct sdc_error *err) {
    struct sdc_inflate *s = sdc__alloc(1, sizeof *s);
    if (!s)
        return SDC_NOMEM(err, file->path);
    s->z = (z_stream){.zalloc = z_alloc, .zfree = z_free};
    s->file = file;
    s->at = offset;
    s->left = len;
    s->done = 0;
    s->ended = false;
    if (inflateInit2(&s->z, -15) != Z_OK) {
        sdc__free(s);
        return SDC_NOMEM(err, file->path);
    }
    *in = s;
    return SDC_OK;
}

void sdc__inflate_free(struct sdc_inflate *in) {
    if (!in)
        return;
    (void)inflateEnd(&in->z);
    sdc__free(in);
}

uint64_t sdc__inflate_at(const struct sdc_inflate *in) {
    return in->done;
}

static enum sdc_status refill(struct sdc_inflate *s, struct sdc_error *err) {
    size_t n = s->left < BLOCK ? (size_t)s->left : BLOCK;
    SDC_TRY(sdc__file_read(s->file, s->at, s->in, n, err));
    s->z.next_in = s->in;
    s->z.avail_in = (unsigned)n;
    s->at += n;
    s->left -= n;
    return SDC_OK;
}

/* Up to n bytes; *got is less only at the end of the stream. */
static enum sdc_status inflate_some(struct sdc_inflate *s, unsigned char *to, unsigned n,
                                    unsigned *got, struct sdc_error *err) {
    s->z.next_out = to;
    s->z.avail_out = n;
    while (s->z.avail_out > 0 && !s->ended) {
        if (s->z.avail_in == 0 && s->left > 0)
            SDC_TRY(refill(s, err));
        int code = inflate(&s->z, Z_NO_FLUSH);
        if (code == Z_STREAM_END)
            s->ended = true;
        else if (code == Z_MEM_ERROR)
            return SDC_NOMEM(err, s->file->path);
        else if (code == Z_BUF_ERROR && s->left == 0)
            return SDC_ERR_AT(err, SDC_INVALID, s->at,
                              "%s: truncated deflated data at %llu, after %llu inflated bytes",
                              s->file->path, (unsigned long long)s->at,
                              (unsigned long long)(s->done + n - s->z.avail_out));
        else if (code != Z_OK && code != Z_BUF_ERROR)
            return SDC_ERR_AT(err, SDC_INVALID, s->at - s->z.avail_in,
                              "%s: damaged deflated data before %llu: %s", s->file->path,
                              (unsigned long long)(s->at - s->z.avail_in),
                              s->z.msg ? s->z.msg : zError(code));
    }
    *got = n - s->z.avail_out;
    s->done += *got;
    return SDC_OK;
}

enum sdc_status sdc__inflate_read(struct sdc_inflate *in, void *data, uint64_t n,
                                  struct sdc_error *err) {
    unsigned char *to = data, *scratch = NULL;
    enum sdc_status st = SDC_OK;
    if (!data && n > 0) {
        scratch = sdc__alloc(BLOCK, 1);
        if (!scratch)
            return SDC_NOMEM(err, in->file->path);
    }
    while (st == SDC_OK && n > 0) {
        const unsigned most = scratch ? BLOCK : 1u << 30;
        unsigned want = n < most ? (unsigned)n : most, got = 0;
        st = inflate_some(in, scratch ? scratch : to, want, &got, err);
        if (st == SDC_OK && got < want)
            st = SDC_ERR(err, SDC_INVALID,
                         "%s: truncated: the deflated data end after %llu bytes, %llu more were "
                         "expected",
                         in->file->path, (unsigned long long)in->done,
                         (unsigned long long)(n - got));
        if (!scratch)
            to += got;
        n -= got;
    }
    sdc__free(scratch);
    return st;
}

enum sdc_status sdc__inflate_end(struct sdc_inflate *in, struct sdc_error *err) {
    unsigned char more;
    unsigned got = 0;
    SDC_TRY(inflate_some(in, &more, 1, &got, err));
    if (got > 0)
        return SDC_ERR(err, SDC_INVALID, "%s: deflated data of more than %llu bytes",
                       in->file->path, (unsigned long long)in->done - 1);
    if (in->left > 0 || in->z.avail_in > 0)
        return SDC_ERR_AT(err, SDC_INVALID, in->at - in->z.avail_in,
                          "%s: %llu bytes after the end of deflated data", in->file->path,
                          (unsigned long long)(in->left + in->z.avail_in));
    return SDC_OK;
}

/* ---- deflating ---- */

struct sdc_deflate {
    z_stream z;
    struct sdc_file *file;
    uint64_t start, at;
    unsigned char out[BLOCK];
};

enum sdc_status sdc__deflate_new(struct sdc_file *file, uint64_t offset, struct sdc_deflate **out,
                                 struct sdc_error *err) {
    struct sdc_deflate *s = sdc__alloc(1, sizeof *s);
    if (!s)
        return SDC_NOMEM(err, file->path);
    s->z = (z_stream){.zalloc = z_alloc, .zfree = z_free, .next_out = s->out, .avail_out = BLOCK};
    s->file = file;
    s->start = s->at = offset;
    if (deflateInit2(&s->z, 6, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        sdc__free(s);
        return SDC_NOMEM(err, file->path);
    }
    *out = s;
    return SDC_OK;
}

void sdc__deflate_free(struct sdc_deflate *out) {
    if (!out)
        return;
    (void)deflateEnd(&out->z);
    sdc__free(out);
}

static enum sdc_status flush(struct sdc_deflate *s, struct sdc_error *err) {
    size_t n = BLOCK - s->z.avail_out;
    SDC_TRY(sdc__file_write(s->file, s->at, s->out, n, err));
    s->at += n;
    s->z.next_out = s->out;
    s->z.avail_out = BLOCK;
    return SDC_OK;
}

enum sdc_status sdc__deflate_put(struct sdc_deflate *out, const void *data, size_t n,
                                 struct sdc_error *err) {
    out->z.next_in = (unsigned char *)(uintptr_t)data; /* zlib reads it only */
    while (n > 0 || out->z.avail_in > 0) {
        if (out->z.avail_in == 0) {
            out->z.avail_in = n < 1u << 30 ? (unsigned)n : 1u << 30;
            n -= out->z.avail_in;
        }
        (void)deflate(&out->z, Z_NO_FLUSH); /* cannot fail with room and input */
        if (out->z.avail_out == 0)
            SDC_TRY(flush(out, err));
    }
    return SDC_OK;
}

enum sdc_status sdc__deflate_end(struct sdc_deflate *out, uint64_t *len, struct sdc_error *err) {
    int code;
    do {
        code = deflate(&out->z, Z_FINISH);
        SDC_TRY(flush(out, err));
    } while (code != Z_STREAM_END);
    *len = out->at - out->start;
    return SDC_OK;
}
