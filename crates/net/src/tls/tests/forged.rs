//! Records that a member of the cluster can make and must not: it has the keys, and not our code.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::{ClientConnection, ConnectionTrafficSecrets, Error, PeerMisbehaved};

use super::*;

const DATA: u8 = 23;

/// A peer that has shaken hands and makes its own records from there on.
struct Forger {
    socket: TcpStream,
    key: LessSafeKey,
    iv: Vec<u8>,
    sequence: u64,
}

impl Forger {
    fn new(mut connection: ClientConnection, mut socket: TcpStream) -> Self {
        while connection.is_handshaking() || connection.wants_write() {
            connection.complete_io(&mut socket).unwrap();
        }
        let (sequence, secrets) = connection.dangerous_extract_secrets().unwrap().tx;
        let ConnectionTrafficSecrets::Aes256Gcm { key, iv } = secrets else { panic!("another cipher was agreed on") };
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_ref()).unwrap());
        Self { socket, key, iv: iv.as_ref().to_vec(), sequence }
    }

    fn send(&mut self, content: &[u8], kind: u8) {
        let mut record = [content, &[kind]].concat();
        let header = [DATA, 3, 3, 0, (record.len() + 16) as u8];
        let mut nonce: [u8; 12] = self.iv.clone().try_into().unwrap();
        nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()).for_each(|(byte, number)| *byte ^= number);
        self.sequence += 1;
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce, Aad::from(header), &mut record).unwrap();
        self.socket.write_all(&[&header[..], &record].concat()).unwrap();
    }
}

fn with_forger() -> (TlsWire, Forger, Folder) {
    let folder = Folder::new();
    let authority = Authority::create(&folder.0.join("authority"), now()).unwrap();
    let (server, client) = (credentials(&authority, Role::Node), credentials(&authority, Role::Client));
    let tls = ClientTls::new(&client).unwrap();
    let mut config = (*tls.config()).clone();
    config.enable_secret_extraction = true;
    let connection = ClientConnection::new(Arc::new(config), tls.server_name()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = listener.accept().unwrap().0;
    thread::scope(|scope| {
        let tls = ServerTls::new(&server).unwrap();
        let accepting = scope.spawn(move || TlsWire::accept(Socket::new(far, None).unwrap(), &[], &tls));
        let forger = Forger::new(connection, near);
        let wire = accepting.join().unwrap().unwrap();
        wire.set_timeouts(Some(Duration::from_secs(20)), None).unwrap();
        (wire, forger, folder)
    })
}

#[test]
fn a_record_of_a_forger_is_understood() {
    let (mut wire, mut forger, _folder) = with_forger();
    forger.send(b"hello", DATA);
    let mut heard = [0; 5];
    read_exact(&mut wire, &mut heard).unwrap();
    assert_eq!(&heard, b"hello");
}

#[test]
fn records_without_content_cannot_keep_a_reader_busy() {
    let (mut wire, mut forger, _folder) = with_forger();
    (0..100).for_each(|_| forger.send(b"", DATA));
    let error = wire.read(&mut [0; 8]).unwrap_err();
    let why = Error::PeerMisbehaved(PeerMisbehaved::TooManyEmptyFragments);
    assert_eq!(tls_error(&error), Some(&why), "{error}");
}

#[test]
fn a_kind_of_record_that_tls_does_not_have_is_refused() {
    let (mut wire, mut forger, _folder) = with_forger();
    // Once this announced bytes that followed in the clear.
    forger.send(&[0, 0, 0x40, 0], 64);
    forger.socket.write_all(&[7; 0x4000]).unwrap();
    let error = wire.read(&mut [0; 100]).unwrap_err();
    assert!(tls_error(&error).is_some(), "{error}");
}
