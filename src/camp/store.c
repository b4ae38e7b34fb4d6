/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening and creating a store, facts about it.
 */
#include "camp/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "camp/store_internal.h"

#define APPLICATION_ID 0x5344434c /* "SDCL" */
#define BUSY_MS        10000

static const char schema[] =
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;"
    "CREATE TABLE platform(id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE, versions TEXT);"
    "CREATE TABLE cluster(id INTEGER PRIMARY KEY, seed_init INTEGER, seed_data INTEGER);"
    "CREATE TABLE block(id INTEGER PRIMARY KEY, key INTEGER NOT NULL UNIQUE, text TEXT);"
    "CREATE TABLE cell(id TEXT PRIMARY KEY, number INTEGER NOT NULL UNIQUE, label TEXT,"
    " block INTEGER REFERENCES block(id), checkpoint INTEGER) WITHOUT ROWID;"
    "CREATE TABLE trial(id TEXT PRIMARY KEY, kind TEXT NOT NULL, cell INTEGER, \"index\" INTEGER,"
    " cluster INTEGER, \"group\" INTEGER, kept_ranks INTEGER, support INTEGER, planned INTEGER,"
    " delivered INTEGER, altered_bits INTEGER, n_nan INTEGER, n_inf INTEGER, n_extreme INTEGER,"
    " collapse_step INTEGER, end_step INTEGER, end_reason TEXT, end_loss REAL, eval_loss REAL,"
    " accuracy REAL, accuracy_worst REAL, accuracy_golden REAL, distance REAL, control INTEGER,"
    " platform INTEGER, attempts INTEGER, worker INTEGER, seconds REAL, finished TEXT,"
    " message TEXT) WITHOUT ROWID;"
    /* after: steps after the restart; -1: the end of the window */
    "CREATE TABLE outcome(trial TEXT NOT NULL REFERENCES trial(id), after INTEGER NOT NULL,"
    " result TEXT, exposure TEXT, numeric TEXT, trajectory TEXT, quality TEXT, replicas TEXT,"
    " PRIMARY KEY(trial, after)) WITHOUT ROWID;"
    "CREATE TABLE fault(trial TEXT NOT NULL REFERENCES trial(id), number INTEGER NOT NULL,"
    " tensor TEXT, \"index\" TEXT, elem INTEGER, dtype TEXT, part TEXT, role TEXT, op TEXT,"
    " bits TEXT, old TEXT, new TEXT, old_value TEXT, new_value TEXT, delivered INTEGER,"
    " PRIMARY KEY(trial, number)) WITHOUT ROWID;"
    "CREATE TABLE exposure(trial TEXT NOT NULL REFERENCES trial(id), rank INTEGER NOT NULL,"
    " planned INTEGER, read INTEGER, altered_loaded INTEGER, altered_started INTEGER,"
    " loaded TEXT, started TEXT, PRIMARY KEY(trial, rank)) WITHOUT ROWID;"
    "CREATE TABLE series(owner TEXT NOT NULL, kind TEXT NOT NULL, step INTEGER NOT NULL,"
    " rank INTEGER NOT NULL, loss REAL, accuracy REAL, gradient_norm REAL,"
    " PRIMARY KEY(owner, kind, step, rank)) WITHOUT ROWID;"
    "CREATE TABLE propagation(trial TEXT NOT NULL REFERENCES trial(id), layer TEXT NOT NULL,"
    " part TEXT NOT NULL, rank INTEGER NOT NULL, step INTEGER NOT NULL, n_elems INTEGER,"
    " n_differ INTEGER, n_altered INTEGER, distance REAL, distance_altered REAL,"
    " PRIMARY KEY(trial, layer, part, rank, step)) WITHOUT ROWID;"
    "CREATE TABLE golden(\"group\" TEXT NOT NULL, platform INTEGER NOT NULL, passed INTEGER,"
    " message TEXT, accuracy REAL, eval_loss REAL, eval_samples INTEGER, end_loss REAL,"
    " max_parameter REAL, step_seconds REAL, params INTEGER, state TEXT,"
    " PRIMARY KEY(\"group\", platform)) WITHOUT ROWID;"
    "CREATE TABLE spread(\"group\" TEXT NOT NULL, platform INTEGER NOT NULL, kind TEXT NOT NULL,"
    " replica INTEGER NOT NULL, held_out INTEGER, false_alarm INTEGER, max_deviation REAL,"
    " end_loss REAL, eval_loss REAL, accuracy REAL, distance REAL,"
    " PRIMARY KEY(\"group\", platform, kind, replica)) WITHOUT ROWID;";

