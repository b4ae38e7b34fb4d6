/* SPDX-License-Identifier: Apache-2.0 */
#include "sdc/events.h"

#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/str.h"
#include "contract/fields.h"
#include "contract/lines.h"

#define SCHEMA "sdclab.events/1"

static const char *const kind_words[] = {
#define KIND_WORD(name, text) [SDC_EVENT_##name] = text,
    SDC_EVENT_KIND_MAP(KIND_WORD)};
static const char *const reason_words[] = {
#define REASON_WORD(name, text, meaning) [SDC_END_##name] = text,
    SDC_END_REASON_MAP(REASON_WORD)};
static const char *const point_words[] = {
#define POINT_WORD(name, text, meaning) [SDC_POINT_##name] = text,
    SDC_PROBE_POINT_MAP(POINT_WORD)};
static const struct sdc__words points = SDC__WORDS(point_words);
static const struct sdc__words reasons = SDC__WORDS(reason_words);

const char *sdc_event_kind_name(enum sdc_event_kind kind) {
    return kind_words[kind];
}

const char *sdc_end_reason_name(enum sdc_end_reason reason) {
    return reason_words[reason];
}

/* ---- tables ---- */

#define DIGEST(member)                                                                             \
    {                                                                                              \
#member, SDC__HEX, .offset = offsetof(struct sdc_rank_digests, member),                    \
                           .flags = SDC__REQUIRED, .size = sizeof(struct sdc_state_digest)         \
    }

/* null where they were not computed: `valid` is the struct's first member */
static const struct sdc__field digests_fields[] = {
    DIGEST(parameters), DIGEST(buffers), DIGEST(optimizer), DIGEST(loop), DIGEST(state),
};
static const struct sdc__fields digests_table =
    SDC__FIELDS(digests_fields, struct sdc_rank_digests);
_Static_assert(offsetof(struct sdc_rank_digests, valid) == 0, "nullable objects begin with a bool");

#define RANK(member) .offset = offsetof(struct sdc_start_rank, member), .flags = SDC__REQUIRED

static const struct sdc__field start_rank_fields[] = {
    {"file", SDC__TEXT, .offset = offsetof(struct sdc_start_rank, file),
     .flags = SDC__REQUIRED | SDC__NULLABLE},
    {"read_model", SDC__BOOL, RANK(read_model)},
    {"read_optimizer", SDC__BOOL, RANK(read_optimizer)},
    {"loaded", SDC__OBJECT, .offset = offsetof(struct sdc_start_rank, loaded),
     .flags = SDC__REQUIRED | SDC__NULLABLE, .sub = &digests_table},
    {"started", SDC__OBJECT, .offset = offsetof(struct sdc_start_rank, started),
     .flags = SDC__REQUIRED | SDC__NULLABLE, .sub = &digests_table},
};
static const struct sdc__fields start_rank_table =
    SDC__FIELDS(start_rank_fields, struct sdc_start_rank);

#define AT(member) .offset = offsetof(struct sdc_event, member), .flags = SDC__REQUIRED
#define PER_RANK(member)                                                                           \
    .offset = offsetof(struct sdc_event, member), .flags = SDC__REQUIRED | SDC__PER_RANK,          \
    .count_offset = offsetof(struct sdc_event, ranks)

#define COMMON(text_)                                                                              \
    {"type", SDC__CONST, .flags = SDC__REQUIRED, .text = text_}, {"step", SDC__U64, AT(step)}, {   \
        "elapsed", SDC__F64, AT(elapsed)                                                           \
    }
#define RANKS                                                                                      \
    { "ranks", SDC__U32, AT(ranks), .min = 1, .max = SDC_MAX_RANKS }

static const struct sdc__field start_fields[] = {
    COMMON("start"),
    {"schema", SDC__CONST, .flags = SDC__REQUIRED, .text = SCHEMA},
    RANKS,
    {"trial", SDC__TEXT, .offset = offsetof(struct sdc_event, trial),
     .flags = SDC__REQUIRED | SDC__PLAIN},
    {"trainer", SDC__TEXT, AT(trainer)},
    {"environment", SDC__PAIRS, AT(environment),
     .count_offset = offsetof(struct sdc_event, n_environment)},
    {"start", SDC__OBJECTS, PER_RANK(start), .sub = &start_rank_table},
};

static const struct sdc__field step_fields[] = {
    COMMON("step"),
    RANKS,
    {"loss", SDC__F32S_BITS, PER_RANK(loss), .bits_key = "loss_bits"},
    {"gradient_norm", SDC__F64_BITS, AT(gradient_norm), .bits_key = "gradient_norm_bits"},
    {"nonfinite_gradients", SDC__U64S, PER_RANK(nonfinite_gradients)},
    {"nonfinite_parameters", SDC__U64S, PER_RANK(nonfinite_parameters)},
    {"digests", SDC__OBJECTS, .offset = offsetof(struct sdc_event, digests),
     .flags = SDC__REQUIRED | SDC__PER_RANK | SDC__NULLABLE | SDC__NULL_ITEMS,
     .count_offset = offsetof(struct sdc_event, ranks), .sub = &digests_table},
};

static const struct sdc__field eval_fields[] = {
    COMMON("eval"),
    RANKS,
    {"samples", SDC__U64, AT(samples)},
    {"eval_loss", SDC__F64S_BITS, PER_RANK(eval_loss), .bits_key = "eval_loss_bits"},
    {"eval_correct", SDC__U64S, PER_RANK(eval_correct)},
};

#define PATHS                                                                                      \
    {                                                                                              \
        "paths", SDC__TEXTS, AT(paths), .count_offset = offsetof(struct sdc_event, n_paths),       \
                                        .min = 1, .max = SDC_MAX_RANKS                             \
    }

