/* SPDX-License-Identifier: Apache-2.0
 *
 * The only file that includes snappy: raw blocks (not the framed stream), as LevelDB stores them.
 */
#include "ckpt/sstable.h"

#include <snappy-c.h>

#include "base/alloc.h"

bool sdc__snappy_unpack(const unsigned char *data, size_t len, size_t limit, unsigned char **out,
                        size_t *out_len) {
    size_t n = 0;
    if (snappy_uncompressed_length((const char *)data, len, &n) != SNAPPY_OK || n > limit)
        return false;
    unsigned char *text = sdc__alloc(n, 1);
    if (!text)
        return false;
    if (snappy_uncompress((const char *)data, len, (char *)text, &n) != SNAPPY_OK) {
        sdc__free(text);
        return false;
    }
    *out = text;
    *out_len = n;
    return true;
}
