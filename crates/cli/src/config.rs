//! `bireme config`: every setting, its value, and where that was said.

use std::process::ExitCode;

use bireme_runtime::settings::{Entry, Settings, Surroundings, resolve};
use clap::Args;
use serde_json::json;

use crate::Outcome;
use crate::flags::SettingFlags;

/// The command line of `bireme config`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: SettingFlags,
}

/// Prints the settings that `bireme start` would have with the same flags.
pub(crate) fn run(arguments: &Arguments) -> Outcome<ExitCode> {
    let entries = resolve(&arguments.flags.0, &Surroundings::of_this_process())?;
    print!("{}", if arguments.json { json(&entries) } else { table(&entries) });
    // Settings that do not go together are shown first, so that one sees which.
    Settings::of(&entries)?;
    Ok(ExitCode::SUCCESS)
}

fn table(entries: &[Entry]) -> String {
    let shown: Vec<(String, String)> = entries.iter().map(|entry| (entry.shown(), entry.origin.to_string())).collect();
    let name = entries.iter().map(|entry| entry.setting.name.len()).max().unwrap_or(0);
    let value = shown.iter().map(|(value, _)| value.len()).max().unwrap_or(0);
    let lines = entries
        .iter()
        .zip(&shown)
        .map(|(entry, (shown, origin))| format!("{:name$}  {shown:value$}  {origin}\n", entry.setting.name));
    lines.collect()
}

fn json(entries: &[Entry]) -> String {
    let rows = entries.iter().map(|entry| {
        json!({
            "name": entry.setting.name,
            "value": entry.value.as_ref().map(ToString::to_string),
            "origin": entry.origin.to_string(),
            "variable": entry.setting.variable,
            "flag": entry.setting.flag.map(|flag| format!("--{flag}")),
            "help": entry.setting.help,
        })
    });
    format!("{:#}\n", serde_json::Value::from_iter(rows))
}
