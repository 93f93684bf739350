//! Greetings, packets and programs, without a node.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use bireme_core::id::{JobId, NodeId, ProcessId};
use bireme_net::frame::WIRE_VERSION;

use super::elf::Needs;
use super::message::{BadHello, Hello, MAGIC, Program, Welcome, decode_answer, encode_answer};
use super::program::{EXECUTABLES_UNUSED_MAX, Fingerprint, Programs};
use super::socket::{Socket, listen};

fn hello() -> Hello {
    let program = Program::Rust { target: "x86_64".into(), environment: vec![("NAMESPACE".into(), "team".into())] };
    Hello { build: "1.0".into(), program, lines: true, settings: 3 }
}

/// A folder that goes away with the test.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bt-attach-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_hello_survives_its_packet_and_another_version_is_refused_before_it_is_read() {
    let packet = hello().encode();
    assert_eq!(Hello::decode(&packet), Ok(hello()));
    let mut other = packet.clone();
    other[MAGIC.len()..MAGIC.len() + 2].copy_from_slice(&(WIRE_VERSION + 1).to_le_bytes());
    other.truncate(MAGIC.len() + 2);
    assert_eq!(Hello::decode(&other), Err(BadHello::Version(WIRE_VERSION + 1)));
    assert!(Hello::decode(&other).unwrap_err().to_string().contains("install the same version"));
    assert_eq!(Hello::decode(b"GET / HTTP/1.1"), Err(BadHello::Stranger));
    for cut in MAGIC.len() + 2..packet.len() {
        assert!(matches!(Hello::decode(&packet[..cut]), Err(BadHello::Malformed(_))), "{cut}");
    }
}

#[test]
fn an_answer_is_a_welcome_or_a_reason() {
    let me = ProcessId { node: NodeId(2), slot: 3_584, incarnation: 4 };
    let welcome = Welcome { me, job: JobId(9), to_node: 1, from_node: 2 };
    assert_eq!(decode_answer(&encode_answer(&Ok(welcome))), Ok(Ok(welcome)));
    assert_eq!(decode_answer(&encode_answer(&Err("no".into()))), Ok(Err("no".into())));
    assert!(decode_answer(&[]).is_err() && decode_answer(&[9]).is_err());
}

#[test]
fn descriptors_travel_beside_a_packet_and_a_long_one_is_refused() {
    let folder = Folder::new("packets");
    let path = folder.0.join("s");
    let listener = listen(&path).unwrap();
    let here = Socket::connect(&path).unwrap();
    let there = Socket::accept(&listener).unwrap();
    assert_eq!(there.peer().unwrap().pid, rustix::process::getpid().as_raw_pid());
    let file = std::fs::File::open("/dev/null").unwrap();
    use std::os::fd::AsFd;
    here.send(b"two", &[file.as_fd(), file.as_fd()]).unwrap();
    let (packet, descriptors) = there.receive(10).unwrap();
    assert_eq!((packet.as_slice(), descriptors.len()), (&b"two"[..], 2));
    here.send(b"long", &[]).unwrap();
    assert!(there.receive(3).is_err());
    drop(here);
    assert_eq!(there.receive(10).unwrap().0, b"", "the end");
}

#[test]
fn an_executable_of_another_machine_is_refused_in_words() {
    let here = Needs::of(Path::new("/proc/self/exe")).unwrap();
    assert_eq!(here.lacking_here(), Ok(()));
    let other = Needs { machine: 243, ..here.clone() };
    assert!(other.lacking_here().unwrap_err().contains("compiled for riscv64"));
    let musl = Needs { loader: Some("/lib/ld-of-nobody.so.1".into()), ..here };
    assert!(musl.lacking_here().unwrap_err().contains("/lib/ld-of-nobody.so.1"));
    assert!(Needs::of(Path::new("/dev/null")).is_err() && Needs::of(Path::new("/etc/passwd")).is_err());
}