/* ---- the lock of the writer ---- */

static char *lock_path(const char *dir) {
    return sdc__path_join(dir, "store.lock");
}

static long read_pid(const char *path) {
    struct sdc_buf b = SDC_BUF_INIT;
    struct sdc_error ignored;
    long long pid = 0;
    if (sdc__read_whole(path, 64, &b, &ignored) == SDC_OK && b.data) {
        b.data[strcspn(b.data, " \n")] = '\0';
        if (!sdc__parse_i64(b.data, &pid))
            pid = 0;
    }
    sdc__buf_release(&b);
    return (long)pid;
}

static enum sdc_status take_lock(struct sdc_store *store, struct sdc_error *err) {
    char *path = lock_path(store->dir);
    char text[32];
    enum sdc_status st;
    if (!path)
        return SDC_NOMEM(err, "a path");
    SDC_TRY_OUT(st, sdc__file_open(path, SDC_FILE_APPEND, &store->lock, err));
    sdc__file_close(&store->lock);
    SDC_TRY_OUT(st, sdc__file_open(path, SDC_FILE_UPDATE, &store->lock, err));
    /* a reader that asks who writes holds it for an instant */
    for (int tries = 0; tries < 10; tries++) {
        st = sdc__file_lock(&store->lock, true, err);
        if (st != SDC_BUSY)
            break;
        sdc__sleep_ms(20);
    }
    if (st == SDC_BUSY)
        SDC_ERR(err, SDC_BUSY, "%s: another run (process %ld) is writing this campaign", store->dir,
                read_pid(path));
    if (st != SDC_OK)
        goto out;
    snprintf(text, sizeof text, "%-20ld\n", (long)getpid());
    st = sdc__file_write(&store->lock, 0, text, strlen(text), err);
out:
    if (st != SDC_OK)
        sdc__file_close(&store->lock);
    sdc__free(path);
    return st;
}

long sdc__store_writer(const char *dir) {
    char *path = lock_path(dir);
    struct sdc_file f = SDC_FILE_INIT;
    struct sdc_error ignored;
    long pid = 0;
    if (path && sdc__file_open(path, SDC_FILE_READ, &f, &ignored) == SDC_OK) {
        if (sdc__file_lock(&f, false, &ignored) == SDC_BUSY)
            pid = read_pid(path);
        sdc__file_close(&f);
    }
    sdc__free(path);
    return pid;
}

/* ---- opening ---- */

void sdc__store_close(struct sdc_store *store) {
    if (!store)
        return;
    sqlite3_close(store->db);
    sdc__file_close(&store->lock);
    sdc__spec_free(store->spec);
    sdc__free(store->dir);
    sdc__free(store->path);
    sdc__free(store);
}

static enum sdc_status new_store(const char *dir, struct sdc_store **out, struct sdc_error *err) {
    struct sdc_store *store = sdc__calloc(1, sizeof *store);
    if (!store)
        return SDC_NOMEM(err, "a store");
    store->lock = (struct sdc_file)SDC_FILE_INIT;
    store->dir = sdc__strdup(dir);
    store->path = sdc__path_join(dir, "store.sqlite");
    if (!store->dir || !store->path) {
        sdc__store_close(store);
        return SDC_NOMEM(err, "a store");
    }
    *out = store;
    return SDC_OK;
}

static enum sdc_status query_i64(struct sdc_store *store, const char *sql, int64_t *out,
                                 struct sdc_error *err) {
    struct sdc_stmt q = sdc__stmt(store, sql, err);
    *out = 0;
    if (sdc__stmt_row(&q))
        *out = sdc__stmt_get_i64(&q);
    return sdc__stmt_end(&q);
}

static enum sdc_status check_schema(struct sdc_store *store, struct sdc_error *err) {
    int64_t application = 0, version = 0;
    SDC_TRY(query_i64(store, "PRAGMA application_id", &application, err));
    SDC_TRY(query_i64(store, "PRAGMA user_version", &version, err));
    if (application != APPLICATION_ID)
        return SDC_ERR(err, SDC_INVALID, "%s: this is no store of sdclab but another SQLite file",
                       store->path);
    if (version != SDC_STORE_SCHEMA)
        return SDC_ERR(err, SDC_MISMATCH,
                       "%s: the store has schema %" PRId64
                       ", made by %s version of sdclab; this one "
                       "reads schema %d",
                       store->path, version, version > SDC_STORE_SCHEMA ? "a newer" : "an older",
                       SDC_STORE_SCHEMA);
    return SDC_OK;
}

