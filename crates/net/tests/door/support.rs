//! A door, who lives behind it, and peers of every kind.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read, Seek, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bireme_net::door::{
    Arrival, DialSecurity, Door, Enrolment, Greeter, Limits, LoopbackKey, Refusal, Security, TlsSecurity,
};
use bireme_net::frame::HEADER_BYTES;
use bireme_net::hello::{Hello, Welcome};
use bireme_net::tls::{
    Authority, CERTIFICATE_LIFE, ClientTls, Credentials, Fingerprint, PeerIdentity, Role, ServerTls, TlsWire,
};
use bireme_net::token::{Stay, Token, TokenBook, TokenTerms};
use bireme_net::wire::Wire;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub const CLUSTER: u128 = 0x00b1_2e3e_00c1;
pub const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);
const WAIT: Duration = Duration::from_secs(20);

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Somebody who came in.
pub struct Inside {
    pub hello: Hello,
    pub peer: Option<PeerIdentity>,
    pub wire: Box<dyn Wire>,
}

enum Plan {
    Refuse(&'static str),
    Drop,
}

#[derive(Default)]
struct Seen {
    inside: VecDeque<Inside>,
    refusals: Vec<Refusal>,
    plans: VecDeque<Plan>,
}

/// What has happened behind a door, to be waited for.
#[derive(Clone, Default)]
pub struct Lobby(Arc<(Mutex<Seen>, Condvar)>);

impl Lobby {
    pub fn new() -> (Arc<dyn Greeter>, Lobby) {
        let lobby = Lobby::default();
        (Arc::new(lobby.clone()), lobby)
    }

    /// The next one who came in.
    pub fn next(&self) -> Inside {
        self.wait(|seen| seen.inside.pop_front())
    }

    pub fn refusals(&self) -> Vec<Refusal> {
        self.0.0.lock().unwrap().refusals.clone()
    }

    pub fn wait_for_refusals(&self, count: usize) {
        self.wait(|seen| (seen.refusals.len() >= count).then_some(()));
    }

    /// Waits for something that nobody tells of.
    pub fn wait_until(&self, condition: impl Fn() -> bool) {
        self.wait(|_| condition().then_some(()));
    }

    pub fn refuse_next(&self, reason: &'static str) {
        self.0.0.lock().unwrap().plans.push_back(Plan::Refuse(reason));
    }

    pub fn drop_next(&self) {
        self.0.0.lock().unwrap().plans.push_back(Plan::Drop);
    }

    fn wait<T>(&self, mut look: impl FnMut(&mut Seen) -> Option<T>) -> T {
        let deadline = Instant::now() + WAIT;
        let mut seen = self.0.0.lock().unwrap();
        loop {
            if let Some(found) = look(&mut seen) {
                return found;
            }
            assert!(Instant::now() < deadline, "nothing within {WAIT:?}; refused: {:?}", seen.refusals);
            seen = self.0.1.wait_timeout(seen, Duration::from_millis(10)).unwrap().0;
        }
    }
}

impl Greeter for Lobby {
    fn arrived(&self, arrival: Arrival) {
        let plan = self.0.0.lock().unwrap().plans.pop_front();
        match plan {
            Some(Plan::Refuse(reason)) => arrival.refuse(reason),
            Some(Plan::Drop) => drop(arrival),
            None => {
                let (hello, peer) = (arrival.hello.clone(), arrival.peer);
                // A peer that goes before it hears its welcome is its own affair.
                if let Ok(wire) = arrival.welcome(&Welcome::new(CLUSTER, 1)) {
                    self.0.0.lock().unwrap().inside.push_back(Inside { hello, peer, wire });
                    self.0.1.notify_all();
                }
            }
        }
    }

