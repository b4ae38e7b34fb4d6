/* SPDX-License-Identifier: Apache-2.0 */
#include "sdc/worker.h"

#include "base/json.h"
#include "base/limits.h"
#include "contract/fields.h"
#include "contract/lines.h"

#define SCHEMA "sdclab.worker/1"

static const char *const kind_words[] = {
    [SDC_WORKER_HELLO] = "hello",
    [SDC_WORKER_RUN] = "run",
    [SDC_WORKER_DONE] = "done",
    [SDC_WORKER_QUIT] = "quit",
};
static const struct sdc__words kinds = SDC__WORDS(kind_words);

static const char *const status_words[] = {
#define STATUS_WORD(name, text, exit_code) [SDC_##name] = #name,
    SDC_STATUS_MAP(STATUS_WORD)};
static const struct sdc__words statuses = SDC__WORDS(status_words);

#define AT(member) .offset = offsetof(struct sdc_worker_message, member), .flags = SDC__REQUIRED
#define TYPE(word)                                                                                 \
    { "type", SDC__CONST, .flags = SDC__REQUIRED, .text = word }
#define TRIAL                                                                                      \
    {                                                                                              \
        "trial", SDC__TEXT, .offset = offsetof(struct sdc_worker_message, trial),                  \
                            .flags = SDC__REQUIRED | SDC__PLAIN                                    \
    }

static const struct sdc__field hello_fields[] = {
    TYPE("hello"),
    {"schema", SDC__CONST, .flags = SDC__REQUIRED, .text = SCHEMA},
    {"token", SDC__TEXT, AT(token)},
    {"trainer", SDC__TEXT, AT(trainer)},
    {"versions", SDC__PAIRS, AT(versions),
     .count_offset = offsetof(struct sdc_worker_message, n_versions)},
    {"ranks", SDC__U32, AT(ranks), .max = SDC_MAX_RANKS},
    {"platform", SDC__TEXT, AT(platform)},
};

static const struct sdc__field run_fields[] = {
    TYPE("run"),
    TRIAL,
    {"path", SDC__TEXT, AT(path)},
};

static const struct sdc__field done_fields[] = {
    TYPE("done"),
    TRIAL,
    {"status", SDC__ENUM, AT(status), .words = &statuses},
    {"message", SDC__TEXT, .offset = offsetof(struct sdc_worker_message, message),
     .flags = SDC__REQUIRED | SDC__NULLABLE | SDC__EMPTY_OK},
};

static const struct sdc__field quit_fields[] = {TYPE("quit")};

static const struct sdc__fields tables[] = {
    [SDC_WORKER_HELLO] = SDC__FIELDS(hello_fields, struct sdc_worker_message),
    [SDC_WORKER_RUN] = SDC__FIELDS(run_fields, struct sdc_worker_message),
    [SDC_WORKER_DONE] = SDC__FIELDS(done_fields, struct sdc_worker_message),
    [SDC_WORKER_QUIT] = SDC__FIELDS(quit_fields, struct sdc_worker_message),
};

void sdc_worker_message_release(struct sdc_worker_message *m) {
    for (size_t kind = 0; kind < sizeof tables / sizeof tables[0]; kind++)
        sdc__fields_release(&tables[kind], m);
}

enum sdc_status sdc_worker_message_to_json(const struct sdc_worker_message *m, char **line,
                                           struct sdc_error *err) {
    return sdc__fields_line(&tables[m->kind], "worker message", m, line, err);
}

enum sdc_status sdc_worker_message_from_json(const char *line, size_t len,
                                             struct sdc_worker_message *m, struct sdc_error *err) {
    static const char what[] = "worker message";
    struct sdc_json *root;
    struct sdc_worker_message read = {0};
    int kind;
    SDC_TRY(sdc__line_parse(line, len, what, &root, err));
    enum sdc_status st = sdc__line_kind(root, what, &kinds, &kind, err);
    if (st == SDC_OK) {
        read.kind = (enum sdc_worker_kind)kind;
        st = sdc__fields_read(&tables[kind], root, what, &read, err);
    }
    sdc__json_free(root);
    if (st == SDC_OK)
        *m = read;
    else
        sdc_worker_message_release(&read);
    return st;
}
