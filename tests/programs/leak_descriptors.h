/* Inherited descriptors that other processes share, and new ones. */
ONE(write_pipe, SYS_write, "fd/pipe_in:unread", N(pipe_in), "leak", 4)
ONE(writev_pipe, SYS_writev, "fd/pipe_in:unread", N(pipe_in), (&(struct iovec){ "leak", 4 }), 1)
ONE(read_pipe, SYS_read, "fd/pipe_out:unread", N(pipe_out), buffer, 4)
ONE(readv_pipe, SYS_readv, "fd/pipe_out:unread", N(pipe_out), (&(struct iovec){ buffer, 4 }), 1)
ONE(preadv2_pipe, SYS_preadv2, "fd/pipe_out:unread", N(pipe_out), (&(struct iovec){ buffer, 4 }), 1, -1, -1, 0)
ONE(pwritev2_pipe, SYS_pwritev2, "fd/pipe_in:unread", N(pipe_in), (&(struct iovec){ "leak", 4 }), 1, -1, -1, 0)
ONE(sendfile_pipe, SYS_sendfile, "fd/pipe_in:unread", N(pipe_in), N(file), (&(long){ 0 }), 8)
ONE(splice_file, SYS_splice, "fd/pipe_in:unread", N(file), (&(long){ 0 }), N(pipe_in), 0, 8, 0)
ONE(splice_pipes, SYS_splice, "fd/pipe_out:unread", N(pipe_out), 0, N(pipe_in), 0, 4, 0)
ONE(tee, SYS_tee, "fd/pipe_in:unread", N(pipe_out), N(pipe_in), 4, 0)
ONE(vmsplice, SYS_vmsplice, "fd/pipe_in:unread", N(pipe_in), (&(struct iovec){ "leak", 4 }), 1, 0)
ONE(write_event, SYS_write, "fd/event:info", N(event), (&(long){ 5 }), 8)
ONE(read_event, SYS_read, "fd/event:info", N(event), buffer, 8)
ONE(fcntl_flags, SYS_fcntl, "fd/pipe_in:info", N(pipe_in), F_SETFL, O_NONBLOCK | O_WRONLY)
ONE(fcntl_owner, SYS_fcntl, "fd/sock:owner", N(sock), F_SETOWN, N(bystander))
ONE(fcntl_signal, SYS_fcntl, "fd/sock:signal", N(sock), F_SETSIG, SIGURG)
ONE(fcntl_pipe_size, SYS_fcntl, "fd/pipe_in:size", N(pipe_in), F_SETPIPE_SZ, 1 << 17)
ONE(fcntl_seal, SYS_fcntl, "fd/memfd:seals", N(memfd), 1033 /* F_ADD_SEALS */, 4 /* F_SEAL_GROW */)
ONE(ioctl_nonblocking, SYS_ioctl, "fd/pipe_in:info", N(pipe_in), FIONBIO, (&(int){ 1 }))
ONE(timerfd_settime, SYS_timerfd_settime, "fd/timer:info", N(timer), 0, ((long[]){ 0, 0, 1000, 0 }), 0)
ONE(signalfd4, SYS_signalfd4, "fd/signal:info", N(signal), (&(long){ 1 << 9 }), 8, 0)
ONE(signalfd, SYS_signalfd, "fd/signal:info", N(signal), (&(long){ 1 << 9 }), 8)
#define EVENT ((int[]){ 1 /* EPOLLIN */, 7, 0 })
ONE(epoll_ctl, SYS_epoll_ctl, "fd/epoll:info", N(epoll), 1 /* ADD */, N(pipe_out), EVENT)
ONE(epoll_wait, SYS_epoll_wait, "fd/epoll:info", N(epoll), buffer, 4, 0)
ONE(epoll_pwait, SYS_epoll_pwait, "fd/epoll:info", N(epoll), buffer, 4, 0, 0, 8)
ONE(epoll_pwait2, SYS_epoll_pwait2, "fd/epoll:info", N(epoll), buffer, 4, ((long[]){ 0, 0 }), 0, 8)
ONE(inotify_add_watch, SYS_inotify_add_watch, "fd/inotify:info", N(inotify), "dir", 0x20)
ONE(inotify_rm_watch, SYS_inotify_rm_watch, "fd/inotify:info", N(inotify), 1)
ONE(fanotify_mark, SYS_fanotify_mark, "fd/fanotify:info", N(fanotify), 1, 0x20, AT_FDCWD, "dir")
ONE(io_uring_enter, SYS_io_uring_enter, "fd/ring:completed", N(ring), 1, 0, 0, 0, 0)
ONE(io_uring_register, SYS_io_uring_register, "fd/ring:info", N(ring),
    2 /* FILES */, (&(int){ N(file) }), 1)
