/* SPDX-License-Identifier: Apache-2.0
 *
 * Statuses and errors of every function that can fail. Not for outcomes: an observed corruption is
 * a result, a function that measured one returns SDC_OK.
 *
 * A function that can fail returns enum sdc_status and takes a struct sdc_error * as its last
 * argument. The caller owns the struct, usually on its stack; NULL is allowed; it is untouched on
 * success. Setting an error never allocates, so "no memory" can be reported. The message says what
 * was attempted, on which object, what was found and what was expected; no prefix, no final period,
 * no newline. Callers above only put context in front, with sdc_error_prefix.
 *
 *     struct sdc_error err;
 *     if (sdc_ckpt_open(path, 0, &ckpt, &err) != SDC_OK)
 *         fprintf(stderr, "%s\n", err.message);
 */
#ifndef SDC_STATUS_H
#define SDC_STATUS_H

#include <stdarg.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SDC_API          __attribute__((visibility("default")))
#define SDC_MUST_CHECK   __attribute__((warn_unused_result))
#define SDC_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* name, text, exit code of the program for an error of this kind */
#define SDC_STATUS_MAP(X)                                                                          \
    X(OK, "success", 0)                                                                            \
    X(USAGE, "wrong usage", 2)                                                                     \
    X(INVALID, "invalid contents", 3)                                                              \
    X(UNSUPPORTED, "not supported", 3)                                                             \
    X(MISMATCH, "shape, version or schema mismatch", 3)                                            \
    X(LIMIT, "over a limit", 3)                                                                    \
    X(NOT_FOUND, "not found", 4)                                                                   \
    X(EXISTS, "exists already", 4)                                                                 \
    X(IO, "input or output failed", 4)                                                             \
    X(NO_MEMORY, "out of memory", 4)                                                               \
    X(BUSY, "in use by another process", 4)                                                        \
    X(TIMEOUT, "timed out", 4)                                                                     \
    X(PEER, "a peer failed", 4)                                                                    \
    X(CANCELLED, "cancelled", 130)                                                                 \
    X(INTERNAL, "internal error", 5)

enum sdc_status {
#define SDC_STATUS_ENUM(name, text, exit_code) SDC_##name,
    SDC_STATUS_MAP(SDC_STATUS_ENUM)
#undef SDC_STATUS_ENUM
};

#define SDC_ERROR_MESSAGE_SIZE 1024

struct sdc_error {
    enum sdc_status status;
    int sys_code;   /* errno or the library's code; 0 where there is none */
    int64_t offset; /* byte offset in the object named by the message; -1 where it makes no sense */
    const char *file; /* where it was set; borrowed, static */
    int line;
    char message[SDC_ERROR_MESSAGE_SIZE]; /* complete text, NUL-terminated, cut if longer */
};

/* Short text of a status, such as "invalid contents". Static; thread-safe. */
SDC_API const char *sdc_status_text(enum sdc_status status);

/* Name as in the enum without the prefix, such as "INVALID". Static; thread-safe. */
SDC_API const char *sdc_status_name(enum sdc_status status);

/* The program's exit code for it, 0 to 130 (see SDC_STATUS_MAP). */
SDC_API int sdc_status_exit_code(enum sdc_status status);

/* Fills err (NULL allowed) and returns status, so that `return sdc_error_set(...)` reads well.
 * Use the macros below, which record the place. */
SDC_API enum sdc_status sdc_error_set(struct sdc_error *err, enum sdc_status status, int sys_code,
                                      int64_t offset, const char *file, int line, const char *fmt,
                                      ...) SDC_PRINTF(7, 8);

/* Puts "context: " in front of the message of a set error. err may be NULL. */
SDC_API void sdc_error_prefix(struct sdc_error *err, const char *fmt, ...) SDC_PRINTF(2, 3);

#define SDC_ERR(err, status, ...)                                                                  \
    sdc_error_set((err), (status), 0, -1, __FILE__, __LINE__, __VA_ARGS__)
/* With errno; the message must name the object, the text of errno is appended. */
#define SDC_ERR_SYS(err, status, code, ...)                                                        \
    sdc_error_set((err), (status), (code), -1, __FILE__, __LINE__, __VA_ARGS__)
#define SDC_ERR_AT(err, status, offset, ...)                                                       \
    sdc_error_set((err), (status), 0, (int64_t)(offset), __FILE__, __LINE__, __VA_ARGS__)

/* The only two control-flow macros: return, or jump to `out:` with the status in st. */
#define SDC_TRY(expr)                                                                              \
    do {                                                                                           \
        enum sdc_status sdc_try_ = (expr);                                                         \
        if (sdc_try_ != SDC_OK)                                                                    \
            return sdc_try_;                                                                       \
    } while (0)
#define SDC_TRY_OUT(st, expr)                                                                      \
    do {                                                                                           \
        (st) = (expr);                                                                             \
        if ((st) != SDC_OK)                                                                        \
            goto out;                                                                              \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
