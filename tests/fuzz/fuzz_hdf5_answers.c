/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as what the HDF5 helper says about a file: u16 length of the file, the file, then the
 * helper's side of the conversation.
 */
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ckpt/fmt/hdf5_proc.h"
#include "fuzz.h"
#include "fuzz_use.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    size_t n = data[0] | (size_t)data[1] << 8;
    if (n > size - 2)
        n = size - 2;
    int fd = memfd_create("fuzz", MFD_CLOEXEC), pair[2];
    if (fd < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return 0;
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const size_t rest = size - 2 - n;
    struct sdc_ckpt *c = NULL;
    sdc__h5_test_limits(1, 1);
    if (write(fd, data + 2, n) == (ssize_t)n &&
        send(pair[1], data + 2 + n, rest, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)rest &&
        shutdown(pair[1], SHUT_WR) == 0) {
        sdc__h5_test_answer(pair[0]); /* which closes it, if the file is one of HDF5 at all */
        if (sdc_ckpt_open(path, NULL, &c, NULL) == SDC_OK)
            use(c);
        sdc_ckpt_close(c);
        sdc__h5_test_answer(-1);
    }
    (void)close(pair[1]);
    (void)close(fd);
    return 0;
}
