//! Replacing a cluster's authority, at a door: who comes in at which step, and what is left of the old one afterwards.

#![allow(clippy::unwrap_used, missing_docs, dead_code)]

#[path = "door/support.rs"]
mod support;

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bireme_core::id::NodeId;
use bireme_core::rotation::Stage;
use bireme_net::door::{
    DialError, DialSecurity, Door, Enrolment, Limits, Security, Timeouts, TlsSecurity, dial, enrol, renew,
};
use bireme_net::hello::{Hello, Purpose};
use bireme_net::tls::{
    Authority, CERTIFICATE_LIFE, ClientTls, Connections, Credentials, PeerIdentity, Role, ServerTls,
};
use bireme_net::token::{Stay, Token, TokenBook, TokenError, TokenState, TokenTerms};
use bireme_net::wire::{Wire, read_exact, write_all};
use support::{CLUSTER, Home, Inside, LOOPBACK, Lobby, now};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The head of a cluster: its door, its connections and its book.
struct Head {
    home: Home,
    identity: PeerIdentity,
    connections: Arc<Connections>,
    door: Door,
    lobby: Lobby,
}

impl Head {
    fn new() -> Self {
        Self::serving(Home::new(), None)
    }

    /// A door with certificates of one cluster that gives those of a book of another's.
    fn serving(home: Home, book: Option<TokenBook>) -> Self {
        let identity = PeerIdentity::random(Role::Node);
        let credentials = own_credentials(&home, identity);
        let connections = Connections::new(&credentials).unwrap();
        let tls = ServerTls::watched_by(Arc::clone(&connections), &credentials).unwrap();
        let enrolment = Some(Enrolment { book: book.unwrap_or_else(|| home.book()), life: CERTIFICATE_LIFE });
        let security = Security::Tls(Box::new(TlsSecurity { tls, enrolment, bulk_encryption: true }));
        let (greeter, lobby) = Lobby::new();
        let door = Door::open(LOOPBACK, CLUSTER, security, Limits::default(), greeter).unwrap();
        Self { home, identity, connections, door, lobby }
    }

    fn address(&self) -> SocketAddr {
        self.door.address()
    }

    fn rotate(&self) {
        self.home.book().rotate(DAY, now()).unwrap();
        self.follow();
    }

    /// The next step, when the head alone is there.
    fn advance(&self) {
        let epoch = self.epoch();
        self.home.book().look(vec![(NodeId::HEAD, epoch)], now()).unwrap();
        self.follow();
    }

    fn epoch(&self) -> u64 {
        self.home.book().read_now().unwrap().rotation().epoch()
    }

    fn stage(&self) -> Option<Stage> {
        self.home.book().read_now().unwrap().rotation().under_way().map(|under_way| under_way.stage)
    }

    /// Shows and trusts what the book says: how many connections are cut.
    fn follow(&self) -> usize {
        let credentials = own_credentials(&self.home, self.identity);
        self.door.tls().unwrap().renew(&credentials).unwrap();
        self.connections.trust_only(&credentials).unwrap()
    }

    fn finish(&self) {
        self.home.book().finish_rotation(false, now()).unwrap();
        self.advance();
        assert_eq!(self.stage(), None);
    }

    fn token(&self) -> Token {
        let terms = TokenTerms { role: Role::Node, life: DAY, uses: None, stay: Stay::Unbounded };
        let authorities = self.home.book().authorities().unwrap();
        self.home.book().create(terms, authorities.newest(), now()).unwrap()
    }

    fn enrol(&self, token: &Token) -> Result<Credentials, DialError> {
        enrol(self.address(), token, Role::Node, Timeouts::default())
    }

    fn renew(&self, credentials: &Credentials) -> Result<Credentials, DialError> {
        renew(self.address(), credentials, Timeouts::default())
    }

    fn dial(&self, credentials: &Credentials) -> Result<(Box<dyn Wire>, Inside), DialError> {
        let security = DialSecurity::Tls(ClientTls::new(credentials).unwrap().only(self.identity.uid));
        let hello = Hello::new(CLUSTER, 7, Purpose::Control);
        let (_, wire) = dial(self.address(), &security, &hello, Timeouts::default())?;
        Ok((wire, self.lobby.next()))
    }
}

fn own_credentials(home: &Home, identity: PeerIdentity) -> Credentials {
    home.book().authorities().unwrap().credentials(CLUSTER, identity, now(), CERTIFICATE_LIFE).unwrap()
}

/// Whether bytes of one end reach the other.
fn works((near, far): &mut (Box<dyn Wire>, Inside)) -> bool {
    let mut heard = [0; 4];
    let timeout = Some(Duration::from_secs(20));
    far.wire.set_timeouts(timeout, timeout).unwrap();
    write_all(&mut **near, &[b"ping"]).is_ok() && read_exact(&mut *far.wire, &mut heard).is_ok()
}

