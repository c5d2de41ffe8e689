/* overmem.h: memory beyond DRAM, for programs that know what they need.
 *
 * A program started by `overdrive extend` needs none of this. One that calls it links with libovermem.so:
 *
 *     cc program.c -L/usr/local/lib/overdrive -lovermem -Wl,-rpath,/usr/local/lib/overdrive
 *
 * and either is started by `overdrive extend` or starts the engine (the thread that moves pages) itself with
 * overmem_start(). All private anonymous memory of the process is then held within the given DRAM, whoever
 * mapped it; what is cold (not in use) lies in a file without a name. Ranges are in bytes; every page that they
 * touch counts whole. Functions return 0, or a negative errno; all may be called from any thread. In a child
 * made by fork no engine is running, and none can be started: its memory is served by its parent's engine, and
 * hints are ignored.
 */
#ifndef OVERMEM_H
#define OVERMEM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Starts the engine: folder is absolute and on an SSD, with room for store_bytes (at least 1 MiB), dram_bytes is
 * at least 20 MiB. To be called early, before other threads are started. Where an engine runs already (overdrive
 * extend) it does nothing and the arguments do not count. When it fails, -ENOTSUP, and one line that says why
 * goes to message (message_bytes long; may be NULL). The engine ends with the process. */
int overmem_start(const char *folder, uint64_t dram_bytes, uint64_t store_bytes, char *message,
                  size_t message_bytes);

/* Whether cold pages are kept compressed in DRAM before they go to the SSD. */
enum overmem_compress {
    OVERMEM_COMPRESS_AUTO = 0, /* LZ4, where it pays */
    OVERMEM_COMPRESS_OFF = 1,
    OVERMEM_COMPRESS_LZ4 = 2,  /* every page is tried */
    OVERMEM_COMPRESS_ZSTD = 3  /* likewise; smaller pages for more time */
};

/* What can be asked of an engine. Set bytes, and leave what is not asked for zero:
 *
 *     struct overmem_options options = {.bytes = sizeof options, .folder = "/mnt/nvme",
 *                                       .dram_bytes = 1 << 30, .store_bytes = 8ull << 30, .encrypt = 1};
 *
 * New fields are added at the end only; zero in them means what was so before there were any. */
struct overmem_options {
    size_t bytes;                  /* sizeof(struct overmem_options) */
    const char *folder;            /* absolute, on an SSD, with room for store_bytes */
    uint64_t dram_bytes;           /* the budget, at least 20 MiB */
    uint64_t store_bytes;          /* taken of the SSD at most, at least 1 MiB */
    uint64_t writes_per_day_bytes; /* written to the SSD in any 24 hours at most, at least 1 GiB; what needs
                                    * more waits. 0: no limit */
    uint32_t compress;             /* an enum overmem_compress */
    uint32_t encrypt;              /* 1: what is written to the SSD is encrypted, with a key that is made for this
                                    * process, kept on locked memory (RLIMIT_MEMLOCK: two pages), and ends with it */
};

/* overmem_start() with all that can be asked for. -EINVAL when bytes is too small or another field is none of what
 * it may be; -E2BIG when a field is set that this library is too old to know; -ENOTSUP when the engine cannot be
 * had. message as above, in each of these cases. */
int overmem_start_with(const struct overmem_options *options, char *message, size_t message_bytes);

/* 1 when an engine serves this process, else 0. */
int overmem_is_running(void);

/* New memory: page-aligned, zero, no DRAM or swap set aside for it. NULL when there are no addresses. Any other
 * anonymous memory (malloc, mmap) is served just as well. */
void *overmem_map(size_t bytes);

/* Gives memory of overmem_map(), or a part of it, back. */
int overmem_unmap(void *start, size_t bytes);

/* Brings a range into DRAM and keeps it there until it is unpinned or unmapped. -ENOMEM when more than half of the
 * budget would be locked, when RLIMIT_MEMLOCK does not allow it, or when a part is not mapped. Pins do not add
 * up: one overmem_unpin() is enough. */
int overmem_pin(const void *start, size_t bytes);
int overmem_unpin(const void *start, size_t bytes);

/* The range is needed soon: it is read while the program goes on, and leaves DRAM only after the pages that are
 * there by then. -EAGAIN when too many ranges wait already. */
int overmem_will_need(const void *start, size_t bytes);

/* The range is not needed for a while: it leaves DRAM before what is in use. Its content stays. (Content that is
 * not needed any more at all is given up with madvise(MADV_DONTNEED), as always.) -EAGAIN as above. */
int overmem_cold(const void *start, size_t bytes);

/* Counters of this process. New ones are added at the end only. */
struct overmem_stats {
    uint64_t dram_bytes;     /* the budget */
    uint64_t resident_bytes; /* in place */
    uint64_t staged_bytes;   /* evicted, still in DRAM */
    uint64_t stored_bytes;   /* on the SSD */
    uint64_t written_bytes;  /* to the SSD, since the start */
    uint64_t faults;         /* served since the start */
    uint64_t loads;          /* of these, from the SSD */
    uint64_t waits;          /* of these, those that waited for room */
    uint64_t lost_pages;     /* to a failing SSD */
    uint64_t compressed_bytes;      /* evicted, in DRAM compressed: what it is when it is not */
    uint64_t compressed_dram_bytes; /* the DRAM that this takes */
    uint64_t writes_paced;          /* how often writing had to wait for the day's limit */
};

/* Fills in as much of the structure as bytes allow: pass sizeof. -ENOTSUP when no engine is running. */
int overmem_stats(struct overmem_stats *stats, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
