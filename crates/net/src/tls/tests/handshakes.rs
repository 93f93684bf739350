//! Handshakes with somebody who sends anything at all: an error, never a panic and never a connection.

use std::io::{self, Read, Write};

use proptest::prelude::*;
use rustls::{ClientConnection, ServerConnection};

use super::super::buffer::Buffer;
use super::super::wire::{RECEIVED_BYTES, shake};
use super::*;

/// A peer that has said all that it will say, and listens.
struct Script {
    says: io::Cursor<Vec<u8>>,
    heard: Vec<u8>,
}

impl Script {
    fn new(says: Vec<u8>) -> Self {
        Self { says: io::Cursor::new(says), heard: Vec::new() }
    }
}

impl Read for Script {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.says.read(buffer)
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.heard.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Sides {
    client: ClientTls,
    server: ServerTls,
    _folder: Folder,
}

impl Sides {
    fn new() -> Self {
        let folder = Folder::new();
        let authority = Authority::create(&folder.0.join("authority"), now()).unwrap();
        let server = ServerTls::new(&credentials(&authority, Role::Node)).unwrap();
        let client = ClientTls::new(&credentials(&authority, Role::Client)).unwrap();
        Self { client, server, _folder: folder }
    }

    fn dial(&self, script: &mut Script) -> io::Result<usize> {
        let connection = ClientConnection::new(self.client.config(), self.client.server_name()).unwrap();
        shake(&mut connection.into(), script, &mut Buffer::new(RECEIVED_BYTES))
    }

    fn answer(&self, script: &mut Script) -> io::Result<usize> {
        let connection = ServerConnection::new(self.server.config()).unwrap();
        shake(&mut connection.into(), script, &mut Buffer::new(RECEIVED_BYTES))
    }
}

/// What somebody does to the bytes of a handshake.
fn spoiled(mut bytes: Vec<u8>, changes: &[(prop::sample::Index, u8)], cut: Option<prop::sample::Index>) -> Vec<u8> {
    for (at, to) in changes {
        let at = at.index(bytes.len());
        bytes[at] = *to;
    }
    if let Some(cut) = cut {
        bytes.truncate(cut.index(bytes.len()));
    }
    bytes
}

fn spoil() -> impl Strategy<Value = (Vec<(prop::sample::Index, u8)>, Option<prop::sample::Index>, Vec<u8>)> {
    (
        prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..6),
        prop::option::of(any::<prop::sample::Index>()),
        prop::collection::vec(any::<u8>(), 0..100),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_spoiled_beginning_of_a_client_is_an_error((changes, cut, behind) in spoil()) {
        let sides = Sides::new();
        let mut script = Script::new(Vec::new());
        prop_assert!(sides.dial(&mut script).is_err());
        let mut said = spoiled(script.heard, &changes, cut);
        said.extend_from_slice(&behind);
        prop_assert!(sides.answer(&mut Script::new(said)).is_err());
    }

    #[test]
    fn a_spoiled_answer_of_a_server_is_an_error((changes, cut, behind) in spoil()) {
        // Of another handshake: its keys are not those of this one.
        let sides = Sides::new();
        let mut script = Script::new(Vec::new());
        let _ = sides.dial(&mut script);
        let mut answered = Script::new(script.heard);
        prop_assert!(sides.answer(&mut answered).is_err());
        let mut said = spoiled(answered.heard, &changes, cut);
        said.extend_from_slice(&behind);
        prop_assert!(sides.dial(&mut Script::new(said)).is_err());
    }

    #[test]
    fn anything_at_all_is_an_error(
        records in prop::collection::vec((prop_oneof![Just(20u8), Just(21), Just(22), Just(23), any::<u8>()],
            prop::collection::vec(any::<u8>(), 0..60)), 0..6),
        is_server in any::<bool>(),
    ) {
        let record = |(kind, body): &(u8, Vec<u8>)| [&[*kind, 3, 3, 0, body.len() as u8][..], body].concat();
        let mut script = Script::new(records.iter().flat_map(record).collect());
        let sides = Sides::new();
        let shaken = if is_server { sides.answer(&mut script) } else { sides.dial(&mut script) };
        prop_assert!(shaken.is_err());
    }
}
