//! Tells the linker that Node's symbols are resolved when the module is loaded.
fn main() {
    napi_build::setup();
}