#[test]
fn an_executable_is_copied_once_and_the_last_ones_stay() {
    let folder = Folder::new("programs");
    let (kept, sources) = (folder.0.join("node"), folder.0.join("sources"));
    std::fs::create_dir_all(&kept).unwrap();
    std::fs::create_dir_all(&sources).unwrap();
    let programs = Programs::new(&kept, "python3");
    let count = || std::fs::read_dir(&kept).unwrap().count();
    let mine = std::fs::read("/proc/self/exe").unwrap();
    let source = |number: usize| {
        let path = sources.join(number.to_string());
        std::fs::write(&path, [mine.as_slice(), &[number as u8]].concat()).unwrap();
        path
    };
    let (first, second) = (source(1), source(1));
    let users = [programs.executable(&first), programs.executable(&first), programs.executable(&second)];
    assert!(users.iter().all(Result::is_ok));
    assert_eq!(count(), 1, "the same bytes");
    let more: Vec<_> = (2..5).map(|number| programs.executable(&source(number)).unwrap()).collect();
    assert_eq!(count(), 4);
    drop(users);
    drop(more);
    assert_eq!(count(), EXECUTABLES_UNUSED_MAX);
    let text = sources.join("text");
    std::fs::write(&text, "no program").unwrap();
    assert!(programs.executable(&text).is_err());
    assert_eq!(count(), EXECUTABLES_UNUSED_MAX, "nothing unfinished is left");
}

#[test]
fn an_executable_of_another_node_comes_in_pieces_once_and_is_compared() {
    let folder = Folder::new("pieces");
    let programs = Programs::new(&folder.0, "python3");
    let mine = std::env::current_exe().unwrap();
    let (about, bytes) = (Fingerprint::of(&mine).unwrap(), std::fs::read(&mine).unwrap());
    let piece = |from: u64| bytes[from as usize..].iter().take(1 << 20).copied().collect::<Vec<u8>>();
    let mut asked = Vec::new();
    let first = programs.obtain(&about, |from| {
        asked.push(from);
        Ok(piece(from))
    });
    assert!(first.is_ok());
    assert_eq!(asked.len(), bytes.len().div_ceil(1 << 20));
    let second = programs.obtain(&about, |_| Err("it is here already".into()));
    assert!(second.is_ok());
    drop((first, second));
    assert!(programs.obtain(&about, |_| Err("it is kept when nobody uses it".into())).is_ok());

    let elsewhere = Folder::new("damaged");
    let programs = Programs::new(&elsewhere.0, "python3");
    let refusal = |next: &dyn Fn(u64) -> Result<Vec<u8>, String>| programs.obtain(&about, next).err().unwrap();
    let damaged = |from: u64| {
        let mut piece = piece(from);
        *piece.last_mut().unwrap() ^= 1;
        piece
    };
    assert!(refusal(&|from| Ok(damaged(from))).contains("executable"));
    assert!(refusal(&|_| Ok(Vec::new())).contains("changed"));
    assert!(refusal(&|_| Err("node-7 is gone".into())).contains("node-7"));
    assert_eq!(std::fs::read_dir(&elsewhere.0).unwrap().count(), 0, "nothing unfinished is left");
}

#[test]
fn an_interpreter_of_another_version_is_refused_by_both_versions() {
    let folder = Folder::new("python");
    let programs = Programs::new(&folder.0, "/bin/sh");
    let python = |python: &str| Program::Python {
        python: python.into(),
        cloudpickle: "3.1".into(),
        executable: "/usr/bin/another".into(),
        arguments: vec!["-c".into(), "true".into()],
        probe: vec!["-c".into(), "echo $VERSION; echo 3.1".into()],
        environment: vec![("VERSION".into(), "3.12".into())],
    };
    assert!(programs.prepare(&python("3.12"), 1, true).is_ok());
    let refused = programs.prepare(&python("3.11"), 1, true).err().unwrap();
    assert!(refused.contains("Python 3.11") && refused.contains("Python 3.12"), "{refused}");
    let missing = Programs::new(&folder.0, "no-such-interpreter").prepare(&python("3.12"), 1, true).err().unwrap();
    assert!(missing.contains("no-such-interpreter"), "{missing}");
}