/* The spec that the store was made from. */
static enum sdc_status load_spec(struct sdc_store *store, struct sdc_error *err) {
    char *text = NULL, *what = sdc__asprintf("%s (stored spec)", store->path);
    enum sdc_status st =
        what ? sdc__store_get_meta(store, "spec", &text, err) : SDC_NOMEM(err, "a path");
    if (st == SDC_OK && !text)
        st = SDC_ERR(err, SDC_INVALID, "%s: the store holds no spec", store->path);
    if (st == SDC_OK)
        st = sdc__spec_parse(text, strlen(text), what, &store->spec, err);
    if (st == SDC_OK && strcmp(store->spec->resolved, text) != 0)
        st = sdc__spec_same(text, store->spec->resolved, store->path, err);
    sdc__free(text);
    sdc__free(what);
    return st;
}

static enum sdc_status put_plan(struct sdc_store *store, const struct sdc_spec *spec,
                                struct sdc_error *err) {
    struct sdc_plan *plan = NULL;
    SDC_TRY(sdc__plan_new(spec, &plan, err));
    struct sdc_stmt q = sdc__stmt(store, "INSERT INTO cluster VALUES(?,?,?)", err);
    for (size_t k = 0; k < plan->n_clusters; k++) {
        sdc__stmt_i64(&q, (int64_t)k);
        sdc__stmt_i64(&q, (int64_t)plan->clusters[k].seed_init);
        sdc__stmt_i64(&q, (int64_t)plan->clusters[k].seed_data);
        sdc__stmt_run(&q);
    }
    enum sdc_status st = sdc__stmt_end(&q);
    q = sdc__stmt(store, "INSERT INTO block VALUES(?,?,?)", err);
    for (size_t i = 0; i < plan->n_blocks; i++) {
        sdc__stmt_i64(&q, (int64_t)i);
        sdc__stmt_i64(&q, plan->blocks[i].key);
        sdc__stmt_text(&q, plan->blocks[i].text);
        sdc__stmt_run(&q);
    }
    if (sdc__stmt_end(&q) != SDC_OK)
        st = q.st;
    q = sdc__stmt(store, "INSERT INTO cell VALUES(?,?,?,?,?)", err);
    for (size_t i = 0; i < plan->n_cells; i++) {
        sdc__stmt_text(&q, plan->cells[i].id);
        sdc__stmt_i64(&q, (int64_t)i);
        sdc__stmt_text(&q, plan->cells[i].label);
        sdc__stmt_i64(&q, plan->cells[i].block);
        sdc__stmt_i64(&q, (int64_t)spec->checkpoints[plan->cells[i].checkpoint]);
        sdc__stmt_run(&q);
    }
    if (sdc__stmt_end(&q) != SDC_OK)
        st = q.st;
    sdc__plan_free(plan);
    return st;
}

static enum sdc_status fill_new(struct sdc_store *store, const struct sdc_spec *spec,
                                struct sdc_error *err) {
    char now[32], pragmas[128];
    snprintf(pragmas, sizeof pragmas, "PRAGMA application_id=%d; PRAGMA user_version=%d",
             APPLICATION_ID, SDC_STORE_SCHEMA);
    SDC_TRY(sdc__store_exec(store, pragmas, err));
    SDC_TRY(sdc__store_exec(store, schema, err));
    sdc__wall_utc(now);
    SDC_TRY(sdc__store_put_meta(store, "spec", spec->resolved, err));
    SDC_TRY(sdc__store_put_meta(store, "spec_hash", spec->hash, err));
    SDC_TRY(sdc__store_put_meta(store, "spec_source", spec->source, err));
    SDC_TRY(sdc__store_put_meta(store, "campaign", spec->name, err));
    SDC_TRY(sdc__store_put_meta(store, "tool", "sdclab " SDC_VERSION, err));
    SDC_TRY(sdc__store_put_meta(store, "created", now, err));
    return put_plan(store, spec, err);
}

