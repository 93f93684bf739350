//! A module is `foo.rs` with `foo/` beside it: tabs and search results then carry the name.

use super::Finding;
use crate::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let files = tree.rust().iter().filter(|file| file.path.ends_with("/mod.rs"));
    files.map(|file| Finding::of(&file.path, "name the file after its module and put it beside the folder")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_named_after_no_module_is_found() {
        let tree = Tree::of(&[("crates/net/src/ring/mod.rs", ""), ("crates/net/src/ring.rs", "")]);
        assert_eq!(check(&tree).len(), 1);
    }
}
