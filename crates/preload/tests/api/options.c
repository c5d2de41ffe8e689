/* A program that starts the engine with options: three times its DRAM, compared, and each option seen to be heeded. */
#include "check.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, DRAM = 64 << 20, ALL = 192 << 20, STORE = 384 << 20 };

static const char digits[] = "0123456789abcdef";

/* Hexadecimal digits without order: half the size to what knows frequencies (Zstandard), all of it to LZ4. */
static char digit(size_t index) {
    uint64_t word = (index / 8 + 1) * UINT64_C(0x9E3779B97F4A7C15);
    word = (word ^ word >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
    return digits[(word ^ word >> 32) >> index % 8 * 4 & 15];
}

static void *fill(void *start) {
    char *all = start;
    for (size_t i = 0; i < ALL; i++) all[i] = digit(i);
    return NULL;
}

/* A program fills memory faster than the engine of a busy machine takes it over and evicts it. */
static void until_evicted(void) {
    for (int i = 0; i < 6000 && stats().stored_bytes + stats().compressed_bytes <= ALL - 2 * DRAM; i++)
        usleep(10000);
}

/* Of the slots of a store how many are pages in the open, and how many anything at all. */
static void count_slots(int store, size_t *open, size_t *used) {
    char slot[PAGE];
    *open = *used = 0;
    for (off_t at = 0; pread(store, slot, PAGE, at) == PAGE; at += PAGE) {
        size_t known = 0, zero = 0;
        for (int i = 0; i < 64; i++) {
            known += slot[i] && strchr(digits, slot[i]);
            zero += slot[i] == 0;
        }
        *open += known == 64;
        *used += zero != 64;
    }
}

/* The file without a name that some thread of this process has open in the folder. */
static int find_store(const char *folder) {
    char real[PATH_MAX], task[PATH_MAX], name[PATH_MAX], link[PATH_MAX];
    CHECK(realpath(folder, real));
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks);
    for (struct dirent *it; (it = readdir(tasks));) {
        if (it->d_name[0] == '.') continue;
        snprintf(task, sizeof task, "/proc/self/task/%.20s/fd", it->d_name);
        DIR *files = opendir(task);
        if (!files) continue;
        for (struct dirent *file; (file = readdir(files));) {
            snprintf(name, sizeof name, "/proc/self/task/%.20s/fd/%.20s", it->d_name, file->d_name);
            ssize_t length = readlink(name, link, sizeof link - 1);
            if (length < 0) continue;
            link[length] = 0;
            if (strncmp(link, real, strlen(real)) || !strstr(link, "(deleted)")) continue;
            int found = open(name, O_RDONLY);
            CHECK(found >= 0);
            closedir(files);
            closedir(tasks);
            return found;
        }
        closedir(files);
    }
    CHECK(!"no store is open");
    return -1;
}

