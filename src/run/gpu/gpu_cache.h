// SPDX-License-Identifier: Apache-2.0
/* A cache of keys and values on a device: its memory, and the steps of a pass that goes on with
   it. */
#ifndef S24_RUN_GPU_GPU_CACHE_H
#define S24_RUN_GPU_GPU_CACHE_H

#include "run/cpu/kv_cache.h"

/* Memory for keys and values, angles and work, on the model's device; what there is after an error
   is to be cleared, too. */
s24_status s24i_gpu_cache_fill(s24_cache *cache, s24_ctx *ctx);
void s24i_gpu_cache_clear(s24_cache *cache);

#endif
