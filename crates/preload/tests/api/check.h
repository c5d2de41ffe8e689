/* What the programs here share: a check that ends them, and the counters. */
#include "overmem.h"
#include <stdio.h>
#include <stdlib.h>

#define CHECK(what)                                                        \
    do {                                                                   \
        if (!(what)) {                                                     \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #what);     \
            exit(1);                                                       \
        }                                                                  \
    } while (0)

static struct overmem_stats stats(void) {
    struct overmem_stats now;
    CHECK(overmem_stats(&now, sizeof now) == 0);
    return now;
}
