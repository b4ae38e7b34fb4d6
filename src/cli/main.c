/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "cli/commands.h"

int main(int argc, char *argv[]) {
    return sdc_cli_main(argc, (const char *const *)argv, stdout, stderr);
}
