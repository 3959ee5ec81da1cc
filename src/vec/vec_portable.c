// SPDX-License-Identifier: Apache-2.0
/* Vector operations in portable C for any CPU. See vec_impl.h. */
#include "vec/vec.h"

#define TARGET
#define TABLE      s24i_vec_portable
#define TABLE_NAME "portable"
#define TABLE_CPU  0
#include "vec/vec_portable.h"

#include "vec/vec_impl.h"
