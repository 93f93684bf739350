//! Several nodes behind locked doors: what runs on them, who gets in, and what a scan of their ports shows.
#![allow(clippy::unwrap_used, missing_docs)]

mod locked;
mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use bireme::{Bytes, ClusterChoice, Config};
use bireme_netlab::Lab;
use bireme_runtime::net::door::{Timeouts, enrol};
use bireme_runtime::net::tls::Role;
use bireme_runtime::net::token::Token;
use locked::{Locked, Member, Part};
use support::{Journal, PATIENCE, Scratch, Watch, eventually};

#[bireme::remote]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

#[bireme::remote]
fn fill(n: usize, with: u8) -> Bytes {
    Bytes::from(vec![with; n])
}

#[bireme::remote]
fn total(bytes: Bytes) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

#[bireme::remote]
fn back(bytes: Bytes) -> Bytes {
    bytes
}

pub struct Counter(i64);

#[bireme::actor]
impl Counter {
    pub fn new(from: i64) -> Self {
        Counter(from)
    }

    pub fn count(&mut self) -> i64 {
        self.0 += 1;
        self.0
    }
}

/// The part of a member: this program again. A driver adds two numbers.
#[test]
fn a_member_when_it_is_asked_for_by_the_environment() {
    let Some(part) = Part::of_environment() else { return };
    locked::play(&part, || println!("\nsum {}", add::remote(40, 2).get_timeout(PATIENCE).unwrap()));
}

/// Tasks, actors and large values, to and between members.
fn work() {
    let sums: Vec<_> = (0..200).map(|n| add::remote(n, n)).collect();
    for (n, sum) in sums.iter().enumerate() {
        assert_eq!(sum.get_timeout(PATIENCE).unwrap(), 2 * n as i64);
    }
    let counter = Counter::remote(5);
    assert_eq!(counter.count().get_timeout(PATIENCE).unwrap(), 6);
    assert_eq!(counter.count().get_timeout(PATIENCE).unwrap(), 7);
    // Inside of messages, short and long: more at a time than a socket takes at once.
    let sizes = [0, 1, 4_000, 16_000, 20_000, 40_000, 65_000];
    let values: Vec<Vec<u8>> =
        (0..140).map(|n| (0..sizes[n % sizes.len()]).map(|at| (at * (n + 3)) as u8).collect()).collect();
    let there: Vec<_> = values.iter().map(|value| back::remote(Bytes::from(value.clone()))).collect();
    for (value, there) in values.iter().zip(&there) {
        assert!(there.get_timeout(PATIENCE).unwrap()[..] == value[..], "a value of {} bytes", value.len());
    }
    let put = bireme::put(Bytes::from(vec![2; 3 << 20])).unwrap();
    assert_eq!(total::remote(&put).get_timeout(PATIENCE).unwrap(), 6 << 20);
    let made: Vec<_> = (1..9).map(|with| fill::remote(1 << 20, with)).collect();
    let totals: Vec<_> = made.iter().map(total::remote).collect();
    for (with, total) in (1..).zip(&totals) {
        assert_eq!(total.get_timeout(PATIENCE).unwrap(), with << 20);
    }
    assert!(made[4].get_timeout(PATIENCE).unwrap().iter().all(|byte| *byte == 5));
}

#[test]
fn tasks_actors_and_large_values_cross_between_locked_nodes() {
    let cluster = Locked::start("locked", true);
    let _members = [cluster.member("a"), cluster.member("b")];
    work();
}

#[test]
fn bulk_encryption_that_is_off_by_name_leaves_everything_else_locked() {
    let cluster = Locked::start("plain-bulk", false);
    let _members = [cluster.member("a"), cluster.member("b")];
    work();
    let mut other = cluster.part("c");
    other.bulk = true;
    let reason = Member::start(&other).err().unwrap();
    assert!(reason.contains("--bulk-encryption off"), "{reason}");
}

#[test]
fn keys_and_tokens_are_in_files_that_only_the_user_can_read() {
    let cluster = Locked::start("files", true);
    let member = cluster.member("a");
    let folders = [cluster.keys(), locked::only_cluster(&member.part.keys)];
    for folder in &folders {
        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.path());
        }
    }
    assert!(!folders[1].join("authority.pem").exists(), "a member can make no certificates");
}

