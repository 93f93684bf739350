//! The macros' error messages are part of the interface.
#![allow(missing_docs)]

#[test]
fn what_cannot_be_remote_says_what_to_do() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
}