#[test]
fn a_member_that_follows_is_let_in_at_every_step_and_its_old_connections_end_with_the_old_authority() {
    let head = Head::new();
    let first = head.enrol(&head.token()).unwrap();
    let mut old = head.dial(&first).unwrap();
    head.rotate();
    let trusting = head.renew(&first).unwrap();
    assert_eq!((trusting.epoch(), trusting.fingerprint()), (1, first.fingerprint()));
    assert!(!trusting.are_of(head.token().fingerprint), "a token of the new authority gives others");
    head.dial(&trusting).unwrap();
    head.advance();
    assert_eq!(head.stage(), Some(Stage::Issued));
    let renewed = head.renew(&trusting).unwrap();
    assert_ne!(renewed.fingerprint(), first.fingerprint());
    assert_eq!((renewed.epoch(), renewed.identity()), (2, first.identity()));
    let mut new = head.dial(&renewed).unwrap();
    assert!(works(&mut old) && works(&mut new), "both are good");
    head.finish();
    assert!(!works(&mut old), "it was made with a certificate that is worth nothing any more");
    assert!(works(&mut new));
    let last = head.renew(&renewed).unwrap();
    assert_eq!(last.epoch(), 3);
    assert!(works(&mut head.dial(&last).unwrap()));
    // A start with the token of before finds them all the same, also when they were saved.
    let path = head.home.folder().join("saved/node.pem");
    last.save(&path).unwrap();
    let saved = Credentials::load(&path).unwrap();
    assert!(saved.are_of(first.fingerprint()) && saved.are_of(last.fingerprint()) && saved.epoch() == 3);
}

#[test]
fn who_comes_back_within_the_overlap_renews_and_who_comes_later_is_told_what_happened() {
    let head = Head::new();
    let [soon, late] = [(); 2].map(|()| head.enrol(&head.token()).unwrap());
    head.rotate();
    head.advance();
    // The head shows a certificate of the new authority to everybody else by now.
    assert!(works(&mut head.dial(&soon).unwrap()));
    let renewed = head.renew(&soon).unwrap();
    assert!(works(&mut head.dial(&renewed).unwrap()));
    head.finish();
    assert!(works(&mut head.dial(&renewed).unwrap()));
    for text in [head.dial(&late).err().unwrap().to_string(), head.renew(&late).err().unwrap().to_string()] {
        assert!(text.contains("was replaced") && text.contains("new token"), "{text}");
    }
    // Nor is it let in by somebody who knows the new authority and shows the old certificate.
    let contents = head.home.book().read_now().unwrap();
    let standing = contents.standing(late.identity().uid, now());
    assert!(matches!(standing, Err(TokenError::MemberOutdated)), "{standing:?}");
}

#[test]
fn a_certificate_of_the_old_authority_is_refused_even_by_who_knows_the_new_one() {
    let head = Head::new();
    let old = Authority::load(head.home.folder()).unwrap();
    head.rotate();
    head.advance();
    let member = head.enrol(&head.token()).unwrap();
    // Whoever has the old key makes what it likes, for any member.
    let forged = old.credentials(CLUSTER, member.identity(), now(), DAY).unwrap();
    let mut open = head.dial(&forged).unwrap();
    head.finish();
    assert!(!works(&mut open));
    // The file of the forger, which also trusts the new authority.
    let (mixed, good) = (head.home.folder().join("mixed.pem"), head.home.folder().join("good.pem"));
    forged.save(&mixed).unwrap();
    member.save(&good).unwrap();
    let begin = "-----BEGIN CERTIFICATE-----";
    let (forged, good) = (fs::read_to_string(&mixed).unwrap(), fs::read_to_string(&good).unwrap());
    let authority = good.match_indices(begin).nth(1).unwrap().0;
    fs::write(&mixed, format!("{}{}", &forged[..forged.rfind(begin).unwrap()], &good[authority..])).unwrap();
    let text = head.dial(&Credentials::load(&mixed).unwrap()).err().unwrap().to_string();
    assert!(text.contains("does not accept our certificate") && text.contains("was replaced"), "{text}");
}

#[test]
fn tokens_of_both_authorities_work_until_the_old_one_goes() {
    let head = Head::new();
    let old = head.token();
    head.rotate();
    let new = head.token();
    assert_ne!(old.fingerprint, new.fingerprint);
    for _ in 0..2 {
        for token in [&old, &new] {
            let credentials = head.enrol(token).unwrap();
            assert!(works(&mut head.dial(&credentials).unwrap()), "{:?}", head.stage());
        }
        head.advance();
    }
    assert_eq!(head.stage(), Some(Stage::Issued), "members have old certificates");
    head.finish();
    assert!(works(&mut head.dial(&head.enrol(&new).unwrap()).unwrap()));
    let text = head.enrol(&old).unwrap_err().to_string();
    assert!(text.contains("was replaced") && text.contains("bireme token create"), "{text}");
    let states: Vec<_> = head.home.book().list().unwrap().iter().map(|token| token.state(now())).collect();
    assert_eq!(states, [TokenState::Outdated, TokenState::Good]);
}

