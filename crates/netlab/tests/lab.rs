//! The lab itself: hosts reach each other, rates hold, cuts are silent, and nothing is left behind.
#![allow(clippy::unwrap_used)]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bireme_netlab::{Error, Lab, Rate};

/// Long enough for a packet on a machine that is busy, and what a test waits for a packet that must not come.
const SHORT: Duration = Duration::from_millis(300);
/// A peer sends again after at most about as long as it was cut off.
const LONG: Duration = Duration::from_secs(20);

/// A connection from the first host to the second: both ends, the first's first.
fn connect(lab: &Lab) -> (TcpStream, TcpStream) {
    let there = (lab.address(2), 7000);
    let listener = lab.run(2, || TcpListener::bind(there)).unwrap().unwrap();
    let near = lab.run(1, || TcpStream::connect_timeout(&there.into(), LONG)).unwrap().unwrap();
    let (far, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip(), lab.address(1));
    for end in [&near, &far] {
        end.set_nodelay(true).unwrap();
    }
    (near, far)
}

/// Sends a byte and says whether it came within the time.
fn passes(from: &mut TcpStream, to: &mut TcpStream, wait: Duration) -> bool {
    from.write_all(b"x").unwrap();
    arrives(to, wait)
}

fn arrives(to: &mut TcpStream, wait: Duration) -> bool {
    to.set_read_timeout(Some(wait)).unwrap();
    match to.read(&mut [0]) {
        Ok(count) => count == 1,
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(error) => panic!("{error}"),
    }
}

/// Names in use on this machine that begin like this.
fn namespaces(prefix: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/run/netns") else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(prefix)).collect()
}

fn of_process(id: u32) -> Vec<String> {
    let mut names = namespaces("bireme-lab-");
    names.retain(|name| name.split('-').nth(3) == Some(&id.to_string()));
    names
}

#[test]
fn hosts_reach_each_other_and_a_cut_is_silent_until_it_heals() {
    let Some(lab) = Lab::up_or_explain(3, None) else { return };
    let (mut near, mut far) = connect(&lab);
    assert!(passes(&mut near, &mut far, LONG));
    assert!(passes(&mut far, &mut near, LONG));
    lab.cut(2).unwrap();
    assert!(!passes(&mut near, &mut far, SHORT), "a cut link carries nothing");
    lab.heal(2).unwrap();
    assert!(arrives(&mut far, LONG), "what was sent during the cut arrives after it");
}

#[test]
fn hosts_are_the_same_on_every_machine_whose_own_settings_stay() {
    let own = ["ipv4/tcp_congestion_control", "bridge/bridge-nf-call-iptables"];
    let read = || own.map(|setting| std::fs::read_to_string(format!("/proc/sys/net/{setting}")).ok());
    let before = read();
    let Some(lab) = Lab::up_or_explain(1, None) else { return };
    let [host, _] = lab.run(1, read).unwrap();
    assert_eq!(host.unwrap().trim(), "reno");
    let seen = Command::new("ip")
        .args(["netns", "exec", &lab.namespace(0), "cat", "/proc/sys/net/bridge/bridge-nf-call-iptables"])
        .output()
        .unwrap();
    // A kernel that cannot ask a firewall has no such setting.
    assert!(!seen.status.success() || seen.stdout.trim_ascii() == b"0", "{seen:?}");
    drop(lab);
    assert_eq!(read(), before);
}

#[test]
fn one_direction_can_be_cut_alone() {
    let Some(lab) = Lab::up_or_explain(2, None) else { return };
    let (mut near, mut far) = connect(&lab);
    lab.cut_one_way(1, 2).unwrap();
    // Again is the same: one `heal` ends it.
    lab.cut_one_way(1, 2).unwrap();
    assert!(!passes(&mut near, &mut far, SHORT), "the cut direction carries nothing");
    assert!(passes(&mut far, &mut near, LONG), "the other one does");
    lab.heal_one_way(1, 2).unwrap();
    assert!(arrives(&mut far, LONG));
    lab.heal_one_way(1, 2).unwrap();
}

#[test]
fn rates_bound_both_directions_and_can_be_changed() {
    let Some(lab) = Lab::up_or_explain(2, Some(Rate::megabits(80))) else { return };
    let (mut near, mut far) = connect(&lab);
    check_rate(Rate::megabits(80), &mut near, &mut far);
    check_rate(Rate::megabits(80), &mut far, &mut near);
    lab.rate(2, Rate::megabits(20)).unwrap();
    check_rate(Rate::megabits(20), &mut near, &mut far);
}

