/* SPDX-License-Identifier: Apache-2.0
 *
 * Which files make up a TensorBundle. Users give the index, a data file, the prefix (which is no
 * file) or the folder; names are PREFIX.index and PREFIX.data-SSSSS-of-NNNNN (tensorflow,
 * tensor_bundle/naming.cc).
 */
#include "ckpt/fmt/tensorbundle.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define MARKER_LIMIT ((size_t)1024 * 1024)
#define MANY         64 /* prefixes of one folder that are told apart by name in an error */

static const char index_end[] = ".index";

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n > m && strcmp(s + n - m, end) == 0;
}

/* Length of the prefix of "PREFIX.data-00000-of-00001", 0 if the name is no such. */
static size_t data_prefix(const char *name) {
    static const char like[] = ".data-ddddd-of-ddddd";
    size_t n = strlen(name), m = sizeof like - 1;
    if (n <= m)
        return 0;
    const char *tail = name + n - m;
    for (size_t i = 0; i < m; i++)
        if (like[i] == 'd' && i > 5 ? !isdigit((unsigned char)tail[i]) : tail[i] != like[i])
            return 0;
    return n - m;
}

static bool is_table(const char *path) {
    struct sdc_file f = SDC_FILE_INIT;
    bool yes = sdc__file_open(path, SDC_FILE_READ, &f, NULL) == SDC_OK && sdc__sst_is(&f);
    sdc__file_close(&f);
    return yes;
}

/* ---- the bundles of a folder ---- */

struct names {
    char **at; /* prefixes, sorted; owned */
    size_t n;
};

static void names_release(struct names *names) {
    for (size_t i = 0; i < names->n; i++)
        sdc__free(names->at[i]);
    sdc__free(names->at);
    *names = (struct names){0};
}

