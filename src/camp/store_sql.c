/* SPDX-License-Identifier: Apache-2.0
 *
 * SQLite behind small statements, and its errors in our words.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <sqlite3.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "camp/store_internal.h"

enum sdc_status sdc__store_error(struct sdc_store *store, int code, const char *doing,
                                 struct sdc_error *err) {
    const char *text = store->db ? sqlite3_errmsg(store->db) : sqlite3_errstr(code);
    switch (code & 0xff) {
    case SQLITE_NOMEM:
        return SDC_NOMEM(err, "the store");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return SDC_ERR(err, SDC_BUSY, "%s: %s: another process holds the store: %s", store->path,
                       doing, text);
    case SQLITE_NOTADB:
        return SDC_ERR(err, SDC_INVALID, "%s: this is no store of sdclab: %s", store->path, text);
    case SQLITE_CORRUPT:
        return SDC_ERR(err, SDC_INVALID,
                       "%s: %s: the store is damaged: %s; restore it from a copy, or run the "
                       "campaign again in another folder",
                       store->path, doing, text);
    case SQLITE_FULL:
        return SDC_ERR_SYS(err, SDC_IO, code, "%s: %s: no space left: %s", store->path, doing,
                           text);
    case SQLITE_CONSTRAINT:
        return SDC_ERR(err, SDC_EXISTS, "%s: %s: %s", store->path, doing, text);
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR:
    case SQLITE_PERM:
    case SQLITE_READONLY:
        return SDC_ERR_SYS(
            err, SDC_IO, sqlite3_system_errno(store->db), "%s: %s: %s%s%s", store->path, doing,
            text, sqlite3_system_errno(store->db) ? ": " : "",
            sqlite3_system_errno(store->db) ? strerror(sqlite3_system_errno(store->db)) : "");
    default:
        return SDC_ERR(err, SDC_INTERNAL, "%s: %s: %s", store->path, doing, text);
    }
}

enum sdc_status sdc__store_exec(struct sdc_store *store, const char *sql, struct sdc_error *err) {
    int code = sqlite3_exec(store->db, sql, NULL, NULL, NULL);
    if (code != SQLITE_OK)
        return sdc__store_error(store, code, "running a statement", err);
    return SDC_OK;
}

enum sdc_status sdc__store_begin(struct sdc_store *store, struct sdc_error *err) {
    return sdc__store_exec(store, "BEGIN IMMEDIATE", err);
}

enum sdc_status sdc__store_end(struct sdc_store *store, enum sdc_status st, struct sdc_error *err) {
    if (st == SDC_OK)
        st = sdc__store_exec(store, "COMMIT", err);
    if (st != SDC_OK && !sqlite3_get_autocommit(store->db))
        sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    return st;
}

/* ---- statements ---- */

static void check(struct sdc_stmt *q, int code, const char *doing) {
    if (code != SQLITE_OK && q->st == SDC_OK)
        q->st = sdc__store_error(q->store, code, doing, q->err);
}

struct sdc_stmt sdc__stmt(struct sdc_store *store, const char *sql, struct sdc_error *err) {
    struct sdc_stmt q = {.store = store, .err = err, .st = SDC_OK};
    check(&q, sqlite3_prepare_v2(store->db, sql, -1, &q.s, NULL), "preparing a statement");
    return q;
}

void sdc__stmt_text(struct sdc_stmt *q, const char *text) {
    if (q->st != SDC_OK)
        return;
    q->column++;
    check(q,
          text ? sqlite3_bind_text(q->s, q->column, text, -1, SQLITE_TRANSIENT)
               : sqlite3_bind_null(q->s, q->column),
          "binding a text");
}

void sdc__stmt_i64(struct sdc_stmt *q, int64_t v) {
    if (q->st == SDC_OK)
        check(q, sqlite3_bind_int64(q->s, ++q->column, v), "binding a number");
}

void sdc__stmt_f64(struct sdc_stmt *q, double v) {
    if (q->st == SDC_OK)
        check(q,
              isnan(v) ? sqlite3_bind_null(q->s, q->column + 1)
                       : sqlite3_bind_double(q->s, q->column + 1, v),
              "binding a number");
    q->column++;
}

void sdc__stmt_null(struct sdc_stmt *q) {
    if (q->st == SDC_OK)
        check(q, sqlite3_bind_null(q->s, ++q->column), "binding nothing");
}

void sdc__stmt_run(struct sdc_stmt *q) {
    if (q->st != SDC_OK)
        return;
    int code = sqlite3_step(q->s);
    if (code != SQLITE_DONE && code != SQLITE_ROW)
        check(q, code, "writing");
    sqlite3_reset(q->s);
    q->column = 0;
}

bool sdc__stmt_row(struct sdc_stmt *q) {
    if (q->st != SDC_OK)
        return false;
    q->column = 0;
    int code = sqlite3_step(q->s);
    if (code == SQLITE_ROW)
        return true;
    if (code != SQLITE_DONE)
        check(q, code, "reading");
    return false;
}

void sdc__stmt_reset(struct sdc_stmt *q) {
    if (q->st != SDC_OK)
        return;
    sqlite3_reset(q->s);
    q->column = 0;
}

bool sdc__stmt_is_null(struct sdc_stmt *q) {
    if (sqlite3_column_type(q->s, q->column) != SQLITE_NULL)
        return false;
    q->column++;
    return true;
}

int64_t sdc__stmt_get_i64(struct sdc_stmt *q) {
    return sqlite3_column_int64(q->s, q->column++);
}

double sdc__stmt_get_f64(struct sdc_stmt *q) {
    int column = q->column++;
    if (sqlite3_column_type(q->s, column) == SQLITE_NULL)
        return NAN;
    return sqlite3_column_double(q->s, column);
}

const char *sdc__stmt_get_text(struct sdc_stmt *q) {
    return (const char *)sqlite3_column_text(q->s, q->column++);
}

char *sdc__stmt_take_text(struct sdc_stmt *q) {
    const char *text = sdc__stmt_get_text(q);
    if (!text)
        return NULL;
    char *copy = sdc__strdup(text);
    if (!copy && q->st == SDC_OK)
        q->st = SDC_NOMEM(q->err, "the store");
    return copy;
}

void sdc__stmt_copy_text(struct sdc_stmt *q, char *text, size_t size) {
    const char *from = sdc__stmt_get_text(q);
    snprintf(text, size, "%s", from ? from : "");
}

enum sdc_status sdc__stmt_end(struct sdc_stmt *q) {
    sqlite3_finalize(q->s);
    q->s = NULL;
    return q->st;
}

void *sdc__store_more(void **items, size_t *n, size_t size, struct sdc_error *err) {
    /* doubles at powers of two */
    if ((*n & (*n - 1)) == 0) {
        void *grown = sdc__realloc(*items, *n ? *n * 2 : 1, size);
        if (!grown) {
            SDC_NOMEM(err, "rows of the store");
            return NULL;
        }
        *items = grown;
    }
    void *item = (char *)*items + *n * size;
    memset(item, 0, size);
    (*n)++;
    return item;
}
