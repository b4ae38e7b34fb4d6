/* SPDX-License-Identifier: Apache-2.0
 *
 * HDF5 through libhdf5: listing and reading. libhdf5 1.10 is not safe on hostile files.
 *
 * Objects form a graph in which groups may contain each other. Each group is entered once, under
 * the first of its names in order of depth, then name; datasets are told apart by address, and all
 * links to one are names of the same tensor. External and user-defined links are never followed.
 */
#include "ckpt/fmt/hdf5.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"

/* ---- errors ---- */

struct sdc_h5_quiet sdc__h5_quiet(void) {
    struct sdc_h5_quiet q = {0};
    (void)H5Eget_auto2(H5E_DEFAULT, &q.func, &q.data);
    (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    return q;
}

void sdc__h5_loud(const struct sdc_h5_quiet *q) {
    (void)H5Eclear2(H5E_DEFAULT);
    (void)H5Eset_auto2(H5E_DEFAULT, q->func, q->data);
}

static herr_t keep_first(unsigned n, const H5E_error2_t *e, void *user) {
    if (n == 0 && e->desc) {
        char *text = user;
        size_t len = strlen(e->desc);
        if (len > 255)
            len = 255;
        memcpy(text, e->desc, len);
        text[len] = '\0';
    }
    return 0;
}

enum sdc_status sdc__h5_fail(struct sdc_error *err, enum sdc_status status, const char *path,
                             const char *what) {
    char text[256] = "";
    (void)H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, text); /* innermost first */
    (void)H5Eclear2(H5E_DEFAULT);
    return SDC_ERR(err, status, "%s: %s: libhdf5 says: %s", path, what, text[0] ? text : "nothing");
}

/* ---- walking the links ---- */

struct link {
    char *path; /* without the leading slash; owned */
    uint64_t addr;
    bool soft;
};

struct walk {
    const char *file_path;
    struct sdc_error *err;
    enum sdc_status st;
    hid_t lapl;
    unsigned long fileno;
    struct link *sets; /* links to datasets */
    size_t n_sets, cap_sets;
    struct link *groups; /* to enter, in order; those before `next` are done */
    size_t n_groups, cap_groups, next;
    uint64_t *seen; /* addresses of groups, open addressing, 0 is free; a power of two */
    size_t cap_seen;
};

static enum sdc_status push(struct walk *w, struct link **list, size_t *n, size_t *cap, char *path,
                            uint64_t addr, bool soft) {
    if (*n >= SDC_MAX_TENSORS) {
        sdc__free(path);
        return SDC_ERR(w->err, SDC_LIMIT, "%s: more than %d links", w->file_path, SDC_MAX_TENSORS);
    }
    if (*n == *cap) {
        size_t more = *cap ? *cap * 2 : 64;
        struct link *p = sdc__realloc(*list, more, sizeof *p);
        if (!p) {
            sdc__free(path);
            return SDC_NOMEM(w->err, w->file_path);
        }
        *list = p;
        *cap = more;
    }
    (*list)[(*n)++] = (struct link){path, addr, soft};
    return SDC_OK;
}

static bool insert_seen(uint64_t *seen, size_t cap, uint64_t addr) {
    size_t i = (size_t)(addr * UINT64_C(0x9e3779b97f4a7c15)) & (cap - 1);
    while (seen[i] != 0 && seen[i] != addr)
        i = (i + 1) & (cap - 1);
    bool fresh = seen[i] == 0;
    seen[i] = addr;
    return fresh;
}

/* Takes path. */
static enum sdc_status push_group(struct walk *w, char *path, uint64_t addr) {
    if (w->n_groups * 2 >= w->cap_seen) {
        size_t cap = w->cap_seen ? w->cap_seen * 2 : 64;
        uint64_t *seen = sdc__calloc(cap, sizeof *seen);
        if (!seen) {
            sdc__free(path);
            return SDC_NOMEM(w->err, w->file_path);
        }
        for (size_t i = 0; i < w->cap_seen; i++)
            if (w->seen[i])
                (void)insert_seen(seen, cap, w->seen[i]);
        sdc__free(w->seen);
        w->seen = seen;
        w->cap_seen = cap;
    }
    if (addr != 0 && insert_seen(w->seen, w->cap_seen, addr))
        return push(w, &w->groups, &w->n_groups, &w->cap_groups, path, addr, false);
    sdc__free(path);
    return SDC_OK;
}

static herr_t refuse_external(const char *parent_file, const char *parent_group,
                              const char *child_file, const char *child_object, unsigned *flags,
                              hid_t fapl, void *user) {
    (void)parent_file, (void)parent_group, (void)child_file, (void)child_object;
    (void)flags, (void)fapl, (void)user;
    return -1;
}