#[test]
fn a_newcomer_needs_a_token_that_is_good() {
    let cluster = Locked::start("tokens", true);
    let mut part = cluster.part("a");
    part.token = None;
    let reason = Member::start(&part).err().unwrap();
    assert!(reason.contains("--token-file"), "{reason}");
    part.token = Some("bireme-nonsense".to_owned());
    assert!(Member::start(&part).err().unwrap().contains("this is no token"));
    let ask = |token: &Token| enrol(cluster.address, token, Role::Node, Timeouts::default()).unwrap_err().to_string();
    let day = Duration::from_secs(86_400);
    let expired = cluster.new_token(Role::Node, Duration::ZERO, None);
    assert!(ask(&expired).contains("has expired"));
    let revoked = cluster.new_token(Role::Node, day, None);
    cluster.book().revoke(revoked.id).unwrap();
    assert!(ask(&revoked).contains("was revoked"));
    let client = cluster.new_token(Role::Client, day, None);
    assert!(ask(&client).contains("is for a client"));
    let once = cluster.new_token(Role::Node, day, Some(1));
    part.token = Some(once.to_text());
    let _member = Member::start(&part).unwrap();
    assert!(ask(&once).contains("has been used up"), "a token for one was shown again");
    assert_eq!(add::remote(1, 2).get_timeout(PATIENCE).unwrap(), 3);
}

#[test]
fn a_member_that_comes_back_shows_its_certificate_and_needs_no_token() {
    let cluster = Locked::start("again", true);
    let first = cluster.member("a");
    let mut part = first.part.clone();
    drop(first);
    part.token = None;
    let _again = Member::start(&part).unwrap();
    assert_eq!(add::remote(1, 2).get_timeout(PATIENCE).unwrap(), 3);
}

#[test]
fn a_driver_elsewhere_joins_with_a_clients_token_and_is_no_node() {
    let cluster = Locked::start("driver", true);
    let _member = cluster.member("a");
    let client = cluster.new_token(Role::Client, Duration::from_secs(60), Some(1)).to_text();
    let mut part = Part { token: Some(client), bind: None, ..cluster.part("d") };
    let driver = Member::start(&part).unwrap();
    driver.tells("sum 42");
    drop(driver);
    assert!(locked::only_cluster(&part.keys).join("client.pem").exists());
    part.bind = Some(locked::free_port(part.head.ip()));
    let reason = Member::start(&part).err().unwrap();
    assert!(reason.contains("is for a client") || reason.contains("used up"), "{reason}");
}

#[test]
fn certificates_are_renewed_before_they_expire() {
    let cluster = Locked::with("renewal", |tls| tls.certificate_life = Duration::from_secs(4));
    let member = cluster.member("a");
    let first = member.credentials().expires();
    eventually("the first certificates have expired", || locked::now() > first + 1);
    assert!(member.credentials().expires() > locked::now(), "the member has another one");
    // Whoever joins now sees the certificates of today.
    let _second = cluster.member("b");
    work();
}

/// Whether the head has this node among those that are there.
fn is_there(node: u32) -> bool {
    bireme::nodes().unwrap().iter().any(|row| row.node.0 == node && row.alive)
}

#[test]
fn a_revoked_token_ends_the_connections_of_those_who_came_in_with_it_and_of_nobody_else() {
    let cluster = Locked::start("revoked", true);
    let _stays = cluster.member("a");
    let token = cluster.new_token(Role::Node, Duration::from_secs(3600), None);
    let part = Part { token: Some(token.to_text()), ..cluster.part("b") };
    let member = locked::Member::start(&part).unwrap();
    assert!(is_there(2) && is_there(3));
    assert!(member.credentials().expires() <= token.expires);
    cluster.book().revoke(token.id).unwrap();
    eventually("it is expelled", || !is_there(3));
    let row = bireme::nodes().unwrap().into_iter().find(|row| row.node.0 == 3).unwrap();
    assert!(row.reason.unwrap().contains("was revoked"));
    // Its certificate is not let in any more, though it has not expired.
    let reason = locked::Member::start(&part).err().unwrap();
    assert!(reason.contains("was revoked"), "{reason}");
    assert!(is_there(2));
    work();
}

