//! Gives the library the name that users' libraries are linked with, and keeps it in memory.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtritonserver.so");
        // Programs that embed a server may close the library, whose threads would lose their code.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
