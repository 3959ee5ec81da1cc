// SPDX-License-Identifier: Apache-2.0
/* A plugin of another version, for test_device: its table says so, and nothing else of it is
   there. */
#include "device/device_table.h"

const s24i_device_table *s24_device_table_cuda(void);

const s24i_device_table *s24_device_table_cuda(void)
{
    static const s24i_device_table table = {.abi = S24I_DEVICE_ABI + 1};
    return &table;
}
