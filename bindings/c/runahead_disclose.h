/*
 * Tells runahead which parts of which files this program will read, so that they are in memory
 * when it gets there.
 *
 * A disclosure changes nothing but what is in memory, and when; errno stays as it is. Any
 * argument is safe: what makes no sense is not taken. Each function returns whether the
 * disclosure was taken; a program need not look. No function waits for storage. Under runahead
 * each waits up to 5 ms, once in a row, until the supervisor takes earlier disclosures out of the
 * queue. All functions can be called from any thread, and from signal handlers.
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
 * Discloses that `length` bytes from byte `offset` of the file that is open as `fd` will be read;
 * with a `length` of 0, all bytes from there to its end. What lies beyond the end does not count,
 * nor what is more than 1 GiB from `offset`: disclose that in several calls.
 *
 * True if the disclosure was taken, or the data is in memory already. False in these cases:
 * - no runahead listens;
 * - the file is not regular, is open with O_DIRECT, or has no name; or the descriptor is above
 *   1023;
 * - no part of the range lies before the end;
 * - so much is disclosed and not read yet that no more fits. Then disclose it again later.
 */
bool runahead_disclose_fd(int fd, uint64_t offset, uint64_t length);

/*
 * Discloses the same for the file at `path`, which need not be open, and also that the program
 * will look it up and open it. A relative path is relative to the working directory; symbolic
 * links are followed. The program's use of the file counts as foreseen if it uses the same name;
 * a name of another form brings the same data. A file that turns out not to be regular is left
 * alone.
 *
 * False if no runahead listens, if `path` is empty, has 4096 bytes or more, is no valid address,
 * or lies below /proc or /sys, or if too much is disclosed and not read yet.
 */
bool runahead_disclose_path(const char *path, uint64_t offset, uint64_t length);

/*
 * Cancels all that this process has disclosed. A read that is in progress by then continues to
 * its end; nothing else of it reaches the device.
 *
 * True if runahead listens, that is, if disclosing is worth while.
 */
bool runahead_cancel_all(void);

#ifdef __cplusplus
}
#endif

#endif
