//! What the release profile leaves in the binary.

/// Names of functions, by which backtraces and profiles can be read, and no tables for a debugger, which are four times as
/// large as all the rest.
#[cfg(not(debug_assertions))]
#[test]
fn a_release_has_names_and_no_debug_info() {
    let binary = std::fs::read(env!("CARGO_BIN_EXE_penstock")).unwrap();
    let has = |name: &[u8]| binary.windows(name.len()).any(|window| window == name);
    assert!(has(b"\0.symtab\0"));
    assert!(!has(b"\0.debug_line\0") && !has(b"\0.debug_info\0"));
    assert!(binary.len() < 20 << 20, "{} bytes", binary.len());
}
