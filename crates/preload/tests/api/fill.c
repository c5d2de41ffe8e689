/* Fills so many MiB and compares them: knows nothing of overmem.h. */
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **words) {
    size_t number = count > 1 ? strtoul(words[1], NULL, 10) << 17 : 0;
    volatile uint64_t *all = malloc(number * sizeof *all);
    if (!all) return 1;
    for (size_t i = 0; i < number; i++) {
        /* Not faster than an engine on a busy machine can follow. */
        if (i % (1 << 17) == 0) usleep(5000);
        all[i] = i * UINT64_C(0x9E3779B97F4A7C15) + 1;
    }
    for (size_t i = 0; i < number; i++)
        if (all[i] != i * UINT64_C(0x9E3779B97F4A7C15) + 1) return 2;
    return 0;
}