    fn refused(&self, refusal: &Refusal) {
        self.0.0.lock().unwrap().refusals.push(refusal.clone());
        self.0.1.notify_all();
    }
}

/// A cluster with an authority, a token book and a folder of its own, which goes with it.
pub struct Home {
    folder: PathBuf,
}

impl Home {
    pub fn new() -> Self {
        let name = format!("bireme-door-{}-{:032x}", std::process::id(), PeerIdentity::random(Role::Node).uid);
        let folder = std::env::temp_dir().join(name);
        Authority::create(&folder, now()).unwrap();
        Self { folder }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn authority(&self) -> Authority {
        Authority::load(&self.folder).unwrap()
    }

    pub fn book(&self) -> TokenBook {
        TokenBook::open(&self.folder.join("tokens")).unwrap()
    }

    pub fn fingerprint(&self) -> Fingerprint {
        self.authority().fingerprint()
    }

    pub fn token(&self, role: Role, life: Duration, uses: Option<u32>) -> Token {
        self.book().create(TokenTerms { role, life, uses, stay: Stay::WithToken }, self.fingerprint(), now()).unwrap()
    }

    pub fn credentials(&self, role: Role) -> Credentials {
        self.authority().credentials(CLUSTER, PeerIdentity::random(role), now(), CERTIFICATE_LIFE).unwrap()
    }

    /// Credentials that believe in this cluster and whose certificate is of another: the file of ours, with the key
    /// and the certificate of theirs.
    pub fn credentials_signed_by(&self, other: &Home) -> Credentials {
        let path = self.folder.join("mixed.pem");
        let saved = |home: &Home| {
            home.credentials(Role::Node).save(&path).unwrap();
            fs::read_to_string(&path).unwrap()
        };
        let (ours, theirs) = (saved(self), saved(other));
        let begin = "-----BEGIN CERTIFICATE-----";
        let head = &theirs[..theirs.rfind(begin).unwrap()];
        let mixed = format!("{head}{}", &ours[ours.rfind(begin).unwrap()..]);
        fs::write(&path, mixed).unwrap();
        Credentials::load(&path).unwrap()
    }

    pub fn door(&self, limits: Limits) -> (Door, Lobby) {
        let enrolment = Enrolment { book: self.book(), life: CERTIFICATE_LIFE };
        self.open(limits, Some(enrolment), true)
    }

    pub fn door_without_enrolment(&self) -> (Door, Lobby) {
        self.open(Limits::default(), None, true)
    }

    pub fn door_without_bulk_encryption(&self) -> (Door, Lobby) {
        self.open(Limits::default(), None, false)
    }

    fn open(&self, limits: Limits, enrolment: Option<Enrolment>, bulk_encryption: bool) -> (Door, Lobby) {
        let tls = ServerTls::new(&self.credentials(Role::Node)).unwrap();
        let security = Security::Tls(Box::new(TlsSecurity { tls, enrolment, bulk_encryption }));
        let (greeter, lobby) = Lobby::new();
        (Door::open(LOOPBACK, CLUSTER, security, limits, greeter).unwrap(), lobby)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The key of the user of these tests.
pub fn user_key() -> LoopbackKey {
    static KEY: OnceLock<LoopbackKey> = OnceLock::new();
    KEY.get_or_init(|| LoopbackKey::open(Home::new().folder()).unwrap()).clone()
}

/// Dials as the user of `plain_door`.
pub fn same_user() -> DialSecurity {
    DialSecurity::Loopback(user_key())
}

pub fn plain_door(limits: Limits) -> (Door, Lobby) {
    let (greeter, lobby) = Lobby::new();
    (Door::open(LOOPBACK, CLUSTER, Security::Loopback(user_key()), limits, greeter).unwrap(), lobby)
}

/// The same token with a secret that is another: everything but the last 36 bytes, and a right checksum.
pub fn with_another_secret(token: &Token) -> Token {
    let letters = b"abcdefghijklmnopqrstuvwxyz234567";
    let text = token.to_text();
    let values = text[7..].bytes().map(|letter| letters.iter().position(|known| *known == letter).unwrap() as u64);
    let mut bits: Vec<bool> = values.flat_map(|value| (0..5).rev().map(move |bit| value >> bit & 1 == 1)).collect();
    bits.truncate(bits.len() / 8 * 8);
    let mut bytes: Vec<u8> =
        bits.chunks(8).map(|byte| byte.iter().fold(0, |sum, bit| sum << 1 | u8::from(*bit))).collect();
    let content = bytes.len() - 4;
    bytes[content - 1] ^= 1;
    let crc = crc32fast::hash(&bytes[..content]);
    bytes[content..].copy_from_slice(&crc.to_le_bytes());
    let mut bits: Vec<bool> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1)).collect();
    bits.resize(bits.len().div_ceil(5) * 5, false);
    let value = |letter: &[bool]| letter.iter().fold(0, |sum, bit| sum << 1 | usize::from(*bit));
    let text: String = bits.chunks(5).map(|letter| char::from(letters[value(letter)])).collect();
    Token::parse(&format!("bireme-{text}")).unwrap()
}

/// Says something after the handshake of a newcomer, and gives what is answered as text.
pub fn say_over_tls(address: SocketAddr, fingerprint: Fingerprint, bytes: &[u8]) -> String {
    let tls = ClientTls::pinned(fingerprint).unwrap();
    let mut wire = TlsWire::dial(TcpStream::connect(address).unwrap(), &tls).unwrap();
    bireme_net::wire::write_all(&mut wire, &[bytes]).unwrap();
    wire.set_timeouts(Some(WAIT), None).unwrap();
    let mut answer = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        match wire.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => answer.extend_from_slice(&buffer[..read]),
            Err(error) => panic!("{error}"),
        }
    }
    String::from_utf8_lossy(&answer[HEADER_BYTES..]).into_owned()
}

