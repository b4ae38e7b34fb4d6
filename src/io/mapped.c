/* SPDX-License-Identifier: Apache-2.0
 *
 * Who has files mapped, by /proc/PID/maps (man 5 proc):
 *
 *     7f00-7f10 r--s 00000000 fd:01 1234567    /path
 *
 * All best effort and without the seam for tests: nothing depends on it but a warning.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/alloc.h"
#include "io/io.h"

struct wanted {
    uint64_t device, inode;
    char *path; /* as the kernel writes it; owned */
};

struct lines {
    const struct wanted *wanted;
    size_t n;
    char text[65536]; /* lines are at most PATH_MAX and some numbers */
    size_t have;
};

/* A number in this base; *at goes behind it. */
static uint64_t number(const char **at, unsigned base) {
    uint64_t value = 0;
    for (;; (*at)++) {
        const char c = **at;
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
                                                : 99;
        if (digit >= base)
            return value;
        value = value * base + digit;
    }
}

/* Is a line, without its end, of a wanted file? File systems that stack (overlayfs, btrfs) show
 * another device than stat does, so the path counts too. */
static bool is_wanted(const struct lines *l, const char *line) {
    for (unsigned spaces = 0; spaces < 3; line++) {
        if (*line == '\0')
            return false;
        spaces += *line == ' ';
    }
    const uint64_t major_number = number(&line, 16);
    line += *line == ':';
    const uint64_t minor_number = number(&line, 16);
    line += *line == ' ';
    const uint64_t inode = number(&line, 10);
    if (inode == 0) /* memory without a file */
        return false;
    line += strspn(line, " ");
    for (size_t i = 0; i < l->n; i++) {
        const struct wanted *w = &l->wanted[i];
        if (w->inode == inode && major(w->device) == major_number &&
            minor(w->device) == minor_number)
            return true;
        if (w->path && strcmp(w->path, line) == 0)
            return true;
    }
    return false;
}

/* Takes the whole lines of what was read; longer ones than there can be are left out. */
static bool take_lines(struct lines *l) {
    size_t from = 0;
    bool found = false;
    for (char *end; !found && (end = memchr(l->text + from, '\n', l->have - from));) {
        *end = '\0';
        found = is_wanted(l, l->text + from);
        from = (size_t)(end - l->text) + 1;
    }
    l->have = l->have - from < sizeof l->text ? l->have - from : 0;
    memmove(l->text, l->text + from, l->have);
    return found;
}

static bool maps_wanted(struct lines *l, const char *pid) {
    char path[64];
    bool found = false;
    (void)snprintf(path, sizeof path, "/proc/%.20s/maps", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    l->have = 0;
    while (fd >= 0 && !found) {
        ssize_t n = read(fd, l->text + l->have, sizeof l->text - l->have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        l->have += (size_t)n;
        found = take_lines(l);
    }
    if (fd >= 0)
        (void)close(fd);
    return found;
}

static char *path_of(int fd) {
    char name[32], path[PATH_MAX + 1];
    (void)snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(name, path, sizeof path);
    return n > 0 && (size_t)n < sizeof path ? sdc__strndup(path, (size_t)n) : NULL;
}

static void look_at_all(struct lines *l, struct sdc_mappers *found) {
    DIR *proc = opendir("/proc");
    const struct dirent *e;
    while (proc && (e = readdir(proc))) {
        const char *end = e->d_name;
        const uint64_t pid = number(&end, 10);
        if (*end || end == e->d_name || pid == (uint64_t)getpid() || !maps_wanted(l, e->d_name))
            continue;
        if (found->n++ == 0 || pid < found->first)
            found->first = pid;
    }
    if (proc)
        (void)closedir(proc);
}

enum sdc_status sdc__files_mapped(const struct sdc_file *files, size_t n, struct sdc_mappers *found,
                                  struct sdc_error *err) {
    *found = (struct sdc_mappers){0};
    struct lines *l = sdc__alloc(1, sizeof *l);
    struct wanted *wanted = sdc__calloc(n ? n : 1, sizeof *wanted);
    if (!l || !wanted) {
        sdc__free(l);
        sdc__free(wanted);
        return SDC_NOMEM(err, "looking for those who map the file");
    }
    *l = (struct lines){.wanted = wanted};
    for (size_t i = 0; i < n; i++) {
        struct stat s;
        int fd;
        if (!sdc__file_is_open(&files[i]) || sdc__file_hold(&files[i], &fd, NULL) != SDC_OK)
            continue; /* what is wrong with it, writing to it will tell */
        if (fstat(fd, &s) == 0)
            wanted[l->n++] =
                (struct wanted){.device = s.st_dev, .inode = s.st_ino, .path = path_of(fd)};
        sdc__file_let(&files[i]);
    }
    if (l->n > 0)
        look_at_all(l, found);
    for (size_t i = 0; i < l->n; i++)
        sdc__free(wanted[i].path);
    sdc__free(l);
    sdc__free(wanted);
    return SDC_OK;
}
