/* SPDX-License-Identifier: Apache-2.0 */
#include "sdc/status.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *text;
    int exit_code;
} statuses[] = {
#define STATUS_ROW(name, text, exit_code) [SDC_##name] = {#name, text, exit_code},
    SDC_STATUS_MAP(STATUS_ROW)
#undef STATUS_ROW
};

const char *sdc_status_text(enum sdc_status status) {
    return statuses[status].text;
}

const char *sdc_status_name(enum sdc_status status) {
    return statuses[status].name;
}

int sdc_status_exit_code(enum sdc_status status) {
    return statuses[status].exit_code;
}

enum sdc_status sdc_error_set(struct sdc_error *err, enum sdc_status status, int sys_code,
                              int64_t offset, const char *file, int line, const char *fmt, ...) {
    if (!err)
        return status;
    err->status = status;
    err->sys_code = sys_code;
    err->offset = offset;
    err->file = file;
    err->line = line;
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(err->message, sizeof err->message, fmt, args);
    va_end(args);
    if (sys_code > 0 && len >= 0 && (size_t)len < sizeof err->message) {
        char text[128];
        /* the GNU variant: returns the text, which need not be in the buffer */
        const char *sys_text = strerror_r(sys_code, text, sizeof text);
        snprintf(err->message + len, sizeof err->message - (size_t)len, ": %s", sys_text);
    }
    return status;
}

void sdc_error_prefix(struct sdc_error *err, const char *fmt, ...) {
    if (!err)
        return;
    char old[SDC_ERROR_MESSAGE_SIZE];
    memcpy(old, err->message, sizeof old);
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(err->message, sizeof err->message, fmt, args);
    va_end(args);
    if (len >= 0 && (size_t)len < sizeof err->message &&
        snprintf(err->message + len, sizeof err->message - (size_t)len, ": %s", old) < 0)
        err->message[len] = '\0';
}
