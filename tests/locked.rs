//! What the tests of locked clusters share: a head in this process, members that are this program started again.
//!
//! Nodes listen on an address of their own in 127.0.0.0/8, with TLS as on any other address.
#![allow(dead_code, clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use bireme::{ClusterChoice, Config, SecurityChoice, TlsChoice};
use bireme_runtime::net::door::{DialError, DialSecurity, Timeouts, dial};
use bireme_runtime::net::hello::{Hello, Purpose};
use bireme_runtime::net::tls::{ClientTls, Credentials, Role};
use bireme_runtime::net::token::{Stay, Token, TokenBook, TokenTerms};
use bireme_runtime::net::wire::Wire;
use bireme_runtime::settings::Secret;

use crate::support::{PATIENCE, Scratch};

/// The test of a program that is a member when its environment says so.
pub const MEMBER_TEST: &str = "a_member_when_it_is_asked_for_by_the_environment";
const VARIABLE: &str = "BIREME_TEST_MEMBER";

/// What a member is told, through its environment.
#[derive(Clone, Debug)]
pub struct Part {
    pub head: SocketAddr,
    pub keys: PathBuf,
    pub token: Option<String>,
    pub bulk: bool,
    /// Where it listens; a driver does not.
    pub bind: Option<SocketAddr>,
}

impl Part {
    pub fn new(head: SocketAddr, keys: PathBuf) -> Self {
        Self { head, keys, token: None, bulk: true, bind: Some(free_port(head.ip())) }
    }

    fn text(&self) -> String {
        let bind = self.bind.map_or("-".to_owned(), |bind| bind.to_string());
        let token = self.token.as_deref().unwrap_or("-");
        format!("{} {} {token} {} {bind}", self.head, self.keys.display(), self.bulk)
    }

    /// The part that this process has, if it is a member.
    pub fn of_environment() -> Option<Self> {
        let text = std::env::var(VARIABLE).ok()?;
        let [head, keys, token, bulk, bind] = text.split(' ').collect::<Vec<_>>()[..] else { panic!("{text}") };
        Some(Self {
            head: head.parse().unwrap(),
            keys: keys.into(),
            token: (token != "-").then(|| token.to_owned()),
            bulk: bulk == "true",
            bind: bind.parse().ok(),
        })
    }

    pub fn choice(&self) -> ClusterChoice {
        let tls = TlsChoice {
            token: self.token.as_deref().map(Secret::new),
            bulk_encryption: self.bulk,
            ..TlsChoice::new(self.keys.clone())
        };
        let security = SecurityChoice::Tls(tls);
        // As between machines: the bytes of objects go over connections too.
        let copies_on_wire = true;
        ClusterChoice { head: Some(self.head), bind: self.bind, security, copies_on_wire, ..Default::default() }
    }
}

/// Is a member until standard input ends; says whether it could join. `driven` is what a driver does.
pub fn play(part: &Part, driven: impl FnOnce()) {
    let cpus = if part.bind.is_some() { 1.0 } else { 0.0 };
    match bireme::init_with(Config::default().cpus(cpus).object_store_memory(64 << 20).cluster(part.choice())) {
        Ok(_context) => {
            println!("\njoined");
            if part.bind.is_none() {
                driven();
            }
            let _ = std::io::stdin().lines().count();
        }
        Err(error) => println!("\nrefused: {error}"),
    }
}

/// A member in a process of its own.
pub struct Member {
    child: Child,
    pub part: Part,
    lines: Receiver<String>,
    log: Receiver<String>,
}

impl Member {
    /// Starts one; the reason if it could not join.
    pub fn start(part: &Part) -> Result<Self, String> {
        Self::start_by(Command::new(std::env::current_exe().unwrap()), part)
    }

    /// The same by a command that may lead to another host.
    pub fn start_by(mut command: Command, part: &Part) -> Result<Self, String> {
        let mut child = command
            .args(["--exact", "--nocapture", MEMBER_TEST])
            .env(VARIABLE, part.text())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (lines, log) = (follow(child.stdout.take().unwrap()), follow(child.stderr.take().unwrap()));
        let member = Self { child, part: part.clone(), lines, log };
        loop {
            let line = member.line();
            if line == "joined" {
                return Ok(member);
            }
            if let Some(reason) = line.strip_prefix("refused: ") {
                return Err(reason.to_owned());
            }
        }
    }

