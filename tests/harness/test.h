/* SPDX-License-Identifier: Apache-2.0
 *
 * What every test program includes: cmocka in the order it wants, and checks that print both sides.
 */
#ifndef SDC_TESTS_TEST_H
#define SDC_TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sdc/status.h"

/* The call must succeed; prints the error's message otherwise. Uses a local `struct sdc_error err`.
 */
#define assert_ok(call)                                                                            \
    do {                                                                                           \
        enum sdc_status st_ = (call);                                                              \
        if (st_ != SDC_OK)                                                                         \
            fail_msg("%s: %s: %s", #call, sdc_status_name(st_), err.message);                      \
    } while (0)

/* The call must return exactly this status. */
#define assert_status(want, call)                                                                  \
    do {                                                                                           \
        enum sdc_status st_ = (call);                                                              \
        if (st_ != (want))                                                                         \
            fail_msg("%s: got %s, expected %s (%s)", #call, sdc_status_name(st_),                  \
                     sdc_status_name(want), st_ == SDC_OK ? "" : err.message);                     \
    } while (0)

/* err.message must contain the text. */
#define assert_message_has(text)                                                                   \
    do {                                                                                           \
        if (!strstr(err.message, (text)))                                                          \
            fail_msg("message '%s' lacks '%s'", err.message, (text));                              \
    } while (0)

#endif
