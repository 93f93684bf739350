//! Flags of the command line that are settings: made from the one table, so that none is forgotten.

use std::time::Duration;

use bireme_runtime::settings::{Default, Flags, Kind, SETTINGS, Setting, Surroundings, Value, resolve};
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};

use crate::Outcome;

/// Every setting as a flag.
pub(crate) struct SettingFlags(pub(crate) Flags);

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        SETTINGS.iter().filter_map(arg).fold(command.next_help_heading("Settings"), Command::arg)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = SETTINGS
            .iter()
            .filter(|setting| setting.flag.is_some())
            .filter_map(|setting| matches.get_one::<String>(setting.name).map(|text| (setting.name, text.clone())));
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}

fn arg(setting: &'static Setting) -> Option<Arg> {
    let default = match setting.default {
        Default::Fixed("") => "none".to_owned(),
        Default::Fixed(text) | Default::Unset(text) => text.to_owned(),
        Default::Found(_) => "see `bireme config`".to_owned(),
    };
    let help = format!("{} [default: {default}] [environment: {}]", setting.help, setting.variable);
    Some(Arg::new(setting.name).long(setting.flag?).value_name(setting.kind.placeholder()).help(help))
}

/// Where to look for nodes: the one setting that every command about running nodes has.
#[derive(Args)]
pub(crate) struct StateFlag {
    /// Folder for sockets, logs and keys; only you may read it.
    #[arg(long, value_name = "PATH")]
    state_directory: Option<String>,
}

impl StateFlag {
    /// The folder, if there is one: without it there are no nodes.
    pub(crate) fn open(&self) -> Outcome<Option<bireme_runtime::local::StateDirectory>> {
        let flags = self.state_directory.iter().map(|text| ("state_directory", text.clone())).collect();
        let entries = resolve(&flags, &Surroundings::of_this_process())?;
        let path = entries.into_iter().find(|entry| entry.setting.name == "state_directory");
        match path.and_then(|entry| entry.value) {
            Some(Value::Path(path)) if path.exists() => Ok(Some(bireme_runtime::local::StateDirectory::open(&path)?)),
            _ => Ok(None),
        }
    }
}

/// Reads a time such as `100ms` or `2s`, as settings do.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    match Value::parse(Kind::Duration, text, "".as_ref()) {
        Ok(Value::Duration(time)) => Ok(time),
        Ok(other) => Err(format!("{other} is no time")),
        Err(reason) => Err(format!("it {reason}")),
    }
}
