//! Commands of ioctl(2) that a try may use: they read, or change terminals, descriptors, memory of
//! the process and files that are open for writing.
//!
//! All others fail with ENOTTY, as a command that the kernel does not know. Among those are all
//! that change a file system by way of a descriptor for reading, that type for the user, or that
//! drive a device.

/// Numbers of the commands (asm-generic/ioctls.h, linux/fs.h, linux/sockios.h), most used last: the
/// filter compares from the end.
#[rustfmt::skip]
pub(crate) const ALLOWED: &[u32] = &[
    // Performance events: on, off, refresh, reset, output; period, filter, number, pause.
    0x2400, 0x2401, 0x2402, 0x2403, 0x2405, 0x4008_2404, 0x4008_2406, 0x8008_2407, 0x4004_2409,
    // Page faults of this process (userfaultfd(2)).
    0xc018_aa3f, 0xc020_aa00, 0x8010_aa01, 0x8010_aa02, 0xc028_aa03, 0xc020_aa04, 0xc028_aa05, 0xc018_aa06, 0xc020_aa07,
    0xc020_aa08,
    // Namespaces: NS_GET_USERNS, NS_GET_PARENT, NS_GET_NSTYPE, NS_GET_OWNER_UID.
    0xb701, 0xb702, 0xb703, 0xb704,
    // EPIOCSPARAMS, EPIOCGPARAMS, RNDGETENTCNT, RTC_RD_TIME.
    0x4008_8a01, 0x8008_8a02, 0x8004_5200, 0x8024_7009,
    // Block devices: sizes, zones, geometry; LOOP_GET_STATUS and its form of 64 bits.
    0x125e, 0x1260, 0x1263, 0x1265, 0x1267, 0x1268, 0x1278, 0x1279, 0x127a, 0x127b, 0x127c, 0x127e, 0x8008_1270,
    0x8008_1272, 0x8008_1280, 0x8004_1284, 0x8004_1285, 0x0301, 0x4c03, 0x4c05,
    // The console: KDGKBTYPE, KDGETMODE, KDGKBMODE, VT_GETSTATE.
    0x4b33, 0x4b3b, 0x4b44, 0x5603,
    // Interfaces: their names, flags, addresses and other attributes, not SIOCETHTOOL.
    0x8910, 0x8912, 0x8913, 0x8915, 0x8917, 0x8919, 0x891b, 0x891d, 0x891f, 0x8921, 0x8925, 0x8927, 0x8933, 0x8935,
    0x8938, 0x8942, 0x8947, 0x8948, 0x8954, 0x8970, 0x8b01,
    // Sockets: owner, mark, times, queue.
    0x8901, 0x8902, 0x8903, 0x8904, 0x8905, 0x8906, 0x8907, 0x8010_8906, 0x8010_8907, 0x894b,
    // Encryption and verity of a file: policies, digest. FS_IOC_GETFSUUID, FS_IOC_GETFSSYSFSPATH.
    0x400c_6615, 0xc009_6616, 0xc004_6686, 0x8011_1500, 0x8081_1501,
    // PROCMAP_QUERY, FIBMAP, FIGETBSZ, FIOQSIZE, FS_IOC_GETFSLABEL.
    0xc068_6611, 0x0001, 0x0002, 0x5460, 0x8100_9431,
    // Files: flags in both forms, version, FS_IOC_FIEMAP, FS_IOC_FSGETXATTR, FICLONERANGE, FICLONE.
    0x8008_6601, 0x8004_6601, 0x8008_7601, 0xc020_660b, 0x801c_581f, 0x4020_940d, 0x4004_9409,
    // Pseudoterminals: number, lock, packets, signals, TIOCGEXCL, TIOCGPTPEER; TIOCGLCKTRMIOS.
    0x5456, 0x8004_5430, 0x4004_5431, 0x8004_5432, 0x4004_5436, 0x8004_5438, 0x8004_5439, 0x8004_5440, 0x5441,
    // Terminals: attributes, flow, breaks, process group, session, size; not TIOCEXCL, TIOCSTI,
    // TIOCLINUX, TIOCCONS, TIOCSETD and TIOCSSERIAL.
    0x5402, 0x5403, 0x5404, 0x5405, 0x5406, 0x5407, 0x5408, 0x5409, 0x540a, 0x540b, 0x540e, 0x540f, 0x5410, 0x5411,
    0x5414, 0x5415, 0x5419, 0x5420, 0x5422, 0x5424, 0x5425, 0x5429, 0x802c_542a, 0x402c_542b, 0x402c_542c, 0x402c_542d,
    // FIOASYNC, FIONCLEX, FIOCLEX, FIONBIO, FIONREAD, TIOCGWINSZ, TCGETS.
    0x5452, 0x5450, 0x5451, 0x5421, 0x541b, 0x5413, 0x5401,
];

#[cfg(test)]
mod tests {
    use super::ALLOWED;

    /// FS_IOC_SETFLAGS, EXT4_IOC_SETVERSION, FS_IOC_SETFSLABEL, EXT4_IOC_SHUTDOWN, FITRIM,
    /// FIDEDUPERANGE, BTRFS_IOC_SUBVOL_CREATE, TIOCSTI, TIOCLINUX, SIOCSIFFLAGS, BLKDISCARD.
    #[test]
    fn commands_with_effects_outside_are_not_allowed() {
        let refused = [
            0x4008_6602,
            0x4008_6604,
            0x4100_9432,
            0x8004_587d,
            0xc018_5879,
            0xc018_9436,
            0x5000_940e,
            0x5412,
            0x541c,
            0x8914,
            0x1277,
        ];
        assert!(refused.iter().all(|command| !ALLOWED.contains(command)));
        let unique: std::collections::BTreeSet<_> = ALLOWED.iter().collect();
        assert_eq!(unique.len(), ALLOWED.len());
    }
}
