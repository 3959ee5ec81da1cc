// SPDX-License-Identifier: Apache-2.0
/* The lanes of a session on the CPU. */
#ifndef S24_RUN_CPU_LANE_H
#define S24_RUN_CPU_LANE_H

#include "run/session.h"

/* Room for all threads together and for each of them; what there is after an error the session
   frees. MEMORY. */
s24_status s24i_lanes_fill(s24_session *session, s24_ctx *ctx);

#endif
