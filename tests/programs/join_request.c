/* Sends a request that begins with argv[2] to the abstract address argv[1], as an agent without
 * further knowledge would. */
#include "program_helpers.h"
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

int main(int argc, char **argv)
{
	struct sockaddr_un address = { AF_UNIX };
	size_t length = strlen(argv[1]);
	memcpy(address.sun_path + 1, argv[1], length);
	length += offsetof(struct sockaddr_un, sun_path) + 1;
	struct timeval patience = { 5, 0 };
	for (int bytes = 1; bytes <= 17; bytes += 16) {
		int fd = must(socket(AF_UNIX, SOCK_SEQPACKET, 0));
		must(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
		must(connect(fd, (void *)&address, length));
		char request[17] = { argv[2][0] }, answer = 0;
		must(send(fd, request, bytes, 0));
		ssize_t got = recv(fd, &answer, 1, 0);
		puts(got == 1 && answer == 'y' ? "granted" : "refused");
		close(fd);
	}
	return 0;
}
