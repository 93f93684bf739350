//! `bireme token`: with what other machines and programs come into a cluster.

mod rotate;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bireme_runtime::Error;
use bireme_runtime::clock::seconds_since_1970;
use bireme_runtime::tokens::{
    Role, Stay, Token, TokenEntry, TokenId, TokenState, TokenTerms, Tokens, rotation_text, time_left,
};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use crate::Outcome;
use crate::choose::Choice;
use crate::flags::time;
use crate::status::table;

/// The command line of `bireme token`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Make a token and print it: the only time that it can be seen.
    Create(Create),
    /// Show what was given out; no secrets.
    List {
        /// Print JSON instead of a table.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        choice: Choice,
    },
    /// Take a token back; who came in with it is expelled.
    Revoke {
        /// Which one, as `bireme token list` shows it.
        #[arg(value_name = "TOKEN")]
        id: TokenId,
        #[command(flatten)]
        choice: Choice,
    },
    /// Replace the cluster's authority while it runs: nodes and clients renew their certificates by themselves.
    Rotate(rotate::Arguments),
}

#[derive(Args)]
struct Create {
    /// What its holder may become.
    #[arg(long = "for", value_name = "PURPOSE", default_value = "node")]
    purpose: Purpose,
    /// How long it is good, and how long those may stay who come in with it. Without it: 24h to come in, and no bound on the stay.
    #[arg(long, visible_alias = "expires", value_name = "TIME", value_parser = time)]
    life: Option<Duration>,
    /// How long those may stay who come in with it, from when they come, whatever --life says; or `unbounded`.
    #[arg(long, value_name = "TIME", value_parser = stay)]
    member_life: Option<Stay>,
    /// How often it can be used; without a bound unless given.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    uses: Option<u32>,
    /// Write it into a new file that only you may read, instead of printing it.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    choice: Choice,
}

#[derive(Clone, Copy, ValueEnum)]
enum Purpose {
    /// A further node.
    Node,
    /// A program on a machine without a node.
    Client,
}

/// How long a token is good that nobody said more about.
const LIFE: Duration = Duration::from_secs(24 * 3600);

fn stay(text: &str) -> Result<Stay, String> {
    if text == "unbounded" { Ok(Stay::Unbounded) } else { time(text).map(Stay::For) }
}

/// A certificate never outlives the terms of its token.
fn stay_of(life: Option<Duration>, member_life: Option<Stay>) -> Stay {
    match (member_life, life) {
        (Some(stay), _) => stay,
        (None, Some(_)) => Stay::WithToken,
        (None, None) => Stay::Unbounded,
    }
}

/// Makes, lists or revokes tokens of a cluster whose head is on this machine.
pub(crate) fn run(arguments: &Arguments) -> Outcome<ExitCode> {
    match &arguments.action {
        Action::Create(create) => make(create)?,
        Action::List { json, choice } => {
            let tokens = tokens(choice)?;
            let (listed, now) = (tokens.list()?, seconds_since_1970());
            match (json, tokens.rotation()?) {
                (true, _) => print!("{}", as_json(&listed)),
                (false, Some(rotation)) => print!("{}\n\n{}", rotation_text(&rotation, now), as_table(&listed, now)),
                (false, None) => print!("{}", as_table(&listed, now)),
            }
        }
        Action::Revoke { id, choice } => {
            tokens(choice)?.revoke(*id)?;
            println!("{id} is revoked; who came in with it is expelled");
        }
        Action::Rotate(arguments) => rotate::run(arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn tokens(choice: &Choice) -> Outcome<Tokens> {
    let node = choice.one_of_cluster()?;
    let state = choice.state.open()?.ok_or("the state directory is gone")?;
    Ok(Tokens::of(&state.cluster(&node.cluster)?)?)
}

fn make(create: &Create) -> Outcome<()> {
    let role = match create.purpose {
        Purpose::Node => Role::Node,
        Purpose::Client => Role::Client,
    };
    let (life, stay) = (create.life.unwrap_or(LIFE), stay_of(create.life, create.member_life));
    let terms = TokenTerms { role, life, uses: create.uses, stay };
    let tokens = tokens(&create.choice)?;
    match &create.output {
        Some(path) => {
            let id = make_in_file(path, || tokens.create(terms))?;
            println!("{id} is in {}", path.display());
        }
        // Alone, so that it can be piped into a file; how to use it goes to who looks on.
        None => {
            println!("{}", tokens.create(terms)?.to_text());
            eprintln!(
                "It is not shown again. On the other machine put it into a file that only you can read and give \
                 --token-file FILE, or into BIREME_TOKEN."
            );
        }
    }
    Ok(())
}

/// Into a new file: one that is there may be readable by others, or have another token. The file is made first, so that
/// no token is given out that nobody has.
fn make_in_file(path: &Path, make: impl FnOnce() -> Result<Token, Error>) -> Outcome<TokenId> {
    let open = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = open.map_err(|error| format!("{} cannot be made: {error}", path.display()))?;
    match make() {
        Ok(token) => {
            writeln!(file, "{}", token.to_text())?;
            Ok(token.id)
        }
        Err(error) => {
            fs::remove_file(path)?;
            Err(error.into())
        }
    }
}

fn state_name(state: TokenState) -> &'static str {
    match state {
        TokenState::Good => "good",
        TokenState::Expired => "expired",
        TokenState::Revoked => "revoked",
        TokenState::Spent => "spent",
        TokenState::Outdated => "outdated",
    }
}

fn as_table(listed: &[(TokenEntry, TokenState)], now: u64) -> String {
    let rows = listed.iter().map(|(entry, state)| {
        let uses = entry.uses_max.map_or_else(|| "any".to_owned(), |uses_max| uses_max.to_string());
        vec![
            entry.id.to_string(),
            entry.role.to_string(),
            state_name(*state).to_owned(),
            format!("{}/{uses}", entry.used),
            time_left(entry.expires.saturating_sub(now)),
        ]
    });
    let shown = table("tokens", &["token", "for", "state", "used", "expires in"], rows.collect());
    if shown.is_empty() { "no token was given out\n".to_owned() } else { shown }
}

/// Without what the book has of the secret.
fn as_json(listed: &[(TokenEntry, TokenState)]) -> String {
    let rows = listed.iter().map(|(entry, state)| {
        json!({
            "token": entry.id.to_string(),
            "for": entry.role.to_string(),
            "state": state_name(*state),
            "created": entry.created,
            "expires": entry.expires,
            "used": entry.used,
            "uses_max": entry.uses_max,
        })
    });
    format!("{:#}\n", serde_json::Value::from_iter(rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_token_gives_outlives_it_only_if_that_was_said() {
        let hour = Duration::from_secs(3600);
        assert_eq!(stay_of(Some(hour), None), Stay::WithToken);
        assert_eq!(stay_of(Some(hour), Some(Stay::For(hour * 2))), Stay::For(hour * 2));
        assert_eq!(stay_of(None, None), Stay::Unbounded);
        assert_eq!((stay("unbounded"), stay("2h")), (Ok(Stay::Unbounded), Ok(Stay::For(hour * 2))));
        assert!(stay("long").is_err());
    }

    #[test]
    fn an_empty_book_is_said_in_words() {
        assert_eq!(as_table(&[], 0), "no token was given out\n");
        assert_eq!(as_json(&[]), "[]\n");
    }
}
