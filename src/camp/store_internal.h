/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the store share: statements whose first failure sticks, so that columns are
 * bound and read freely and checked once. SQLite's names stay out of every other header.
 */
#ifndef SDC_CAMP_STORE_INTERNAL_H
#define SDC_CAMP_STORE_INTERNAL_H

#include "camp/store.h"
#include "io/io.h"

struct sqlite3;
struct sqlite3_stmt;

struct sdc_store {
    struct sqlite3 *db;
    char *dir, *path;
    struct sdc_file lock; /* held by the writer */
    bool writer;
    struct sdc_spec *spec; /* from the store */
};

struct sdc_stmt {
    struct sdc_store *store;
    struct sqlite3_stmt *s;
    int column; /* next to bind (from 0) or read */
    enum sdc_status st;
    struct sdc_error *err;
};

/* Prepares; on failure st is set and every call below does nothing. */
struct sdc_stmt sdc__stmt(struct sdc_store *store, const char *sql, struct sdc_error *err);
void sdc__stmt_text(struct sdc_stmt *q, const char *text); /* NULL binds NULL */
void sdc__stmt_i64(struct sdc_stmt *q, int64_t v);
void sdc__stmt_f64(struct sdc_stmt *q, double v); /* NaN binds NULL */
void sdc__stmt_null(struct sdc_stmt *q);
/* Runs a statement that gives no rows and readies it for the next binding. */
void sdc__stmt_run(struct sdc_stmt *q);
/* Readies it for the next binding after rows were read. */
void sdc__stmt_reset(struct sdc_stmt *q);
/* The next row; false at the end or after a failure. */
bool sdc__stmt_row(struct sdc_stmt *q);
/* Columns of the row, in order. is_null steps over a NULL. */
bool sdc__stmt_is_null(struct sdc_stmt *q);
int64_t sdc__stmt_get_i64(struct sdc_stmt *q);
double sdc__stmt_get_f64(struct sdc_stmt *q); /* NULL is NaN */
/* Borrowed until the next row; NULL for NULL. */
const char *sdc__stmt_get_text(struct sdc_stmt *q);
char *sdc__stmt_take_text(struct sdc_stmt *q); /* a copy; NULL for NULL */
void sdc__stmt_copy_text(struct sdc_stmt *q, char *text, size_t size);
/* Finalizes and returns what came out. */
enum sdc_status sdc__stmt_end(struct sdc_stmt *q);

/* One statement without parameters or rows. */
enum sdc_status sdc__store_exec(struct sdc_store *store, const char *sql,
                                struct sdc_error *err) SDC_MUST_CHECK;
/* Translates the last failure of the database. */
enum sdc_status sdc__store_error(struct sdc_store *store, int code, const char *doing,
                                 struct sdc_error *err);

/* Begins, or after a failure rolls back and keeps st. */
enum sdc_status sdc__store_begin(struct sdc_store *store, struct sdc_error *err) SDC_MUST_CHECK;
enum sdc_status sdc__store_end(struct sdc_store *store, enum sdc_status st, struct sdc_error *err);

void sdc__golden_owner(const char *group, int64_t platform, char *text, size_t size);
void sdc__replica_owner(const struct sdc_store_replica *r, char *text, size_t size);
/* Curves: owner is a trial's id, or made by sdc__golden_owner, sdc__replica_owner. */
enum sdc_status sdc__points_get(struct sdc_store *store, const char *owner,
                                struct sdc_store_point **points, size_t *n,
                                struct sdc_error *err) SDC_MUST_CHECK;
/* Room for one more element of size bytes in *items; NULL: no memory, err is set. */
void *sdc__store_more(void **items, size_t *n, size_t size, struct sdc_error *err);

/* Columns of the trial table that are members of struct sdc_store_trial: type, member. Types: N32
 * (SDC_PLAN_NONE is NULL), I64 (any whole number), F64 (NaN is NULL), STR (char array). The order
 * is that of the table. */
#define SDC_STORE_TRIAL_MAP(X)                                                                     \
    X(N32, cell)                                                                                   \
    X(I64, index)                                                                                  \
    X(I64, cluster)                                                                                \
    X(I64, group)                                                                                  \
    X(I64, kept_ranks)                                                                             \
    X(I64, support)                                                                                \
    X(I64, planned)                                                                                \
    X(I64, delivered)                                                                              \
    X(I64, altered_bits)                                                                           \
    X(I64, n_nan)                                                                                  \
    X(I64, n_inf)                                                                                  \
    X(I64, n_extreme)                                                                              \
    X(I64, collapse_step)                                                                          \
    X(I64, end_step)                                                                               \
    X(STR, end_reason)                                                                             \
    X(F64, end_loss)                                                                               \
    X(F64, eval_loss)                                                                              \
    X(F64, accuracy)                                                                               \
    X(F64, accuracy_worst)                                                                         \
    X(F64, accuracy_golden)                                                                        \
    X(F64, distance)                                                                               \
    X(I64, control)                                                                                \
    X(I64, platform)                                                                               \
    X(I64, attempts)                                                                               \
    X(I64, worker)                                                                                 \
    X(F64, seconds)                                                                                \
    X(STR, finished)

#endif
