//! The treatment of each system call in a try (`docs/guide/try.md`). Both the agent and the seccomp
//! filter are made from this table.
//!
//! A call that is not in it is refused: it may change files and be younger than the table.

/// Treatment of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Made unchanged. It names no file, and changes one only by a descriptor that was opened for
    /// that, or changes nothing that outlives the command.
    Free,
    /// Handled by the agent: it names a file, or returns names or inode numbers.
    Name,
    /// Handled by the agent as [`Class::Name`]: it changes a file's metadata, which Landlock does
    /// not deny, or has an effect that only its memory shows. The kernel refuses it without the
    /// token ([`super::Overlay::token`]).
    WithToken,
    /// Made unchanged, except for some commands that the kernel refuses.
    Commands,
    /// Made unchanged, except for some commands that the agent answers.
    Answered,
    /// Allowed for the agent only, by the token ([`super::Overlay::token`]). It takes rights away
    /// from the process, which might be some that the agent needs: others get ENOSYS.
    AgentOnly,
    /// Refused by the kernel with this errno.
    Refused(u16),
}

use Class::{AgentOnly, Answered, Commands, Free, Name, Refused, WithToken};

const EPERM: u16 = 1;
const ENOSYS: u16 = 38;
const EOPNOTSUPP: u16 = 95;

