// SPDX-License-Identifier: Apache-2.0
/* Training's vector functions in portable C for any CPU. See train_kernels_impl.h. */
#include "train/train_kernels.h"

#define TARGET
#define TABLE      s24i_train_portable
#define TABLE_NAME "portable"
#define TABLE_CPU  0
#include "vec/vec_portable.h"

#include "train/train_kernels_impl.h"
