/* Prints the signals that it gets. "all" ends with SIGRTMAX; "group" and "broadcast" send one
 * themselves, and count. */
#include "program_helpers.h"

static volatile sig_atomic_t caught;

static void report(int signal, siginfo_t *info, void *context)
{
	char line[64];
	int value = info->si_code == SI_QUEUE ? info->si_value.sival_int : -1;
	caught++;
	int length = snprintf(line, sizeof line, "got %d %d\n", signal, value);
	if (write(1, line, length) != length || signal == SIGRTMAX)
		_exit(0);
}

int main(int argc, char **argv)
{
	struct sigaction a = { .sa_sigaction = report, .sa_flags = SA_SIGINFO | SA_RESTART };
	const char *what = argv[1];
	int quiet = strcmp(what, "quiet") == 0;
	for (int signal = 1; signal <= SIGRTMAX && !quiet; signal++)
		if (signal != SIGKILL && signal != SIGSTOP && signal != 32 && signal != 33)
			must(sigaction(signal, &a, 0));
	if (write(1, "ready\n", 6) != 6)
		return 1;
	if (strcmp(what, "group") == 0 || strcmp(what, "broadcast") == 0) {
		kill(what[0] == 'g' ? 0 : -1, SIGTERM);
		for (int n = 0; n < 30; n++)
			usleep(10000);
		printf("caught %d\n", caught);
		return 0;
	}
	for (;;)
		pause();
}
