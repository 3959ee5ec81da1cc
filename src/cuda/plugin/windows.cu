// SPDX-License-Identifier: Apache-2.0
/*
 * Sums over ranks by memory that other processes' GPUs write into: each rank writes what it has to
 * all others' windows, and adds up what came. Eight bytes travel with the sum's number next to each
 * four, so that whoever finds the number has the data, and nothing else says that it is there.
 *
 * A place is written again by the second next sum. By then its owner has ended the sum before: the
 * writer has got something of the sum between from it.
 */
#include "cuda/plugin/device.cuh"
#include "cuda/ptx/element.cuh"
#include "cuda/ptx/hopper.cuh"

enum { THREADS = 256, BLOCKS = 64, PACKET = 4 /* numbers */, SPINS = 1024 };

struct packet {
    uint32_t low, low_turn, high, high_turn;
};
/* As it lies in memory. `turns`: how many sums a block has made, its own rank's. */
struct window {
    uint32_t turns[BLOCKS];
    packet packets[]; /* [2, ranks, most] */
};

static __host__ __device__ inline int64_t most_packets(int ranks)
{
    return S24_DEVICE_WINDOW_SUM / (2 * PACKET) / ranks;
}

static __device__ inline void send(packet *to, uint32_t low, uint32_t high, uint32_t turn)
{
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(low), "r"(turn),
                 "r"(high), "r"(turn)
                 : "memory");
}

static __device__ inline packet look(const packet *from)
{
    packet p;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(p.low), "=r"(p.low_turn), "=r"(p.high), "=r"(p.high_turn)
                 : "l"(from)
                 : "memory");
    return p;
}

/* false: the ranks have been told to end. */
static __device__ inline bool receive(packet *p, const packet *from, uint32_t turn, const int *halt)
{
    for (int spins = 1;; spins++) {
        *p = look(from);
        if (p->low_turn == turn && p->high_turn == turn) return true;
        if (spins % SPINS == 0 && *(const volatile int *)halt) return false;
    }
}

static __device__ inline void add(float2 *sum, float2 v)
{
    sum->x += v.x;
    sum->y += v.y;
}

/* A place of the window is always the same block's, however many blocks a sum has, so that each may
   count its own sums. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    sum_kernel(const __grid_constant__ s24_device_window_sum_args job)
{
    constexpr int stride = THREADS * BLOCKS;
    const int packets = (int)(job.count / PACKET), most = (int)most_packets(job.ranks);
    const int first = (int)(blockIdx.x * THREADS + threadIdx.x);
    window *own = static_cast<window *>(job.windows[job.rank]);
    uint2 *data = static_cast<uint2 *>(job.data);
    dependents_may_start();
    wait_for_predecessors();
    const uint32_t turn = *(volatile uint32_t *)&own->turns[blockIdx.x] + 1;
    const int64_t half = (int64_t)(turn % 2) * job.ranks * most;
    for (int i = first; i < packets; i += stride)
        for (int r = 0; r < job.ranks; r++) {
            if (r == job.rank) continue;
            window *theirs = static_cast<window *>(job.windows[r]);
            send(&theirs->packets[half + (int64_t)job.rank * most + i], data[i].x, data[i].y, turn);
        }
    for (int i = first; i < packets; i += stride) {
        float2 low = {0, 0}, high = {0, 0};
        for (int r = 0; r < job.ranks; r++) {
            packet p = {data[i].x, turn, data[i].y, turn};
            const packet *from = &own->packets[half + (int64_t)r * most + i];
            if (r != job.rank && !receive(&p, from, turn, job.halt)) break;
            add(&low, pair_of<T>::values(p.low));
            add(&high, pair_of<T>::values(p.high));
        }
        data[i] = make_uint2(pair_of<T>::pack(low.x, low.y), pair_of<T>::pack(high.x, high.y));
    }
    __syncthreads();
    if (threadIdx.x == 0) own->turns[blockIdx.x] = turn;
}

s24_status window_sum_enqueue(s24i_device *device, const s24_device_window_sum_args *job,
                              void *stream, s24i_device_error *error)
{
    const int64_t packets = job->count / PACKET, blocks = (packets + THREADS - 1) / THREADS;
    s24_device_window_sum_args known = *job;
    void *args[] = {&known};
    const void *kernel = job->dtype == S24_F16 ? (const void *)sum_kernel<__half>
                                               : (const void *)sum_kernel<__nv_bfloat16>;
    const device_launch launch = {"summing over ranks",
                                  kernel,
                                  dim3((unsigned)(blocks < BLOCKS ? blocks : BLOCKS)),
                                  THREADS,
                                  0,
                                  true,
                                  0};
    (void)device;
    return device_launch_kernel(error, &launch, args, stream);
}

/* ---- the memory ------------------------------------------------------------------------------ */

/* Memory of its own, not of a pool: another process maps all of it. */
s24_status device_window_make(s24i_device *device, void **out, int ranks, char *name,
                              s24i_device_error *error)
{
    static_assert(sizeof(cudaIpcMemHandle_t) <= S24_DEVICE_WINDOW_NAME, "a window's name");
    const size_t bytes =
        sizeof(window) + 2 * (size_t)ranks * (size_t)most_packets(ranks) * sizeof(packet);
    device_scope scope(device);
    cudaIpcMemHandle_t handle = {};
    void *memory = nullptr;
    *out = nullptr;
    CUDA_TRY(error, "selecting a device", scope.code);
    CUDA_TRY(error, "allocating a window for other processes", cudaMalloc(&memory, bytes));
    cudaError_t code = cudaMemset(memory, 0, bytes);
    if (code == cudaSuccess) code = cudaDeviceSynchronize();
    if (code == cudaSuccess) code = cudaIpcGetMemHandle(&handle, memory);
    if (code != cudaSuccess) cudaFree(memory);
    CUDA_TRY(error, "sharing a window with other processes", code);
    memcpy(name, &handle, sizeof handle);
    *out = memory;
    return S24_OK;
}

void device_window_free(s24i_device *device, void *window)
{
    device_scope scope(device);
    cudaFree(window);
}

s24_status device_window_join(s24i_device *device, void **out, const char *name,
                              s24i_device_error *error)
{
    device_scope scope(device);
    cudaIpcMemHandle_t handle;
    *out = nullptr;
    memcpy(&handle, name, sizeof handle);
    CUDA_TRY(error, "selecting a device", scope.code);
    CUDA_TRY(error, "finding another process's window",
             cudaIpcOpenMemHandle(out, handle, cudaIpcMemLazyEnablePeerAccess));
    return S24_OK;
}

void device_window_leave(s24i_device *device, void *window)
{
    device_scope scope(device);
    cudaIpcCloseMemHandle(window);
}