/* Sockets. */
#define UNIX(PATH) (&(struct sockaddr_un){ AF_UNIX, PATH }), sizeof(struct sockaddr_un)
/* Port 7777 of 127.0.0.1. */
#define INET ((unsigned short[8]){ AF_INET, 0x611e, 0x007f, 0x0100 }), 16
#define MESSAGE(NAME, LEN) { NAME, LEN, &(struct iovec){ "leak", 4 }, 1 }
ONE(write_socket, SYS_write, "fd/sock:sent", N(sock), "leak", 4)
ONE(sendto, SYS_sendto, "fd/sock:sent", N(sock), "leak", 4, 0, 0, 0)
ONE(sendto_name, SYS_sendto, "net/receiver:unread", N(datagrams), "leak", 4, 0, UNIX("receiver"))
ONE(sendmsg, SYS_sendmsg, "fd/sock:sent", N(sock), (&(struct msghdr)MESSAGE(0, 0)), 0)
ONE(sendmmsg, SYS_sendmmsg, "fd/sock:sent", N(sock), (&(struct mmsghdr){ MESSAGE(0, 0) }), 1, 0)
ONE(recvfrom, SYS_recvfrom, "fd/sock:unread", N(sock), buffer, 2, 0, 0, 0)
#define ROOM { 0, 0, &(struct iovec){ buffer, 2 }, 1 }
ONE(recvmsg, SYS_recvmsg, "fd/sock:unread", N(sock), (&(struct msghdr)ROOM), 0)
ONE(recvmmsg, SYS_recvmmsg, "fd/sock:unread", N(sock), (&(struct mmsghdr){ ROOM }), 1, 0, 0)
ONE(read_socket, SYS_read, "fd/sock:unread", N(sock), buffer, 2)
ONE(shutdown, SYS_shutdown, "fd/sock:hung", N(sock), 1)
ONE(setsockopt, SYS_setsockopt, "fd/sock:passcred", N(sock), SOL_SOCKET, SO_PASSCRED, (&(int){ 1 }), 4)
ONE(connect_unix, SYS_connect, "net/listener:waiting", N(stream), UNIX("listener"))
ONE(connect_inet, SYS_connect, "net/port:waiting", N(inet), INET)
ONE(bind_unix, SYS_bind, "tree/made", N(stream), UNIX("made"))
ONE(bind_inet, SYS_bind, "fd/inet:name", N(inet), ((unsigned short[8]){ AF_INET, 0x621e, 0x007f, 0x0100 }), 16)
ONE(listen, SYS_listen, "fd/bound:listening", N(bound), 5)
ONE(accept, SYS_accept, "fd/waiting:waiting", N(waiting), 0, 0)
ONE(accept4, SYS_accept4, "fd/waiting:waiting", N(waiting), 0, 0, SOCK_CLOEXEC)
#define IFREQ(FIELD) ((char[40]){ 'l', 'o', [16] = 0x00, [17] = 0x20 })
ONE(ioctl_network, SYS_ioctl, "net/lo", N(inet), 0x8922 /* SIOCSIFMTU */, IFREQ())
/* A terminal. */
ONE(write_terminal, SYS_write, "fd/tty:output", N(tty), "leak", 4)
ONE(ioctl_attributes, SYS_ioctl, "fd/tty:attributes", N(tty),
    0x5402 /* TCSETS */, ((char[64]){ 0 }))
