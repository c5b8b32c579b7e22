/*
 * Lets a program continue on a predicted answer, and rolls it back in place if the answer was
 * another.
 *
 * Link with: pkg-config --cflags --libs runahead_speculate
 *
 * The library needs no runtime, allocates nothing, and does not touch errno. Every function makes
 * one system call. Without runahead in front that call fails, and nothing else happens.
 * docs/guide/speculation.md says what a process may do while it speculates, and which calls wait.
 *
 * All functions return a negative errno if they fail: -EBADF if no runahead listens.
 */
#ifndef RUNAHEAD_SPECULATE_H
#define RUNAHEAD_SPECULATE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Results of runahead_spec_begin. */
enum {
    RUNAHEAD_SPECULATIVE = 0, /* the process speculates from now on */
    RUNAHEAD_FAILED = 1,      /* the prediction was wrong, and the process was rolled back */
};

/* Policies for the output of a speculative process to a descriptor. */
enum {
    RUNAHEAD_DEFAULT = 0, /* RUNAHEAD_EXPAND for pipes, RUNAHEAD_DEFER for all else */
    RUNAHEAD_DEFER = 1,   /* the output is held until all that it depends on is committed */
    RUNAHEAD_BLOCK = 2,   /* the writer waits */
    RUNAHEAD_ALLOW = 3,   /* it is written at once, and stays if the prediction was wrong */
    RUNAHEAD_EXPAND = 4,  /* it is held, but other processes of the session can read it (pipes), and
                             depend on it then */
};

/* Most bytes of an answer that are kept. */
#define RUNAHEAD_ANSWER_MAX 4000

/*
 * Begins a speculation and writes its number to *id, also where it then fails. Returns
 * RUNAHEAD_SPECULATIVE. If the prediction turns out to be wrong, returns a second time, in the
 * same place, with all memory and all threads of the process as they were: RUNAHEAD_FAILED.
 * Negative: the process does not speculate, and has to wait for the answer.
 *
 * `settler` is the process that will settle the speculation, 0 if that is unknown. If it ends
 * first, the speculation has failed, without an answer. -EINVAL: it is the calling process, which
 * would wait for itself, or process 1.
 */
int runahead_spec_begin(uint64_t *id, pid_t settler);

/*
 * Commits the speculation: the prediction was right. Any process of the session may do so.
 * -ESRCH: no such speculation is open. It has been settled, or its process has been rolled back
 * to before it.
 */
int runahead_spec_commit(uint64_t id);

/*
 * Fails the speculation: the prediction was wrong. The right answer is `length` bytes at
 * `answer`, of which RUNAHEAD_ANSWER_MAX count. Errors as for runahead_spec_commit.
 */
int runahead_spec_fail(uint64_t id, const void *answer, size_t length);

/*
 * Copies the right answer of a speculation that has just failed to `to`, at most `length` bytes.
 * Returns how many.
 */
int runahead_spec_answer(uint64_t id, void *to, size_t length);

/* Sets the policy for output to `fd`, until that is closed. Returns the policy before. */
int runahead_spec_set_policy(int fd, int policy);

/*
 * Lists the speculations that this process depends on, the oldest first, as many as fit. Returns
 * how many there are.
 */
int runahead_spec_open(uint64_t *ids, size_t count);

/* An event of a speculation of the session. */
struct runahead_spec_event {
    uint64_t id;
    uint64_t what; /* one of these: */
#define RUNAHEAD_BEGUN 0
#define RUNAHEAD_COMMITTED 1
#define RUNAHEAD_ABORTED 2
};

/* The position behind all events so far. */
#define RUNAHEAD_NOW UINT64_MAX

/*
 * Lists the events from *position on, as many as fit, and moves *position behind them. Returns
 * how many. No event is listed twice. A caller that is slow misses some: a thousand are kept.
 */
int runahead_spec_events(uint64_t *position, struct runahead_spec_event *events, size_t count);

/* Waits until this process depends on no speculation any more. */
int runahead_spec_barrier(void);

#ifdef __cplusplus
}
#endif

#endif
