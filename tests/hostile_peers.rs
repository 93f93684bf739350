//! A running cluster behind locked doors, and those who want in without a right: refused, logged, with bounded memory,
//! and tasks keep running all the while.
#![allow(clippy::unwrap_used, missing_docs)]

mod locked;
mod support;

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bireme_runtime::core::controller::{Join, ToController};
use bireme_runtime::core::id::NodeId;
use bireme_runtime::core::resources::Resources;
use bireme_runtime::net::door::{DialError, DialSecurity, Timeouts, dial};
use bireme_runtime::net::frame::{FrameKind, HEADER_BYTES, WIRE_VERSION, write_frame};
use bireme_runtime::net::hello::{Greeting, Hello, Purpose, Ticket};
use bireme_runtime::net::tls::{Authority, ClientTls, Credentials, PeerIdentity, Role, TlsWire};
use bireme_runtime::net::wire::{Wire, read_exact, write_all};
use locked::{Locked, Member, Part};
use support::{PATIENCE, eventually};

/// What a process may grow by while it is attacked.
const GROWTH_MIB_MAX: u64 = 48;

#[bireme::remote]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

/// The part of a member: this program again.
#[test]
fn a_member_when_it_is_asked_for_by_the_environment() {
    let Some(part) = Part::of_environment() else { return };
    locked::play(&part, || {});
}

fn plain(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// What a peer says until it closes.
fn hear(stream: &mut TcpStream) -> Vec<u8> {
    let mut heard = Vec::new();
    match stream.read_to_end(&mut heard) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("it neither answers nor closes: {error}"),
        _ => heard,
    }
}

/// Memory of a process in MiB.
fn resident_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

/// Sets it when it goes, also when an attack fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Runs an attack while tasks run, and sees to it that they do.
fn under_way(attack: impl FnOnce()) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut done = 0;
            while !over.load(Ordering::Acquire) || done == 0 {
                assert_eq!(add::remote(done, 1).get_timeout(PATIENCE).unwrap(), done + 1);
                done += 1;
            }
            done
        });
        let until = Over(&over);
        attack();
        drop(until);
        assert!(worker.join().unwrap() > 0);
    });
}

fn refusal(address: SocketAddr, credentials: &Credentials, node: u32, purpose: Purpose) -> Result<(), String> {
    let security = DialSecurity::Tls(ClientTls::new(credentials).unwrap());
    let hello = Hello::new(credentials.cluster(), node, purpose);
    match dial(address, &security, &hello, Timeouts::default()) {
        Ok(_) => Ok(()),
        Err(DialError::RefusedInWords { reason, .. } | DialError::Tls { reason, .. }) => Err(reason),
        Err(other) => Err(other.to_string()),
    }
}

#[test]
fn what_is_no_tls_is_refused_without_a_word_and_logged() {
    let cluster = Locked::start("no-tls", true);
    let member = cluster.member("a");
    let door = member.part.bind.unwrap();
    under_way(|| {
        for words in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], &hello_frame(WIRE_VERSION, Purpose::Control)] {
            let mut stream = plain(door);
            let _ = stream.write_all(words);
            assert!(hear(&mut stream).is_empty());
            member.logs("does not speak TLS");
        }
        // Begins like TLS and goes on like nothing.
        let mut stream = plain(door);
        let _ = stream.write_all(&[&[22, 3, 1, 0xff, 0xff][..], &[7; 64]].concat());
        let heard = hear(&mut stream);
        assert!(heard.len() < 64 && heard.first().is_none_or(|kind| *kind == 21), "more than an alert: {heard:?}");
        member.logs("TLS");
    });
}

/// A hello as it is on the wire, without TLS.
fn hello_frame(version: u16, purpose: Purpose) -> Vec<u8> {
    let body = Hello::new(0, 2, purpose).encode().unwrap();
    let mut frame = Vec::with_capacity(HEADER_BYTES + body.len());
    frame.extend((body.len() as u32).to_le_bytes());
    frame.extend(version.to_le_bytes());
    frame.extend(FrameKind::HELLO.0.to_le_bytes());
    frame.extend(crc(&body).to_le_bytes());
    frame.extend(body);
    frame
}

