/* A file beyond two gigabytes, and one descriptor that other code has replaced. */
#include "program_helpers.h"

int main(void)
{
	char buf[100];
	int fd = open("huge", O_RDONLY);
	printf("open: %s\n", fd < 0 ? strerrorname_np(errno) : "ok");
	show(pread(fd, buf, 100, 3L << 30));
	printf("%.*s\n", 4, buf);
	show(lseek(fd, 0, SEEK_END));
	show(lseek(fd, (3L << 30) - 2, SEEK_SET));
	show(read(fd, buf, 100));
	return 0;
}
