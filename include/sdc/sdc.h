/* SPDX-License-Identifier: Apache-2.0
 *
 * All of libsdclab's public interface. Each header is complete by itself.
 */
#ifndef SDC_SDC_H
#define SDC_SDC_H

#include "sdc/alter.h"
#include "sdc/audit.h"
#include "sdc/choice.h"
#include "sdc/ckpt.h"
#include "sdc/data.h"
#include "sdc/events.h"
#include "sdc/fault.h"
#include "sdc/name_map.h"
#include "sdc/num.h"
#include "sdc/outcome.h"
#include "sdc/record.h"
#include "sdc/rng.h"
#include "sdc/run.h"
#include "sdc/status.h"
#include "sdc/tensor.h"
#include "sdc/worker.h"

#endif
