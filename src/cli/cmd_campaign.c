/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/commands.h"

/* each in its own file, cmd_campaign_NAME.c */
extern const struct sdc_command sdc_cmd_campaign_init;
extern const struct sdc_command sdc_cmd_campaign_plan;
extern const struct sdc_command sdc_cmd_campaign_run;
extern const struct sdc_command sdc_cmd_campaign_status;
extern const struct sdc_command sdc_cmd_campaign_show;
extern const struct sdc_command sdc_cmd_campaign_export;

static const struct sdc_command *const subcommands[] = {
    &sdc_cmd_campaign_init,
    &sdc_cmd_campaign_plan,
    &sdc_cmd_campaign_run,
    &sdc_cmd_campaign_status,
    &sdc_cmd_campaign_show,
    &sdc_cmd_campaign_export,
    NULL,
};

extern const struct sdc_command sdc_cmd_campaign;

const struct sdc_command sdc_cmd_campaign = {
    .name = "campaign",
    .group = "Experiments",
    .summary = "plan, run and look at experiments by checkpoint alteration",
    .operands = "COMMAND ...",
    .subcommands = subcommands,
};
