//! Replacing the authority of a cluster that works meanwhile: `bireme token rotate`, with a head, members and a client in processes.
#![allow(clippy::unwrap_used, missing_docs)]

mod locked;
mod support;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use bireme::Bytes;
use bireme_runtime::net::tls::{Authority, ClientTls, Credentials, Role};
use bireme_runtime::tokens::{Stage, Tokens};
use locked::{Locked, Member, Part};
use support::{PATIENCE, eventually};

const DAY: Duration = Duration::from_secs(86_400);

#[bireme::remote]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

#[bireme::remote]
fn total(bytes: Bytes) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

#[bireme::remote]
fn fill(n: usize, with: u8) -> Bytes {
    Bytes::from(vec![with; n])
}

#[derive(Debug)]
pub struct Counter(i64);

#[bireme::actor]
impl Counter {
    pub fn new(from: i64) -> Self {
        Counter(from)
    }

    pub fn count(&mut self) -> i64 {
        self.0 += 1;
        self.0
    }
}

/// The part of a member: this program again. A client adds two numbers for each line that it is told.
#[test]
fn a_member_when_it_is_asked_for_by_the_environment() {
    let Some(part) = Part::of_environment() else { return };
    locked::play(&part, || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            println!("\n{line} {}", add::remote(40, 2).get_timeout(PATIENCE).unwrap());
        }
    });
}

fn tokens(cluster: &Locked) -> Tokens {
    Tokens::of(&cluster.keys()).unwrap()
}

fn stage(cluster: &Locked) -> Option<Stage> {
    tokens(cluster).rotation().unwrap().map(|rotation| rotation.stage)
}

/// Whether all that are there have certificates of the new authority.
fn all_renewed(cluster: &Locked) -> bool {
    let rotation = tokens(cluster).rotation().unwrap();
    rotation.is_some_and(|rotation| rotation.stage == Stage::Issued && rotation.behind.is_empty())
}

/// The nodes that are there, which no rotation may change.
fn nodes() -> Vec<u32> {
    bireme::nodes().unwrap().iter().filter(|row| row.alive).map(|row| row.node.0).collect()
}

#[test]
fn a_cluster_works_on_while_its_authority_is_replaced() {
    let cluster = Locked::start("rotation", true);
    let members = [cluster.member("a"), cluster.member("b")];
    let client = cluster.new_token(Role::Client, DAY, None).to_text();
    let client = Part { token: Some(client), bind: None, ..cluster.part("client") };
    let mut client = Member::start(&client).unwrap();
    // Two that are away when it begins; one of them stays away.
    let [soon, late] = ["soon", "late"].map(|name| {
        let member = cluster.member(name);
        member.part.clone()
    });
    eventually("they have left", || nodes() == [1, 2, 3, 4]);
    let old_token = cluster.token();
    let first = members[0].credentials();
    let counter = Counter::remote(0);
    let (stop, rounds) = (AtomicBool::new(false), AtomicI64::new(0));
    std::thread::scope(|scope| {
        // Whatever this does, it ends.
        let stopping = Stop(&stop);
        let job = scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                let round = rounds.fetch_add(1, Ordering::AcqRel) + 1;
                assert_eq!(counter.count().get_timeout(PATIENCE).unwrap(), round, "once, in order, on the same actor");
                let made = fill::options().retries(0).remote(8 << 20, 3);
                let read = total::options().retries(0).remote(&made);
                let sums: Vec<_> = (0..20).map(|n| add::options().retries(0).remote(n, round)).collect();
                for (n, sum) in (0..).zip(&sums) {
                    assert_eq!(sum.get_timeout(PATIENCE).unwrap(), n + round);
                }
                assert_eq!(read.get_timeout(PATIENCE).unwrap(), 24 << 20);
                assert_eq!(made.get_timeout(PATIENCE).unwrap().len(), 8 << 20);
            }
        });
        let goes_on = || {
            let before = rounds.load(Ordering::Acquire);
            eventually("the job goes on", || rounds.load(Ordering::Acquire) > before + 3 || job.is_finished());
            assert!(!job.is_finished());
        };
        goes_on();
        tokens(&cluster).rotate(DAY).unwrap();
        let again = tokens(&cluster).rotate(DAY).unwrap_err().to_string();
        assert!(again.contains("already"), "{again}");
        eventually("all have renewed", || all_renewed(&cluster));
        goes_on();
        let renewed = members[0].credentials();
        assert_ne!(renewed.fingerprint(), first.fingerprint());
        assert_eq!(renewed.identity(), first.identity());
        assert_eq!(renewed.fingerprint(), tokens(&cluster).fingerprint().unwrap());
        // One comes back with the certificate and the token of before, and a new one comes with that token.
        let soon = Member::start(&soon).unwrap();
        assert_eq!(soon.credentials().fingerprint(), renewed.fingerprint());
        let newcomer = Member::start(&Part { token: Some(old_token.clone()), ..cluster.part("newcomer") }).unwrap();
        assert_eq!(newcomer.credentials().fingerprint(), renewed.fingerprint());
        goes_on();
        assert_eq!(stage(&cluster), Some(Stage::Issued), "somebody is away");
        tokens(&cluster).finish_rotation(false).unwrap();
        eventually("the old authority is gone", || stage(&cluster).is_none());
        eventually("nobody trusts it any more", || {
            members.iter().chain([&soon, &newcomer]).all(|member| member.credentials().epoch() == 3)
        });
        goes_on();
        client.say("after");
        client.tells("after 42");
        assert_eq!(nodes(), [1, 2, 3, 4, 7, 8], "nobody was lost");
        drop(stopping);
        job.join().unwrap();
    });
    let reason = Member::start(&late).err().unwrap();
    assert!(reason.contains("was replaced") && reason.contains("new token"), "{reason}");
    let reason = Member::start(&Part { token: Some(old_token), ..cluster.part("other") }).err().unwrap();
    assert!(reason.contains("was replaced") && reason.contains("new token"), "{reason}");
    let _late = Member::start(&Part { token: Some(cluster.token()), ..late }).unwrap();
    assert!(nodes().contains(&9), "as a new node");
    assert_eq!(add::remote(1, 2).get_timeout(PATIENCE).unwrap(), 3);
}

