//! Keys of heads and of those who join, without a network.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use super::*;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bireme-lock-{name}-{}", std::process::id()));
        // One that a test left that was ended.
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn choice(folder: &Folder, head: Option<&str>, bind: &str) -> ClusterChoice {
    ClusterChoice {
        head: head.map(|head| head.parse().unwrap()),
        bind: Some(bind.parse().unwrap()),
        security: SecurityChoice::Tls(TlsChoice::new(folder.0.clone())),
        ..Default::default()
    }
}

#[test]
fn a_head_that_is_started_again_at_its_address_has_the_keys_and_the_token_of_before() {
    let folder = Folder::new("again");
    let started = |bind| {
        let lock = Lock::prepare(&choice(&folder, None, bind)).unwrap();
        let cluster = lock.cluster().unwrap();
        (cluster, lock.identity(), secret::read(&keys::token_file(&folder.0, cluster)).unwrap())
    };
    let first = started("10.0.0.1:7");
    assert_eq!(started("10.0.0.1:7"), first);
    assert_ne!(started("10.0.0.1:8").0, first.0, "another address is another cluster");
    assert_ne!(started("10.0.0.1:0").0, started("10.0.0.1:0").0, "any port is a new cluster each time");
}

#[test]
fn a_token_that_cannot_be_used_any_more_is_replaced_when_the_head_starts() {
    let folder = Folder::new("token");
    let head = choice(&folder, None, "10.0.0.1:7");
    let cluster = Lock::prepare(&head).unwrap().cluster().unwrap();
    let read = || {
        let text = String::from_utf8(secret::read(&keys::token_file(&folder.0, cluster)).unwrap()).unwrap();
        Token::parse(&text).unwrap()
    };
    let first = read();
    TokenBook::open(&keys::folder(&folder.0, cluster).join(BOOK)).unwrap().revoke(first.id).unwrap();
    Lock::prepare(&head).unwrap();
    assert_ne!(read().id, first.id);
}

#[test]
fn who_joins_without_keys_or_token_is_told_how_to_get_one() {
    let folder = Folder::new("none");
    let error = Lock::prepare(&choice(&folder, Some("10.0.0.1:7"), "10.0.0.2:0")).err().unwrap().to_string();
    assert!(error.contains("10.0.0.1:7") && error.contains("bireme token create"), "{error}");
}

#[test]
fn a_renewed_certificate_is_of_the_same_node_and_is_saved() {
    let folder = Folder::new("renew");
    let lock = Lock::prepare(&choice(&folder, None, "10.0.0.1:7")).unwrap();
    let (identity, mut keys) = (lock.identity(), lock.keys.unwrap());
    let before = keys.credentials.save(&folder.0.join("before.pem")).map(|()| folder.0.join("before.pem")).unwrap();
    keys.renew().unwrap();
    assert_eq!(keys.credentials.identity().uid, identity);
    assert_ne!(secret::read(&before).unwrap(), secret::read(&keys.path).unwrap(), "it has a new key");
    assert_eq!(Credentials::load(&keys.path).unwrap().identity(), keys.credentials.identity());
}

#[test]
fn nothing_is_dialled_without_tls_where_bulk_encryption_is_off_by_name() {
    let folder = Folder::new("bulk");
    let mut head = choice(&folder, None, "10.0.0.1:7");
    assert_eq!(Lock::prepare(&head).unwrap().dialer.bulk_encryption(), Some(true));
    let SecurityChoice::Tls(tls) = &mut head.security else { panic!("it was made with TLS") };
    tls.bulk_encryption = false;
    let trusting = Lock::prepare(&head).unwrap().dialer;
    assert_eq!(trusting.bulk_encryption(), Some(false));
    assert!(matches!(trusting.to(0), DialSecurity::Tls(_)));
}