static herr_t on_link(hid_t group, const char *name, const H5L_info_t *info, void *user) {
    struct walk *w = user;
    H5O_info_t object;
    if (info->type != H5L_TYPE_HARD && info->type != H5L_TYPE_SOFT)
        return 0;
    bool soft = info->type == H5L_TYPE_SOFT;
    if (H5Oget_info_by_name2(group, name, &object, H5O_INFO_BASIC, w->lapl) < 0) {
        if (soft) { /* dangling, or through an external link */
            (void)H5Eclear2(H5E_DEFAULT);
            return 0;
        }
        w->st = sdc__h5_fail(w->err, SDC_INVALID, w->file_path, name);
        return -1;
    }
    bool group_link = object.type == H5O_TYPE_GROUP && !soft;
    if ((object.type != H5O_TYPE_DATASET && !group_link) || object.fileno != w->fileno)
        return 0;
    const char *parent = w->groups[w->next - 1].path;
    if (strlen(parent) + strlen(name) >= SDC_MAX_NAME) {
        w->st = SDC_ERR(w->err, SDC_LIMIT, "%s: a name longer than %d bytes", w->file_path,
                        SDC_MAX_NAME);
        return -1;
    }
    char *path = sdc__asprintf("%s%s%s", parent, *parent ? "/" : "", name);
    if (!path)
        w->st = SDC_NOMEM(w->err, w->file_path);
    else if (group_link)
        w->st = push_group(w, path, object.addr);
    else
        w->st = push(w, &w->sets, &w->n_sets, &w->cap_sets, path, object.addr, soft);
    return w->st == SDC_OK ? 0 : -1;
}

static enum sdc_status walk_group(struct walk *w, hid_t file, uint64_t addr) {
    hid_t group = H5Oopen_by_addr(file, (haddr_t)addr);
    if (group < 0)
        return sdc__h5_fail(w->err, SDC_INVALID, w->file_path, w->groups[w->next - 1].path);
    hsize_t at = 0;
    w->st = SDC_OK;
    herr_t rc = H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, &at, on_link, w);
    if (rc < 0 && w->st == SDC_OK)
        w->st = sdc__h5_fail(w->err, SDC_INVALID, w->file_path, "the links of a group");
    (void)H5Oclose(group);
    return w->st;
}

static enum sdc_status walk_all(struct walk *w, hid_t file) {
    H5O_info_t root;
    if (H5Oget_info2(file, &root, H5O_INFO_BASIC) < 0)
        return sdc__h5_fail(w->err, SDC_INVALID, w->file_path, "the root group");
    w->fileno = root.fileno;
    char *path = sdc__strdup("");
    if (!path)
        return SDC_NOMEM(w->err, w->file_path);
    SDC_TRY(push_group(w, path, root.addr));
    while (w->next < w->n_groups)
        SDC_TRY(walk_group(w, file, w->groups[w->next++].addr));
    return SDC_OK;
}

static void walk_release(struct walk *w) {
    for (size_t i = 0; i < w->n_sets; i++)
        sdc__free(w->sets[i].path);
    for (size_t i = 0; i < w->n_groups; i++)
        sdc__free(w->groups[i].path);
    sdc__free(w->sets);
    sdc__free(w->groups);
    sdc__free(w->seen);
    if (w->lapl >= 0)
        (void)H5Pclose(w->lapl);
}

/* ---- datasets ---- */

static enum sdc_status set_shape(hid_t set, const char *path, bool is_virtual,
                                 struct sdc_ckpt_entry *e, struct sdc_error *err) {
    static const uint64_t none = 0;
    uint64_t shape[SDC_MAX_RANK];
    hsize_t dims[SDC_MAX_RANK];
    /* H5Dget_space of a virtual dataset may open the files it is made of */
    if (is_virtual)
        return sdc__entry_set_shape(e, path, 1, &none, err);
    hid_t space = H5Dget_space(set);
    if (space < 0)
        return sdc__h5_fail(err, SDC_INVALID, path, e->name);
    H5S_class_t kind = H5Sget_simple_extent_type(space);
    int rank = H5Sget_simple_extent_ndims(space);
    enum sdc_status st;
    if (kind == H5S_NULL) {
        st = sdc__entry_set_shape(e, path, 1, &none, err);
        if (st == SDC_OK)
            st = sdc__entry_lock(e, err, "empty: it has no elements at all");
    } else if (rank < 0 || rank > SDC_MAX_RANK ||
               H5Sget_simple_extent_dims(space, dims, NULL) < 0) {
        st = sdc__h5_fail(err, SDC_INVALID, path, e->name);
    } else {
        for (int i = 0; i < rank; i++)
            shape[i] = dims[i];
        st = sdc__entry_set_shape(e, path, (unsigned)rank, shape, err);
    }
    (void)H5Sclose(space);
    return st;
}

