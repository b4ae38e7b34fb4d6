/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/campaign_text.h"
#include "cli/text_table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/guard.h"

void sdc__ranks_text(uint64_t mask, struct sdc_buf *out) {
    size_t start = out->len;
    for (unsigned r = 0; r < 64; r++) {
        if (!(mask >> r & 1))
            continue;
        unsigned last = r;
        while (last + 1 < 64 && mask >> (last + 1) & 1)
            last++;
        sdc__buf_printf(out, "%s%u", out->len > start ? "," : "", r);
        if (last > r)
            sdc__buf_printf(out, "%c%u", last > r + 1 ? '-' : ',', last);
        r = last;
    }
    if (out->len == start)
        sdc__buf_puts(out, "none");
}

void sdc__fault_text(const struct sdc_store_fault *f, struct sdc_buf *out) {
    char old[48], new[48];
    sdc_num_text(f->dtype, f->old_raw, old, sizeof old);
    sdc_num_text(f->dtype, f->new_raw, new, sizeof new);
    sdc__buf_printf(out, "%s%s", f->tensor, f->index);
    const char *separator = "@lsb:";
    for (unsigned bit = 0; bit < 64; bit++)
        if (f->bits >> bit & 1) {
            sdc__buf_printf(out, "%s%u", separator, bit);
            separator = ",";
        }
    sdc__buf_printf(out, " %s -> %s", old, new);
}

void sdc__replay_text(const char *dir, const char *trial, struct sdc_buf *out) {
    sdc__buf_puts(out, "sdclab campaign run -o ");
    sdc_text_of_word(dir, out);
    sdc__buf_printf(out, " --trial %s", trial);
}

static void claim_line(const struct sdc_results_claim *c, enum sdc_claim which,
                       struct sdc_buf *out) {
    const struct sdc_stat_claim *s = &c->stat;
    char effect[32] = "-", limits[48] = "-", verdict[64];
    bool undecided = s->verdict == SDC_VERDICT_UNDECIDED;
    snprintf(verdict, sizeof verdict, "%s%s%s", sdc__stat_verdict_name(s->verdict),
             undecided ? ": " : "", undecided ? sdc__stat_reason_text(s->reason) : "");
    if (!isnan(s->test.mean))
        snprintf(effect, sizeof effect, "%+.4f", s->test.mean);
    if (isfinite(s->test.interval.low) && isfinite(s->test.interval.high))
        snprintf(limits, sizeof limits, "[%+.4f, %+.4f]", s->test.interval.low,
                 s->test.interval.high);
    sdc__buf_printf(out, "%-6s %-28s %9s %20s %8llu %8zu   %s\n", sdc__claim_name(which), verdict,
                    effect, limits, (unsigned long long)c->n_complete, s->test.k, c->effect);
}

void sdc__claims_text(const struct sdc_results *r, struct sdc_buf *out) {
    bool any = false;
    for (int c = 0; c < SDC_CLAIM_COUNT; c++)
        any = any || r->claims[c].asked;
    if (!any || r->no_claims) {
        sdc__buf_printf(out, "claims     %s\n", any ? r->no_claims : "none are listed in the spec");
        return;
    }
    sdc__buf_printf(out, "%-6s %-28s %9s %20s %8s %8s   %s\n", "claim", "verdict", "effect",
                    "limits", "pairs", "clusters", "what the effect is");
    for (int c = 0; c < SDC_CLAIM_COUNT; c++)
        if (r->claims[c].asked)
            claim_line(&r->claims[c], (enum sdc_claim)c, out);
    for (int c = 0; c < SDC_CLAIM_COUNT; c++) {
        if (!r->claims[c].asked)
            continue;
        sdc__buf_printf(out, "%s: ", sdc__claim_name((enum sdc_claim)c));
        sdc__stat_claim_sentence(&r->claims[c].stat, out);
        if (r->claims[c].n_pending)
            sdc__buf_printf(out, " %llu pairs are still to come.",
                            (unsigned long long)r->claims[c].n_pending);
        sdc__buf_putc(out, '\n');
    }
}

enum sdc_status sdc__campaign_open(const char *dir, struct sdc_campaign *c, struct sdc_error *err) {
    *c = (struct sdc_campaign){0};
    SDC_TRY(sdc__store_open_read(dir, &c->store, err));
    SDC_TRY(sdc__plan_new(sdc__store_spec(c->store), &c->plan, err));
    return sdc__results_new(c->store, c->plan, &c->results, err);
}

void sdc__campaign_close(struct sdc_campaign *c) {
    sdc__results_free(c->results);
    sdc__plan_free(c->plan);
    sdc__store_close(c->store);
    *c = (struct sdc_campaign){0};
}

uint64_t sdc__controls_failed(const struct sdc_results *r) {
    return r->controls[0].n_failed + r->controls[1].n_failed + r->controls[2].n_failed;
}