ONE(ioctl_input, SYS_ioctl, "fd/tty:unread", N(tty), 0x5412 /* TIOCSTI */, "\n")
ONE(ioctl_size, SYS_ioctl, "fd/tty:window", N(tty),
    0x5414 /* TIOCSWINSZ */, ((short[]){ 7, 7, 7, 7 }))
ONE(ioctl_exclusive, SYS_ioctl, "fd/tty:exclusive", N(tty), 0x540c /* TIOCEXCL */)
ONE(ioctl_flush, SYS_ioctl, "fd/tty:unread", N(tty), 0x540b /* TCFLSH */, 0)
CASE(ioctl_controlling, SYS_ioctl, "fd/tty:session")
{
	T(SYS_setsid);
	return T(SYS_ioctl, N(tty), 0x540e /* TIOCSCTTY */, 1);
}
CASE(open_controlling, SYS_openat2, "fd/tty:session")
{
	T(SYS_setsid);
	return T(SYS_openat2, AT_FDCWD, text("pts"), OPEN_HOW(O_RDONLY, 0));
}
CASE(vhangup, SYS_vhangup, "fd/tty:hung")
{
	T(SYS_setsid);
	T(SYS_ioctl, N(tty), 0x540e /* TIOCSCTTY */, 1);
	return T(SYS_vhangup);
}
/* New descriptors, by which a shadow would hold, or be told of, what is none of its business. */
ONE(socket, SYS_socket, "shadow/fd", AF_INET, SOCK_DGRAM, 0)
ONE(socketpair, SYS_socketpair, "shadow/fd", AF_UNIX, SOCK_STREAM, 0, buffer)
ONE(pipe, SYS_pipe, "shadow/fd", buffer)
ONE(pipe2, SYS_pipe2, "shadow/fd", buffer, O_CLOEXEC)
ONE(epoll_create, SYS_epoll_create, "shadow/fd", 5)
ONE(epoll_create1, SYS_epoll_create1, "shadow/fd", 0)
ONE(eventfd, SYS_eventfd, "shadow/fd", 0)
ONE(eventfd2, SYS_eventfd2, "shadow/fd", 0, 0)
ONE(signalfd4_new, SYS_signalfd4, "shadow/fd", -1, (&(long){ 1 << 9 }), 8, 0)
ONE(timerfd_create, SYS_timerfd_create, "shadow/fd", 1, 0)
ONE(inotify_init, SYS_inotify_init, "shadow/fd")
ONE(inotify_init1, SYS_inotify_init1, "shadow/fd", 0)
ONE(fanotify_init, SYS_fanotify_init, "shadow/fd", 0, 0)
ONE(memfd_create, SYS_memfd_create, "shadow/fd", "leak", 0)
ONE(memfd_secret, SYS_memfd_secret, "shadow/fd", 0)
ONE(userfaultfd, SYS_userfaultfd, "shadow/fd", 1 /* UFFD_USER_MODE_ONLY */)
ONE(perf_event_open, SYS_perf_event_open, "shadow/fd", ((int[32]){ 1, 128 }), 0, -1, -1, 0)
ONE(io_uring_setup, SYS_io_uring_setup, "shadow/fd", 4, ((char[120]){ 0 }))
ONE(pidfd_open, SYS_pidfd_open, "shadow/fd", N(bystander), 0)
ONE(pidfd_getfd, SYS_pidfd_getfd, "shadow/fd", N(pidfd), N(its_pipe), 0)
ONE(landlock_create_ruleset, SYS_landlock_create_ruleset, "shadow/fd", (&(long){ 2 }), 8, 0)