/* Nothing of this starts an engine. */
static void wrong(struct overmem_options options) {
    struct {
        struct overmem_options known;
        uint64_t more;
    } newer = {.known = options, .more = 1};
    struct overmem_options other;
    char message[200];

#define REFUSED(errno_wanted, text, change)                                              \
    do {                                                                                 \
        other = options;                                                                 \
        change;                                                                          \
        CHECK(overmem_start_with(&other, message, sizeof message) == -(errno_wanted));   \
        CHECK(strstr(message, text));                                                    \
        CHECK(overmem_is_running() == 0);                                                \
    } while (0)
    REFUSED(EINVAL, "sizeof(struct overmem_options)", other.bytes = 0);
    REFUSED(EINVAL, "sizeof(struct overmem_options)", other.bytes -= 8);
    REFUSED(EINVAL, "absolute", other.folder = NULL);
    REFUSED(EINVAL, "absolute", other.folder = "here");
    REFUSED(EINVAL, "compress 9", other.compress = 9);
    REFUSED(EINVAL, "encrypt 7", other.encrypt = 7);
    REFUSED(EINVAL, "in a day is 1 bytes", other.writes_per_day_bytes = 1);
    REFUSED(ENOTSUP, "the budget is 5 bytes", other.dram_bytes = 5);
    REFUSED(ENOTSUP, "No such file", other.folder = "/nowhere/at/all");
    CHECK(overmem_start_with(NULL, message, sizeof message) == -EINVAL);
    newer.known.bytes = sizeof newer;
    CHECK(overmem_start_with(&newer.known, message, sizeof message) == -E2BIG);
    CHECK(strstr(message, "newer") && overmem_is_running() == 0);
    other = options;
    other.encrypt = 7;
    CHECK(overmem_start_with(&other, NULL, 0) == -EINVAL);
    /* A child has an engine of its own, as long as this process has none. */
    pid_t child = fork();
    if (child == 0) {
        if (overmem_start_with(&options, message, sizeof message) != 0) {
            printf("not here: %s\n", message);
            exit(77);
        }
        _exit(overmem_is_running() ? 0 : 1);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) exit(77);
    CHECK(WEXITSTATUS(status) == 0);
    /* A newer program that asks for nothing new is served. */
    newer.more = 0;
    CHECK(overmem_start_with(&newer.known, message, sizeof message) == 0 && overmem_is_running() == 1);
    /* And from then on the arguments do not count. */
    CHECK(overmem_start_with(&other, NULL, 0) == 0 && overmem_start_with(NULL, NULL, 0) == 0);
    child = fork();
    if (child == 0) {
        int outcome = overmem_start_with(&options, message, sizeof message);
        _exit(outcome == -ENOTSUP && strstr(message, "child") && !overmem_is_running() ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* With fewer addresses than the library wants it says so, and the program goes on. */
static void narrow(struct overmem_options options) {
    char message[200] = "";
    CHECK(overmem_is_running() == 0);
    CHECK(overmem_start_with(&options, message, sizeof message) == -ENOTSUP && strstr(message, "addresses"));
    CHECK(overmem_start(options.folder, DRAM, STORE, NULL, 0) == -ENOTSUP && overmem_is_running() == 0);
    puts("as asked");
    exit(0);
}

/* An hour's share of a day's writes is less than what does not fit. */
static void wait_for_writes(char *all, uint64_t a_day) {
    pthread_t filler;
    CHECK(pthread_create(&filler, NULL, fill, all) == 0);
    for (int i = 0; i < 120000 && stats().writes_paced == 0; i++) usleep(1000);
    CHECK(stats().writes_paced > 0);
    /* 12 KiB a second come on top. */
    CHECK(stats().written_bytes <= a_day / 24 + (8 << 20));
    /* The other thread waits for a day. What it waits for this one may have to wait for as well. */
    CHECK(write(1, "as asked\n", 9) == 9);
    _exit(0);
}

int main(int count, char **words) {
    char message[200] = "";
    CHECK(count == 3);
    const char *folder = words[1], *mode = words[2];
    struct overmem_options options = {
        .bytes = sizeof options, .folder = folder, .dram_bytes = DRAM, .store_bytes = STORE};
    int zstd = strcmp(mode, "zstd") == 0, encrypt = strcmp(mode, "encrypt") == 0;
    options.compress = zstd ? OVERMEM_COMPRESS_ZSTD : OVERMEM_COMPRESS_OFF;
    options.encrypt = encrypt;
    if (strcmp(mode, "writes") == 0) options.writes_per_day_bytes = UINT64_C(1) << 30;
    if (strcmp(mode, "narrow") == 0) narrow(options);
    if (strcmp(mode, "wrong") != 0) {
        if (overmem_start_with(&options, message, sizeof message) != 0) {
            printf("not here: %s\n", message);
            return 77;
        }
        CHECK(overmem_is_running() == 1);
    } else {
        wrong(options);
    }

    char *all = overmem_map(ALL);
    CHECK(all);
    if (options.writes_per_day_bytes) wait_for_writes(all, options.writes_per_day_bytes);
    fill(all);
    until_evicted();
    for (size_t i = 0; i < ALL; i++) CHECK(all[i] == digit(i));
    struct overmem_stats now = stats();
    CHECK(now.dram_bytes == DRAM && now.lost_pages == 0 && now.writes_paced == 0);
    if (zstd) {
        CHECK(now.compressed_bytes > 16 << 20);
        CHECK(now.compressed_bytes > now.compressed_dram_bytes / 2 * 3);
    } else {
        size_t open, used;
        CHECK(now.compressed_bytes == 0 && now.stored_bytes > ALL - 2 * DRAM);
        count_slots(find_store(folder), &open, &used);
        CHECK(used > 1000);
        CHECK(encrypt ? open == 0 : open > used / 2);
    }
    puts("as asked");
    return 0;
}
