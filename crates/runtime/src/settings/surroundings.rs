//! What settings are read from, as a value: environment, user, place of the executable. Tests make their own.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The process's environment and user.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Environment variables.
    pub environment: BTreeMap<String, OsString>,
    /// The user, by number.
    pub user: u32,
    /// This executable.
    pub executable: Option<PathBuf>,
    /// The user's home: what the environment says, else the system's list of users.
    pub home: Option<PathBuf>,
    /// What relative paths begin at.
    pub working_directory: PathBuf,
}

impl Surroundings {
    /// Those of this process.
    pub fn of_this_process() -> Self {
        let named = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        Self {
            environment: named.collect(),
            user: rustix::process::geteuid().as_raw(),
            executable: std::env::current_exe().ok(),
            home: std::env::home_dir(),
            // Without one, relative paths fail where they are used.
            working_directory: std::env::current_dir().unwrap_or_default(),
        }
    }

    /// A variable that is there and not empty.
    pub fn variable(&self, name: &str) -> Option<&OsString> {
        self.environment.get(name).filter(|value| !value.is_empty())
    }

    /// The configuration file: the one that is named, or the usual one if it is there.
    pub(super) fn file(&self) -> Option<PathBuf> {
        if let Some(named) = self.variable("BIREME_CONFIG") {
            return Some(self.working_directory.join(named));
        }
        let home = self.variable("HOME").map(|home| Path::new(home).join(".config"));
        let folder = self.variable("XDG_CONFIG_HOME").map(PathBuf::from).or(home)?;
        Some(folder.join("bireme").join("config.toml")).filter(|path| path.exists())
    }

    /// The user's own folder for what has to outlast a restart of the machine: keys and tokens. None for a user without a home;
    /// a home that `su` or `sudo` left behind in the environment is another user's.
    pub(crate) fn key_directory(&self) -> Option<PathBuf> {
        let own = |path: &PathBuf| path.metadata().is_ok_and(|found| found.is_dir() && found.uid() == self.user);
        // A home has to be there; what is named for this purpose is made when it is missing.
        let named = self.variable("XDG_STATE_HOME").map(PathBuf::from).filter(|path| own(path) || !path.exists());
        let home = || self.home.clone().filter(own).map(|home| home.join(".local/state"));
        named.or_else(home).filter(|folder| folder.is_absolute()).map(|folder| folder.join("bireme"))
    }

    /// The user's own folder for what runs. A folder that `su` or `sudo` left behind in the environment is another user's.
    pub(crate) fn state_directory(&self) -> String {
        let own = |path: &PathBuf| {
            path.is_absolute() && path.metadata().is_ok_and(|found| found.is_dir() && found.uid() == self.user)
        };
        let runtime = self.variable("XDG_RUNTIME_DIR").map(PathBuf::from).filter(own);
        let default = || PathBuf::from(format!("/tmp/bireme-{}", self.user));
        runtime.map_or_else(default, |folder| folder.join("bireme")).display().to_string()
    }

    /// The interpreter beside the executable, as in an environment that the package was installed into.
    pub(super) fn python(&self) -> String {
        let beside = self.executable.as_ref().and_then(|path| Some(path.parent()?.join("python3")));
        beside.filter(|path| path.exists()).map_or_else(|| "python3".to_owned(), |path| path.display().to_string())
    }
}
