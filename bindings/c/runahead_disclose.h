/*
 * Tells runahead which parts of which files this program will read, so that they are in memory when it
 * gets there.
 *
 * A disclosure changes nothing but what is in memory, and when; errno stays as it is. Any argument is
 * safe: what makes no sense is not taken. Each function returns whether it was; a program need not look.
 * None waits for storage; under runahead each waits up to 5 ms, once in a row, for what was disclosed
 * before it to be taken out. All can be called from any thread, and from signal handlers.
 *
 * Without runahead each function makes one system call that fails (advice on a negative descriptor,
 * some 100 ns), and nothing else.
 *
 * Link with: pkg-config --cflags --libs runahead_disclose
 */
#ifndef RUNAHEAD_DISCLOSE_H
#define RUNAHEAD_DISCLOSE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * `length` bytes from byte `offset` of the file that is open as `fd` will be read; with a `length` of 0,
 * all bytes from there to its end. What lies beyond the end does not count, nor what is more than 1 GiB
 * from `offset`: say that in several calls.
 *
 * True if that was taken, or is in memory already. False if it was not: nobody listens; it is no regular
 * file that is open without O_DIRECT, with a name, and a descriptor below 1024; nothing of it lies before
 * the end; or so much is disclosed and not read yet that no more fits. Then it can be said again later.
 */
bool runahead_disclose_fd(int fd, uint64_t offset, uint64_t length);

/*
 * The same of the file at `path`, which need not be open, nor in any way looked at: that it is looked up,
 * and opened, is disclosed as well. A relative path is seen from the working directory; symbolic links are
 * followed. The program's use of it counts as foreseen if it goes by the same name; a name of another form
 * brings the same data. What turns out to be no regular file is left alone.
 *
 * False if nobody listens, if `path` is empty, of 4096 bytes or more, or no valid address, if it lies below
 * /proc or /sys, or if too much is disclosed and not read yet.
 */
bool runahead_disclose_path(const char *path, uint64_t offset, uint64_t length);

/*
 * Takes back all that this process has disclosed. What is being read by then is read to its end; nothing
 * else of it reaches the device.
 *
 * True if somebody listens: so it also tells whether disclosing is worth while.
 */
bool runahead_cancel_all(void);

#ifdef __cplusplus
}
#endif

#endif