static enum sdc_status add_set(struct sdc_ckpt *ckpt, const struct link *first,
                               struct sdc_error *err) {
    const struct sdc_h5_state *state = ckpt->priv;
    const char *path = ckpt->path;
    struct sdc_ckpt_entry *e;
    enum sdc_status st;
    hid_t type = -1, dcpl = -1;
    SDC_TRY(sdc__ckpt_add(ckpt, first->path, &e, err));
    hid_t set = H5Oopen_by_addr(state->file, (haddr_t)first->addr);
    if (set < 0 || (type = H5Dget_type(set)) < 0 || (dcpl = H5Dget_create_plist(set)) < 0) {
        st = sdc__h5_fail(err, SDC_INVALID, path, e->name);
        goto out;
    }
    e->key = first->addr;
    SDC_TRY_OUT(st, sdc__h5_classify_type(type, path, e, err));
    SDC_TRY_OUT(st, set_shape(set, path, H5Pget_layout(dcpl) == H5D_VIRTUAL, e, err));
    SDC_TRY_OUT(st, sdc__h5_locate(ckpt, set, type, e, err));
out:
    if (dcpl >= 0)
        (void)H5Pclose(dcpl);
    if (type >= 0)
        (void)H5Tclose(type);
    if (set >= 0)
        (void)H5Oclose(set);
    return st;
}

/* Links of one dataset together, hard ones first, by name. */
static int by_address(const void *a, const void *b) {
    const struct link *x = a, *y = b;
    if (x->addr != y->addr)
        return x->addr < y->addr ? -1 : 1;
    if (x->soft != y->soft)
        return x->soft ? 1 : -1;
    return strcmp(x->path, y->path);
}

static enum sdc_status list_sets(struct sdc_ckpt *ckpt, struct walk *w, struct sdc_error *err) {
    if (w->n_sets > 1)
        qsort(w->sets, w->n_sets, sizeof *w->sets, by_address);
    for (size_t i = 0; i < w->n_sets; i++) {
        if (i > 0 && w->sets[i].addr == w->sets[i - 1].addr)
            SDC_TRY(sdc__entry_alias(&ckpt->entries[ckpt->n - 1], w->sets[i].path, err));
        else
            SDC_TRY(add_set(ckpt, &w->sets[i], err));
    }
    return SDC_OK;
}

/* ---- the format ---- */

static bool h5_sniff(const struct sdc_ckpt_source *source) {
    uint64_t base;
    return source->file && sdc__h5_signature(source->file, &base);
}

static hid_t open_file(const char *path) {
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    if (fapl < 0)
        return -1;
    hid_t file = -1;
    /* no lock: alteration locks the file itself, through another descriptor of this process */
    if (H5Pset_fclose_degree(fapl, H5F_CLOSE_STRONG) >= 0 &&
        H5Pset_file_locking(fapl, false, true) >= 0)
        file = H5Fopen(path, H5F_ACC_RDONLY, fapl);
    (void)H5Pclose(fapl);
    return file;
}

static enum sdc_status h5_open(struct sdc_ckpt *ckpt, const struct sdc_ckpt_source *source,
                               struct sdc_error *err) {
    (void)source;
    const char *path = ckpt->path;
    uint64_t base;
    SDC_TRY(sdc__h5_superblock(ckpt->file, &base, err));
    struct sdc_h5_state *state = sdc__calloc(1, sizeof *state);
    if (!state)
        return SDC_NOMEM(err, path);
    state->base = base;
    state->file = -1;
    ckpt->priv = state;

    struct sdc_h5_quiet q = sdc__h5_quiet();
    struct walk w = {.file_path = path, .err = err, .lapl = H5Pcreate(H5P_LINK_ACCESS)};
    enum sdc_status st;
    state->file = open_file(path);
    if (state->file < 0 || w.lapl < 0 || H5Pset_elink_cb(w.lapl, refuse_external, NULL) < 0) {
        st = sdc__h5_fail(err, SDC_INVALID, path, "open");
        goto out;
    }
    SDC_TRY_OUT(st, walk_all(&w, state->file));
    st = list_sets(ckpt, &w, err);
out:
    walk_release(&w);
    sdc__h5_loud(&q);
    return st;
}