/// Number, name and class of every call of x86-64 (Linux 6.18,
/// arch/x86/entry/syscalls/syscall_64.tbl), by number.
#[rustfmt::skip]
pub const CALLS: &[(u16, &str, Class)] = &[
    (0, "read", Free), (1, "write", Free), (2, "open", Name), (3, "close", Free), (4, "stat", Name), (5, "fstat", Name),
    (6, "lstat", Name), (7, "poll", Free), (8, "lseek", Free), (9, "mmap", Free), (10, "mprotect", Free),
    (11, "munmap", Free), (12, "brk", Free), (13, "rt_sigaction", Free), (14, "rt_sigprocmask", Free),
    (15, "rt_sigreturn", Free), (16, "ioctl", Commands), (17, "pread64", Free), (18, "pwrite64", Free), (19, "readv", Free),
    (20, "writev", Free), (21, "access", Name), (22, "pipe", Free), (23, "select", Free), (24, "sched_yield", Free),
    (25, "mremap", Free), (26, "msync", Free), (27, "mincore", Free), (28, "madvise", Free), (29, "shmget", Free),
    (30, "shmat", Free), (31, "shmctl", Free), (32, "dup", Free), (33, "dup2", Free), (34, "pause", Free),
    (35, "nanosleep", Free), (36, "getitimer", Free), (37, "alarm", Free), (38, "setitimer", Free),
    (39, "getpid", Free), (40, "sendfile", Free), (41, "socket", Commands), (42, "connect", Name), (43, "accept", Free),
    (44, "sendto", Name), (45, "recvfrom", Free), (46, "sendmsg", Name), (47, "recvmsg", Free), (48, "shutdown", Free),
    (49, "bind", Name), (50, "listen", Free), (51, "getsockname", Free), (52, "getpeername", Free),
    (53, "socketpair", Free), (54, "setsockopt", Free), (55, "getsockopt", Free), (56, "clone", Commands),
    (57, "fork", Free), (58, "vfork", Free), (59, "execve", Name), (60, "exit", Free), (61, "wait4", Free),
    (62, "kill", Free), (63, "uname", Free), (64, "semget", Free), (65, "semop", Free), (66, "semctl", Free),
    (67, "shmdt", Free), (68, "msgget", Free), (69, "msgsnd", Free), (70, "msgrcv", Free), (71, "msgctl", Free),
    (72, "fcntl", Free), (73, "flock", Free), (74, "fsync", Free), (75, "fdatasync", Free), (76, "truncate", Name),
    (77, "ftruncate", Free), (78, "getdents", Name), (79, "getcwd", Name), (80, "chdir", Name), (81, "fchdir", Free),
    (82, "rename", Name), (83, "mkdir", Name), (84, "rmdir", Name), (85, "creat", Name), (86, "link", Name),
    (87, "unlink", Name), (88, "symlink", Name), (89, "readlink", Name), (90, "chmod", WithToken),
    (91, "fchmod", WithToken), (92, "chown", WithToken), (93, "fchown", WithToken), (94, "lchown", WithToken),
    (95, "umask", Free), (96, "gettimeofday", Free), (97, "getrlimit", Free), (98, "getrusage", Free),
    (99, "sysinfo", Free), (100, "times", Free), (101, "ptrace", Free), (102, "getuid", Free), (103, "syslog", Commands),
    (104, "getgid", Free), (105, "setuid", Free), (106, "setgid", Free), (107, "geteuid", Free), (108, "getegid", Free),
    (109, "setpgid", Free), (110, "getppid", Free), (111, "getpgrp", Free), (112, "setsid", Free),
    (113, "setreuid", Free), (114, "setregid", Free), (115, "getgroups", Free), (116, "setgroups", Free),
    (117, "setresuid", Free), (118, "getresuid", Free), (119, "setresgid", Free), (120, "getresgid", Free),
    (121, "getpgid", Free), (122, "setfsuid", Free), (123, "setfsgid", Free), (124, "getsid", Free),
    (125, "capget", Free), (126, "capset", Free), (127, "rt_sigpending", Free), (128, "rt_sigtimedwait", Free),
    (129, "rt_sigqueueinfo", Free), (130, "rt_sigsuspend", Free), (131, "sigaltstack", Free), (132, "utime", WithToken),
    (133, "mknod", Name), (134, "uselib", Refused(ENOSYS)), (135, "personality", Free), (136, "ustat", Free),
    (137, "statfs", Name), (138, "fstatfs", Free), (139, "sysfs", Free), (140, "getpriority", Free),
    (141, "setpriority", Free), (142, "sched_setparam", Free), (143, "sched_getparam", Free),
    (144, "sched_setscheduler", Free), (145, "sched_getscheduler", Free), (146, "sched_get_priority_max", Free),
    (147, "sched_get_priority_min", Free), (148, "sched_rr_get_interval", Free), (149, "mlock", Free),
    (150, "munlock", Free), (151, "mlockall", Free), (152, "munlockall", Free), (153, "vhangup", Refused(EPERM)),
    (154, "modify_ldt", Free), (155, "pivot_root", Refused(EPERM)), (156, "_sysctl", Refused(ENOSYS)),
    (157, "prctl", Answered), (158, "arch_prctl", Free), (159, "adjtimex", WithToken), (160, "setrlimit", Free),
    (161, "chroot", Refused(EPERM)), (162, "sync", Free), (163, "acct", Refused(EPERM)),
    (164, "settimeofday", Refused(EPERM)), (165, "mount", Refused(EPERM)), (166, "umount2", Refused(EPERM)),
    (167, "swapon", Refused(EPERM)), (168, "swapoff", Refused(EPERM)), (169, "reboot", Refused(EPERM)),
    (170, "sethostname", Refused(EPERM)), (171, "setdomainname", Refused(EPERM)), (172, "iopl", Refused(EPERM)),
    (173, "ioperm", Refused(EPERM)), (174, "create_module", Refused(ENOSYS)), (175, "init_module", Refused(EPERM)),
    (176, "delete_module", Refused(EPERM)), (177, "get_kernel_syms", Refused(ENOSYS)),
    (178, "query_module", Refused(ENOSYS)), (179, "quotactl", Refused(EPERM)), (180, "nfsservctl", Refused(ENOSYS)),
    (181, "getpmsg", Refused(ENOSYS)), (182, "putpmsg", Refused(ENOSYS)), (183, "afs_syscall", Refused(ENOSYS)),
    (184, "tuxcall", Refused(ENOSYS)), (185, "security", Refused(ENOSYS)), (186, "gettid", Free),
    (187, "readahead", Free), (188, "setxattr", WithToken), (189, "lsetxattr", WithToken),
    (190, "fsetxattr", WithToken), (191, "getxattr", Name), (192, "lgetxattr", Name), (193, "fgetxattr", Free),
    (194, "listxattr", Name), (195, "llistxattr", Name), (196, "flistxattr", Free), (197, "removexattr", WithToken),
    (198, "lremovexattr", WithToken), (199, "fremovexattr", WithToken), (200, "tkill", Free), (201, "time", Free),
    (202, "futex", Free), (203, "sched_setaffinity", Free), (204, "sched_getaffinity", Free),
    (205, "set_thread_area", Free), (206, "io_setup", Free), (207, "io_destroy", Free), (208, "io_getevents", Free),
    (209, "io_submit", Free), (210, "io_cancel", Free), (211, "get_thread_area", Free),
    (212, "lookup_dcookie", Refused(ENOSYS)), (213, "epoll_create", Free), (214, "epoll_ctl_old", Refused(ENOSYS)),
    (215, "epoll_wait_old", Refused(ENOSYS)), (216, "remap_file_pages", Free), (217, "getdents64", Name),
    (218, "set_tid_address", Free), (219, "restart_syscall", Free), (220, "semtimedop", Free), (221, "fadvise64", Free),
    (222, "timer_create", Free), (223, "timer_settime", Free), (224, "timer_gettime", Free),
    (225, "timer_getoverrun", Free), (226, "timer_delete", Free), (227, "clock_settime", Refused(EPERM)),
    (228, "clock_gettime", Free), (229, "clock_getres", Free), (230, "clock_nanosleep", Free),
    (231, "exit_group", Free), (232, "epoll_wait", Free), (233, "epoll_ctl", Free), (234, "tgkill", Free),
    (235, "utimes", WithToken), (236, "vserver", Refused(ENOSYS)), (237, "mbind", Free), (238, "set_mempolicy", Free),
    (239, "get_mempolicy", Free), (240, "mq_open", Free), (241, "mq_unlink", Free), (242, "mq_timedsend", Free),
    (243, "mq_timedreceive", Free), (244, "mq_notify", Free), (245, "mq_getsetattr", Free),
    (246, "kexec_load", Refused(EPERM)), (247, "waitid", Free), (248, "add_key", Free), (249, "request_key", Free),
    (250, "keyctl", Free), (251, "ioprio_set", Free), (252, "ioprio_get", Free), (253, "inotify_init", Free),
    (254, "inotify_add_watch", Name), (255, "inotify_rm_watch", Free), (256, "migrate_pages", Free),
    (257, "openat", Name), (258, "mkdirat", Name), (259, "mknodat", Name), (260, "fchownat", WithToken),
    (261, "futimesat", WithToken), (262, "newfstatat", Name), (263, "unlinkat", Name), (264, "renameat", Name),
    (265, "linkat", Name), (266, "symlinkat", Name), (267, "readlinkat", Name), (268, "fchmodat", WithToken),
    (269, "faccessat", Name), (270, "pselect6", Free), (271, "ppoll", Free), (272, "unshare", Refused(EPERM)),
    (273, "set_robust_list", Free), (274, "get_robust_list", Free), (275, "splice", Free), (276, "tee", Free),
    (277, "sync_file_range", Free), (278, "vmsplice", Free), (279, "move_pages", Free), (280, "utimensat", WithToken),
    (281, "epoll_pwait", Free), (282, "signalfd", Free), (283, "timerfd_create", Free), (284, "eventfd", Free),
    (285, "fallocate", Free), (286, "timerfd_settime", Free), (287, "timerfd_gettime", Free), (288, "accept4", Free),
    (289, "signalfd4", Free), (290, "eventfd2", Free), (291, "epoll_create1", Free), (292, "dup3", Free),
    (293, "pipe2", Free), (294, "inotify_init1", Free), (295, "preadv", Free), (296, "pwritev", Free),
    (297, "rt_tgsigqueueinfo", Free), (298, "perf_event_open", Free), (299, "recvmmsg", Free),
    (300, "fanotify_init", Refused(EPERM)), (301, "fanotify_mark", Refused(EPERM)), (302, "prlimit64", Free),
    (303, "name_to_handle_at", Refused(EOPNOTSUPP)), (304, "open_by_handle_at", Refused(EPERM)),
    (305, "clock_adjtime", WithToken), (306, "syncfs", Free), (307, "sendmmsg", Free), (308, "setns", Refused(EPERM)),
    (309, "getcpu", Free), (310, "process_vm_readv", Free), (311, "process_vm_writev", Free), (312, "kcmp", Free),
    (313, "finit_module", Refused(EPERM)), (314, "sched_setattr", Free), (315, "sched_getattr", Free),
    (316, "renameat2", Name), (317, "seccomp", Answered), (318, "getrandom", Free), (319, "memfd_create", Free),
    (320, "kexec_file_load", Refused(EPERM)), (321, "bpf", Refused(EPERM)), (322, "execveat", Name),
    (323, "userfaultfd", Free), (324, "membarrier", Free), (325, "mlock2", Free), (326, "copy_file_range", Free),
    (327, "preadv2", Free), (328, "pwritev2", Free), (329, "pkey_mprotect", Free), (330, "pkey_alloc", Free),
    (331, "pkey_free", Free), (332, "statx", Name), (333, "io_pgetevents", Free), (334, "rseq", Free),
    (335, "uretprobe", Refused(ENOSYS)), (424, "pidfd_send_signal", Free), (425, "io_uring_setup", Refused(ENOSYS)),
    (426, "io_uring_enter", Refused(ENOSYS)), (427, "io_uring_register", Refused(ENOSYS)),
    (428, "open_tree", Refused(EPERM)), (429, "move_mount", Refused(EPERM)), (430, "fsopen", Refused(EPERM)),
    (431, "fsconfig", Refused(EPERM)), (432, "fsmount", Refused(EPERM)), (433, "fspick", Refused(EPERM)),
    (434, "pidfd_open", Free), (435, "clone3", Refused(ENOSYS)), (436, "close_range", Free), (437, "openat2", Name),
    (438, "pidfd_getfd", Free), (439, "faccessat2", Name), (440, "process_madvise", Free), (441, "epoll_pwait2", Free),
    (442, "mount_setattr", Refused(EPERM)), (443, "quotactl_fd", Refused(EPERM)),
    (444, "landlock_create_ruleset", AgentOnly), (445, "landlock_add_rule", AgentOnly),
    (446, "landlock_restrict_self", AgentOnly), (447, "memfd_secret", Free), (448, "process_mrelease", Free),
    (449, "futex_waitv", Free), (450, "set_mempolicy_home_node", Free), (451, "cachestat", Free),
    (452, "fchmodat2", WithToken), (453, "map_shadow_stack", Free), (454, "futex_wake", Free),
    (455, "futex_wait", Free), (456, "futex_requeue", Free), (457, "statmount", Free), (458, "listmount", Free),
    (459, "lsm_get_self_attr", Free), (460, "lsm_set_self_attr", Free), (461, "lsm_list_modules", Free),
    (462, "mseal", Free), (463, "setxattrat", Refused(ENOSYS)), (464, "getxattrat", Refused(ENOSYS)),
    (465, "listxattrat", Refused(ENOSYS)), (466, "removexattrat", Refused(ENOSYS)),
    (467, "open_tree_attr", Refused(EPERM)), (468, "file_getattr", Refused(ENOSYS)),
    (469, "file_setattr", Refused(ENOSYS)),
];

/// Number of calls that the agent sees.
const SEEN: usize = {
    let (mut count, mut at) = (0, 0);
    while at < CALLS.len() {
        count += is_seen(CALLS[at].2) as usize;
        at += 1;
    }
    count
};

const fn is_seen(class: Class) -> bool {
    matches!(class, Name | WithToken | Answered)
}

/// Numbers of the calls that the agent sees.
pub const SEEN_CALLS: [u64; SEEN] = {
    let (mut seen, mut count, mut at) = ([0; SEEN], 0, 0);
    while at < CALLS.len() {
        if is_seen(CALLS[at].2) {
            seen[count] = CALLS[at].0 as u64;
            count += 1;
        }
        at += 1;
    }
    seen
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_each_call_once_in_order() {
        assert!(CALLS.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!(CALLS.len(), 382);
    }

    #[test]
    fn calls_that_change_names_are_seen() {
        for name in
            ["open", "openat2", "rename", "unlinkat", "mkdir", "chmod", "utimensat", "execve"]
        {
            let (number, _, class) = CALLS.iter().find(|call| call.1 == name).unwrap();
            assert!(SEEN_CALLS.contains(&u64::from(*number)), "{name} is {class:?}");
        }
    }
}
