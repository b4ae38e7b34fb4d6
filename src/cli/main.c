/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "cli/commands.h"
#include "io/io.h"

int main(int argc, char *argv[]) {
    sdc__reserve_streams();
    sdc__survive_size_limit();
    return sdc_cli_main(argc, (const char *const *)argv, stdout, stderr);
}
