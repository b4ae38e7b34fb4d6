/* SPDX-License-Identifier: Apache-2.0
 *
 * Hundreds of thousands of sites, which are planned, read and written in slices by several threads:
 * exactly the planned bits change, elements that share a byte across two slices among them.
 */
#include <stdio.h>

#include "ckpt_files.h"
#include "sdc/alter.h"

static struct sdc_error err;

#define DIR_NAME "many.d"
#define SOURCE   DIR_NAME "/a.safetensors"
#define OUT      DIR_NAME "/b.safetensors"
#define N_WIDE   UINT64_C(60000)
#define N_SMALL  UINT64_C(150000) /* of 4 bits */

static struct sdc_buf make(void) {
    struct sdc_buf b = SDC_BUF_INIT, header = SDC_BUF_INIT;
    unsigned char length[8];
    assert_ok(sdc__remove_tree(DIR_NAME, &err));
    assert_ok(sdc__make_dirs(DIR_NAME, &err));
    sdc__buf_printf(&header,
                    "{\"q\":{\"dtype\":\"F4\",\"shape\":[3,%llu],\"data_offsets\":[0,%llu]},"
                    "\"w\":{\"dtype\":\"F32\",\"shape\":[%llu],\"data_offsets\":[%llu,%llu]}}",
                    (unsigned long long)(N_SMALL / 3), (unsigned long long)(N_SMALL / 2),
                    (unsigned long long)N_WIDE, (unsigned long long)(N_SMALL / 2),
                    (unsigned long long)(N_SMALL / 2 + 4 * N_WIDE));
    while (header.len % 8)
        sdc__buf_putc(&header, ' ');
    sdc_num_store(SDC_DTYPE_U64, header.len, length, false);
    sdc__buf_append(&b, length, sizeof length);
    sdc__buf_append(&b, header.data, header.len);
    for (uint64_t i = 0; i < N_SMALL / 2 + 4 * N_WIDE; i++)
        sdc__buf_putc(&b, (char)(i * 2654435761U >> 13));
    sdc__buf_release(&header);
    write_file(SOURCE, &b);
    return b;
}

/* The file as the list of changes says it is, worked out bit by bit. */
static void apply(const struct sdc_alter_result *r, struct sdc_buf *file) {
    for (size_t i = 0; i < r->n_changes; i++) {
        const struct sdc_record_change *c = &r->changes[i];
        for (unsigned bit = 0; bit < sdc_dtype_bits(c->dtype); bit++) {
            const size_t at = c->offset + (c->shift + bit) / 8;
            const unsigned mask = 1U << (c->shift + bit) % 8;
            unsigned char *const byte = (unsigned char *)file->data + at;
            assert_int_equal((*byte & mask) != 0, c->old_raw >> bit & 1);
            if ((c->old_raw ^ c->new_raw) >> bit & 1)
                *byte = (unsigned char)(*byte ^ mask);
        }
    }
}

static void many_sites_are_altered_exactly(void **state) {
    (void)state;
    static const char *const choices[][2] = {{"exhaustive", "true"}, {"flips", "300000"}};
    static const char *const ops[] = {"set1", "flip"};
    for (int k = 0; k < 2; k++)
        for (int in_place = 0; in_place < 2; in_place++) {
            struct sdc_buf old = make(), want = read_file(SOURCE);
            struct sdc_alter_options o = {
                .output = in_place ? NULL : OUT, .no_sync = true, .may_map = k == in_place};
            struct sdc_alter_result r;
            struct sdc_undo_result u;
            struct sdc_choice c;
            sdc_choice_init(&c);
            assert_ok(sdc_choice_set(&c, choices[k][0], choices[k][1], &err));
            assert_ok(sdc_choice_set(&c, "op", ops[k], &err));
            if (k == 0)
                assert_ok(sdc_choice_set(&c, "bits", "lsb:1", &err));
            assert_ok(sdc_alter(SOURCE, &c, &o, &r, &err));
            assert_true(r.n_changes > 100000 && r.planned >= 200000);
            apply(&r, &want);
            assert_true(file_is(in_place ? SOURCE : OUT, &want));
            assert_true(in_place || file_is(SOURCE, &old));
            assert_int_equal(r.n_changes, r.altered + r.unchanged);
            assert_string_equal(r.changes[0].tensor, "q");
            assert_string_equal(r.changes[r.n_changes - 1].tensor, "w");
            if (in_place) { /* reading so many lines takes long */
                assert_ok(sdc_undo(r.record, NULL, true, &u, &err));
                assert_true(file_is(SOURCE, &old));
                sdc_text_free(u.file);
            }
            sdc_alter_result_release(&r);
            sdc_choice_release(&c);
            sdc__buf_release(&old);
            sdc__buf_release(&want);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_sites_are_altered_exactly)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
