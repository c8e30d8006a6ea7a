//! Contents of the release binary.

/// The binary has names of functions, which backtraces and profiles need. It has no debug info, which would be four
/// times as large as the rest.
#[cfg(not(debug_assertions))]
#[test]
fn a_release_has_names_and_no_debug_info() {
    let binary = std::fs::read(env!("CARGO_BIN_EXE_penstock")).unwrap();
    let has = |name: &[u8]| binary.windows(name.len()).any(|window| window == name);
    assert!(has(b"\0.symtab\0"));
    assert!(!has(b"\0.debug_line\0") && !has(b"\0.debug_info\0"));
    assert!(binary.len() < 20 << 20, "{} bytes", binary.len());
}
