/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces: strides, boxes, small types and bounds, against positions worked out by hand.
 */
#include "test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "ckpt/files.h"
#include "ckpt/fmt.h"

#define FILE_SIZE 4096

struct kit {
    struct sdc_ckpt ckpt;
    struct sdc_ckpt_entry e;
    unsigned char bytes[FILE_SIZE];
    char path[64];
};

/* A file whose byte i is i * 7 mod 256, and an entry of this type and shape in it. */
static void kit_open(struct kit *k, enum sdc_dtype dtype, unsigned rank, const uint64_t *shape) {
    struct sdc_error err;
    struct sdc_file f;
    *k = (struct kit){0};
    (void)pthread_mutex_init(&k->ckpt.lock, NULL);
    (void)pthread_mutex_init(&k->ckpt.member_lock, NULL);
    for (unsigned i = 0; i < FILE_SIZE; i++)
        k->bytes[i] = (unsigned char)(i * 7);
    snprintf(k->path, sizeof k->path, "layout-%d.bin", (int)getpid());
    assert_int_equal(sdc__write_whole(k->path, k->bytes, FILE_SIZE, false, &err), SDC_OK);
    assert_int_equal(sdc__file_open(k->path, SDC_FILE_READ, &f, &err), SDC_OK);
    k->ckpt.path = k->path;
    assert_int_equal(sdc__ckpt_adopt(&k->ckpt, &f, &err), SDC_OK);
    k->e.name = sdc__strdup("t");
    assert_int_equal(sdc__entry_set_shape(&k->e, k->path, rank, shape, &err), SDC_OK);
    assert_int_equal(sdc__entry_set_dtype(&k->e, dtype, &err), SDC_OK);
    k->e.desc.shape = k->e.shape;
}

static void kit_close(struct kit *k) {
    sdc__entry_release(&k->e);
    sdc__ckpt_release_files(&k->ckpt);
    (void)unlink(k->path);
}

static enum sdc_status add(struct kit *k, struct sdc_ckpt_piece piece, struct sdc_error *err) {
    assert_int_equal(sdc__entry_piece(&k->e, &piece, err), SDC_OK);
    return sdc__layout_check(&k->ckpt, &k->e, err);
}

static uint64_t offset_of(struct kit *k, uint64_t elem, unsigned *shift) {
    struct sdc_span span;
    struct sdc_error err;
    assert_int_equal(sdc__layout_map(&k->ckpt, &k->e, elem, &span, &err), SDC_OK);
    if (shift)
        *shift = span.shift;
    return span.offset;
}

/* What read gives equals the bytes at the mapped places, whatever the range. */
static void check_reads(struct kit *k) {
    struct sdc_error err;
    const unsigned size = sdc_dtype_bytes(k->e.desc.dtype), bits = sdc_dtype_bits(k->e.desc.dtype);
    const uint64_t n = k->e.desc.n_elems;
    unsigned char *got = test_malloc(n * size + 1);
    for (uint64_t first = 0; first < n; first += 1 + n / 7)
        for (uint64_t len = 1; len <= n - first; len += 1 + n / 5) {
            assert_int_equal(sdc__layout_read(&k->ckpt, &k->e, first, len, got, &err), SDC_OK);
            for (uint64_t i = 0; i < len; i++) {
                unsigned shift;
                uint64_t at = offset_of(k, first + i, &shift);
                if (bits < 8)
                    assert_int_equal(got[i], (unsigned)k->bytes[at] >> shift & ((1u << bits) - 1));
                else
                    assert_memory_equal(got + i * size, k->bytes + at, size);
            }
        }
    test_free(got);
}

