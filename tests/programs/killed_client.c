/* The client of examples/speculate, whose lines go out one by one: to standard output, and to a
 * file (KILLED_FILE). With KILLED_LETS_OUT they go out before the outcome is known: a violation
 * that the test must find. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int file;

static int said(const char *format, ...)
{
	char line[128];
	va_list values;
	va_start(values, format);
	int length = vsnprintf(line, sizeof line, format, values);
	va_end(values);
	/* The reader may have ended; the file has the lines. */
	if (write(file, line, length) != length || write(1, line, length) != length)
		exit(3);
	return length;
}

#define printf said
#define main client
#include "../../examples/speculate/client.c"
#undef main
#undef printf

int main(int argc, char **argv)
{
	const char *name = getenv("KILLED_FILE");
	file = name ? open(name, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600) : -1;
	if (file < 0)
		die("KILLED_FILE");
	if (getenv("KILLED_LETS_OUT")) {
		runahead_spec_set_policy(file, RUNAHEAD_ALLOW);
		runahead_spec_set_policy(1, RUNAHEAD_ALLOW);
	}
	return client(argc, argv);
}