#[test]
fn the_old_authority_goes_by_itself_when_nothing_of_it_is_left() {
    let head = Head::new();
    let token = head.token();
    let member = head.enrol(&token).unwrap();
    head.home.book().rotate(DAY, now()).unwrap();
    head.advance();
    head.renew(&member).unwrap();
    head.advance();
    assert_eq!(head.stage(), Some(Stage::Issued), "the token could still be used");
    head.home.book().revoke(token.id).unwrap();
    head.advance();
    assert_eq!(head.stage(), None);
    let left: Vec<_> = fs::read_dir(head.home.folder()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_str().unwrap().contains("next")), "{left:?}");
}

#[test]
fn a_second_rotation_waits_for_the_first_and_there_is_nothing_to_finish_without_one() {
    let head = Head::new();
    let book = head.home.book();
    assert!(matches!(book.finish_rotation(false, now()), Err(TokenError::Rotation(_))));
    head.rotate();
    let before = fs::read(head.home.folder().join("authority.next.pem")).unwrap();
    let text = book.rotate(DAY, now()).unwrap_err().to_string();
    assert!(text.contains("already") && text.contains("--finish"), "{text}");
    assert_eq!(fs::read(head.home.folder().join("authority.next.pem")).unwrap(), before);
    head.advance();
    head.finish();
    let first = head.enrol(&head.token()).unwrap();
    head.rotate();
    head.advance();
    let second = head.renew(&first).unwrap();
    head.finish();
    let third = head.renew(&second).unwrap();
    assert_eq!(third.epoch(), 6);
    assert!(works(&mut head.dial(&third).unwrap()));
}

#[test]
fn a_crash_at_any_moment_leaves_files_that_the_head_goes_on_with() {
    let head = Head::new();
    let (authority, next) = (head.home.folder().join("authority.pem"), head.home.folder().join("authority.next.pem"));
    // After the new file and before the book: as if nothing had happened, and the next rotation makes another.
    fs::copy(&authority, &next).unwrap();
    let member = head.enrol(&head.token()).unwrap();
    assert_eq!(head.epoch(), 0);
    head.rotate();
    assert_ne!(fs::read(&authority).unwrap(), fs::read(&next).unwrap());
    head.advance();
    let renewed = head.renew(&member).unwrap();
    // After the book and before the file takes its place.
    let both = [&authority, &next].map(|path| fs::read(path).unwrap());
    head.finish();
    assert_eq!(fs::read(&authority).unwrap(), both[1]);
    fs::write(&authority, &both[0]).unwrap();
    let private = fs::metadata(&authority).unwrap().permissions();
    fs::write(&next, &both[1]).unwrap();
    fs::set_permissions(&next, private).unwrap();
    head.follow();
    assert_eq!(fs::read(&authority).unwrap(), both[1], "the old key is gone");
    assert!(!next.exists());
    assert!(works(&mut head.dial(&head.renew(&renewed).unwrap()).unwrap()));
    // A book and an authority that do not belong together are an error and no cluster.
    fs::write(&authority, &both[0]).unwrap();
    let text = head.home.book().authorities().err().unwrap().to_string();
    assert!(text.contains("one backup"), "{text}");
}

#[test]
fn no_node_can_make_others_trust_an_authority_of_its_own() {
    let (head, other) = (Head::new(), Home::new());
    let token = head.token();
    let member = head.enrol(&token).unwrap();
    // A node with a good certificate answers in place of the head, with the head's book and an authority that it made.
    fs::copy(head.home.folder().join("tokens"), other.folder().join("tokens")).unwrap();
    let copied = Home::new();
    for file in ["authority.pem", "tokens"] {
        fs::copy(head.home.folder().join(file), copied.folder().join(file)).unwrap();
    }
    let liar = Head::serving(copied, Some(other.book()));
    for rotates in [false, true] {
        if rotates {
            other.book().rotate(DAY, now()).unwrap();
        }
        for text in [liar.enrol(&token).unwrap_err().to_string(), liar.renew(&member).unwrap_err().to_string()] {
            assert!(text.contains("vouches"), "{text}");
        }
    }
}

#[test]
fn an_expelled_member_does_not_come_back_by_a_rotation() {
    let head = Head::new();
    let member = head.enrol(&head.token()).unwrap();
    head.home.book().expel(member.identity().uid).unwrap();
    head.rotate();
    for _ in 0..2 {
        let text = head.renew(&member).unwrap_err().to_string();
        assert!(text.contains("was expelled"), "{text}");
        head.advance();
    }
}
