//! The configuration file: TOML, one key per setting. Every error names the line.

use std::fs;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::SettingsError;
use super::table::{self, Kind, Setting};

/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// One line of the file: the setting, its value as text, the line.
pub(super) struct Given {
    pub(super) setting: &'static Setting,
    pub(super) text: String,
    pub(super) line: usize,
}

/// Reads a file. A setting that nobody knows is an error: it was meant to do something.
pub(super) fn read(path: &Path) -> Result<Vec<Given>, SettingsError> {
    let unreadable = |reason: String| SettingsError::Unreadable { path: path.to_owned(), reason };
    let size = fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.len();
    if size > FILE_BYTES_MAX {
        return Err(unreadable(format!("its {size} bytes are more than {FILE_BYTES_MAX}")));
    }
    let text = fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    parse(path, &text)
}

fn parse(path: &Path, text: &str) -> Result<Vec<Given>, SettingsError> {
    let table = DeTable::parse(text).map_err(|error| SettingsError::Syntax {
        path: path.to_owned(),
        line: line_of(text, error.span().map_or(0, |span| span.start)),
        reason: error.message().to_owned(),
    })?;
    table.get_ref().iter().map(|(key, value)| given(path, text, key.get_ref(), key.span().start, value)).collect()
}

fn given(path: &Path, text: &str, key: &str, at: usize, value: &Spanned<DeValue<'_>>) -> Result<Given, SettingsError> {
    let line = line_of(text, at);
    let Some(setting) = table::find(key) else {
        let nearest = table::nearest(key);
        return Err(SettingsError::UnknownKey { path: path.to_owned(), line, key: key.to_owned(), nearest });
    };
    let plain = plain(value.get_ref());
    let named = (setting.kind == Kind::Resources).then(|| named_amounts(value.get_ref())).flatten();
    let text = named.or(plain).ok_or_else(|| SettingsError::BadType {
        path: path.to_owned(),
        line,
        key: setting.name,
        found: value.get_ref().type_str(),
        wanted: setting.kind.placeholder(),
    })?;
    Ok(Given { setting, text, line })
}

/// A value as a user would write it in a flag.
fn plain(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(on) => Some(on.to_string()),
        _ => None,
    }
}

fn named_amounts(value: &DeValue<'_>) -> Option<String> {
    let table = value.as_table()?;
    let parts = table.iter().map(|(name, amount)| Some(format!("{}={}", name.get_ref(), plain(amount.get_ref())?)));
    parts.collect::<Option<Vec<_>>>().map(|parts| parts.join(","))
}

/// Counted from 1.
fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn error(text: &str) -> String {
        parse(Path::new("/c.toml"), text).err().unwrap().to_string()
    }

    #[test]
    fn settings_are_read_with_their_lines() {
        let text =
            "# a comment\nnum_cpus = 4\nmemory = \"2GiB\"\nbulk_encryption = false\n\n[resources]\na = 1\nb = 0.5\n";
        let given = parse(Path::new("/c.toml"), text).unwrap();
        let mut shown: Vec<_> = given.iter().map(|one| (one.line, one.setting.name, one.text.as_str())).collect();
        shown.sort_unstable();
        let lines = [(2, "num_cpus", "4"), (3, "memory", "2GiB"), (4, "bulk_encryption", "false")];
        assert_eq!(shown[..3], lines);
        assert_eq!(shown[3], (6, "resources", "a=1,b=0.5"));
    }

    #[test]
    fn an_unknown_key_names_file_line_and_what_was_meant() {
        let said = error("port = 1\nnum_cpu = 2\n");
        assert!(said.starts_with("/c.toml:2: there is no setting \"num_cpu\""), "{said}");
        assert!(said.contains("num_cpus"), "{said}");
        let said = error("colour = 2\n");
        assert!(said.contains("bireme config") && !said.contains("did you mean"), "{said}");
    }

    #[test]
    fn a_value_of_another_type_and_broken_text_name_the_line() {
        assert!(error("\nport = [1]\n").starts_with("/c.toml:2: port is an array"), "{}", error("\nport = [1]\n"));
        assert!(error("[port]\na = 1\n").starts_with("/c.toml:1: port is a table"));
        assert!(error("port = 0x10\n").starts_with("/c.toml:1: port is an integer"));
        assert!(error("port = 1\nport = 2\n").starts_with("/c.toml:2: "), "{}", error("port = 1\nport = 2\n"));
        assert!(error("port = 1\nhost = \n").starts_with("/c.toml:2: "));
    }
}
