// SPDX-License-Identifier: Apache-2.0
/* Holds the peers' table, and opens those that a run compares with. */
#include <string.h>

#include "bench/bench.h"

#define PEER(name) extern const bench_peer peer_##name;
#include "bench/peer/peers.def"
#undef PEER

static const bench_peer *const peers[] = {
#define PEER(name) &peer_##name,
#include "bench/peer/peers.def"
#undef PEER
};

enum { PEERS = (int)(sizeof peers / sizeof *peers) };

const bench_peer *bench_peer_at(int index)
{
    return index >= 0 && index < PEERS ? peers[index] : NULL;
}

/* Names what the list option takes: the two words that stand for many, then the peers. */
const char *bench_peer_name(int index)
{
    if (index < 2) return index == 0 ? "all" : "none";
    const bench_peer *peer = bench_peer_at(index - 2);
    return peer ? peer->name : NULL;
}

static int is_wanted(const char *list, const char *name)
{
    char item[32];
    while (cli_list_next(item, sizeof item, &list))
        if (strcmp(item, name) == 0 || strcmp(item, "all") == 0) return 1;
    return 0;
}

void bench_peers_open(cli_app *cli, bench_library *libraries, int *count, const char *list)
{
    const uint32_t cpu = s24_ctx_cpu(cli->ctx);
    *count = 0;
    (void)s24_dense_engine_cpu(cli->ctx); /* bounds oneDNN, before it is a peer */
    if (s24_cpu_detect() & ~cpu && (is_wanted(list, "openblas") || is_wanted(list, "libxsmm")))
        cli_note(cli,
                 "--isa %s bounds our kernels and oneDNN; openblas and libxsmm use what they find",
                 cli->common->isa);
    for (int i = 0; i < PEERS && *count < BENCH_MAX_PEERS; i++) {
        if (!is_wanted(list, peers[i]->name)) continue;
        bench_library *entry = &libraries[*count];
        *entry = (bench_library){.peer = peers[i]};
        entry->library = peers[i]->open(entry->version, sizeof entry->version);
        if (entry->library)
            (*count)++;
        else
            cli_note(cli, "%s is not here; compared without it", peers[i]->name);
    }
}

void bench_peers_close(bench_library *libraries, int count)
{
    for (int i = 0; i < count; i++)
        libraries[i].peer->close(libraries[i].library);
}
