//! Tells the linker that Node resolves its symbols when the module is loaded.
fn main() {
    napi_build::setup();
}
