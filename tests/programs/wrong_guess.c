/* Reads many cold files, each into memory that holds a name. A process that goes on without the
 * data takes the name for the data and reads that file; the program itself never does. */
#include "program_helpers.h"

int main(int argc, char **argv)
{
	static char buf[6000];
	int others = 0;
	for (int i = 0; i < 100; i++) {
		char name[20];
		snprintf(name, sizeof name, "many/%02d", i);
		int fd = open(name, O_RDONLY);
		if (fd < 0)
			break;
		strcpy(buf, argv[1 + i % (argc - 1)]);
		must(read(fd, buf, sizeof buf));
		close(fd);
		if (buf[0] != '/')
			continue;
		others++;
		if ((fd = open(buf, O_RDONLY)) >= 0)
			for (int n = 0; n < 4 && read(fd, buf, sizeof buf) > 0; n++)
				;
		close(fd);
	}
	printf("others %d\n", others);
}
