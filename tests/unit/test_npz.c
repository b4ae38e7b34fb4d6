/* SPDX-License-Identifier: Apache-2.0
 *
 * Deflated arrays whose elements are not in the order of reading (Fortran order): unpacked into a
 * temporary file, which is mapped, or read where the file system cannot map.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "io/crc.h"
#include "io/io.h"
#include "sdc/ckpt.h"
#include "test.h"

static struct sdc_error err;
static const char *const path = "x.npz";

enum { ROWS = 7, COLUMNS = 11, N = ROWS * COLUMNS, NPY = 128 + 4 * N, PACKED = NPY + 5 };

static void put(struct sdc_buf *b, uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++)
        sdc__buf_putc(b, (char)(i < 8 ? value >> 8 * i : 0));
}

/* A .npy of ROWS times COLUMNS int32 in Fortran order; element (i, j) is 100 i + j. */
static void make_array(unsigned char *npy) {
    static const char text[] = "{'descr': '<i4', 'fortran_order': True, 'shape': (7, 11), }";
    memset(npy, ' ', 128);
    memcpy(npy, "\x93NUMPY\1\0\x76\0", 10);
    memcpy(npy + 10, text, sizeof text - 1);
    npy[127] = '\n';
    for (unsigned j = 0; j < COLUMNS; j++)
        for (unsigned i = 0; i < ROWS; i++)
            sdc_num_store(SDC_DTYPE_I32, 100 * i + j, npy + 128 + 4 * (j * ROWS + i), false);
}

/* The fields that a local header and an entry of the directory share (APPNOTE.TXT, 4.3). */
static void put_common(struct sdc_buf *b, uint32_t crc) {
    put(b, 20, 2);         /* version needed */
    put(b, 0, 2);          /* flags */
    put(b, 8, 2);          /* deflated */
    put(b, 0x00210000, 4); /* time and date */
    put(b, crc, 4);
    put(b, PACKED, 4);
    put(b, NPY, 4);
    put(b, 5, 2); /* length of the name */
    put(b, 0, 2);
}

static void make_archive(void) {
    static unsigned char npy[NPY];
    struct sdc_buf b = SDC_BUF_INIT;
    make_array(npy);
    const uint32_t crc = sdc__crc32(0, npy, NPY);
    put(&b, 0x04034b50, 4);
    put_common(&b, crc);
    sdc__buf_puts(&b, "a.npy");
    put(&b, 1, 1); /* deflate's block without compression, the last one: RFC 1951, 3.2.4 */
    put(&b, NPY, 2);
    put(&b, ~(uint64_t)NPY, 2);
    sdc__buf_append(&b, npy, NPY);
    const size_t directory = b.len;
    put(&b, 0x02014b50, 4);
    put(&b, 20, 2);
    put_common(&b, crc);
    put(&b, 0, 14); /* comment, disk, attributes, offset */
    sdc__buf_puts(&b, "a.npy");
    const size_t size = b.len - directory;
    put(&b, 0x06054b50, 4);
    put(&b, 0, 4);
    put(&b, 0x00010001, 4);
    put(&b, size, 4);
    put(&b, directory, 4);
    put(&b, 0, 2);
    assert_ok(sdc__write_whole(path, b.data, b.len, false, &err));
    sdc__buf_release(&b);
}

struct counts {
    unsigned refused, others;
    bool fail;
};

/* The first thing done with the temporary file after writing it is to map it. */
static int before_read(void *user, uint64_t n, const char *name) {
    struct counts *c = user;
    (void)n;
    if (strcmp(name, path) == 0)
        return 0;
    if (c->fail && c->refused == 0) {
        c->refused++;
        return ENODEV;
    }
    c->others++;
    return 0;
}

static void read_all(void) {
    struct sdc_ckpt *c;
    int32_t x[N];
    size_t t;
    assert_ok(sdc_ckpt_open(path, NULL, &c, &err));
    assert_true(sdc_ckpt_find(c, "a", &t));
    for (unsigned pass = 0; pass < 2; pass++) {
        assert_ok(sdc_ckpt_read(c, t, 0, N, x, &err));
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLUMNS; j++)
                assert_int_equal(x[i * COLUMNS + j], 100 * i + j);
    }
    sdc_ckpt_close(c);
}

static void arrays_are_read_where_nothing_can_be_mapped(void **state) {
    (void)state;
    struct counts c = {0};
    const struct sdc_io_hook hook = {.user = &c, .before_read = before_read};
    make_archive();
    sdc__io_test_hook(&hook);
    read_all();
    assert_int_equal(c.others, 1); /* mapped once, for both passes, and never read */
    c = (struct counts){.fail = true};
    read_all();
    sdc__io_test_hook(NULL);
    assert_int_equal(c.refused, 1);
    assert_int_equal(c.others, 2 * N);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_are_read_where_nothing_can_be_mapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