    /// The next line that it prints.
    fn line(&self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) if !line.contains("FAILED") => line,
            _ => panic!("it says no more; its log: {:#?}", self.log.try_iter().collect::<Vec<_>>()),
        }
    }

    /// Waits until it prints this.
    pub fn tells(&self, words: &str) {
        while self.line() != words {}
    }

    /// Waits until its log has a line with these words.
    pub fn logs(&self, words: &str) {
        loop {
            let line = self.log.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("nothing in the log of {words:?}"));
            if line.contains(words) {
                return;
            }
        }
    }

    /// Tells it a line.
    pub fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// What it has to show.
    pub fn credentials(&self) -> Credentials {
        Credentials::load(&only_cluster(&self.part.keys).join("node.pem")).unwrap()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn follow(from: impl Read + Send + 'static) -> Receiver<String> {
    let (lines, followed) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let _ = lines.send(line);
        }
    });
    followed
}

/// A head without CPUs in this process, so that everything runs on members.
pub struct Locked {
    pub address: SocketAddr,
    pub folder: Scratch,
    pub bulk: bool,
    _context: bireme::Context,
}

impl Locked {
    pub fn start(name: &str, bulk: bool) -> Self {
        Self::with(name, |tls| tls.bulk_encryption = bulk)
    }

    pub fn with(name: &str, change: impl FnOnce(&mut TlsChoice)) -> Self {
        let folder = Scratch::new(name);
        let address = free_port("127.0.0.2".parse().unwrap());
        let mut tls = TlsChoice::new(folder.path("head"));
        change(&mut tls);
        let bulk = tls.bulk_encryption;
        let security = SecurityChoice::Tls(tls);
        let choice = ClusterChoice { bind: Some(address), security, copies_on_wire: true, ..Default::default() };
        let config = Config::default().cpus(0.0).object_store_memory(64 << 20).cluster(choice);
        Self { address, folder, bulk, _context: bireme::init_with(config).unwrap() }
    }

    /// Where the head has its keys.
    pub fn keys(&self) -> PathBuf {
        only_cluster(&self.folder.path("head"))
    }

    /// The token that the head wrote into a file.
    pub fn token(&self) -> String {
        std::fs::read_to_string(self.keys().join("node.token")).unwrap().trim().to_owned()
    }

    pub fn book(&self) -> TokenBook {
        TokenBook::open(&self.keys().join("tokens")).unwrap()
    }

    /// Another token.
    pub fn new_token(&self, role: Role, life: Duration, uses: Option<u32>) -> Token {
        let fingerprint = Credentials::load(&self.keys().join("head.pem")).unwrap().fingerprint();
        self.book().create(TokenTerms { role, life, uses, stay: Stay::WithToken }, fingerprint, now()).unwrap()
    }

    /// What a member with keys of its own is told.
    pub fn part(&self, name: &str) -> Part {
        let bulk = self.bulk;
        Part { token: Some(self.token()), bulk, ..Part::new(self.address, self.folder.path(name)) }
    }

    pub fn member(&self, name: &str) -> Member {
        Member::start(&self.part(name)).unwrap()
    }
}

/// Knocks as one that wants to join, and joins not.
pub fn dial_heart(head: SocketAddr, tls: &ClientTls) -> Result<Box<dyn Wire>, DialError> {
    let hello = Hello::new(0, 0, Purpose::Heart);
    dial(head, &DialSecurity::Tls(tls.clone()), &hello, Timeouts::default()).map(|(_, wire)| wire)
}

pub fn only_cluster(keys: &Path) -> PathBuf {
    let found: Vec<PathBuf> = std::fs::read_dir(keys).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

pub fn free_port(host: IpAddr) -> SocketAddr {
    TcpListener::bind((host, 0)).unwrap().local_addr().unwrap()
}

pub fn now() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()
}