static void h5_close(struct sdc_ckpt *ckpt) {
    struct sdc_h5_state *state = ckpt->priv;
    if (!state)
        return;
    struct sdc_h5_quiet q = sdc__h5_quiet();
    if (state->file >= 0)
        (void)H5Fclose(state->file);
    sdc__h5_loud(&q);
    sdc__free(state);
    ckpt->priv = NULL;
}

/* ---- reading what is not in one piece ---- */

/* The largest box of whole rows that starts at flat index `first` and has at most n elements;
 * returns its number of elements. */
static uint64_t next_box(const struct sdc_tensor_desc *d, uint64_t first, uint64_t n,
                         hsize_t *start, hsize_t *count) {
    uint64_t rest = first, below = 1; /* below: elements of one step in dimension k */
    for (unsigned i = d->rank; i-- > 0;) {
        start[i] = rest % d->shape[i];
        rest /= d->shape[i];
        count[i] = 1;
    }
    unsigned k = d->rank - 1;
    while (k > 0 && start[k] == 0 && below * d->shape[k] <= n) {
        below *= d->shape[k];
        count[k] = d->shape[k];
        k--;
    }
    uint64_t rows = n / below, left = d->shape[k] - start[k];
    count[k] = rows < left ? rows : left;
    return count[k] * below;
}

static enum sdc_status read_box(hid_t set, hid_t type, hid_t space, uint64_t n,
                                const hsize_t *start, const hsize_t *count, void *elements,
                                const char *path, struct sdc_error *err) {
    const hsize_t size = n;
    hid_t memory = H5Screate_simple(1, &size, NULL);
    /* memory type = file type: bits are moved, never converted */
    bool ok =
        memory >= 0 &&
        (!count || H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0) &&
        H5Dread(set, type, memory, space, H5P_DEFAULT, elements) >= 0;
    /* before the next call, which forgets the errors of this one */
    enum sdc_status st = ok ? SDC_OK : sdc__h5_fail(err, SDC_INVALID, path, "read");
    if (memory >= 0)
        (void)H5Sclose(memory);
    return st;
}

/* A shape far beyond what is stored costs a time and memory that nothing in the file justifies. */
static enum sdc_status check_expansion(const struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e,
                                       struct sdc_error *err) {
    uint64_t bytes = e->desc.n_elems;
    if (!sdc__mul_u64(&bytes, sdc_dtype_bytes(e->desc.dtype)) ||
        (bytes > UINT64_C(4) << 30 && bytes / 1000 > ckpt->file->size))
        return SDC_ERR(err, SDC_LIMIT,
                       "%s: %llu elements, more than 1000 times the file of %llu bytes", ckpt->path,
                       (unsigned long long)e->desc.n_elems, (unsigned long long)ckpt->file->size);
    return SDC_OK;
}

static enum sdc_status h5_read(struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e,
                               uint64_t first, uint64_t n, void *elements, struct sdc_error *err) {
    const struct sdc_h5_state *state = ckpt->priv;
    const size_t size = sdc_dtype_bytes(e->desc.dtype);
    hsize_t start[SDC_MAX_RANK], count[SDC_MAX_RANK];
    char *out = elements;
    hid_t type = -1, space = -1;
    enum sdc_status st = SDC_OK;
    SDC_TRY(check_expansion(ckpt, e, err));
    struct sdc_h5_quiet q = sdc__h5_quiet();
    /* opened for each call, so that no cache of libhdf5 outlives a change of the file */
    hid_t set = H5Oopen_by_addr(state->file, (haddr_t)e->key);
    bool ok = set >= 0 && (type = H5Dget_type(set)) >= 0 && H5Tget_size(type) == size &&
              (space = H5Dget_space(set)) >= 0;
    if (!ok)
        st = sdc__h5_fail(err, SDC_INVALID, ckpt->path, "read");
    while (st == SDC_OK && n > 0) {
        bool scalar = e->desc.rank == 0;
        uint64_t m = scalar ? 1 : next_box(&e->desc, first, n, start, count);
        st = read_box(set, type, space, m, start, scalar ? NULL : count, out, ckpt->path, err);
        out += m * size;
        first += m;
        n -= m;
    }
    if (space >= 0)
        (void)H5Sclose(space);
    if (type >= 0)
        (void)H5Tclose(type);
    if (set >= 0)
        (void)H5Oclose(set);
    sdc__h5_loud(&q);
    return st;
}

const struct sdc_ckpt_fmt_ops sdc__fmt_hdf5 = {
    .name = "hdf5",
    .summary = "HDF5 (h5py, Keras, PyTorch exports)",
    .sniff = h5_sniff,
    .open = h5_open,
    .map = sdc__h5_map,
    .read = h5_read,
    .close = h5_close,
};
