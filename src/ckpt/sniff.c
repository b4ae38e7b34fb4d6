/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/fmt.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/zip.h"

/* Other formats that people keep training states in, by their first bytes. */
static const struct {
    const char *bytes;
    size_t n;
    const char *what;
} others[] = {
    {"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14,
     "a PyTorch file of the legacy kind"},
    {"\x80\x02", 2, "a pickle"},
    {"\x80\x03", 2, "a pickle"},
    {"\x80\x04", 2, "a pickle"},
    {"\x80\x05", 2, "a pickle"},
    {"\x12\x01\0\0\0\0\0\0", 8, "an MXNet parameter file"},
    {"\x0c\xdb\x3a\x2a", 4, "an OCDBT manifest"},
    {"\x1f\x8b", 2, "a gzip file"},
    {"\x28\xb5\x2f\xfd", 4, "a zstd file"},
};

/* bytes of a file in which an index says that it is one */
#define LOOK ((size_t)64 * 1024)

/* On the stack: without memory the file must not pass for something else. */
bool sdc__is_weight_map(const struct sdc_file *f, const char *word) {
    static const char key[] = "\"weight_map\"";
    char text[LOOK + 1];
    size_t n = f->size < LOOK ? (size_t)f->size : LOOK;
    if (sdc__file_read(f, 0, text, n, NULL) != SDC_OK)
        return false;
    text[n] = '\0';
    return text[strspn(text, " \t\r\n")] == '{' && memmem(text, n, key, sizeof key - 1) &&
           (!word || memmem(text, n, word, strlen(word)));
}

static bool starts(const unsigned char *head, size_t n_head, const char *bytes, size_t n) {
    return n_head >= n && memcmp(head, bytes, n) == 0;
}

static enum sdc_status lfs_pointer(const struct sdc_file *file, struct sdc_error *err) {
    char text[513] = "", oid[128] = "?", size[32] = "?";
    size_t n = file->size < sizeof text - 1 ? (size_t)file->size : sizeof text - 1;
    SDC_TRY(sdc__file_read(file, 0, text, n, err));
    const char *o = strstr(text, "\noid "), *s = strstr(text, "\nsize ");
    if (o)
        (void)snprintf(oid, sizeof oid, "%.*s", (int)strcspn(o + 5, "\r\n"), o + 5);
    if (s)
        (void)snprintf(size, sizeof size, "%.*s", (int)strcspn(s + 6, "\r\n"), s + 6);
    return SDC_ERR(err, SDC_UNSUPPORTED,
                   "%s: a Git LFS pointer, the file itself was not downloaded (oid %s, %s bytes)",
                   file->path, oid, size);
}

/* Offset of the first byte that is not zero, or the file's size. */
static enum sdc_status first_nonzero(const struct sdc_file *file, uint64_t *at,
                                     struct sdc_error *err) {
    enum { BLOCK = 1 << 16 };
    enum sdc_status st = SDC_OK;
    unsigned char *block = sdc__alloc(BLOCK, 1);
    if (!block)
        return SDC_NOMEM(err, file->path);
    for (*at = 0; *at < file->size;) {
        size_t n = file->size - *at < BLOCK ? (size_t)(file->size - *at) : BLOCK, i = 0;
        SDC_TRY_OUT(st, sdc__file_read(file, *at, block, n, err));
        while (i < n && block[i] == 0)
            i++;
        *at += i;
        if (i < n)
            break;
    }
out:
    sdc__free(block);
    return st;
}

/* A zip archive that no format took: its directory is damaged, or it holds something else. */
static enum sdc_status other_zip(const struct sdc_file *file, const char *supported,
                                 struct sdc_error *err) {
    struct sdc_zip zip;
    SDC_TRY(sdc__zip_open(file, 0, file->size, &zip, err));
    const char *first = zip.n ? zip.members[0].name : "";
    enum sdc_status st =
        SDC_ERR(err, SDC_UNSUPPORTED,
                "%s: a zip file of %zu members (%.100s%s) that is no checkpoint known here; %s",
                file->path, zip.n, first, zip.n > 1 ? ", ..." : "", supported);
    sdc__zip_release(&zip);
    return st;
}

static void list_formats(char *text, size_t size) {
    size_t n, used = (size_t)snprintf(text, size, "supported are");
    const struct sdc_ckpt_fmt_ops *const *table = sdc__ckpt_fmt_table(&n);
    for (size_t i = 0; i < n && used < size; i++)
        used +=
            (size_t)snprintf(text + used, size - used, "%s %s", i ? "," : "", table[i]->summary);
}

enum sdc_status sdc__ckpt_unrecognised(const struct sdc_ckpt_source *source,
                                       struct sdc_error *err) {
    char supported[512];
    const struct sdc_file *file = source->file;
    const unsigned char *head = source->head;
    const size_t n_head = source->n_head;
    list_formats(supported, sizeof supported);
    if (source->is_folder)
        return SDC_ERR(err, SDC_UNSUPPORTED, "%s: a folder that holds no checkpoint known here",
                       source->path);
    if (!file)
        return SDC_ERR(err, SDC_NOT_FOUND, "%s: no such file", source->path);
    if (n_head == 0)
        return SDC_ERR(err, SDC_INVALID, "%s: empty file", file->path);
    if (starts(head, n_head, "version https://git-lfs", 23))
        return lfs_pointer(file, err);
    if (head[0] == '<' || starts(head, n_head, "\xef\xbb\xbf<", 4))
        return SDC_ERR(err, SDC_UNSUPPORTED,
                       "%s: an HTML or XML page, probably a failed download; %s", file->path,
                       supported);
    if (starts(head, n_head, "PK", 2) && sdc__zip_kind(file, head, n_head) != SDC_ZIP_NONE)
        return other_zip(file, supported, err);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (starts(head, n_head, others[i].bytes, others[i].n))
            return SDC_ERR(err, SDC_UNSUPPORTED, "%s: %s; %s", file->path, others[i].what,
                           supported);
    static const unsigned char zeros[64];
    if (memcmp(head, zeros, n_head) == 0) {
        uint64_t at = 0;
        SDC_TRY(first_nonzero(file, &at, err));
        if (at == file->size)
            return SDC_ERR(err, SDC_INVALID,
                           "%s: only zero bytes (%llu of them), a hole left by a crash or a "
                           "preallocation",
                           file->path, (unsigned long long)at);
        return SDC_ERR_AT(err, SDC_INVALID, at,
                          "%s: zero bytes up to %llu, a hole left by a crash or a preallocation",
                          file->path, (unsigned long long)at);
    }
    if (n_head < 10)
        return SDC_ERR(err, SDC_INVALID, "%s: truncated: only %zu bytes", file->path, n_head);
    char hex[17];
    for (unsigned i = 0; i < 8; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", head[i]);
    return SDC_ERR(err, SDC_UNSUPPORTED, "%s: not recognised (first bytes %s); %s", file->path, hex,
                   supported);
}
