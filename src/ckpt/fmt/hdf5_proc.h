/* SPDX-License-Identifier: Apache-2.0
 *
 * The helper program sdclab-hdf5 as seen from this side: finding it, starting one for a file,
 * asking it, ending it. Whatever it says is foreign input; its death is a refused file.
 *
 * One thread at a time per object; objects are independent of each other. Nothing is done to the
 * signal handlers of the host program, and SIGPIPE is never raised.
 */
#ifndef SDC_CKPT_FMT_HDF5_PROC_H
#define SDC_CKPT_FMT_HDF5_PROC_H

#include "ckpt/fmt/hdf5_wire.h"
#include "io/io.h"
#include "sdc/status.h"

struct sdc_h5_proc;

/* Starts a helper that holds `file` (NULL: none) and may work for `seconds` of processor time (0:
 * as the file's size suggests). path names the file in messages. SDC_NOT_FOUND with the places
 * looked at if there is no such program; SDC_IO if it cannot be started. */
enum sdc_status sdc__h5_start(const char *path, const struct sdc_file *file, unsigned seconds,
                              struct sdc_h5_proc **p, struct sdc_error *err) SDC_MUST_CHECK;
/* Ends and reaps it; accepts NULL. */
void sdc__h5_stop(struct sdc_h5_proc *p);

/* A body that failed to be put together is SDC_NO_MEMORY; the body is cleared. tail: more bytes
 * behind it, may be NULL. */
enum sdc_status sdc__h5_ask(struct sdc_h5_proc *p, enum sdc_wire_kind kind, struct sdc_buf *body,
                            const void *tail, size_t n_tail, struct sdc_error *err) SDC_MUST_CHECK;
/* The next frame; *w is valid until the next call. FAIL is turned into its error: SDC_INVALID,
 * SDC_LIMIT. SDC_INVALID too if the helper died, took too long or made no sense. */
enum sdc_status sdc__h5_next(struct sdc_h5_proc *p, enum sdc_wire_kind *kind, struct sdc_wire *w,
                             struct sdc_error *err) SDC_MUST_CHECK;
/* The same for a frame that must be of this kind. */
enum sdc_status sdc__h5_expect(struct sdc_h5_proc *p, enum sdc_wire_kind kind, struct sdc_wire *w,
                               struct sdc_error *err) SDC_MUST_CHECK;
/* Asks and expects. */
enum sdc_status sdc__h5_call(struct sdc_h5_proc *p, enum sdc_wire_kind kind, struct sdc_buf *body,
                             enum sdc_wire_kind reply, struct sdc_wire *w,
                             struct sdc_error *err) SDC_MUST_CHECK;
/* "the helper made no sense: WHAT"; ends it. Always SDC_INVALID. */
enum sdc_status sdc__h5_nonsense(struct sdc_h5_proc *p, const char *what, struct sdc_error *err);

/* Major version of the libhdf5 that a helper runs; 0 until it has answered once. */
unsigned sdc__h5_major(const struct sdc_h5_proc *p);
/* The versions of libhdf5 that the helper was built with and runs, three numbers each. */
enum sdc_status sdc__h5_library_version(unsigned version[6], struct sdc_error *err) SDC_MUST_CHECK;

/* For tests: seconds of processor and of wall-clock time from now on; 0: as usual. */
void sdc__h5_test_limits(unsigned cpu, unsigned wall);
/* For tests: the next start takes this descriptor, whose other end somebody holds, for a helper. */
void sdc__h5_test_answer(int fd);

#endif
