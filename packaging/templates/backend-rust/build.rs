//! Links the backend with the name of the server's library. The real one is in the process that
//! loads the backend.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let directory = env::var("OUT_DIR").expect("Cargo sets it");
    let source = Path::new(&directory).join("unused.c");
    let library = Path::new(&directory).join("libtritonserver.so");
    fs::write(&source, "typedef int unused;\n").expect("the build directory can be written");
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let status = Command::new(compiler)
        .args(["-shared", "-Wl,-soname,libtritonserver.so", "-o"])
        .args([&library, &source])
        .status()
        .expect("a C compiler, which Rust needs for linking too");
    assert!(status.success(), "libtritonserver.so could not be linked");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--no-as-needed");
    println!("cargo:rustc-cdylib-link-arg={}", library.display());
}
