// SPDX-License-Identifier: Apache-2.0
/* Training's vector functions in portable C for any CPU. See kernels_impl.h. */
#include "train/kernels.h"

#define TARGET
#define TABLE      s24i_train_portable
#define TABLE_NAME "portable"
#define TABLE_CPU  0
#include "nn/vec_portable.h"
#include "train/kernels_impl.h"
