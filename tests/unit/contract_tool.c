/* SPDX-License-Identifier: Apache-2.0
 *
 * contract_tool write run|event|worker|record     samples, one document a line
 * contract_tool read run|event|worker|change|header  reads one document from each line of standard
 *     input and prints "ok" or the message for each; records go through the file scratch.sdc.jsonl
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "contract_samples.h"
#include "sdc/choice.h"

static struct sdc_error err;

static void check(enum sdc_status st) {
    if (st == SDC_OK)
        return;
    fprintf(stderr, "%s\n", err.message);
    exit(1);
}

static void show(char *line) {
    fputs(line, stdout);
    sdc_text_free(line);
}

static char *header_line(void) {
    struct sdc_record r = {0};
    char *line;
    sample_header(&r.header);
    check(sdc_record_header_line(&r.header, &line, &err));
    sdc_record_release(&r);
    return line;
}

static void write_runs(void) {
    struct sdc_run run;
    char *line;
    sample_run(&run);
    check(sdc_run_to_json(&run, &line, &err));
    show(line);
    sdc_run_release(&run);
    sdc_run_init(&run);
    run.trial = sample_text("t");
    run.output = sample_text("o");
    check(sdc_run_to_json(&run, &line, &err));
    show(line);
    sdc_run_release(&run);
}

static void write_records(void) {
    char *line;
    show(header_line());
    for (size_t i = 0; i < SAMPLE_CHANGES; i++) {
        struct sdc_record_change c = sample_change(i);
        check(sdc_record_change_line(&c, &line, &err));
        show(line);
    }
    check(sdc_record_verified_line(5, 6, &line, &err));
    show(line);
}

static void write_events(void) {
    for (int kind = 0; kind < SDC_EVENT_KIND_COUNT; kind++) {
        struct sdc_event e;
        char *line;
        sample_event((enum sdc_event_kind)kind, &e);
        check(sdc_event_to_json(&e, &line, &err));
        show(line);
        sdc_event_release(&e);
    }
}

static void write_messages(void) {
    for (int kind = SDC_WORKER_HELLO; kind <= SDC_WORKER_QUIT; kind++) {
        struct sdc_worker_message m;
        char *line;
        sample_message((enum sdc_worker_kind)kind, &m);
        check(sdc_worker_message_to_json(&m, &line, &err));
        show(line);
        sdc_worker_message_release(&m);
    }
}

static enum sdc_status read_record(const char *before, const char *line) {
    struct sdc_record r;
    FILE *f = fopen("scratch.sdc.jsonl", "w");
    if (!f || fputs(before, f) < 0 || fputs(line, f) < 0 || fclose(f))
        exit(1);
    enum sdc_status st = sdc_record_read("scratch.sdc.jsonl", &r, &err);
    if (st == SDC_OK)
        sdc_record_release(&r);
    return st;
}

static enum sdc_status read_one(const char *what, const char *line) {
    struct sdc_run run;
    struct sdc_event e;
    struct sdc_worker_message m;
    size_t len = strlen(line);
    enum sdc_status st;
    if (strcmp(what, "run") == 0) {
        if ((st = sdc_run_from_json(line, len, "run", &run, &err)) == SDC_OK)
            sdc_run_release(&run);
    } else if (strcmp(what, "event") == 0) {
        if ((st = sdc_event_from_json(line, len, "event", &e, &err)) == SDC_OK)
            sdc_event_release(&e);
    } else if (strcmp(what, "worker") == 0) {
        if ((st = sdc_worker_message_from_json(line, len, &m, &err)) == SDC_OK)
            sdc_worker_message_release(&m);
    } else if (strcmp(what, "header") == 0) {
        st = read_record("", line);
    } else {
        char *header = header_line();
        st = read_record(header, line);
        sdc_text_free(header);
    }
    return st;
}

int main(int argc, char *argv[]) {
    if (argc != 3)
        return 2;
    char *line = NULL;
    size_t size = 0;
    if (strcmp(argv[1], "read") == 0) {
        while (getline(&line, &size, stdin) > 0)
            puts(read_one(argv[2], line) == SDC_OK ? "ok" : err.message);
    } else if (strcmp(argv[2], "run") == 0) {
        write_runs();
    } else if (strcmp(argv[2], "event") == 0) {
        write_events();
    } else if (strcmp(argv[2], "worker") == 0) {
        write_messages();
    } else {
        write_records();
    }
    free(line);
    return fflush(stdout) ? 1 : 0;
}
