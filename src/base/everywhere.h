// SPDX-License-Identifier: Apache-2.0
/* For headers that are code alone and that a device's compiler takes too, so that the CPU and the
   device compute from the same lines. */
#ifndef S24_BASE_EVERYWHERE_H
#define S24_BASE_EVERYWHERE_H

#ifdef __CUDACC__
#define S24I_CODE static __device__ inline
#define S24I_BOTH static __host__ __device__ inline /* on either side of a launch */
#else
#define S24I_CODE static inline
#define S24I_BOTH static inline
#endif

#endif
