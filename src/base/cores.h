// SPDX-License-Identifier: Apache-2.0
/* How many cores the process may use. Private to base. */
#ifndef S24_BASE_CORES_H
#define S24_BASE_CORES_H

/* Cores that the process may run on, no more than its control group's share of time pays for: at
   least 1, at most S24I_MAX_THREADS. */
int s24i_cores(void);

/* Whole cores (rounded up) that the limits of time of the process's control groups allow, the
   tightest of its own and all above it; 0: there is no limit. Reads /proc/self/cgroup and
   /sys/fs/cgroup under the folder `root` ("" for the system's own). */
int s24i_quota_cores(const char *root);

#endif
