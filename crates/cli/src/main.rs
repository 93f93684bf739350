//! The `bireme` command.
fn main() {}
