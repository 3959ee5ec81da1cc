// SPDX-License-Identifier: Apache-2.0
/* Sends two floats to another block of a cluster, whose barrier counts them. */
#ifndef S24_CUDA_PTX_SEND_PAIR_CUH
#define S24_CUDA_PTX_SEND_PAIR_CUH

#include <cstdint>

/* Both addresses are a cluster's. A block without a cluster has no such instruction. */
static __device__ inline void cluster_send_pair(uint32_t to, float low, float high, uint32_t bar)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 "
                 "[%0], {%1, %2}, [%3];" ::"r"(to),
                 "f"(low), "f"(high), "r"(bar)
                 : "memory");
}

#endif