static void transposed(void **state) {
    (void)state;
    struct kit k;
    struct sdc_error err;
    /* shape 5x8 float32 of x.t(), x being 8x5 in C order: element (i,j) at (j*5 + i) * 4 */
    const uint64_t shape[] = {5, 8}, dims[] = {5, 8}, strides[] = {32, 160};
    kit_open(&k, SDC_DTYPE_F32, 2, shape);
    assert_int_equal(
        add(&k,
            (struct sdc_ckpt_piece){.bit = 100 * 8, .n_dims = 2, .dims = dims, .strides = strides},
            &err),
        SDC_OK);
    assert_false(k.e.packed);
    assert_int_equal(offset_of(&k, 0, NULL), 100);
    assert_int_equal(offset_of(&k, 1, NULL), 120);
    assert_int_equal(offset_of(&k, 8, NULL), 104);
    assert_int_equal(offset_of(&k, 39, NULL), 100 + (7 * 5 + 4) * 4);
    check_reads(&k);
    kit_close(&k);
}

static void tall_transposed(void **state) {
    (void)state;
    struct kit k;
    struct sdc_error err;
    const uint64_t shape[] = {100, 3}, dims[] = {100, 3}, strides[] = {16, 1600};
    kit_open(&k, SDC_DTYPE_F16, 2, shape);
    assert_int_equal(
        add(&k, (struct sdc_ckpt_piece){.bit = 8, .n_dims = 2, .dims = dims, .strides = strides},
            &err),
        SDC_OK);
    check_reads(&k);
    kit_close(&k);
}

static void nibbles_in_two_halves(void **state) {
    (void)state;
    struct kit k;
    struct sdc_error err;
    /* two blocks of 18 bytes: a 2-byte scale, then 16 bytes whose low nibbles are elements 0-15
     * and whose high nibbles are elements 16-31 */
    const uint64_t shape[] = {64}, dims[] = {2, 2, 16}, strides[] = {144, 4, 8};
    kit_open(&k, SDC_DTYPE_U4, 1, shape);
    assert_int_equal(
        add(&k, (struct sdc_ckpt_piece){.bit = 16, .n_dims = 3, .dims = dims, .strides = strides},
            &err),
        SDC_OK);
    unsigned shift;
    assert_int_equal(offset_of(&k, 3, &shift), 5);
    assert_int_equal(shift, 0);
    assert_int_equal(offset_of(&k, 16, &shift), 2);
    assert_int_equal(shift, 4);
    assert_int_equal(offset_of(&k, 32 + 17, &shift), 18 + 3);
    assert_int_equal(shift, 4);
    check_reads(&k);
    kit_close(&k);
}

static void boxes(void **state) {
    (void)state;
    struct kit k;
    struct sdc_error err;
    /* 4x6 int16: columns 0-3 from byte 0, columns 4-5 from byte 1000, each box in C order */
    const uint64_t shape[] = {4, 6}, b0[] = {0, 0}, s0[] = {4, 4}, b1[] = {0, 4}, s1[] = {4, 2};
    const uint64_t n0 = 16, n1 = 8, stride = 16;
    kit_open(&k, SDC_DTYPE_I16, 2, shape);
    assert_int_equal(add(&k,
                         (struct sdc_ckpt_piece){
                             .n_dims = 1, .dims = &n0, .strides = &stride, .begin = b0, .size = s0},
                         &err),
                     SDC_OK);
    struct sdc_span span;
    assert_int_equal(sdc__layout_map(&k.ckpt, &k.e, 5, &span, &err), SDC_UNSUPPORTED);
    assert_int_equal(
        add(&k,
            (struct sdc_ckpt_piece){
                .bit = 8000, .n_dims = 1, .dims = &n1, .strides = &stride, .begin = b1, .size = s1},
            &err),
        SDC_OK);
    assert_int_equal(offset_of(&k, 0, NULL), 0);
    assert_int_equal(offset_of(&k, 5, NULL), 1002);
    assert_int_equal(offset_of(&k, 6, NULL), 8);
    assert_int_equal(offset_of(&k, 23, NULL), 1014);
    check_reads(&k);
    kit_close(&k);
}

