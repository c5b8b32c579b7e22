/* Other processes, and those that the shadow makes. SIGURG ends no process. */
ONE(kill, SYS_kill, "bystander/ShdPnd", N(bystander), SIGURG)
ONE(kill_group, SYS_kill, "group/ShdPnd", 0, SIGURG)
ONE(kill_named_group, SYS_kill, "group/ShdPnd", -N(group), SIGURG)
ONE(kill_all, SYS_kill, "bystander/ShdPnd", -1, SIGURG)
ONE(kill_target, SYS_kill, "target/pending", target_pid, SIGURG)
/* The supervisor passes it on to the target. */
ONE(kill_parent, SYS_kill, "target/pending", getppid(), SIGUSR2)
ONE(kill_stop, SYS_kill, "bystander/State", N(bystander), SIGSTOP)
ONE(kill_dead, SYS_kill, "bystander/State", N(bystander), SIGKILL)
ONE(tkill, SYS_tkill, "bystander/SigPnd", N(bystander), SIGURG)
ONE(tgkill, SYS_tgkill, "bystander/SigPnd", N(bystander), N(bystander), SIGURG)
#define INFO ((int[32]){ SIGURG, 0, -1 /* SI_QUEUE */ })
ONE(rt_sigqueueinfo, SYS_rt_sigqueueinfo, "bystander/ShdPnd", N(bystander), SIGURG, INFO)
ONE(rt_tgsigqueueinfo, SYS_rt_tgsigqueueinfo, "bystander/SigPnd", N(bystander), N(bystander), SIGURG, INFO)
ONE(pidfd_send_signal, SYS_pidfd_send_signal, "bystander/ShdPnd", N(pidfd), SIGURG, 0, 0)
ONE(setpriority, SYS_setpriority, "bystander/nice", 0, N(bystander), 7)
ONE(ioprio_set, SYS_ioprio_set, "bystander/ioprio", 1, N(bystander), 2 << 13 | 7)
ONE(sched_setparam, SYS_sched_setparam, "group/priority", N(group), (&(int){ 2 }))
ONE(sched_setscheduler, SYS_sched_setscheduler, "bystander/policy", N(bystander),
    3 /* BATCH */, (&(int){ 0 }))
ONE(sched_setattr, SYS_sched_setattr, "bystander/policy", N(bystander),
    ((int[12]){ 48, 3 /* BATCH */ }), 0)
ONE(sched_setaffinity, SYS_sched_setaffinity, "bystander/Cpus_allowed", N(bystander), 8, (&(long){ 1 }))
ONE(prlimit64, SYS_prlimit64, "bystander/limits", N(bystander), RLIMIT_NOFILE, ((long[]){ 13, 13 }), 0)
ONE(ptrace_attach, SYS_ptrace, "bystander/TracerPid", 16 /* PTRACE_ATTACH */, N(bystander))
ONE(ptrace_seize, SYS_ptrace, "bystander/TracerPid", 0x4206 /* PTRACE_SEIZE */, N(bystander))
CASE(process_adjust_file, SYS_write, "bystander/oom")
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%ld/oom_score_adj", N(bystander));
	int fd = T(SYS_openat2, AT_FDCWD, path, OPEN_HOW(O_WRONLY, 0));
	return FAILED(fd) ? fd : T(SYS_write, fd, "500", 3);
}
/* Processes. */
ONE(fork, SYS_fork, "processes")
ONE(vfork, SYS_vfork, "processes")
ONE(clone, SYS_clone, "processes", SIGCHLD)
ONE(clone3, SYS_clone3, "processes", ((long[11]){ [4] = SIGCHLD }), 64)
#define SHELL ((char *[]){ "sh", "-c", ": >made", 0 }), ((char *[]){ 0 })
ONE(execve, SYS_execve, "tree/made", "/bin/sh", SHELL)
ONE(execveat, SYS_execveat, "tree/made", AT_FDCWD, "/bin/sh", SHELL, 0)
/* Effects on the shadow itself, which only the suite can see. If the target shared this by mistake,
 * it would show here. */
ONE(setuid, SYS_setuid, "shadow/Uid", 1234)
ONE(setreuid, SYS_setreuid, "shadow/Uid", 1234, 1234)
ONE(setresuid, SYS_setresuid, "shadow/Uid", 1234, 1234, 1234)
ONE(setfsuid, SYS_setfsuid, "shadow/Uid", 1234)
ONE(setgid, SYS_setgid, "shadow/Gid", 1234)
ONE(setregid, SYS_setregid, "shadow/Gid", 1234, 1234)
ONE(setresgid, SYS_setresgid, "shadow/Gid", 1234, 1234, 1234)
ONE(setfsgid, SYS_setfsgid, "shadow/Gid", 1234)
ONE(setgroups, SYS_setgroups, "shadow/Groups", 1, (&(int){ 1234 }))
ONE(capset, SYS_capset, "shadow/CapEff", ((int[]){ 0x20080522, 0 }), ((int[6]){ 0 }))
ONE(setpgid, SYS_setpgid, "shadow/pgrp", 0, 0)
ONE(setsid, SYS_setsid, "shadow/session")
ONE(umask, SYS_umask, "shadow/Umask", 0123)
LEAK(chdir, SYS_chdir, "shadow/cwd", 0, "a shadow lets go of its working directory when the target wants it to")
{
	return T(SYS_chdir, "dir");
}
ONE(fchdir, SYS_fchdir, "shadow/cwd", N(elsewhere))
ONE(chroot, SYS_chroot, "shadow/root", "dir")
CASE(pivot_root, SYS_pivot_root, "shadow/root")
{
	T(SYS_unshare, CLONE_NEWNS);
	return T(SYS_pivot_root, "mnt", "mnt/old");
}
ONE(unshare, SYS_unshare, "shadow/ns:uts", CLONE_NEWUTS)
ONE(unshare_user, SYS_unshare, "shadow/ns:user", CLONE_NEWUSER)
ONE(setns, SYS_setns, "shadow/ns:uts", N(namespace), CLONE_NEWUTS)
ONE(setrlimit, SYS_setrlimit, "shadow/limits", RLIMIT_NOFILE, ((long[]){ 500, 500 }))
ONE(personality, SYS_personality, "shadow/personality", 0x0040000)
ONE(prctl_name, SYS_prctl, "shadow/Name", PR_SET_NAME, "other")
ONE(prctl_bounding, SYS_prctl, "shadow/CapBnd", PR_CAPBSET_DROP, 3)
ONE(prctl_privileges, SYS_prctl, "shadow/NoNewPrivs", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
ONE(mlock, SYS_mlock, "shadow/VmLck", (long)buffer & -4096, 4096)
ONE(mlock2, SYS_mlock2, "shadow/VmLck", (long)buffer & -4096, 4096, 0)
ONE(mlockall, SYS_mlockall, "shadow/VmLck", 1)
ONE(timer_create, SYS_timer_create, "shadow/timers", 1, 0, buffer)
ONE(setitimer, SYS_setitimer, "shadow/ShdPnd", 0, ((long[]){ 0, 0, 0, 1 }), 0)
/* A filter that allows everything. */
ONE(seccomp, SYS_seccomp, "shadow/Seccomp", 1, 0, ((long[]){ 1, (long)(long[]){ 0x7fff000000000006 } }))
