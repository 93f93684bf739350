//! The files of the workspace as values, so that every check is a function from a tree to findings and its
//! test can plant a violation without touching the disk.
//!
//! Called by `tidy`. Build products, version control and virtual environments are not part of the tree.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::source::{self, Source};

/// Folders that hold nothing we wrote.
const SKIPPED: &[&str] =
    &["target", ".git", ".venv", "node_modules", "__pycache__", ".hypothesis", ".pytest_cache", ".mypy_cache"];

/// Programs that must not compile: what they do wrong is their purpose, so no rule reads them.
const REFUSED_PROGRAMS: &str = "crates/bireme/tests/ui/";

/// A Rust file, taken apart once for all checks.
pub struct RustFile {
    /// Path from the root, with forward slashes.
    pub path: String,
    /// Code and comments apart.
    pub source: Source,
    /// For each line, whether it belongs to a test.
    pub in_test: Vec<bool>,
}

impl RustFile {
    fn new(path: &str, text: &str) -> Self {
        let source = Source::of(text);
        let lines = text.lines().count();
        let in_test = if is_test_path(path) { vec![true; lines] } else { source::test_lines(&source.code) };
        Self { path: path.to_owned(), source, in_test }
    }

    /// Lines of code with their number, from 1, and whether they belong to a test.
    pub fn code_lines(&self) -> impl Iterator<Item = (usize, &str, bool)> {
        let flags = self.in_test.iter().copied().chain(std::iter::repeat(false));
        self.source.code.lines().zip(flags).enumerate().map(|(index, (line, test))| (index + 1, line, test))
    }
}

/// A Python file, taken apart once for all checks.
pub struct PythonFile {
    /// Path from the root, with forward slashes.
    pub path: String,
    /// Code and comments apart.
    pub source: Source,
}

impl PythonFile {
    /// Whether it is a test, or support of tests.
    pub fn is_test(&self) -> bool {
        self.path.split('/').any(|part| part == "tests")
    }
}

/// All files of the workspace by path from the root.
pub struct Tree {
    files: BTreeMap<String, String>,
    rust: Vec<RustFile>,
    python: Vec<PythonFile>,
}

impl Tree {
    /// Reads the workspace. Files that are not text count as present and empty.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut files = BTreeMap::new();
        let mut folders = vec![root.to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let path = entry.path();
                if entry.file_type()?.is_dir() {
                    if !SKIPPED.contains(&name.as_str()) {
                        folders.push(path);
                    }
                } else if let Ok(relative) = path.strip_prefix(root) {
                    let key = relative.to_string_lossy().replace('\\', "/");
                    files.insert(key, fs::read_to_string(&path).unwrap_or_default());
                }
            }
        }
        Ok(Self::new(files))
    }

    fn new(files: BTreeMap<String, String>) -> Self {
        let is_ours = |path: &str| path.ends_with(".rs") && !path.starts_with(REFUSED_PROGRAMS);
        let rust = files.iter().filter(|(path, _)| is_ours(path)).map(|(p, t)| RustFile::new(p, t)).collect();
        let of_python = files.iter().filter(|(path, _)| path.ends_with(".py") || path.ends_with(".pyi"));
        let taken_apart =
            of_python.map(|(path, text)| PythonFile { path: path.clone(), source: source::python::halves(text) });
        let python = taken_apart.collect();
        Self { files, rust, python }
    }

    /// A tree from literals.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        Self::new(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }

    /// Every Rust file, in the order of paths.
    pub fn rust(&self) -> &[RustFile] {
        &self.rust
    }

    /// Every Python file, in the order of paths.
    pub fn python(&self) -> &[PythonFile] {
        &self.python
    }

    /// Every file with its text, in the order of paths.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The text of one file.
    pub fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// One Rust file.
    pub fn rust_file(&self, path: &str) -> Option<&RustFile> {
        self.rust.iter().find(|file| file.path == path)
    }

    /// Whether a file or folder of this path is there.
    pub fn exists(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        path.is_empty() || self.files.contains_key(path) || self.files.keys().any(|file| file.starts_with(&folder))
    }
}

/// Whether a whole file is a test by its place or name.
pub fn is_test_path(path: &str) -> bool {
    let stem = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".rs");
    path.split('/').any(|part| part == "tests")
        || stem == "tests"
        || stem.ends_with("_test")
        || stem.ends_with("_tests")
        || stem.starts_with("loom_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_exist_when_a_file_is_below_them() {
        let tree = Tree::of(&[("crates/core/src/lib.rs", "")]);
        assert!(tree.exists("crates/core"));
        assert!(tree.exists("crates/core/"));
        assert!(!tree.exists("crates/cor"));
    }

    #[test]
    fn test_files_are_known_by_their_place() {
        assert!(is_test_path("tests/kill.rs"));
        assert!(is_test_path("crates/net/src/ring/tests.rs"));
        assert!(is_test_path("crates/net/src/loom_ring.rs"));
        assert!(!is_test_path("crates/net/src/ring.rs"));
        assert!(!is_test_path("crates/sim/src/latest.rs"));
    }
}