static void bounds(void **state) {
    (void)state;
    struct kit k;
    struct sdc_error err;
    const uint64_t shape[] = {4}, four = 4, five = 5;
    const struct {
        struct sdc_ckpt_piece piece;
        uint64_t stride;
        enum sdc_status want;
    } rows[] = {
        {{.bit = (FILE_SIZE - 16) * 8, .dims = &four}, 32, SDC_OK},
        {{.bit = (FILE_SIZE - 15) * 8, .dims = &four}, 32, SDC_INVALID},
        {{.bit = 0, .dims = &four}, 0, SDC_OK},
        {{.bit = 0, .dims = &four}, UINT64_C(1) << 62, SDC_INVALID},
        {{.bit = 0, .dims = &four}, UINT64_MAX - 7, SDC_INVALID},
        {{.bit = UINT64_MAX - 7, .dims = &four}, 32, SDC_INVALID},
        {{.bit = 4, .dims = &four}, 32, SDC_INVALID},
        {{.bit = 0, .dims = &five}, 32, SDC_INVALID},
        {{.file = 1, .dims = &four}, 32, SDC_INVALID},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sdc_ckpt_piece piece = rows[i].piece;
        piece.n_dims = 1;
        piece.strides = &rows[i].stride;
        kit_open(&k, SDC_DTYPE_F32, 1, shape);
        assert_int_equal(add(&k, piece, &err), rows[i].want);
        kit_close(&k);
    }
}

/* The first box that holds the element, looked for one by one. */
static uint64_t offset_by_hand(const struct kit *k, uint64_t row, uint64_t column) {
    for (size_t i = 0; i < k->e.n_pieces; i++) {
        const struct sdc_ckpt_piece *p = &k->e.pieces[i];
        if (row >= p->begin[0] && row - p->begin[0] < p->size[0] && column >= p->begin[1] &&
            column - p->begin[1] < p->size[1])
            return p->bit / 8 + (row - p->begin[0]) * p->size[1] + column - p->begin[1];
    }
    return UINT64_MAX;
}

/* Boxes of 48x60 elements of a byte: a grid of shards, in any order, some of them missing, some
 * twice, some empty; and boxes cut at random, for which there is no table. */
static void many_boxes(void **state) {
    (void)state;
    static const uint64_t shape[] = {48, 60};
    uint32_t seed = 1;
    for (int round = 0; round < 8; round++) {
        struct kit k;
        struct sdc_error err;
        const bool grid = round < 6;
        const uint64_t high = round % 2 ? 6 : 48, wide = round % 3 ? 5 : 1;
        kit_open(&k, SDC_DTYPE_U8, 2, shape);
        for (unsigned i = 0; i < (grid ? 48 / high * (60 / wide) + 20 : 200); i++) {
            seed = seed * 1664525 + 1013904223;
            const uint64_t r = seed >> 8;
            uint64_t begin[2] = {r % (48 / high) * high, r / 64 % (60 / wide) * wide},
                     size[2] = {r / 4096 % 17 ? high : 0, wide};
            if (!grid) {
                begin[0] = r % 48;
                begin[1] = r / 48 % 60;
                size[0] = 1 + r / 2880 % (48 - begin[0]);
                size[1] = 1 + r / 7 % (60 - begin[1]);
            }
            const uint64_t strides[2] = {size[1] * 8, 8};
            const struct sdc_ckpt_piece piece = {.bit = (uint64_t)(i % 64) * 8,
                                                 .n_dims = 2,
                                                 .dims = size,
                                                 .strides = strides,
                                                 .begin = begin,
                                                 .size = size};
            assert_int_equal(sdc__entry_piece(&k.e, &piece, &err), SDC_OK);
        }
        assert_int_equal(sdc__layout_check(&k.ckpt, &k.e, &err), SDC_OK);
        assert_true((k.e.cells != NULL) == grid);
        for (uint64_t e = 0; e < 48 * 60; e++) {
            struct sdc_span span = {.offset = UINT64_MAX};
            const uint64_t want = offset_by_hand(&k, e / 60, e % 60);
            assert_int_equal(sdc__layout_map(&k.ckpt, &k.e, e, &span, &err),
                             want == UINT64_MAX ? SDC_UNSUPPORTED : SDC_OK);
            assert_int_equal(span.offset, want);
        }
        kit_close(&k);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transposed),
        cmocka_unit_test(tall_transposed),
        cmocka_unit_test(nibbles_in_two_halves),
        cmocka_unit_test(boxes),
        cmocka_unit_test(bounds),
        cmocka_unit_test(many_boxes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
