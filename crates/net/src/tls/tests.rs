#![allow(clippy::unwrap_used)]

mod authenticated;
mod forged;
mod handshakes;
mod records;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use super::*;
use crate::secret::tests::Folder;
use crate::wire::{Socket, Wire, read_exact, write_all};

const CLUSTER: u128 = 0xc1;

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn credentials(authority: &Authority, role: Role) -> Credentials {
    authority.credentials(CLUSTER, PeerIdentity::random(role), now(), CERTIFICATE_LIFE).unwrap()
}

/// Two ends of one connection that have shaken hands, or why not: who dialled, then who was dialled.
fn shake(client: &ClientTls, server: &Credentials) -> (std::io::Result<TlsWire>, std::io::Result<TlsWire>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let dialled = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let accepted = listener.accept().unwrap().0;
    let tls = ServerTls::new(server).unwrap();
    thread::scope(|scope| {
        let accepting = scope.spawn(|| TlsWire::accept(Socket::new(accepted, None).unwrap(), &[], &tls));
        let dialled = TlsWire::connect(Socket::new(dialled, None).unwrap(), client);
        // An end that failed is gone, so the other one does not wait for it.
        (dialled, accepting.join().unwrap())
    })
}

#[test]
fn an_authority_is_made_once_and_loaded_later() {
    let folder = Folder::new();
    let path = folder.0.join("authority");
    let made = Authority::open(&path, now()).unwrap();
    let loaded = Authority::open(&path, now()).unwrap();
    assert_eq!(made.fingerprint(), loaded.fingerprint());
    assert!(matches!(Authority::create(&path, now()), Err(SecurityError::Secret(SecretError::Exists { .. }))));
    // What either issues, the other's certificate vouches for.
    let (server, client) = (credentials(&made, Role::Node), credentials(&loaded, Role::Client));
    let (dialled, accepted) = shake(&ClientTls::new(&client).unwrap(), &server);
    assert_eq!(accepted.unwrap().identity(), Some(client.identity()));
    assert_eq!(dialled.unwrap().identity(), Some(server.identity()));
}

