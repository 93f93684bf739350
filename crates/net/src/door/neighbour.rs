//! Whose process is at the other end of a loopback connection.
//!
//! Loopback keeps other machines out, not other users of this one. Linux knows the user of every socket, and both ends
//! of a loopback connection are here. It is asked for the one socket; where it cannot be (a kernel without that, a
//! sandbox), all of them are read from `/proc/net/tcp`, which takes milliseconds instead of microseconds.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, sockopt};

/// How long the kernel may take; it answers within the call.
const ANSWER_WAIT: Duration = Duration::from_millis(500);
/// `SOCK_DIAG_BY_FAMILY`: what is known of one socket.
const ABOUT_SOCKET: u16 = 20;
/// `NLMSG_ERROR`: why nothing is.
const ABOUT_ERROR: u16 = 2;
const IS_REQUEST: u16 = 1;
const TCP: u8 = 6;
/// Bytes of a message's header, and of a socket's name.
const HEADER_BYTES: usize = 16;
const NAME_BYTES: usize = 48;
/// Where an answer has the name of the socket, and its user.
const NAME_AT: usize = HEADER_BYTES + 4;
const USER_AT: usize = NAME_AT + NAME_BYTES + 12;

/// Whether the process at `theirs` has the same user as this one, which is at `ours`; the reason if not.
pub(super) fn check(theirs: SocketAddr, ours: SocketAddr) -> Result<(), String> {
    let own = rustix::process::geteuid().as_raw();
    match owner(theirs, ours) {
        Ok(Some(user)) if user == own => Ok(()),
        Ok(Some(user)) => Err(format!(
            "the process at {theirs} belongs to user {user}, this one to user {own}: a cluster without TLS is for one \
            user; start it with TLS and give the other user a token"
        )),
        Ok(None) => Err(format!("the process at {theirs} has gone")),
        Err(error) => Err(format!("cannot tell whose process is at {theirs}: /proc/net: {error}")),
    }
}

/// The user of the socket at `theirs` that is connected to `ours`.
fn owner(theirs: SocketAddr, ours: SocketAddr) -> io::Result<Option<u32>> {
    asked(theirs, ours).or_else(|_| listed(theirs, ours))
}

/// The same, from the kernel's answer.
fn asked(theirs: SocketAddr, ours: SocketAddr) -> io::Result<Option<u32>> {
    let kernel =
        net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?;
    sockopt::set_socket_timeout(&kernel, sockopt::Timeout::Recv, Some(ANSWER_WAIT))?;
    let name = name_of(theirs, ours);
    net::send(&kernel, &question(theirs, &name), SendFlags::empty())?;
    let mut answer = [0; 1024];
    let (length, _) = net::recv(&kernel, &mut answer[..], RecvFlags::empty())?;
    read_answer(&answer[..length], &name).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// A socket by its own address and the one that it is connected to.
fn name_of(own: SocketAddr, other: SocketAddr) -> [u8; NAME_BYTES] {
    let mut name = [0; NAME_BYTES];
    name[..2].copy_from_slice(&own.port().to_be_bytes());
    name[2..4].copy_from_slice(&other.port().to_be_bytes());
    for (at, address) in [(4, own), (20, other)] {
        match address.ip() {
            IpAddr::V4(ip) => name[at..at + 4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => name[at..at + 16].copy_from_slice(&ip.octets()),
        }
    }
    // Any interface, and whichever socket has had the name last.
    name[40..].fill(0xff);
    name
}

fn question(address: SocketAddr, name: &[u8; NAME_BYTES]) -> Vec<u8> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let length = (HEADER_BYTES + 8 + NAME_BYTES) as u32;
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend_from_slice(&ABOUT_SOCKET.to_ne_bytes());
    bytes.extend_from_slice(&IS_REQUEST.to_ne_bytes());
    // Neither number nor sender: there is one answer.
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&[family.as_raw() as u8, TCP, 0, 0]);
    // In whatever state.
    bytes.extend_from_slice(&u32::MAX.to_ne_bytes());
    bytes.extend_from_slice(name);
    bytes
}

