/* SPDX-License-Identifier: Apache-2.0
 *
 * How names of tensors are read: prefixes of parts, of wrappers, last components. Internal to the
 * contract; the public side is sdc_tensor_classify and sdc_tensor_layer in sdc/tensor.h.
 */
#ifndef SDC_CONTRACT_NAMES_H
#define SDC_CONTRACT_NAMES_H

#include <stddef.h>

#include "sdc/status.h"
#include "sdc/tensor.h"

/* The name without what wrappers put in front of the network's own names: "module." (PyTorch's
 * DataParallel and DistributedDataParallel), "_orig_mod." (torch.compile), also several of them,
 * at the start or right after the part ("model/module.fc.weight" gives "model/fc.weight"). NULL: no
 * memory; free with sdc__free. */
char *sdc__name_unwrapped(const char *name) SDC_MUST_CHECK;

/* The same, also without what formats put behind a name: Keras' ":0" and TensorFlow's
 * "/.ATTRIBUTES/VARIABLE_VALUE". NULL: no memory; free with sdc__free. */
char *sdc__name_plain(const char *name) SDC_MUST_CHECK;

/* The name of the parameter that an optimizer's tensor belongs to, without the part, as it stands
 * in the tensor's name: "conv1.weight" of "optimizer/conv1.weight/momentum". Empty where the name
 * does not say. NULL: no memory; free with sdc__free. */
char *sdc__name_parameter(const char *name) SDC_MUST_CHECK;

/* Length of the part prefix with its separator, 0 without one; *part is SDC_PART_NONE then. */
size_t sdc__name_part_prefix(const char *name, enum sdc_part *part);

/* Length of the wrappers' prefixes at the start of name. */
size_t sdc__name_wrapper_prefix(const char *name);

#endif
