//! Questions and answers, and peers that behave badly.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::path::PathBuf;

use super::*;

struct Socket(PathBuf);

impl Socket {
    fn new(name: &str) -> (Self, UnixListener) {
        let path = std::env::temp_dir().join(format!("bireme-admin-{}-{name}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        (Self(path), listener)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

const LONG: Duration = Duration::from_secs(20);

fn answer(request: AdminRequest) -> AdminReply {
    match request {
        AdminRequest::Status => {
            AdminReply::Status(Box::new(ClusterStatus { asked: NodeId(7), ..ClusterStatus::default() }))
        }
        AdminRequest::Drain { node, deadline_ms } => AdminReply::Refused(format!("{node} {deadline_ms}")),
        AdminRequest::Expel { node } => AdminReply::Refused(format!("{node}")),
        AdminRequest::Stop => AdminReply::Accepted,
    }
}

#[test]
fn a_question_is_answered() {
    let (socket, listener) = Socket::new("answered");
    let _server = AdminServer::start(listener, answer).unwrap();
    let ask = |request| ask(&socket.0, &request, LONG).unwrap();
    assert!(matches!(ask(AdminRequest::Status), AdminReply::Status(status) if status.asked == NodeId(7)));
    let drain = AdminRequest::Drain { node: NodeId(3), deadline_ms: 5 };
    assert_eq!(ask(drain), AdminReply::Refused("node-3 5".to_owned()));
    assert_eq!(ask(AdminRequest::Stop), AdminReply::Accepted);
}

#[test]
fn bad_frames_cost_their_peer_and_nobody_else() {
    let (socket, listener) = Socket::new("bad");
    let _server = AdminServer::start(listener, answer).unwrap();
    let too_long = [&b"BRA1"[..], &(REQUEST_BYTES_MAX + 1).to_le_bytes()].concat();
    let nonsense = [&b"BRA1"[..], &3_u32.to_le_bytes(), &[255; 3]].concat();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &too_long, &nonsense, b"BR"] {
        let mut peer = UnixStream::connect(&socket.0).unwrap();
        peer.write_all(bytes).unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        let mut said = Vec::new();
        // Closed with bytes unread is a reset; both mean that there is no answer.
        let _ = peer.read_to_end(&mut said);
        assert!(said.is_empty());
    }
    // Connects and says nothing: holds the others up for a bounded time.
    let _silent = UnixStream::connect(&socket.0).unwrap();
    assert_eq!(ask(&socket.0, &AdminRequest::Stop, LONG).unwrap(), AdminReply::Accepted);
}

#[test]
fn an_answer_that_is_too_long_is_refused_in_words() {
    let (socket, listener) = Socket::new("long");
    let _server = AdminServer::start(listener, |_| AdminReply::Refused("x".repeat(REPLY_BYTES_MAX as usize))).unwrap();
    let AdminReply::Refused(said) = ask(&socket.0, &AdminRequest::Status, LONG).unwrap() else { panic!() };
    assert!(said.contains("does not fit") && said.len() < 200);
}

#[test]
fn a_node_that_does_not_answer_in_time_is_an_error() {
    let (socket, _listener) = Socket::new("silent");
    let said = ask(&socket.0, &AdminRequest::Status, Duration::from_millis(20)).unwrap_err().to_string();
    assert!(said.contains("took too long"), "{said}");
    let missing = socket.0.with_extension("missing");
    assert!(ask(&missing, &AdminRequest::Status, LONG).is_err());
}

#[test]
fn a_peer_of_another_user_is_refused() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;

    let (one, _other) = UnixStream::pair().unwrap();
    check_peer(&one).unwrap();
    if !rustix::process::geteuid().is_root() {
        assert_ne!(std::env::var("BIREME_SKIPS").as_deref(), Ok("fail"), "not tested: only root can be someone else");
        return;
    }
    // A name that is no file: everybody may connect, and the check stands alone.
    let name = format!("bireme-admin-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _server = AdminServer::start(UnixListener::bind_addr(&address).unwrap(), answer).unwrap();
    let asked = |user: u32| {
        // Of this thread alone.
        rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(user)).unwrap();
        let mut stream = UnixStream::connect_addr(&address).unwrap();
        // The server may have closed it already.
        let _ = frame::write(&mut stream, &AdminRequest::Stop, REQUEST_BYTES_MAX, Instant::now() + LONG);
        frame::read::<AdminReply>(&mut stream, REPLY_BYTES_MAX, Instant::now() + LONG)
    };
    std::thread::scope(|scope| {
        let stranger = scope.spawn(|| asked(54_321)).join().unwrap();
        assert!(stranger.is_err(), "another user got an answer");
        assert_eq!(scope.spawn(|| asked(0)).join().unwrap().unwrap(), AdminReply::Accepted);
    });
}
