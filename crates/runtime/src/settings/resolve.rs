//! Flag before environment before file before default: one value per setting, and where it came from.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::error::SettingsError;
use super::file::{self, Given};
use super::origin::Origin;
use super::surroundings::Surroundings;
use super::table::{Default, Kind, SETTINGS, Setting};
use super::value::Value;

/// What the command line says: the text of each flag, by the name of its setting.
pub type Flags = BTreeMap<&'static str, String>;

/// One setting with its value.
#[derive(Clone)]
pub struct Entry {
    /// Which setting.
    pub setting: &'static Setting,
    /// Its value, unless there is none.
    pub value: Option<Value>,
    /// Where that was said.
    pub origin: Origin,
}

impl Entry {
    /// The value for people; a setting without one says what that means.
    pub fn shown(&self) -> String {
        match (&self.value, self.setting.default) {
            (Some(value), _) => value.to_string(),
            (None, Default::Unset(meaning)) => format!("({meaning})"),
            (None, Default::Fixed(_) | Default::Found(_)) => String::new(),
        }
    }
}

/// Every setting, in the order of the table.
pub fn resolve(flags: &Flags, surroundings: &Surroundings) -> Result<Vec<Entry>, SettingsError> {
    let path = surroundings.file();
    let given = path.as_deref().map_or_else(|| Ok(Vec::new()), file::read)?;
    if let Some(path) = path.as_deref().filter(|_| given.iter().any(|one| one.setting.kind == Kind::Secret)) {
        check_private(path)?;
    }
    SETTINGS.iter().map(|setting| entry(setting, flags, surroundings, path.as_deref(), &given)).collect()
}

/// One setting, without flags and file.
pub(super) fn from_environment(name: &str, surroundings: &Surroundings) -> Result<Entry, SettingsError> {
    let setting = SETTINGS.iter().find(|setting| setting.name == name).expect("the name is one of the table");
    entry(setting, &Flags::new(), surroundings, None, &[])
}

fn entry(
    setting: &'static Setting,
    flags: &Flags,
    surroundings: &Surroundings,
    path: Option<&Path>,
    given: &[Given],
) -> Result<Entry, SettingsError> {
    let (origin, text) = said(setting, flags, surroundings, path, given)?;
    let bad = |reason| SettingsError::BadValue {
        origin: origin.clone(),
        name: setting.name,
        // A secret stays one in errors.
        value: if setting.kind == Kind::Secret { "(secret)".to_owned() } else { text.clone().unwrap_or_default() },
        reason,
        wanted: setting.kind.placeholder(),
    };
    // Relative paths of the file begin where the file is.
    let folder = match &origin {
        Origin::File { path, .. } => path.parent().unwrap_or(path),
        Origin::Flag(_) | Origin::Environment(_) | Origin::Default => &surroundings.working_directory,
    };
    let value = text.as_deref().map(|text| Value::parse(setting.kind, text, folder)).transpose().map_err(bad)?;
    Ok(Entry { setting, value, origin })
}

/// The text that counts and where it is.
fn said(
    setting: &'static Setting,
    flags: &Flags,
    surroundings: &Surroundings,
    path: Option<&Path>,
    given: &[Given],
) -> Result<(Origin, Option<String>), SettingsError> {
    if let (Some(flag), Some(text)) = (setting.flag, flags.get(setting.name)) {
        return Ok((Origin::Flag(flag), Some(text.clone())));
    }
    if let Some(value) = surroundings.variable(setting.variable) {
        let origin = Origin::Environment(setting.variable);
        let text = value.to_str().map(str::to_owned);
        let unfit = || SettingsError::Unfit { origin: origin.clone(), reason: "its value is no UTF-8".to_owned() };
        return Ok((origin.clone(), Some(text.ok_or_else(unfit)?)));
    }
    let in_file = given.iter().find(|one| one.setting.name == setting.name);
    if let (Some(path), Some(one)) = (path, in_file) {
        return Ok((Origin::File { path: path.to_owned(), line: one.line }, Some(one.text.clone())));
    }
    let text = match setting.default {
        Default::Fixed(text) => Some(text.to_owned()),
        Default::Found(find) => Some(find(surroundings)),
        Default::Unset(_) => None,
    };
    Ok((Origin::Default, text))
}

/// A file with a secret in it must be the user's alone.
pub(super) fn check_private(path: &Path) -> Result<(), SettingsError> {
    let found = path
        .metadata()
        .map_err(|error| SettingsError::Unreadable { path: path.to_owned(), reason: error.to_string() })?;
    let mode = found.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(SettingsError::Exposed { path: path.to_owned(), mode });
    }
    Ok(())
}
