//! The library's name inside itself: a program that is linked with it and preloaded with it loads it once.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libovermem.so");
}
