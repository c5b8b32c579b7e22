/*
 * Lets a program go on with a predicted answer, and takes it back in place where that was wrong.
 *
 * Link with: pkg-config --cflags --libs runahead_speculate
 *
 * The library needs no runtime, allocates nothing, and does not touch errno. Every function makes one
 * system call; without runahead in front that call fails, and nothing else happens. See docs/guide/speculation.md for what a process may do
 * while it speculates, and what waits.
 *
 * All of them return a negative errno if they fail: -EBADF if nobody listens.
 */
#ifndef RUNAHEAD_SPECULATE_H
#define RUNAHEAD_SPECULATE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What runahead_spec_begin returns. */
enum {
    RUNAHEAD_SPECULATIVE = 0, /* the process speculates from here on */
    RUNAHEAD_FAILED = 1,      /* it did, the prediction was wrong, and all is as it was */
};

/* What becomes of what a speculative process writes to a descriptor. */
enum {
    RUNAHEAD_DEFAULT = 0, /* RUNAHEAD_EXPAND for pipes, RUNAHEAD_DEFER for all else */
    RUNAHEAD_DEFER = 1,   /* it is held until all that it depends on is committed */
    RUNAHEAD_BLOCK = 2,   /* the writer waits */
    RUNAHEAD_ALLOW = 3,   /* it goes out at once, and stays where the prediction was wrong */
    RUNAHEAD_EXPAND = 4,  /* it is held, but other processes of the session can read it, and depend on it then (pipes) */
};

/* Most bytes of an answer that are kept. */
#define RUNAHEAD_ANSWER_MAX 4000

/*
 * Begins a speculation, whose number it writes to *id (also where it then fails). Returns RUNAHEAD_SPECULATIVE; and, should the
 * prediction turn out to be wrong, a second time, in the same place, with all memory and all threads of the process as they were:
 * RUNAHEAD_FAILED. Negative: the process does not speculate, and goes on the ordinary way.
 *
 * `settler` is the process that will settle it: should that end first, it has failed, without an answer. 0: nobody knows which.
 */
int runahead_spec_begin(uint64_t *id, pid_t settler);

/*
 * The prediction was right. Any process of the session may say so. -ESRCH: no such speculation is open: it has been settled, or
 * its process has been taken back to before it.
 */
int runahead_spec_commit(uint64_t id);

/* The prediction was wrong; `length` bytes at `answer`, of which RUNAHEAD_ANSWER_MAX count, are what is right. Errors as above. */
int runahead_spec_fail(uint64_t id, const void *answer, size_t length);

/* Of a speculation that has just failed: what is right, as much as there is room for. Returns its bytes. */
int runahead_spec_answer(uint64_t id, void *to, size_t length);

/* What is to become of what is written to `fd`, until that is closed. Returns what was to become of it before. */
int runahead_spec_set_policy(int fd, int policy);

/* The speculations that this process depends on, the oldest first, as many as fit. Returns how many there are. */
int runahead_spec_open(uint64_t *ids, size_t count);

/* What has become of a speculation of the session's. */
struct runahead_spec_event {
    uint64_t id;
    uint64_t what; /* one of these: */
#define RUNAHEAD_BEGUN 0
#define RUNAHEAD_COMMITTED 1
#define RUNAHEAD_ABORTED 2
};

/* In place of a position: behind all that has happened so far. */
#define RUNAHEAD_NOW UINT64_MAX

/*
 * What has happened from *position on, as much as fits; *position moves on behind that. Returns how much. Nothing is told twice;
 * who is slow misses some: a thousand are kept.
 */
int runahead_spec_events(uint64_t *position, struct runahead_spec_event *events, size_t count);

/* Waits until this process depends on nothing any more. */
int runahead_spec_barrier(void);

#ifdef __cplusplus
}
#endif

#endif