static bool names_add(struct names *names, const char *prefix, size_t len) {
    for (size_t i = 0; i < names->n; i++)
        if (strlen(names->at[i]) == len && memcmp(names->at[i], prefix, len) == 0)
            return true;
    char **more = sdc__realloc(names->at, names->n + 1, sizeof *more);
    char *copy = sdc__strndup(prefix, len);
    names->at = more ? more : names->at;
    if (!more || !copy) {
        sdc__free(copy);
        return false;
    }
    names->at[names->n++] = copy;
    return true;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* All prefixes with an index that is a table, or with a data file of the right name: a bundle of
 * which the index is cut or gone is one too, a damaged one. False: no memory. */
static bool list(const char *folder, struct names *names) {
    bool ok = true;
    DIR *d = opendir(folder);
    struct dirent *e;
    while (d && ok && names->n < MANY && (e = readdir(d))) {
        size_t len = data_prefix(e->d_name);
        if (len == 0 && ends_with(e->d_name, index_end)) {
            char *path = sdc__path_join(folder, e->d_name);
            ok = path != NULL;
            if (ok && is_table(path))
                len = strlen(e->d_name) - strlen(index_end);
            sdc__free(path);
        }
        if (ok && len > 0)
            ok = names_add(names, e->d_name, len);
    }
    if (d)
        (void)closedir(d);
    if (names->n > 1)
        qsort(names->at, names->n, sizeof *names->at, by_text);
    return ok;
}

/* ---- the marker ---- */

/* The quoted value of model_checkpoint_path in the text protocol buffer "checkpoint", or NULL. */
static char *read_marker(const char *folder) {
    struct sdc_buf text = SDC_BUF_INIT;
    char *path = sdc__path_join(folder, "checkpoint"), *value = NULL;
    if (path && sdc__read_whole(path, MARKER_LIMIT, &text, NULL) == SDC_OK && text.data) {
        for (const char *line = text.data; line && !value; line = strchr(line, '\n')) {
            static const char key[] = "model_checkpoint_path:";
            line += *line == '\n';
            if (strncmp(line, key, sizeof key - 1) != 0)
                continue;
            const char *from = line + strcspn(line, "\"\n");
            if (*from == '"')
                value = sdc__strndup(from + 1, strcspn(from + 1, "\"\n"));
        }
    }
    sdc__free(path);
    sdc__buf_release(&text);
    return value;
}

static enum sdc_status ambiguous(const char *folder, const struct names *names, const char *marked,
                                 struct sdc_error *err) {
    struct sdc_buf b = SDC_BUF_INIT;
    for (size_t i = 0; i < names->n; i++)
        sdc__buf_printf(&b, "%s%s", i ? ", " : "", names->at[i]);
    enum sdc_status st =
        b.failed
            ? SDC_NOMEM(err, folder)
            : SDC_ERR(err, SDC_USAGE,
                      "%s: the folder holds several checkpoints, give one of them: %s%s (%s%s%s)",
                      folder, b.data, names->n == MANY ? ", ..." : "",
                      marked ? "its file \"checkpoint\" names "
                             : "no file \"checkpoint\" names one",
                      marked ? marked : "", marked ? ", which is not here" : "");
    sdc__buf_release(&b);
    return st;
}

/* ---- sniffing ---- */

/* path + end exists */
static bool beside(const char *path, const char *end) {
    char *p = sdc__asprintf("%s%s", path, end);
    bool yes = p && sdc__path_exists(p);
    sdc__free(p);
    return yes;
}

/* Is there a data file of this prefix? */
static bool has_data(const char *prefix, size_t len) {
    bool yes = false;
    char *copy = sdc__strndup(prefix, len), *folder = copy ? sdc__path_dir(copy) : NULL;
    const char *base = copy ? sdc__path_base(copy) : NULL;
    DIR *d = folder ? opendir(folder) : NULL;
    struct dirent *e;
    while (d && !yes && (e = readdir(d))) {
        size_t n = data_prefix(e->d_name);
        yes = n > 0 && n == strlen(base) && memcmp(e->d_name, base, n) == 0;
    }
    if (d)
        (void)closedir(d);
    sdc__free(folder);
    sdc__free(copy);
    return yes;
}

static bool sniff_folder(const char *path) {
    bool yes = beside(path, "/variables/variables.index");
    struct names names = {0};
    if (!yes && list(path, &names))
        yes = names.n > 0;
    names_release(&names);
    return yes;
}

bool sdc__tb_sniff(const struct sdc_ckpt_source *source) {
    const char *path = source->path;
    if (source->is_folder)
        return sniff_folder(path);
    if (!source->file) /* the prefix itself */
        return beside(path, index_end) || has_data(path, strlen(path));
    if (sdc__sst_is(source->file) || data_prefix(sdc__path_base(path)) > 0)
        return true;
    /* an index that was cut, beside its data */
    return ends_with(path, index_end) && has_data(path, strlen(path) - strlen(index_end));
}

/* ---- finding ---- */

static enum sdc_status find_in_folder(struct sdc_ckpt *ckpt, const char *path,
                                      struct sdc_tb_set *set, struct sdc_error *err) {
    struct names names = {0};
    char *marked = NULL;
    bool is_here = false; /* what is marked */
    enum sdc_status st = SDC_OK;
    set->folder = sdc__strdup(path);
    char *inside = sdc__path_join(path, "variables/variables.index");
    set->saved_model = inside && sdc__path_exists(inside);
    sdc__free(inside);
    if (!inside)
        return SDC_NOMEM(err, path);
    if (set->saved_model) {
        set->prefix = sdc__strdup("variables/variables");
        return SDC_OK;
    }
    if (!list(path, &names)) {
        st = SDC_NOMEM(err, path);
        goto out;
    }
    marked = read_marker(path);
    if (names.n == 0) { /* there was one a moment ago */
        st = SDC_ERR(err, SDC_NOT_FOUND, "%s: no checkpoint in this folder", path);
        goto out;
    }
    size_t chosen = names.n == 1 ? 0 : names.n;
    for (size_t i = 0; marked && i < names.n; i++)
        if (strcmp(names.at[i], marked) == 0) {
            chosen = i;
            is_here = true;
        }
    if (chosen == names.n) {
        st = ambiguous(path, &names, marked, err);
        goto out;
    }
    if (marked && !is_here)
        SDC_TRY_OUT(st, sdc__ckpt_add_note(ckpt, SDC_NOTE_WARNING, err,
                                           "the folder's file \"checkpoint\" names %s, which is "
                                           "not here",
                                           marked));
    set->prefix = sdc__strdup(names.at[chosen]);
out:
    sdc__free(marked);
    names_release(&names);
    return st;
}

enum sdc_status sdc__tb_find(struct sdc_ckpt *ckpt, const struct sdc_ckpt_source *source,
                             struct sdc_tb_set *set, struct sdc_error *err) {
    const char *path = source->path, *base = sdc__path_base(path);
    *set = (struct sdc_tb_set){0};
    enum sdc_status st = SDC_OK;
    if (source->is_folder) {
        st = find_in_folder(ckpt, path, set, err);
    } else {
        size_t len = source->file ? data_prefix(base) : strlen(base);
        if (len == 0 && ends_with(base, index_end))
            len = strlen(base) - strlen(index_end);
        if (len == 0)
            return SDC_ERR(err, SDC_INVALID,
                           "%s: an index without a place for its data: expected a name that ends "
                           "in %s",
                           path, index_end);
        set->folder = sdc__path_dir(path);
        set->prefix = sdc__strndup(base, len);
    }
    if (st == SDC_OK && (!set->folder || !set->prefix))
        st = SDC_NOMEM(err, path);
    if (st != SDC_OK)
        sdc__tb_set_release(set);
    return st;
}

void sdc__tb_set_release(struct sdc_tb_set *set) {
    sdc__free(set->folder);
    sdc__free(set->prefix);
    *set = (struct sdc_tb_set){0};
}

enum sdc_status sdc__tb_member(struct sdc_ckpt *ckpt, const struct sdc_tb_set *set,
                               const char *name, unsigned *index, struct sdc_error *err) {
    char *path = sdc__path_join(set->folder, name);
    if (!path)
        return SDC_NOMEM(err, name);
    enum sdc_status st = sdc__ckpt_add_member(ckpt, name, path, index, err);
    sdc__free(path);
    return st;
}

/* Adds the file if it is there. */
static enum sdc_status companion(struct sdc_ckpt *ckpt, const struct sdc_tb_set *set,
                                 const char *name, struct sdc_error *err) {
    char *path = sdc__path_join(set->folder, name);
    if (!path)
        return SDC_NOMEM(err, name);
    enum sdc_status st = SDC_OK;
    if (sdc__path_exists(path) && !sdc__path_is_dir(path))
        st = sdc__ckpt_add_member(ckpt, name, path, NULL, err);
    sdc__free(path);
    return st;
}

static enum sdc_status add_assets(struct sdc_ckpt *ckpt, const struct sdc_tb_set *set,
                                  struct sdc_error *err) {
    char *folder = sdc__path_join(set->folder, "assets");
    struct names names = {0};
    enum sdc_status st = SDC_OK;
    if (!folder)
        return SDC_NOMEM(err, "assets");
    DIR *d = opendir(folder);
    struct dirent *e;
    while (d && st == SDC_OK && (e = readdir(d)))
        if (e->d_name[0] != '.' && !names_add(&names, e->d_name, strlen(e->d_name)))
            st = SDC_NOMEM(err, folder);
    if (names.n > 1)
        qsort(names.at, names.n, sizeof *names.at, by_text);
    for (size_t i = 0; st == SDC_OK && i < names.n; i++) {
        char *name = sdc__path_join("assets", names.at[i]);
        st = name ? companion(ckpt, set, name, err) : SDC_NOMEM(err, folder);
        sdc__free(name);
    }
    if (d)
        (void)closedir(d);
    names_release(&names);
    sdc__free(folder);
    return st;
}

enum sdc_status sdc__tb_companions(struct sdc_ckpt *ckpt, const struct sdc_tb_set *set,
                                   struct sdc_error *err) {
    static const char *const program[] = {"saved_model.pb", "saved_model.pbtxt", "fingerprint.pb",
                                          "keras_metadata.pb"};
    if (!set->saved_model)
        return SDC_OK;
    for (size_t i = 0; i < sizeof program / sizeof *program; i++)
        SDC_TRY(companion(ckpt, set, program[i], err));
    return add_assets(ckpt, set, err);
}
