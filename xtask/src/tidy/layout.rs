//! Where files are: a module is `foo.rs` with `foo/` beside it, so that tabs and search results carry the name; the
//! Python extension has its stub, without which the comparison of the two would compare nothing; the tests of the
//! package are no package, or they would find the sources instead of what was installed.

use super::Finding;
use crate::tree::Tree;

const EXTENSION: &str = "crates/py";
const STUB: &str = "python/bireme/_native.pyi";
const TESTS_PACKAGE: &str = "python/tests/__init__.py";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let files = tree.rust().iter().filter(|file| file.path.ends_with("/mod.rs"));
    let message = "name the file after its module and put it beside the folder";
    let mut findings: Vec<Finding> = files.map(|file| Finding::of(&file.path, message)).collect();
    if tree.exists(EXTENSION) && !tree.exists(STUB) {
        findings.push(Finding::of(STUB, "the extension has no stub: write one"));
    }
    if tree.exists(TESTS_PACKAGE) {
        findings.push(Finding::of(TESTS_PACKAGE, "with this the tests import the sources: take it away"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_named_after_no_module_is_found() {
        let tree = Tree::of(&[("crates/net/src/ring/mod.rs", ""), ("crates/net/src/ring.rs", "")]);
        assert_eq!(check(&tree).len(), 1);
    }

    #[test]
    fn an_extension_without_a_stub_and_tests_that_are_a_package_are_found() {
        let extension = ("crates/py/src/lib.rs", "");
        assert_eq!(check(&Tree::of(&[extension])).len(), 1);
        assert!(check(&Tree::of(&[extension, (STUB, "")])).is_empty());
        assert_eq!(check(&Tree::of(&[(TESTS_PACKAGE, "")])).len(), 1);
    }
}