/// Ends the job when its test does, or fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn who_has_the_old_key_is_out_when_the_old_authority_goes() {
    let cluster = Locked::start("old-key", true);
    let member = cluster.member("a");
    let old = Authority::load(&cluster.keys()).unwrap();
    let forged = |cluster: &Locked| {
        let own = Credentials::load(&cluster.keys().join("head.pem")).unwrap();
        old.credentials(own.cluster(), member.credentials().identity(), locked::now(), DAY).unwrap()
    };
    let dial = |credentials: &Credentials| locked::dial_heart(cluster.address, &ClientTls::new(credentials).unwrap());
    assert!(dial(&forged(&cluster)).is_ok());
    tokens(&cluster).rotate(DAY).unwrap();
    eventually("all have renewed", || all_renewed(&cluster));
    tokens(&cluster).finish_rotation(false).unwrap();
    eventually("the old authority is gone", || stage(&cluster).is_none());
    eventually("its certificates are refused", || dial(&forged(&cluster)).is_err());
    assert_eq!(add::remote(1, 2).get_timeout(PATIENCE).unwrap(), 3);
}

#[test]
fn an_expelled_member_is_not_waited_for_and_does_not_come_back() {
    let cluster = Locked::start("expelled", true);
    let _stays = cluster.member("a");
    let expelled = cluster.member("b");
    cluster.book().expel(expelled.credentials().identity().uid).unwrap();
    tokens(&cluster).rotate(DAY).unwrap();
    eventually("it is out", || nodes() == [1, 2]);
    eventually("the others have renewed", || all_renewed(&cluster));
    tokens(&cluster).finish_rotation(false).unwrap();
    eventually("the old authority is gone", || stage(&cluster).is_none());
    let mut part = expelled.part.clone();
    part.token = None;
    let reason = Member::start(&part).err().unwrap();
    assert!(reason.contains("was replaced"), "{reason}");
    assert_eq!(add::remote(1, 2).get_timeout(PATIENCE).unwrap(), 3);
}

#[test]
fn a_member_that_does_not_renew_is_expelled_by_force() {
    let cluster = Locked::start("forced", true);
    let _stays = cluster.member("a");
    let stuck = cluster.member("b");
    // It cannot save what it gets, so it does not use it.
    let folder = locked::only_cluster(&stuck.part.keys);
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::write(&folder, "no folder").unwrap();
    tokens(&cluster).rotate(DAY).unwrap();
    let waits_for = || tokens(&cluster).rotation().unwrap().map(|rotation| rotation.behind).unwrap_or_default();
    eventually("it is waited for", || waits_for().iter().map(|node| node.0).eq([3]));
    assert_eq!(stage(&cluster), Some(Stage::Announced));
    tokens(&cluster).finish_rotation(true).unwrap();
    eventually("it is out", || nodes() == [1, 2]);
    let row = bireme::nodes().unwrap().into_iter().find(|row| row.node.0 == 3).unwrap();
    assert!(row.reason.unwrap().contains("was replaced"));
    assert_eq!(stage(&cluster), None);
    assert_eq!(add::remote(1, 2).get_timeout(PATIENCE).unwrap(), 3);
}
