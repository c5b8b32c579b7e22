//! x86-64 facts of the dynamic linkers.

/// The level of the processor as the System V ABI for x86-64 counts them: 1 to 4.
pub fn isa_level() -> u32 {
    use std::arch::is_x86_feature_detected as has;
    let v2 = has!("sse4.2") && has!("ssse3") && has!("popcnt") && has!("cmpxchg16b");
    let v3 = has!("avx2") && has!("bmi1") && has!("bmi2") && has!("fma") && has!("movbe");
    let v4 = has!("avx512f") && has!("avx512bw") && has!("avx512cd") && has!("avx512dq");
    match (v2, v2 && v3, v2 && v3 && v4 && has!("avx512vl")) {
        (_, _, true) => 4,
        (_, true, _) => 3,
        (true, ..) => 2,
        _ => 1,
    }
}

/// Values of `$LIB`.
pub const LIB: [&[u8]; 2] = [b"lib/x86_64-linux-gnu", b"lib64"];
/// Values of `$PLATFORM`.
pub const PLATFORM: [&[u8]; 2] = [b"haswell", b"x86_64"];
/// Default directories of the GNU C library, on distributions of either kind.
pub const DIRECTORIES: [&[u8]; 6] = [
    b"/lib/x86_64-linux-gnu",
    b"/usr/lib/x86_64-linux-gnu",
    b"/lib64",
    b"/usr/lib64",
    b"/lib",
    b"/usr/lib",
];
/// The name of musl's dynamic linker, which is its C library as well.
pub const MUSL_LOADER: &[u8] = b"ld-musl-x86_64.so.1";
/// Default directories of musl's dynamic linker, without a configuration file.
pub const MUSL_DIRECTORIES: &[u8] = b"/lib:/usr/local/lib:/usr/lib";
/// The configuration of musl's dynamic linker, from the root directory that it was installed in.
pub const MUSL_PATHS: &[u8] = b"etc/ld-musl-x86_64.path";
