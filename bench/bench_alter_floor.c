/* SPDX-License-Identifier: Apache-2.0
 *
 * What an alteration cannot do without: the reads and writes of its sites and of its record. Peer
 * of sdclab alter in bench_alter.py; changes the file and tells nobody.
 *
 *     bench_alter_floor FILE SITES [RECORD_TEXT RECORD_OUT]
 *
 * SITES: per site 24 bytes: offset u64, width u64, new bytes 8. Sites in ascending order.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct site {
    uint64_t offset, width;
    unsigned char bytes[8];
};

static void die(const char *what) {
    perror(what);
    exit(1);
}

static char *whole(const char *path, size_t *size) {
    struct stat s;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &s) != 0)
        die(path);
    char *data = malloc((size_t)s.st_size + 1);
    *size = 0;
    while (data && *size < (size_t)s.st_size) {
        ssize_t n = read(fd, data + *size, (size_t)s.st_size - *size);
        if (n <= 0)
            die(path);
        *size += (size_t)n;
    }
    close(fd);
    return data;
}

static void write_all(const char *path, const char *data, size_t size) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0)
        die(path);
    for (size_t done = 0; done < size;) {
        ssize_t n = write(fd, data + done, size - done);
        if (n <= 0)
            die(path);
        done += (size_t)n;
    }
    close(fd);
}

int main(int argc, char **argv) {
    if (argc != 3 && argc != 5) {
        fprintf(stderr, "usage: bench_alter_floor FILE SITES [RECORD_TEXT RECORD_OUT]\n");
        return 2;
    }
    size_t size, text_size;
    struct site *sites = (struct site *)(void *)whole(argv[2], &size);
    size_t n = size / sizeof *sites;
    int fd = open(argv[1], O_RDWR);
    if (fd < 0 || !sites)
        die(argv[1]);
    unsigned char old[8], sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (sites[i].width > sizeof old ||
            pread(fd, old, sites[i].width, (off_t)sites[i].offset) != (ssize_t)sites[i].width)
            die("pread");
        sum ^= old[0];
    }
    if (argc == 5) {
        char *text = whole(argv[3], &text_size);
        write_all(argv[4], text, text_size);
        free(text);
    }
    for (size_t i = 0; i < n; i++)
        if (pwrite(fd, sites[i].bytes, sites[i].width, (off_t)sites[i].offset) !=
            (ssize_t)sites[i].width)
            die("pwrite");
    close(fd);
    free(sites);
    return sum == 1 && n == SIZE_MAX;
}
