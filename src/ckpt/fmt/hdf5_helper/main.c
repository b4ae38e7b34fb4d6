/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/fmt/hdf5_helper/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"

enum { GONE = 0, BROKEN = 70, ASKED_WRONGLY = 2 };

/* ---- limits, before anything foreign is looked at ---- */

static void limit(int what, unsigned long long n) {
    const struct rlimit r = {(rlim_t)n, (rlim_t)n};
    (void)setrlimit((__rlimit_resource_t)what, &r); /* fails only where a lower one holds already */
}

static void limit_all(unsigned long long seconds, unsigned long long mib) {
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_CPU, seconds);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    limit(RLIMIT_AS, mib << 20);
    limit(RLIMIT_NOFILE, SDC_WIRE_FILE + 1); /* what is open now, and nothing more */
#else
    (void)mib;
#endif
}

/* ---- frames ---- */

static void send_all(const void *data, size_t len, int more) {
    const char *p = data;
    while (len > 0) {
        ssize_t n = send(STDOUT_FILENO, p, len, MSG_NOSIGNAL | more);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            _exit(GONE);
        p += n;
        len -= (size_t)n;
    }
}

static void recv_all(void *data, size_t len) {
    char *p = data;
    while (len > 0) {
        ssize_t n = recv(STDIN_FILENO, p, len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            _exit(GONE);
        p += n;
        len -= (size_t)n;
    }
}

/* Small frames are gathered until one ends an answer. */
static unsigned char pending[1 << 16];
static size_t n_pending;

static bool is_last(enum sdc_wire_kind kind) {
    return kind != SDC_WIRE_GROUP && kind != SDC_WIRE_LINK && kind != SDC_WIRE_NAMES &&
           kind != SDC_WIRE_EXTENT;
}

void helper_reply(enum sdc_wire_kind kind, const void *body, size_t len) {
    unsigned char head[5];
    const size_t whole = len + 1;
    for (unsigned i = 0; i < 4; i++)
        head[i] = (unsigned char)(whole >> 8 * i & 0xff);
    head[4] = (unsigned char)kind;
    if (n_pending + sizeof head + len > sizeof pending) {
        send_all(pending, n_pending, MSG_MORE);
        n_pending = 0;
    }
    memcpy(pending + n_pending, head, sizeof head);
    n_pending += sizeof head;
    if (len <= sizeof pending - n_pending) {
        if (len)
            memcpy(pending + n_pending, body, len);
        n_pending += len;
    } else {
        send_all(pending, n_pending, MSG_MORE);
        n_pending = 0;
        send_all(body, len, 0);
    }
    if (is_last(kind) && n_pending > 0) {
        send_all(pending, n_pending, 0);
        n_pending = 0;
    }
}

void helper_reply_buf(enum sdc_wire_kind kind, struct sdc_buf *body) {
    if (body->failed || body->len >= SDC_WIRE_REPLY)
        helper_fail(SDC_FAIL_NO_MEMORY, "a reply is too long");
    else
        helper_reply(kind, body->data, body->len);
    sdc__buf_clear(body);
}

void helper_fail(enum sdc_wire_fail reason, const char *what) {
    char body[513];
    size_t len = strlen(what);
    if (len > sizeof body - 1)
        len = sizeof body - 1;
    body[0] = (char)reason;
    memcpy(body + 1, what, len);
    helper_reply(SDC_WIRE_FAIL, body, len + 1);
}

static herr_t keep_first(unsigned n, const H5E_error2_t *e, void *user) {
    if (n == 0 && e->desc)
        (void)snprintf(user, 256, "%s", e->desc);
    return 0;
}

void helper_fail_hdf5(const char *what) {
    char text[256] = "nothing", line[512];
    (void)H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, text); /* innermost first */
    (void)H5Eclear2(H5E_DEFAULT);
    (void)snprintf(line, sizeof line, "%s: libhdf5 says: %s", what, text);
    helper_fail(SDC_FAIL_INVALID, line);
}

/* ---- opening and closing ---- */

static hid_t file = H5I_INVALID_HID;

