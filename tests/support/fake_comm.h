// SPDX-License-Identifier: Apache-2.0
/* The knob of the transport between threads (fake_comm.c), which tests look up in it. */
#ifndef S24_TEST_FAKE_COMM_H
#define S24_TEST_FAKE_COMM_H

#include <stdint.h>

/* That rank's wire is cut after so many sums of the world to come; −1: nobody's. */
void fake_comm_fail(int rank, int64_t after);

#endif
