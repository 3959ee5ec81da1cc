// SPDX-License-Identifier: Apache-2.0
/* The products in e4m3. */
#include "linear_kept.cuh"
#include "linear_rows.cuh"

const linear_row linear_rows_e4m3[] = {
#define TILE(rows, tokens, warpgroups, teams, stages, depth, chunk, buffers, shares, step, end)    \
    linear_row_of<__nv_fp8_e4m3, rows, tokens, warpgroups, teams, stages, depth, chunk, buffers,   \
                  shares>(#rows "x" #tokens, step, end),
#include "tiles.def"
};

const linear_row kept_rows_e4m3[] = {
#define KEPT_TILE(rows, tokens, kept, slots, groups, step, end)                                    \
    kept_row_of<__nv_fp8_e4m3, kept, slots, groups>(#rows "x" #tokens "/kept", step, end),
#include "tiles.def"
};
