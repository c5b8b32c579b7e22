/* Stalls often; each signal is noted in a file with the process that its handler runs in. */
#include "program_helpers.h"

static char path[4096];

static void note(int s)
{
	char line[32];
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT, 0644);
	int len = snprintf(line, sizeof line, "%d\n", getpid());
	if (write(fd, line, len) != len)
		_exit(1);
	close(fd);
}

int main(void)
{
	snprintf(path, sizeof path, "%s/log", getenv("W"));
	struct sigaction a = { .sa_handler = note, .sa_flags = SA_RESTART };
	must(sigaction(SIGURG, &a, 0));
	for (int i = 0; i < 64; i++)
		stall_on(i * 29 % 64, 1);
	char buf[64], name[32];
	for (int i = 0; i < 100; i++) {
		/* Each offset depends on the data before it, so that shadows stray and are made anew. */
		int fd = must(open("big", O_RDONLY));
		posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
		static unsigned at;
		must(pread(fd, buf, 64, at % (3 << 20)));
		at = at * 31 + sum(buf, 64);
		snprintf(name, sizeof name, "many/%02d", at % 64);
		close(fd);
	}
	return 0;
}
