// SPDX-License-Identifier: Apache-2.0
/* Which experts a token takes, and with which weights. */
#ifndef S24_RUN_CPU_EXPERTS_ROUTE_H
#define S24_RUN_CPU_EXPERTS_ROUTE_H

#include "run/cpu/experts.h"

/* x [rows, width] in; chosen and weights of experts [rows, each] out: the likeliest first, then the
   shared one. Of equal scores the first expert's counts. */
void s24i_experts_route(s24_ctx *ctx, const s24_session *session, const s24i_block *block,
                        const s24_dense *x);

#endif
