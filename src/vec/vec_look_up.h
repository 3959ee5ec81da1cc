// SPDX-License-Identifier: Apache-2.0
/* What codes stand for, by a table. See vec_table.h; V_LOOK_UP says how many it has done. */

TARGET static uint16_t look_up(uint16_t *y, const uint16_t *table, int64_t numbers,
                               const uint8_t *codes, int64_t n)
{
    uint16_t most = 0;
    for (int64_t i = V_LOOK_UP(&most, y, table, numbers, codes, n); i < n; i++) {
        const uint16_t size = table[codes[i]] & 0x7fff;
        y[i] = table[codes[i]];
        most = size > most ? size : most;
    }
    return most;
}