static const struct sdc__field checkpoint_fields[] = {COMMON("checkpoint"), PATHS};
static const struct sdc__field snapshot_fields[] = {COMMON("snapshot"), PATHS};

#define CHANGE(member) .offset = offsetof(struct sdc_event_change, member), .flags = SDC__REQUIRED

static const struct sdc__field change_fields[] = {
    {"tensor", SDC__TEXT, CHANGE(tensor)},
    {"elem", SDC__U64, CHANGE(elem)},
    {"before", SDC__HEX64, CHANGE(before)},
    {"after", SDC__HEX64, CHANGE(after)},
};
static const struct sdc__fields change_table = SDC__FIELDS(change_fields, struct sdc_event_change);

static const struct sdc__field fault_fields[] = {
    COMMON("fault"),
    {"fault", SDC__U32, AT(fault), .max = UINT32_MAX},
    {"rank", SDC__U32, AT(rank), .max = SDC_MAX_RANKS - 1},
    {"point", SDC__ENUM, AT(point), .words = &points},
    {"changed", SDC__U64, AT(changed)},
    {"changes", SDC__OBJECTS, AT(changes), .sub = &change_table,
     .count_offset = offsetof(struct sdc_event, n_changes)},
};

static const struct sdc__field end_fields[] = {
    COMMON("end"),
    {"reason", SDC__ENUM, AT(reason), .words = &reasons},
    {"message", SDC__TEXT, .offset = offsetof(struct sdc_event, message),
     .flags = SDC__REQUIRED | SDC__NULLABLE | SDC__EMPTY_OK},
};

static const struct sdc__fields tables[] = {
    [SDC_EVENT_START] = SDC__FIELDS(start_fields, struct sdc_event),
    [SDC_EVENT_STEP] = SDC__FIELDS(step_fields, struct sdc_event),
    [SDC_EVENT_EVAL] = SDC__FIELDS(eval_fields, struct sdc_event),
    [SDC_EVENT_CHECKPOINT] = SDC__FIELDS(checkpoint_fields, struct sdc_event),
    [SDC_EVENT_SNAPSHOT] = SDC__FIELDS(snapshot_fields, struct sdc_event),
    [SDC_EVENT_FAULT] = SDC__FIELDS(fault_fields, struct sdc_event),
    [SDC_EVENT_END] = SDC__FIELDS(end_fields, struct sdc_event),
};
static const struct sdc__words kinds = SDC__WORDS(kind_words);

/* ---- life ---- */

void sdc_event_init(struct sdc_event *e, enum sdc_event_kind kind) {
    *e = (struct sdc_event){.kind = kind};
}

void sdc_event_release(struct sdc_event *e) {
    /* of every kind: an event may have been filled beyond its own */
    for (int kind = 0; kind < SDC_EVENT_KIND_COUNT; kind++)
        sdc__fields_release(&tables[kind], e);
}

/* ---- JSON ---- */

enum sdc_status sdc_event_to_json(const struct sdc_event *e, char **line, struct sdc_error *err) {
    return sdc__fields_line(&tables[e->kind], "event", e, line, err);
}

static enum sdc_status more_rules(const struct sdc_event *e, const char *what,
                                  struct sdc_error *err) {
    for (size_t r = 0; e->kind == SDC_EVENT_EVAL && r < e->ranks; r++)
        if (e->eval_correct[r] > e->samples)
            return SDC_ERR(err, SDC_INVALID, "%s: eval_correct[%zu]: %llu of %llu samples", what, r,
                           (unsigned long long)e->eval_correct[r], (unsigned long long)e->samples);
    return SDC_OK;
}

enum sdc_status sdc_event_from_json(const char *line, size_t len, const char *what,
                                    struct sdc_event *e, struct sdc_error *err) {
    struct sdc_json *root;
    struct sdc_event read = {0};
    int kind;
    SDC_TRY(sdc__line_parse(line, len, what, &root, err));
    enum sdc_status st = sdc__line_kind(root, what, &kinds, &kind, err);
    if (st == SDC_OK) {
        sdc_event_init(&read, (enum sdc_event_kind)kind);
        st = sdc__fields_read(&tables[kind], root, what, &read, err);
    }
    if (st == SDC_OK)
        st = more_rules(&read, what, err);
    sdc__json_free(root);
    if (st == SDC_OK)
        *e = read;
    else
        sdc_event_release(&read);
    return st;
}

/* ---- files ---- */

static enum sdc_status take_line(void *user, const char *line, size_t len, const char *what,
                                 struct sdc_error *err) {
    struct sdc_event_list *list = user;
    if ((list->n & (list->n + 1)) == 0 || list->n == 0) { /* room for 1, 2, 4, 8, ... */
        struct sdc_event *items = sdc__realloc(list->items, 2 * (list->n + 1), sizeof *items);
        if (!items)
            return SDC_NOMEM(err, what);
        list->items = items;
    }
    SDC_TRY(sdc_event_from_json(line, len, what, &list->items[list->n], err));
    list->n++;
    return SDC_OK;
}

enum sdc_status sdc_events_read(const char *path, struct sdc_event_list *list,
                                struct sdc_error *err) {
    struct sdc_event_list read = {0};
    bool whole;
    enum sdc_status st = sdc__lines_read(path, take_line, &read, &whole, err);
    if (st != SDC_OK) {
        sdc_events_release(&read);
        return st;
    }
    read.complete = whole && read.n && read.items[read.n - 1].kind == SDC_EVENT_END;
    *list = read;
    return SDC_OK;
}

void sdc_events_release(struct sdc_event_list *list) {
    for (size_t i = 0; i < list->n; i++)
        sdc_event_release(&list->items[i]);
    sdc__free(list->items);
    *list = (struct sdc_event_list){0};
}