static void open_file(struct sdc_wire *w) {
    struct helper_range *r = &helper_range;
    H5O_info_t root;
    r->fd = SDC_WIRE_FILE;
    r->writable = sdc__wire_get(w, 1) != 0;
    r->offset = sdc__wire_get(w, 8);
    r->size = sdc__wire_get(w, 8);
    r->overlay_at = sdc__wire_get(w, 8);
    size_t len;
    const char *overlay = sdc__wire_text(w, &len);
    if (!sdc__wire_ends(w) || len > sizeof r->overlay || file >= 0) {
        helper_fail(SDC_FAIL_REQUEST, "open");
        return;
    }
    if (len)
        memcpy(r->overlay, overlay, len);
    r->overlay_len = len;
    hid_t fapl = helper_range_fapl();
    if (fapl >= 0)
        file = H5Fopen(SDC_WIRE_MAGIC, r->writable ? H5F_ACC_RDWR : H5F_ACC_RDONLY, fapl);
    if (file < 0 || H5Oget_info2(file, &root, H5O_INFO_BASIC) < 0) {
        helper_fail_hdf5("open");
        return;
    }
    struct sdc_buf b = SDC_BUF_INIT;
    sdc__wire_put(&b, root.addr, 8);
    helper_reply_buf(SDC_WIRE_OPENED, &b);
    sdc__buf_release(&b);
}

static void finish(void) {
    helper_forget();
    herr_t rc = H5Fclose(file);
    file = H5I_INVALID_HID;
    if (rc < 0)
        helper_fail_hdf5("close");
    else
        helper_reply(SDC_WIRE_DONE, NULL, 0);
}

static void hello(void) {
    struct sdc_buf b = SDC_BUF_INIT;
    unsigned v[3] = {0, 0, 0};
    (void)H5get_libversion(&v[0], &v[1], &v[2]);
    sdc__buf_puts(&b, SDC_WIRE_MAGIC);
    sdc__wire_put(&b, SDC_WIRE_VERSION, 2);
    sdc__wire_put(&b, H5_VERS_MAJOR, 4);
    sdc__wire_put(&b, H5_VERS_MINOR, 4);
    sdc__wire_put(&b, H5_VERS_RELEASE, 4);
    for (int i = 0; i < 3; i++)
        sdc__wire_put(&b, v[i], 4);
    helper_reply_buf(SDC_WIRE_HELLO, &b);
    sdc__buf_release(&b);
}

static void answer(unsigned kind, struct sdc_wire *w) {
    if (kind == SDC_WIRE_OPEN)
        open_file(w);
    else if (kind == SDC_WIRE_CREATE)
        helper_create(w);
    else if (file < 0)
        helper_fail(SDC_FAIL_REQUEST, "no file is open");
    else if (kind == SDC_WIRE_LINKS)
        helper_links(file, w);
    else if (kind == SDC_WIRE_COUNT)
        helper_counts(file, w);
    else if (kind == SDC_WIRE_TEXTS)
        helper_texts(file, w);
    else if (kind == SDC_WIRE_CHUNKS)
        helper_chunks(file, w);
    else if (kind == SDC_WIRE_READ)
        helper_read(file, w);
    else if (kind == SDC_WIRE_WRITE_CHUNK)
        helper_write_chunk(file, w);
    else if (kind == SDC_WIRE_FINISH)
        finish();
    else
        helper_fail(SDC_FAIL_REQUEST, "unknown kind");
}

int main(int argc, char **argv) {
    unsigned long long seconds, mib;
    if (argc != 3 || !sdc__parse_u64(argv[1], &seconds) || !sdc__parse_u64(argv[2], &mib) ||
        mib > 1u << 30) {
        static const char text[] = "sdclab-hdf5 reads HDF5 files for sdclab, which starts it\n";
        if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
            return BROKEN;
        return ASKED_WRONGLY;
    }
    limit_all(seconds, mib);
    (void)H5dont_atexit();
    if (H5open() < 0 || H5Eset_auto2(H5E_DEFAULT, NULL, NULL) < 0 || H5PLset_loading_state(0) < 0)
        return BROKEN;
    hello();
    unsigned char *body = NULL;
    size_t cap = 0;
    for (;;) {
        unsigned char head[4];
        recv_all(head, sizeof head);
        size_t len = head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
        if (len == 0 || len > SDC_WIRE_REQUEST)
            _exit(BROKEN);
        if (len > cap) {
            sdc__free(body);
            body = sdc__alloc(len, 1);
            cap = len;
            if (!body)
                _exit(BROKEN);
        }
        recv_all(body, len);
        struct sdc_wire w = {.data = body + 1, .len = len - 1};
        answer(body[0], &w);
    }
}