/// The bytes with which a peer with a certificate opens TLS.
pub fn first_words_of(credentials: &Credentials) -> Vec<u8> {
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let tls = ClientTls::new(credentials).unwrap();
    let speaking = std::thread::spawn(move || TlsWire::dial(stream, &tls).map(|_| ()).unwrap_err());
    let mut words = vec![0; 16 << 10];
    let (mut accepted, _) = listener.accept().unwrap();
    let read = accepted.read(&mut words).unwrap();
    drop(accepted);
    speaking.join().unwrap();
    words.truncate(read);
    words
}

/// Says something, and no more, and waits until the other side has closed.
pub fn say_and_leave(address: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    match stream.read_to_end(&mut Vec::new()) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => panic!("the door did not close"),
        _ => {}
    }
}

/// A connection from an address of this machine's choice.
pub fn connect_from(from: SocketAddr, to: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &from).unwrap();
    connect(&socket, &to).unwrap();
    TcpStream::from(socket)
}

/// A program of another user that says something and closes at once, so many times. Needs root.
///
/// Meanwhile this process has no descriptors left, so that its door comes to the connections when their sockets have been closed:
/// the door of a busy machine, in every run.
pub fn say_as_another_user_and_leave(address: SocketAddr, bytes: &[u8], times: usize) {
    let script = "import socket, sys\n\
                  words = bytes.fromhex(sys.argv[3])\n\
                  sys.stdin.readline()\n\
                  for _ in range(int(sys.argv[4])):\n\
                  \x20   s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); s.sendall(words); s.close()";
    let words: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let arguments = [address.ip().to_string(), address.port().to_string(), words, times.to_string()];
    let mut command = Command::new("python3");
    let mut speaking = command.args(["-c", script]).args(arguments).uid(65534).stdin(Stdio::piped()).spawn().unwrap();
    let (mut sockets, door) = (fs::File::open("/proc/net/tcp").unwrap(), format!(":{:04X}", address.port()));
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..before }).unwrap();
    speaking.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let status = speaking.wait().unwrap();
    let open = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        // Connected, or not yet told that its end has arrived.
        words.len() > 3 && words[2].ends_with(&door) && (words[3] == "01" || words[3] == "04")
    };
    let deadline = Instant::now() + WAIT;
    let mut table = String::from("none yet");
    while table == "none yet" || table.lines().any(open) {
        assert!(Instant::now() < deadline, "sockets that were closed are still there: {table}");
        table.clear();
        sockets.rewind().unwrap();
        sockets.read_to_string(&mut table).unwrap();
    }
    setrlimit(Resource::Nofile, before).unwrap();
    assert!(status.success());
}

/// How much memory this process uses.
pub fn resident_bytes() -> usize {
    let pages = || -> io::Result<String> { fs::read_to_string("/proc/self/statm") };
    let pages: usize = pages().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}