/// The checksum of frames, the slow way.
fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[test]
fn peers_that_say_nothing_or_one_letter_at_a_time_keep_nobody_out_and_cost_little() {
    let cluster = Locked::start("crowd", true);
    let member = cluster.member("a");
    let door = member.part.bind.unwrap();
    let before = [std::process::id(), member.pid()].map(resident_mib);
    under_way(|| {
        // More than there is room for, at both doors: half of them are silent, half begin a handshake.
        let crowd: Vec<TcpStream> = (0..400)
            .map(|number| {
                let mut stream = plain(if number % 4 < 2 { door } else { cluster.address });
                if number % 2 == 0 {
                    let _ = stream.write_all(&[22, 3, 1]);
                }
                stream
            })
            .collect();
        member.logs("crowded");
        // An honest newcomer gets in meanwhile, as soon as the crowd has been silent for a moment: it enrols, joins, and
        // dials the other one.
        let (honest, mut joined) = (cluster.part("b"), None);
        eventually("an honest newcomer gets in", || {
            joined = Member::start(&honest).ok();
            joined.is_some()
        });
        for mut stream in &crowd {
            let _ = stream.write_all(&[2]);
        }
        for (number, pid) in [std::process::id(), member.pid()].into_iter().enumerate() {
            let grown = resident_mib(pid).saturating_sub(before[number]);
            assert!(grown < GROWTH_MIB_MAX, "{grown} MiB more");
        }
        for mut stream in crowd {
            assert!(hear(&mut stream).is_empty());
        }
    });
}

/// Connections that say nothing, 1,000 a second, until it is dropped or its time is over.
struct Flood {
    made: Arc<AtomicU64>,
    stop: Option<Sender<()>>,
    flooding: Option<JoinHandle<()>>,
}

impl Flood {
    /// Connections that are held open; more than may wait.
    const OPEN_MAX: usize = 600;

    fn start(address: SocketAddr, time_max: Duration) -> Self {
        let (stop, stopped) = channel();
        let made = Arc::new(AtomicU64::new(0));
        let counted = made.clone();
        let flooding = std::thread::spawn(move || {
            let (begin, mut open) = (Instant::now(), VecDeque::new());
            let pause = || stopped.recv_timeout(Duration::from_millis(5)) == Err(RecvTimeoutError::Timeout);
            while begin.elapsed() < time_max && pause() {
                // What a slow machine missed is made up for.
                while u128::from(counted.load(Ordering::Relaxed)) < begin.elapsed().as_millis() {
                    open.extend(TcpStream::connect_timeout(&address, Duration::from_millis(100)));
                    counted.fetch_add(1, Ordering::Relaxed);
                    if open.len() > Self::OPEN_MAX {
                        open.pop_front();
                    }
                }
            }
        });
        Self { made, stop: Some(stop), flooding: Some(flooding) }
    }

    /// Waits until it has made so many connections.
    fn reaches(&self, count: u64) {
        eventually("the flood rises", || self.made.load(Ordering::Relaxed) >= count);
    }

    /// Whether its time is not over yet.
    fn is_on(&self) -> bool {
        self.flooding.as_ref().is_some_and(|flooding| !flooding.is_finished())
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.flooding.take().unwrap().join().unwrap();
    }
}

/// Members join during a flood, each when it has made so many more connections, and none is kept out.
fn join_during_a_flood(name: &str, members: u64, every: u64, time_max: Duration) {
    let cluster = Locked::start(name, true);
    let flood = Flood::start(cluster.address, time_max);
    let started = (1..=members).map(|number| {
        flood.reaches(number * every);
        Member::start(&cluster.part(&format!("m{number}")))
    });
    let joined: Vec<Result<Member, String>> = started.collect();
    assert!(flood.is_on(), "the flood was over before the last one had joined");
    drop(flood);
    let refused: Vec<&String> = joined.iter().filter_map(|joined| joined.as_ref().err()).collect();
    assert!(refused.is_empty(), "{} of {members} were kept out: {refused:#?}", refused.len());
    assert_eq!(add::remote(1, 2).get_timeout(PATIENCE).unwrap(), 3);
}