#[test]
fn of_several_starts_at_once_one_makes_the_authority() {
    let folder = Folder::new();
    let path = folder.0.join("authority");
    let fingerprints: Vec<Fingerprint> = thread::scope(|scope| {
        let starts: Vec<_> =
            (0..4).map(|_| scope.spawn(|| Authority::open(&path, now()).unwrap().fingerprint())).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    assert!(fingerprints.iter().all(|fingerprint| *fingerprint == fingerprints[0]));
    assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
}

#[test]
fn keys_are_in_files_that_nobody_else_can_read_and_are_refused_when_somebody_could() {
    let folder = Folder::new();
    let path = folder.0.join("authority");
    let authority = Authority::create(&path, now()).unwrap();
    let own = folder.0.join("node/credentials.pem");
    credentials(&authority, Role::Node).save(&own).unwrap();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().mode() & 0o777;
    let key = path.join("authority.pem");
    assert_eq!((mode(&path), mode(&key), mode(&own), mode(own.parent().unwrap())), (0o700, 0o600, 0o600, 0o700));
    for file in [&key, &own] {
        fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
    }
    let errors = [Authority::load(&path).err().unwrap(), Credentials::load(&own).err().unwrap()];
    for error in errors {
        assert!(matches!(error, SecurityError::Secret(SecretError::Exposed { mode: 0o644, .. })));
        assert!(error.to_string().contains("others than its user can reach"), "{error}");
    }
}

#[test]
fn credentials_come_back_from_their_file() {
    let folder = Folder::new();
    let authority = Authority::create(&folder.0.join("authority"), now()).unwrap();
    let saved = credentials(&authority, Role::Node);
    let path = folder.0.join("credentials.pem");
    saved.save(&path).unwrap();
    let loaded = Credentials::load(&path).unwrap();
    assert_eq!((loaded.cluster(), loaded.identity(), loaded.expires()), (CLUSTER, saved.identity(), saved.expires()));
    assert_eq!(loaded.fingerprint(), authority.fingerprint());
    assert!(shake(&ClientTls::new(&loaded).unwrap(), &saved).1.is_ok());
    assert!(!format!("{loaded:?}").contains("key"));
}

#[test]
fn damaged_files_are_refused() {
    let folder = Folder::new();
    let path = folder.0.join("authority");
    let authority = Authority::create(&path, now()).unwrap();
    let own = folder.0.join("credentials.pem");
    credentials(&authority, Role::Node).save(&own).unwrap();
    for file in [path.join("authority.pem"), own.clone()] {
        let text = fs::read_to_string(&file).unwrap();
        for damaged in ["", "nonsense", &text[..text.len() / 2], &text.replace("END", "AND")] {
            crate::secret::replace(&file, damaged.as_bytes()).unwrap();
            let error = if file == own { Credentials::load(&own).err() } else { Authority::load(&path).err() };
            assert!(matches!(error, Some(SecurityError::Secret(SecretError::Malformed { .. }))), "{error:?}");
        }
    }
}

#[test]
fn a_newcomer_knows_the_authority_by_its_fingerprint_alone() {
    let folder = Folder::new();
    let authority = Authority::create(&folder.0.join("authority"), now()).unwrap();
    let other = Authority::create(&folder.0.join("other"), now()).unwrap();
    let server = credentials(&authority, Role::Node);
    let (dialled, accepted) = shake(&ClientTls::pinned(authority.fingerprint()).unwrap(), &server);
    assert_eq!(dialled.unwrap().identity(), Some(server.identity()));
    assert_eq!(accepted.unwrap().identity(), None);
    let (dialled, accepted) = shake(&ClientTls::pinned(other.fingerprint()).unwrap(), &server);
    assert!(explain(tls_error(&dialled.unwrap_err()).unwrap()).contains("another cluster"));
    assert!(accepted.is_err());
}

#[test]
fn nobody_stands_in_for_a_node() {
    let folder = Folder::new();
    let authority = Authority::create(&folder.0.join("authority"), now()).unwrap();
    let (node, other) = (credentials(&authority, Role::Node), credentials(&authority, Role::Node));
    let client = credentials(&authority, Role::Client);
    let tls = ClientTls::new(&client).unwrap();
    assert!(shake(&tls, &client).0.is_err(), "a client's certificate served as a node's");
    assert!(shake(&ClientTls::pinned(authority.fingerprint()).unwrap(), &client).0.is_err());
    assert!(shake(&tls.only(node.identity().uid), &node).0.is_ok());
    let error = shake(&tls.only(node.identity().uid), &other).0.unwrap_err();
    assert!(explain(tls_error(&error).unwrap()).contains("not the node that was asked for"), "{error}");
}

#[test]
fn names_in_certificates_are_read_exactly() {
    let identity = PeerIdentity { role: Role::Node, uid: 0xab };
    assert_eq!(PeerIdentity::parse(&identity.name()), Some(identity));
    for name in ["node.bireme", "ab.node.bireme", "x.client.bireme", "+0000000000000000000000000000000.node.bireme"] {
        assert_eq!(PeerIdentity::parse(name), None, "{name}");
    }
}

/// All that comes until the end, by reads of these sizes.
fn read_all(wire: &mut TlsWire, sizes: &[usize]) -> Vec<u8> {
    let (mut heard, mut sizes) = (Vec::new(), sizes.iter().cycle());
    loop {
        let mut buffer = vec![0; *sizes.next().unwrap()];
        match wire.read(&mut buffer).unwrap() {
            0 => return heard,
            count => heard.extend_from_slice(&buffer[..count]),
        }
    }
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|number| (number % 251) as u8).collect()
}

fn wires() -> (TlsWire, TlsWire, Folder) {
    let folder = Folder::new();
    let authority = Authority::create(&folder.0.join("authority"), now()).unwrap();
    let (server, client) = (credentials(&authority, Role::Node), credentials(&authority, Role::Client));
    let (dialled, accepted) = shake(&ClientTls::new(&client).unwrap(), &server);
    (dialled.unwrap(), accepted.unwrap(), folder)
}

#[test]
fn large_bodies_pass_in_both_directions() {
    let (mut near, mut far, _folder) = wires();
    let body = bytes(5_000_000);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut heard = vec![0; body.len()];
            read_exact(&mut far, &mut heard).unwrap();
            write_all(&mut far, &[&heard]).unwrap();
        });
        write_all(&mut near, &[&body[..3], &body[3..]]).unwrap();
        let mut back = vec![0; body.len()];
        read_exact(&mut near, &mut back).unwrap();
        assert!(back == body);
    });
}