/* Fills an empty file in one transaction, so that a crash leaves it empty again. */
static enum sdc_status create(struct sdc_store *store, const struct sdc_spec *spec,
                              struct sdc_error *err) {
    SDC_TRY(sdc__store_begin(store, err));
    return sdc__store_end(store, fill_new(store, spec, err), err);
}

static enum sdc_status quick_check(struct sdc_store *store, struct sdc_error *err) {
    struct sdc_stmt q = sdc__stmt(store, "PRAGMA quick_check(1)", err);
    char found[200] = "ok";
    if (sdc__stmt_row(&q))
        sdc__stmt_copy_text(&q, found, sizeof found);
    SDC_TRY(sdc__stmt_end(&q));
    if (strcmp(found, "ok") != 0)
        return SDC_ERR(err, SDC_INVALID, "%s: the store is damaged: %s", store->path, found);
    return SDC_OK;
}

static enum sdc_status open_write(struct sdc_store *store, const struct sdc_spec *spec,
                                  struct sdc_error *err) {
    int flags = SQLITE_OPEN_READWRITE | (spec ? SQLITE_OPEN_CREATE : 0);
    int64_t tables = 0;
    SDC_TRY(take_lock(store, err));
    store->writer = true;
    int code = sqlite3_open_v2(store->path, &store->db, flags, NULL);
    if (code != SQLITE_OK)
        return sdc__store_error(store, code, "opening", err);
    sqlite3_busy_timeout(store->db, BUSY_MS);
    sqlite3_extended_result_codes(store->db, 0);
    SDC_TRY(query_i64(store, "SELECT count(*) FROM sqlite_master", &tables, err));
    if (tables > 0) {
        SDC_TRY(check_schema(store, err));
        SDC_TRY(quick_check(store, err));
    }
    SDC_TRY(sdc__store_exec(store, "PRAGMA journal_mode=WAL", err));
    SDC_TRY(sdc__store_exec(store, "PRAGMA synchronous=FULL", err));
    if (tables == 0 && !spec)
        return SDC_ERR(err, SDC_INVALID, "%s: the store is empty, expected one that was begun",
                       store->path);
    if (tables == 0)
        SDC_TRY(create(store, spec, err));
    SDC_TRY(load_spec(store, err));
    return spec ? sdc__spec_same(store->spec->resolved, spec->resolved, store->dir, err) : SDC_OK;
}

enum sdc_status sdc__store_open(const char *dir, const struct sdc_spec *spec,
                                struct sdc_store **store, struct sdc_error *err) {
    struct sdc_store *s = NULL;
    *store = NULL;
    SDC_TRY(sdc__make_dirs(dir, err));
    SDC_TRY(new_store(dir, &s, err));
    enum sdc_status st = open_write(s, spec, err);
    if (st != SDC_OK)
        sdc__store_close(s);
    else
        *store = s;
    return st;
}

static enum sdc_status must_exist(struct sdc_store *store, struct sdc_error *err) {
    if (!sdc__path_exists(store->path))
        return SDC_ERR(err, SDC_NOT_FOUND,
                       "%s: no campaign here: there is no %s; 'sdclab campaign run' makes one",
                       store->dir, store->path);
    return SDC_OK;
}

enum sdc_status sdc__store_open_again(const char *dir, struct sdc_store **store,
                                      struct sdc_error *err) {
    struct sdc_store *s = NULL;
    *store = NULL;
    SDC_TRY(new_store(dir, &s, err));
    enum sdc_status st = must_exist(s, err);
    if (st == SDC_OK)
        st = open_write(s, NULL, err);
    if (st != SDC_OK)
        sdc__store_close(s);
    else
        *store = s;
    return st;
}

static enum sdc_status open_read(struct sdc_store *store, struct sdc_error *err) {
    int64_t tables = 0;
    SDC_TRY(must_exist(store, err));
    int code = sqlite3_open_v2(store->path, &store->db, SQLITE_OPEN_READONLY, NULL);
    if (code != SQLITE_OK)
        return sdc__store_error(store, code, "opening", err);
    sqlite3_busy_timeout(store->db, BUSY_MS);
    enum sdc_status st = query_i64(store, "SELECT count(*) FROM sqlite_master", &tables, err);
    if (st == SDC_IO) {
        /* a folder that cannot be written: nobody else writes there either */
        char *uri = sdc__asprintf("file:%s?immutable=1", store->path);
        if (!uri)
            return SDC_NOMEM(err, "a path");
        sqlite3_close(store->db);
        store->db = NULL;
        code = sqlite3_open_v2(uri, &store->db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL);
        sdc__free(uri);
        st = code == SQLITE_OK
                 ? query_i64(store, "SELECT count(*) FROM sqlite_master", &tables, err)
                 : sdc__store_error(store, code, "opening", err);
    }
    SDC_TRY(st);
    if (tables == 0)
        return SDC_ERR(err, SDC_INVALID, "%s: the store is empty", store->path);
    SDC_TRY(check_schema(store, err));
    return load_spec(store, err);
}