#[test]
fn all_who_join_get_in_during_a_flood_of_silent_connections() {
    join_during_a_flood("flood", 3, 700, Duration::from_secs(60));
}

#[test]
#[ignore = "a flood of 30 s: `cargo xtask slow` runs it"]
fn all_who_join_get_in_during_a_long_flood_of_silent_connections() {
    join_during_a_flood("long-flood", 6, 5_000, Duration::from_secs(120));
}

#[test]
fn without_a_certificate_there_is_one_frame_and_it_is_bounded() {
    let cluster = Locked::start("enrolment", true);
    let _member = cluster.member("a");
    let fingerprint = Credentials::load(&cluster.keys().join("head.pem")).unwrap().fingerprint();
    let connect = || {
        let wire = TlsWire::dial(plain(cluster.address), &ClientTls::pinned(fingerprint).unwrap()).unwrap();
        wire.set_timeouts(Some(PATIENCE), Some(PATIENCE)).unwrap();
        wire
    };
    let answer = |words: &[u8]| {
        let mut wire = connect();
        let _ = write_all(&mut wire, &[words]);
        let mut header = [0; HEADER_BYTES];
        read_exact(&mut wire, &mut header).unwrap();
        assert_eq!(u16::from_le_bytes([header[6], header[7]]), FrameKind::REFUSED.0);
        let mut reason = vec![0; u32::from_le_bytes(header[..4].try_into().unwrap()) as usize];
        read_exact(&mut wire, &mut reason).unwrap();
        assert!(matches!(wire.read(&mut [0]), Ok(0) | Err(_)), "it is closed then");
        String::from_utf8(reason).unwrap()
    };
    under_way(|| {
        for purpose in [Purpose::Control, Purpose::Heart, Purpose::Bulk { ticket: Ticket([7; 32]), encrypted: true }] {
            let reason = answer(&hello_frame(WIRE_VERSION, purpose));
            assert!(reason.contains("only enrol"), "{reason}");
        }
        let reason = answer(&hello_frame(9, Purpose::Control));
        assert!(reason.contains("wire version 9"), "{reason}");
        let oversized =
            [&u32::MAX.to_le_bytes()[..], &WIRE_VERSION.to_le_bytes(), &1_u16.to_le_bytes(), &[0; 4]].concat();
        let reason = answer(&oversized);
        assert!(reason.contains("at most"), "{reason}");
        let purpose = Purpose::Enrol { token: String::new(), role: Role::Node, public_key: [0; 32] };
        assert!(answer(&hello_frame(WIRE_VERSION, purpose)).contains("show a token"));
    });
}

#[test]
fn a_certificate_of_another_cluster_is_worth_nothing() {
    let cluster = Locked::start("other-cluster", true);
    let member = cluster.member("a");
    let (stranger, id) = (cluster.folder.path("stranger"), member.credentials().cluster());
    let authority = Authority::create(&stranger, locked::now()).unwrap();
    let day = Duration::from_secs(86_400);
    // Of the same name and number, but of another authority.
    let forged = authority.credentials(id, member.credentials().identity(), locked::now(), day).unwrap();
    under_way(|| {
        for address in [cluster.address, member.part.bind.unwrap()] {
            for purpose in [Purpose::Control, Purpose::Heart] {
                let reason = refusal(address, &forged, 2, purpose).unwrap_err();
                assert!(reason.contains("another cluster"), "{reason}");
            }
        }
    });
}

