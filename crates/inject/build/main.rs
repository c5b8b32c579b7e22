//! Builds the agent's image: a free-standing, position-independent program without a C library,
//! which cannot be a normal dependency because it needs its own code-generation flags.

mod flat_image;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let crates = manifest.parent().expect("the crate lies in crates/").to_owned();
    for watched in [
        "plane/src",
        "plane/Cargo.toml",
        "agent/src",
        "agent/Cargo.toml",
        "abi/src",
        "abi/Cargo.toml",
        "estimators/src",
        "estimators/Cargo.toml",
        "client/src",
        "client/Cargo.toml",
        "speculation/src",
        "speculation/Cargo.toml",
    ] {
        println!("cargo::rerun-if-changed={}", crates.join(watched).display());
    }
    println!("cargo::rerun-if-changed=build");
    let target_dir = out.join("agent-target");
    // Baseline x86-64 whatever the user's flags say: the entry code saves no wider registers.
    let script = format!("-Clink-arg=-Wl,-T,{}", manifest.join("build/large.ld").display());
    let flags = [
        &script,
        "-Crelocation-model=pic",
        "-Ctarget-cpu=x86-64",
        "-Cforce-unwind-tables=no",
        "-Clink-arg=-nostartfiles",
        "-Clink-arg=-nostdlib",
        "-Clink-arg=-static-pie",
        "-Clink-arg=-Wl,--no-dynamic-linker,-z,noseparate-code,-z,norelro,-z,noexecstack,--build-id=none",
    ];
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args([
            "build",
            "--release",
            "--locked",
            "--package",
            "runahead-agent",
            "--features",
            // Off in what is installed: policies, predictions and violations that tests plant.
            match cfg!(feature = "fault-injection") {
                true => "image,fault-injection",
                false => "image",
            },
        ])
        .args(["--bin", "runahead-agent-image", "--target", "x86_64-unknown-linux-gnu"])
        .arg("--target-dir")
        .arg(&target_dir)
        .current_dir(&crates)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("CARGO_BUILD_TARGET")
        .status()
        .expect("cargo can be run to build the agent's image");
    assert!(status.success(), "building the agent's image failed: {status}");
    let built: &Path = &target_dir.join("x86_64-unknown-linux-gnu/release/runahead-agent-image");
    let elf = std::fs::read(built).expect("the image was built");
    std::fs::write(out.join("agent.elf"), &elf).expect("OUT_DIR is ours");
    let image = flat_image::Image::parse(&elf).expect("what was built is an ELF file");
    write(&out, &image).expect("OUT_DIR is ours");
}

/// Writes the files that `src/image.rs` includes.
fn write(out: &Path, image: &flat_image::Image) -> std::io::Result<()> {
    let pair =
        |&(at, addend): &(u64, i64)| [(at as u32).to_le_bytes(), (addend as u32).to_le_bytes()];
    let relocations: Vec<u8> = image.relocations.iter().flat_map(pair).flatten().collect();
    std::fs::write(out.join("agent.image"), &image.bytes)?;
    std::fs::write(out.join("agent.relocations"), relocations)?;
    let flat_image::Image { len, entry, text, .. } = image;
    let constants = format!(
        "const LEN: u64 = {len};\nconst ENTRY: u64 = {entry};\nconst TEXT: (u64, u64) = {text:?};\n"
    );
    std::fs::write(out.join("agent.rs"), constants)
}