enum sdc_status sdc__store_open_read(const char *dir, struct sdc_store **store,
                                     struct sdc_error *err) {
    struct sdc_store *s = NULL;
    *store = NULL;
    SDC_TRY(new_store(dir, &s, err));
    enum sdc_status st = open_read(s, err);
    if (st != SDC_OK)
        sdc__store_close(s);
    else
        *store = s;
    return st;
}

const struct sdc_spec *sdc__store_spec(const struct sdc_store *store) {
    return store->spec;
}

const char *sdc__store_dir(const struct sdc_store *store) {
    return store->dir;
}

/* ---- facts ---- */

enum sdc_status sdc__store_put_meta(struct sdc_store *store, const char *key, const char *value,
                                    struct sdc_error *err) {
    struct sdc_stmt q = sdc__stmt(store,
                                  value ? "INSERT OR REPLACE INTO meta(key, value) VALUES(?,?)"
                                        : "DELETE FROM meta WHERE key=?",
                                  err);
    sdc__stmt_text(&q, key);
    if (value)
        sdc__stmt_text(&q, value);
    sdc__stmt_run(&q);
    return sdc__stmt_end(&q);
}

enum sdc_status sdc__store_get_meta(struct sdc_store *store, const char *key, char **value,
                                    struct sdc_error *err) {
    struct sdc_stmt q = sdc__stmt(store, "SELECT value FROM meta WHERE key=?", err);
    *value = NULL;
    sdc__stmt_text(&q, key);
    if (sdc__stmt_row(&q))
        *value = sdc__stmt_take_text(&q);
    return sdc__stmt_end(&q);
}

enum sdc_status sdc__store_platform(struct sdc_store *store, const char *text,
                                    const char *versions_json, int64_t *id, struct sdc_error *err) {
    struct sdc_stmt q;
    if (store->writer) {
        q = sdc__stmt(
            store, "INSERT INTO platform(text, versions) VALUES(?,?) ON CONFLICT DO NOTHING", err);
        sdc__stmt_text(&q, text);
        sdc__stmt_text(&q, versions_json);
        sdc__stmt_run(&q);
        SDC_TRY(sdc__stmt_end(&q));
    }
    *id = 0;
    q = sdc__stmt(store, "SELECT id FROM platform WHERE text=?", err);
    sdc__stmt_text(&q, text);
    if (sdc__stmt_row(&q))
        *id = sdc__stmt_get_i64(&q);
    SDC_TRY(sdc__stmt_end(&q));
    return *id ? SDC_OK
               : SDC_ERR(err, SDC_NOT_FOUND, "%s: nothing was run on this platform: %s", store->dir,
                         text);
}

enum sdc_status sdc__store_get_platform(struct sdc_store *store, int64_t id, char **text,
                                        char **versions_json, struct sdc_error *err) {
    struct sdc_stmt q = sdc__stmt(store, "SELECT text, versions FROM platform WHERE id=?", err);
    *text = NULL;
    *versions_json = NULL;
    sdc__stmt_i64(&q, id);
    if (sdc__stmt_row(&q)) {
        *text = sdc__stmt_take_text(&q);
        *versions_json = sdc__stmt_take_text(&q);
    }
    enum sdc_status st = sdc__stmt_end(&q);
    if (st == SDC_OK && !*text)
        st = SDC_ERR(err, SDC_NOT_FOUND, "%s: no platform %" PRId64, store->dir, id);
    if (st != SDC_OK) {
        sdc__free(*text);
        sdc__free(*versions_json);
        *text = *versions_json = NULL;
    }
    return st;
}

void sdc__store_library(char *text, size_t size) {
    snprintf(text, size, "SQLite built %s, running %s", SQLITE_VERSION, sqlite3_libversion());
}