#[test]
fn nobody_comes_in_under_the_number_of_another_or_of_the_dead() {
    let cluster = Locked::start("numbers", true);
    let mut first = cluster.member("a");
    let second = cluster.member("b");
    let theirs = first.credentials();
    let door = second.part.bind.unwrap();
    under_way(|| {
        // The first is node 2, the second node 3, the head node 1.
        for (address, node, purpose) in [
            (cluster.address, 3, Purpose::Control),
            (cluster.address, 3, Purpose::Heart),
            (door, 1, Purpose::Control),
            (door, 1, Purpose::Bulk { ticket: Ticket([1; 32]), encrypted: true }),
        ] {
            let reason = refusal(address, &theirs, node, purpose).unwrap_err();
            assert!(reason.contains("another's number"), "{reason}");
        }
        second.logs("another's number");
        // A head's heart is for the head.
        assert!(refusal(door, &theirs, 2, Purpose::Heart).unwrap_err().contains("not the head"));
        assert!(refusal(cluster.address, &theirs, 77, Purpose::Control).unwrap_err().contains("not known"));
    });
    first.kill();
    under_way(|| {
        for address in [cluster.address, door] {
            eventually("the dead is refused", || {
                let refused = refusal(address, &theirs, 2, Purpose::Control);
                refused.is_err_and(|reason| reason.contains("declared dead"))
            });
        }
    });
}

/// A word of a join: its length, then its bytes.
fn say_word(wire: &mut dyn Wire, bytes: &[u8]) {
    write_all(wire, &[&(bytes.len() as u32).to_le_bytes(), bytes]).unwrap();
}

#[test]
fn a_client_that_asks_the_head_to_drain_a_node_is_expelled_and_the_node_works_on() {
    let cluster = Locked::start("client-drains", true);
    let _member = cluster.member("a");
    let authority = Authority::load(&cluster.keys()).unwrap();
    let id = Credentials::load(&cluster.keys().join("head.pem")).unwrap().cluster();
    let day = Duration::from_secs(86_400);
    let client = authority.credentials(id, PeerIdentity::random(Role::Client), locked::now(), day).unwrap();
    let security = DialSecurity::Tls(ClientTls::new(&client).unwrap());
    let is_gone = |node: u32| {
        let nodes = bireme::nodes().unwrap();
        nodes.iter().find(|row| row.node == NodeId(node)).is_none_or(|row| !row.alive || row.draining)
    };
    under_way(|| {
        let (_, mut wire) =
            dial(cluster.address, &security, &Hello::new(id, 0, Purpose::Heart), Timeouts::default()).unwrap();
        let (address, labels, total) = (String::new(), BTreeMap::new(), Resources::default());
        let join = Join { uid: 77, identity: 0, role: Role::Node, address, total, labels, driver_only: true };
        let epoch = 0_u64;
        say_word(wire.as_mut(), &postcard::to_allocvec(&(join, Some(true), epoch)).unwrap());
        let mut len = [0; 4];
        read_exact(wire.as_mut(), &mut len).unwrap();
        let mut answer = vec![0; u32::from_le_bytes(len) as usize];
        read_exact(wire.as_mut(), &mut answer).unwrap();
        assert_eq!(answer[0], 0, "it may join");
        let drain = ToController::Drain { request: 1, node: NodeId(2), grace_us: 0 };
        let beat = FrameKind(FrameKind::FIRST_FREE + 1);
        let mut bytes = epoch.to_le_bytes().to_vec();
        bytes.extend(postcard::to_allocvec(&drain).unwrap());
        write_frame(wire.as_mut(), beat, &bytes).unwrap();
        // The head ends the conversation.
        let mut rest = [0; 4096];
        while wire.read(&mut rest).is_ok_and(|count| count > 0) {}
        let refused = refusal(cluster.address, &client, 3, Purpose::Heart).unwrap_err();
        assert!(refused.contains("declared dead or has left"), "{refused}");
    });
    assert!(!is_gone(2), "the node that was to be drained is there and takes work");
}

#[test]
fn a_client_is_no_node_whatever_it_says() {
    let cluster = Locked::start("client", true);
    let _member = cluster.member("a");
    let authority = Authority::load(&cluster.keys()).unwrap();
    let id = Credentials::load(&cluster.keys().join("head.pem")).unwrap().cluster();
    let client = PeerIdentity::random(Role::Client);
    let credentials = authority.credentials(id, client, locked::now(), Duration::from_secs(60)).unwrap();
    // Its certificate in the file of a node.
    let part = cluster.part("impostor");
    credentials.save(&part.keys.join(format!("{id:032x}")).join("node.pem")).unwrap();
    under_way(|| {
        let reason = Member::start(&part).err().unwrap();
        assert!(reason.contains("a client's certificate"), "{reason}");
    });
}
