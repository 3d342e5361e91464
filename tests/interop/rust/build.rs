//! Hands the exact versions of what the peer is built from to src/bench.rs.

use std::{env, fs, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=Cargo.toml");
    let manifest = fs::read_to_string("Cargo.toml").expect("cargo runs this beside Cargo.toml");
    for (name, variable) in [("libp2p", "LIBP2P"), ("libp2p-gossipsub", "GOSSIPSUB")] {
        let version = manifest
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "))
            .and_then(|dependency| dependency.split_once("\"=")?.1.split_once('"'))
            .expect("Cargo.toml pins it")
            .0;
        println!("cargo::rustc-env={variable}_VERSION={version}");
    }
    let compiler = env::var("RUSTC").expect("cargo sets it");
    let output = Command::new(compiler).arg("--version").output();
    let text = String::from_utf8(output.expect("it has just compiled this").stdout);
    let version = text.expect("rustc writes UTF-8");
    // "rustc 1.93.0 (… 2026-01-19)"
    let version = version.split(' ').nth(1).expect("its name comes first");
    println!("cargo::rustc-env=RUSTC_VERSION={version}");
}
