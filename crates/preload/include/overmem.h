/* overmem.h: memory beyond DRAM, for programs that know what they need.
 *
 * A program started by `overdrive extend` needs none of this. One that calls it links with libovermem.so:
 *
 *     cc program.c -L/usr/local/lib/overdrive -lovermem -Wl,-rpath,/usr/local/lib/overdrive
 *
 * and either is started by `overdrive extend` or starts the engine itself with overmem_start(). All private
 * anonymous memory of the process is then held within the given DRAM, whoever mapped it; what is cold lies in
 * a file without a name. Ranges are bytes; whole pages that they touch count. Functions give 0, or a negative
 * errno; all may be called from any thread. In a child made by fork no engine is running: its memory is served
 * by its parent's, and hints are ignored.
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

/* The range is needed soon: it is read while the program goes on. -EAGAIN when too many ranges wait already. */
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
};

/* Fills in as much of the structure as bytes allow: pass sizeof. -ENOTSUP when no engine is running. */
int overmem_stats(struct overmem_stats *stats, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