/// Sends for about half a second. No more than the rate may pass; how much less is up to the machine.
fn check_rate(rate: Rate, from: &mut TcpStream, to: &mut TcpStream) {
    let bytes = rate.bytes() / 2;
    let taken = std::thread::scope(|scope| {
        scope.spawn(|| from.write_all(&vec![7; bytes as usize]).unwrap());
        to.set_read_timeout(Some(LONG)).unwrap();
        let begun = Instant::now();
        to.read_exact(&mut vec![0; bytes as usize]).unwrap();
        begun.elapsed()
    });
    let measured = bytes as f64 / taken.as_secs_f64() / rate.bytes() as f64;
    assert!(measured < 1.2, "{measured:.2} of {rate}");
}

#[test]
fn labs_live_side_by_side_and_leave_nothing() {
    let Some(first) = Lab::up_or_explain(1, None) else { return };
    let second = Lab::up(2, None).unwrap();
    assert_ne!(first.address(1), second.address(1));
    let mut child = second.command(2, "sleep").arg("1000").spawn().unwrap();
    let shown = second.command(2, "ip").args(["-br", "addr"]).output().unwrap();
    assert!(String::from_utf8_lossy(&shown.stdout).contains(&second.address(2).to_string()));
    assert_eq!(of_process(std::process::id()).len(), 2 + 3);
    drop(second);
    assert!(!child.wait().unwrap().success(), "a command ends with its lab");
    let panicked = std::thread::spawn(move || panic!("with {} host", first.hosts())).join();
    assert!(panicked.is_err());
    assert_eq!(of_process(std::process::id()), Vec::<String>::new());
}

#[test]
fn a_host_that_is_not_there_is_an_error() {
    assert!(matches!(Lab::up(0, None), Err(Error::NoSuchHost { .. } | Error::Unavailable(_))));
    let Some(lab) = Lab::up_or_explain(1, None) else { return };
    for done in [lab.cut(2), lab.heal(0), lab.rate(2, Rate::megabits(1)), lab.cut_one_way(1, 2), lab.run(9, || ())] {
        assert!(matches!(done, Err(Error::NoSuchHost { hosts: 1, .. })), "{done:?}");
    }
}

/// What the next test starts and kills: a process with a lab.
#[test]
#[ignore = "is started by another test"]
fn victim() {
    let lab = Lab::up(2, None).unwrap();
    let mut child = lab.command(1, "sleep").arg("1000").spawn().unwrap();
    println!("up");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    drop(lab);
    child.wait().unwrap();
}

#[test]
fn what_a_killed_process_left_is_taken_away_by_the_next_lab() {
    if Lab::up_or_explain(1, None).is_none() {
        return;
    }
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "victim"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = Vec::new();
    let mut output = victim.stdout.take().unwrap();
    while !said.ends_with(b"up\n") {
        let mut byte = [0];
        assert_eq!(output.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&said));
        said.extend(byte);
    }
    victim.kill().unwrap();
    victim.wait().unwrap();
    assert_eq!(of_process(victim.id()).len(), 3);
    drop(Lab::up(1, None).unwrap());
    assert_eq!(of_process(victim.id()), Vec::<String>::new());
    // Its command held the pipe open; that it is closed shows that it is gone.
    output.read_to_end(&mut said).unwrap();
}

#[test]
fn a_kept_lab_is_there_for_the_next_command_until_it_is_taken_down() {
    if let Err(error) = Lab::available() {
        bireme_netlab::not_tested(&error.to_string());
        return;
    }
    let netlab = |words: &[&str]| Command::new(env!("CARGO_BIN_EXE_bireme-netlab")).args(words).output().unwrap();
    if Lab::kept().map(Lab::keep).is_ok() {
        eprintln!("not tested: someone has a lab here");
        return;
    }
    assert!(netlab(&["up", "2", "100mbit"]).status.success());
    let address = String::from_utf8(netlab(&["addr", "2"]).stdout).unwrap();
    let shown = netlab(&["exec", "2", "ip", "-br", "addr"]);
    assert!(String::from_utf8(shown.stdout).unwrap().contains(address.trim()));
    for words in [&["cut", "1"][..], &["heal", "1"], &["cut", "1", "2"], &["heal", "1", "2"], &["rate", "1", "1gbit"]] {
        assert!(netlab(words).status.success(), "{words:?}");
    }
    assert_eq!(netlab(&["up", "1"]).status.code(), Some(1));
    assert_eq!(netlab(&["cut", "7"]).status.code(), Some(1));
    assert_eq!(netlab(&["fly"]).status.code(), Some(2));
    assert!(netlab(&["down"]).status.success());
    assert_eq!(netlab(&["down"]).status.code(), Some(1));
    assert_eq!(namespaces("bireme-lab-").iter().filter(|name| name.contains("-0-0-")).count(), 0);
}