#[test]
fn what_is_decrypted_already_is_told_and_read_before_the_socket() {
    let (mut near, mut far, _folder) = wires();
    write_all(&mut near, &[&[1; 40_000]]).unwrap();
    let mut one = [0];
    far.read(&mut one).unwrap();
    assert!(far.has_buffered());
    far.set_nonblocking(true).unwrap();
    let mut seen = 1;
    let mut buffer = [0; 1000];
    while far.has_buffered() || seen < 40_000 {
        match far.read(&mut buffer) {
            Ok(read) => seen += read,
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
    assert_eq!(seen, 40_000);
    assert_eq!(far.read(&mut buffer).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    assert!(!far.has_buffered());
}

#[test]
fn a_peer_that_does_not_read_is_felt_and_nothing_is_lost() {
    let (mut near, mut far, _folder) = wires();
    near.set_nonblocking(true).unwrap();
    let piece = [7; 10_000];
    let mut accepted = 0;
    loop {
        match near.write_vectored(&[std::io::IoSlice::new(&piece)]) {
            Ok(taken) => accepted += taken,
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                break;
            }
        }
    }
    assert!(near.wants_write());
    assert_eq!(near.flush().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    near.set_nonblocking(false).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| read_exact(&mut far, &mut vec![0; accepted]).unwrap());
        near.flush().unwrap();
    });
    assert!(!near.wants_write());
}

#[test]
fn the_end_is_the_goodbye_of_a_peer_that_has_finished_or_was_dropped() {
    for is_dropped in [false, true] {
        let (mut near, mut far, _folder) = wires();
        write_all(&mut near, &[b"last words"]).unwrap();
        if is_dropped {
            drop(near)
        } else {
            near.finish()
        }
        let mut heard = [0; 10];
        read_exact(&mut far, &mut heard).unwrap();
        assert_eq!(&heard, b"last words");
        assert_eq!(far.read(&mut [0; 8]).unwrap(), 0);
        assert_eq!(far.read(&mut [0; 8]).unwrap(), 0);
    }
}

#[test]
fn a_fork_that_drops_a_wire_does_not_end_it() {
    let (mut near, mut far, _folder) = wires();
    // SAFETY: the child drops one value, which takes no lock of another thread, and ends without running anything else.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(near);
        // SAFETY: it ends the process at once.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: the child is ours, and the kernel writes one number into `status`.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    write_all(&mut near, &[b"still here"]).unwrap();
    let mut heard = [0; 10];
    read_exact(&mut far, &mut heard).unwrap();
    assert_eq!(&heard, b"still here");
}

#[test]
fn a_stream_that_is_cut_between_two_records_has_not_ended() {
    let (mut near, mut far, _folder) = wires();
    write_all(&mut near, &[&[1; 40_000]]).unwrap();
    // As somebody on the way would: the bytes that went are whole, and no more come.
    rustix::net::shutdown(near.raw_fd(), rustix::net::Shutdown::Write).unwrap();
    read_exact(&mut far, &mut vec![0; 40_000]).unwrap();
    for _ in 0..2 {
        let error = far.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
        assert!(error.to_string().contains("without the peer's goodbye"), "{error}");
    }
}
