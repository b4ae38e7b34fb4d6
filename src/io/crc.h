/* SPDX-License-Identifier: Apache-2.0
 *
 * The checksums of checkpoint formats: CRC-32 (zip), CRC-32C (TensorFlow, OCDBT, zarr), Fletcher-32
 * and lookup3 (HDF5), and what a change of some bytes does to a CRC without reading the rest. Not
 * for hashing of our own: that is base/hash.h.
 *
 * Changing bytes by XOR changes a CRC by XOR, by an amount that depends on the change, on the
 * length of the message and on the position alone:
 *
 *     stored ^= sdc__crc_delta(SDC_CRC32, member_size, at, &mask, 1);
 *
 * A CRC that was wrong before stays wrong by the same amount. All functions are thread-safe.
 */
#ifndef SDC_IO_CRC_H
#define SDC_IO_CRC_H

#include <stddef.h>
#include <stdint.h>

#include "io/io.h"

enum sdc_crc {
    SDC_CRC32, /* reflected polynomial 0xedb88320; of "123456789": 0xcbf43926 */
    SDC_CRC32C /* reflected polynomial 0x82f63b78; of "123456789": 0xe3069283 */
};

/* The CRC of a message whose beginning has this CRC (0: nothing yet). */
uint32_t sdc__crc32(uint32_t crc, const void *data, size_t len);
uint32_t sdc__crc32c(uint32_t crc, const void *data, size_t len);
uint32_t sdc__crc(enum sdc_crc kind, uint32_t crc, const void *data, size_t len);
/* What sdc__crc32c does on processors without an instruction for it; the same result. */
uint32_t sdc__crc32c_portable(uint32_t crc, const void *data, size_t len);
/* Goes on with *crc over len bytes of a file from offset on. */
enum sdc_status sdc__crc_file(enum sdc_crc kind, const struct sdc_file *file, uint64_t offset,
                              uint64_t len, uint32_t *crc, struct sdc_error *err) SDC_MUST_CHECK;

/* By what the CRC of a message of len bytes changes (XOR) when the n bytes of mask are XORed into
 * it at position `at`; at + n is at most len. Several changes: XOR of their deltas. The time grows
 * with the logarithm of len. */
uint32_t sdc__crc_delta(enum sdc_crc kind, uint64_t len, uint64_t at, const void *mask, size_t n);

/* The form in which LevelDB and TensorFlow store a CRC-32C, and back. A delta belongs to the
 * unmasked value. */
uint32_t sdc__crc_mask(uint32_t crc);
uint32_t sdc__crc_unmask(uint32_t masked);

/* As HDF5's H5_checksum_fletcher32: pairs of bytes as big-endian words, an odd last byte as the
 * upper half of one. Zero has two representations modulo 65535, so recompute, never adjust. */
uint32_t sdc__fletcher32(const void *data, size_t len);
/* The second value that libhdf5 accepts (files of very old versions): bytes swapped in each half.
 */
uint32_t sdc__fletcher32_swapped(uint32_t sum);

/* Bob Jenkins's lookup3.c, hashlittle(); HDF5 metadata use it with initial 0. */
uint32_t sdc__lookup3(const void *data, size_t len, uint32_t initial);

#endif
