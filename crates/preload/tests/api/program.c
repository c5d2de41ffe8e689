/* A program that uses overmem.h: three times its DRAM, one part pinned, one advised cold, all of it compared. */
#include "check.h"
#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, DRAM = 64 << 20, ALL = 192 << 20, PINNED = 8 << 20, WINDOW = 4 << 20 };

/* How much of a range is in place. */
static size_t in_place(void *start, size_t bytes) {
    unsigned char pages[PINNED / PAGE];
    size_t there = 0;
    CHECK(bytes <= PINNED && mincore(start, bytes, pages) == 0);
    for (size_t i = 0; i < bytes / PAGE; i++) there += pages[i] & 1;
    return there * PAGE;
}

/* A program fills memory faster than the engine of a busy machine takes it over and evicts it. */
static void until_evicted(void) {
    for (int i = 0; i < 6000 && stats().stored_bytes <= ALL - 2 * DRAM; i++) usleep(10000);
}

static uint64_t word(size_t index) { return (index + 1) * UINT64_C(0x9E3779B97F4A7C15); }

int main(int count, char **words) {
    char message[200] = "";
    CHECK(count == 2);
    CHECK(overmem_pin(message, 1) == 0 && overmem_unpin(message, 1) == 0);
    CHECK(overmem_is_running() == 0 && overmem_stats(NULL, 0) == -ENOTSUP && overmem_cold(message, 1) == 0);
    CHECK(overmem_start("relative", DRAM, ALL * 2, message, sizeof message) == -ENOTSUP && message[0]);
    CHECK(overmem_start(words[1], 1, ALL * 2, message, 9) == -ENOTSUP && message[8] == 0);
    if (overmem_start(words[1], DRAM, ALL * 2, message, sizeof message) != 0) {
        printf("not here: %s\n", message);
        return 77;
    }
    CHECK(overmem_is_running() == 1);
    CHECK(overmem_start(words[1], DRAM, ALL * 2, NULL, 0) == 0);

    uint64_t *all = overmem_map(ALL);
    size_t number = ALL / sizeof *all;
    CHECK(all && (uintptr_t)all % PAGE == 0);
    for (size_t i = 0; i < number; i++) all[i] = word(i);
    until_evicted();
    CHECK(overmem_pin(all, PINNED) == 0);
    CHECK(overmem_pin(all, DRAM) == -ENOMEM);
    CHECK(overmem_cold(all + number / 2, ALL / 4) == 0);
    for (size_t i = 0; i < number; i++) CHECK(all[i] == word(i));
    struct overmem_stats now = stats();
    CHECK(now.dram_bytes == DRAM && now.stored_bytes > ALL - 2 * DRAM && now.loads > 0);
    CHECK(now.resident_bytes <= DRAM && now.lost_pages == 0);
    /* What is pinned stays in place, whatever else was read meanwhile. */
    CHECK(in_place(all, PINNED) == PINNED);
    CHECK(overmem_unpin(all, PINNED) == 0);

    /* Of so many windows only a third can be in place; what is needed soon is read without being touched here. */
    char *soon = NULL, *bytes = (char *)all;
    for (size_t at = 0; at < ALL; at += WINDOW)
        if (!soon || in_place(bytes + at, WINDOW) < in_place(soon, WINDOW)) soon = bytes + at;
    CHECK(in_place(soon, WINDOW) < WINDOW / 2);
    /* A range of nothing keeps no other waiting, however long it is. */
    CHECK(overmem_will_need((void *)PAGE, SIZE_MAX / 2) == 0);
    CHECK(overmem_will_need(soon, WINDOW) == 0);
    for (int i = 0; i < 20000 && in_place(soon, WINDOW) < WINDOW; i++) usleep(1000);
    CHECK(in_place(soon, WINDOW) > WINDOW * 9 / 10);

    pid_t child = fork();
    if (child == 0) {
        int fine = overmem_is_running() == 0 && overmem_will_need(all, PAGE) == 0;
        for (size_t i = 0; i < number; i += 512) fine &= all[i] == word(i);
        _exit(fine ? 0 : 1);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(overmem_unmap(all, ALL) == 0);
    puts("all there");
    return 0;
}