/// Tells its process id and never ends.
#[bireme::remote]
fn park(journal: PathBuf) -> u8 {
    support::note(&journal, std::process::id());
    loop {
        std::thread::park();
    }
}

#[test]
fn an_expelled_node_ends_what_still_runs_on_it() {
    let scratch = Scratch::new("expelled");
    let mut journal = Journal::new(&scratch, "pids");
    let cluster = Locked::start("expelled-work", true);
    let token = cluster.new_token(Role::Node, Duration::from_secs(3600), None);
    let part = Part { token: Some(token.to_text()), ..cluster.part("a") };
    let _member = locked::Member::start(&part).unwrap();
    let task = park::remote(journal.path.clone());
    let worker = Watch::new(journal.next().parse().unwrap());
    cluster.book().revoke(token.id).unwrap();
    eventually("it is expelled", || !is_there(2));
    assert!(worker.ended_within(PATIENCE), "its worker still runs {task:?}");
}

#[test]
fn whoever_has_stayed_as_long_as_its_token_allows_is_expelled() {
    let cluster = Locked::start("stay", true);
    let token = cluster.new_token(Role::Node, Duration::from_secs(5), None);
    let part = Part { token: Some(token.to_text()), ..cluster.part("a") };
    let _member = locked::Member::start(&part).unwrap();
    assert!(is_there(2));
    eventually("its time is over", || !is_there(2));
    assert!(locked::now() >= token.expires, "not before");
}

#[test]
fn an_address_that_others_can_reach_is_never_opened_without_a_lock() {
    let any: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let choice = ClusterChoice { bind: Some(any), ..Default::default() };
    let error = bireme::init_with(Config::default().cpus(0.0).cluster(choice)).err().unwrap().to_string();
    assert!(error.contains("can be reached from other machines"), "{error}");
}

/// Whether anybody answers plain words with anything.
fn answers(address: SocketAddr, words: &[u8]) -> bool {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.write_all(words);
    let mut heard = [0];
    matches!(stream.read(&mut heard), Ok(1))
}

#[test]
fn a_scan_of_a_nodes_ports_finds_one_where_nothing_but_the_handshake_answers() {
    let Some(lab) = Lab::up_or_explain(3, None) else { return };
    let folder = Scratch::new("scan");
    // The head is in this process, on the first host.
    let head = SocketAddr::new(lab.address(1).into(), 7001);
    let security = bireme::SecurityChoice::Tls(bireme::TlsChoice::new(folder.path("head")));
    let choice = ClusterChoice { bind: Some(head), security, ..Default::default() };
    let config = Config::default().cpus(0.0).object_store_memory(64 << 20).cluster(choice);
    let _context = lab.run(1, || bireme::init_with(config).unwrap()).unwrap();
    let token = std::fs::read_to_string(locked::only_cluster(&folder.path("head")).join("node.token")).unwrap();
    let start = |host: u8, name: &str| {
        let bind = Some(SocketAddr::new(lab.address(host).into(), 7002));
        let token = Some(token.trim().to_owned());
        let part = Part { head, keys: folder.path(name), token, bulk: true, bind };
        Member::start_by(lab.command(host, std::env::current_exe().unwrap()), &part).unwrap()
    };
    let _member = start(2, "a");
    work();
    for (host, port) in [(1, 7001), (2, 7002)] {
        let found = lab.run(3, || scan(lab.address(host).into())).unwrap();
        assert_eq!(found, [port], "host {host}");
    }
    let words: [&[u8]; 4] = [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\0\x01\0\x01\0\0\0\0\0", b"SSH-2.0-x\r\n", &[0xff; 64]];
    for words in words {
        assert!(!lab.run(3, || answers(head, words)).unwrap(), "{words:?} was answered");
    }
    work();
}

/// Ports on which somebody listens.
fn scan(host: std::net::IpAddr) -> Vec<u16> {
    let open = |port: &u16| TcpStream::connect((host, *port)).is_ok();
    (1..=u16::MAX).filter(open).collect()
}