/// The user of the socket, or that there is no such socket; nothing when the answer says neither.
fn read_answer(answer: &[u8], name: &[u8; NAME_BYTES]) -> Option<Option<u32>> {
    let number = |at: usize| Some(u32::from_ne_bytes(*answer.get(at..)?.first_chunk()?));
    match u16::from_ne_bytes(*answer.get(4..)?.first_chunk()?) {
        // A socket that listens at the address is found too, when the one that is meant has gone.
        ABOUT_SOCKET if answer.get(NAME_AT..NAME_AT + 36)? == &name[..36] => Some(Some(number(USER_AT)?)),
        ABOUT_SOCKET => Some(None),
        ABOUT_ERROR if number(HEADER_BYTES)?.cast_signed() == -rustix::io::Errno::NOENT.raw_os_error() => Some(None),
        _ => None,
    }
}

/// The same, from the list of all sockets.
fn listed(theirs: SocketAddr, ours: SocketAddr) -> io::Result<Option<u32>> {
    let table = if theirs.is_ipv4() { "/proc/net/tcp" } else { "/proc/net/tcp6" };
    Ok(find(&fs::read_to_string(table)?, &in_table(theirs), &in_table(ours)))
}

/// The user in the line of a connection: `number: local remote state queues timer retransmits user ...`.
fn find(table: &str, local: &str, remote: &str) -> Option<u32> {
    table.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        (words.next()? == local && words.next()? == remote).then(|| words.nth(4)?.parse().ok())?
    })
}

/// An address as the table has it: 32-bit words of the machine's own order, then the port.
fn in_table(address: SocketAddr) -> String {
    let octets = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let (words, _) = octets.as_chunks::<4>();
    let words: String = words.iter().map(|word| format!("{:08X}", u32::from_ne_bytes(*word))).collect();
    format!("{words}:{:04X}", address.port())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_user_of_both_ends_is_found_in_both_ways() {
        let own = rustix::process::geteuid().as_raw();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = match TcpListener::bind(address) {
                Ok(listener) => listener,
                // A machine without the newer protocol.
                Err(_) if address.starts_with('[') => continue,
                Err(error) => panic!("{error}"),
            };
            let to = listener.local_addr().unwrap();
            let dialled = TcpStream::connect(to).unwrap();
            let (accepted, from) = listener.accept().unwrap();
            for (theirs, ours) in [(from, to), (to, from)] {
                assert_eq!(check(theirs, ours), Ok(()));
                assert_eq!(listed(theirs, ours).unwrap(), Some(own));
            }
            // A kernel that cannot be asked is no failure, one that answers wrongly is.
            if let Ok(answer) = asked(from, to) {
                assert_eq!((answer, asked(to, from).unwrap()), (Some(own), Some(own)));
                // Nobody is there, and somebody who only listens.
                let nobody = SocketAddr::new(to.ip(), 1);
                assert_eq!(asked(nobody, to).unwrap(), None);
                assert_eq!(asked(to, nobody).unwrap(), None);
            }
            drop((dialled, accepted));
        }
    }

    #[test]
    fn an_answer_that_is_none_is_not_read() {
        let name = name_of("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        let mut answer = question("127.0.0.1:1".parse().unwrap(), &name);
        for length in 0..NAME_AT + 36 {
            assert_eq!(read_answer(&answer[..length], &name), None);
        }
        answer[4..6].copy_from_slice(&ABOUT_ERROR.to_ne_bytes());
        assert_eq!(read_answer(&answer, &name), None);
        answer[16..20].copy_from_slice(&(-2i32).to_ne_bytes());
        assert_eq!(read_answer(&answer, &name), Some(None));
    }

    #[test]
    fn the_line_of_another_connection_is_not_taken() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n\
            \x20  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1\n\
            \x20  1: 0100007F:1F90 0100007F:C000 01 00000000:00000000 00:00000000 00000000  1001        0 2\n\
            \x20  2: 0100007F:C000 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1002        0 3\n";
        let (door, peer) = (in_table("127.0.0.1:8080".parse().unwrap()), in_table("127.0.0.1:49152".parse().unwrap()));
        assert_eq!(find(table, &peer, &door), Some(1002));
        assert_eq!(find(table, &door, &peer), Some(1001));
        assert_eq!(find(table, &peer, &peer), None);
    }
}
