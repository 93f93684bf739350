#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use super::*;
use crate::secret::tests::Folder;
use crate::tls::PeerIdentity;

const NOW: u64 = 1_800_000_000;
const DAY: Duration = Duration::from_secs(24 * 3600);
const FINGERPRINT: Fingerprint = Fingerprint([5; 32]);

fn terms(uses: Option<u32>) -> TokenTerms {
    TokenTerms { role: Role::Node, life: DAY, uses, stay: Stay::Unbounded }
}

impl TokenBook {
    /// One use of a token, by somebody who is not heard of again.
    fn spend(&self, token: &Token, role: Role, now: u64) -> Result<TokenId, TokenError> {
        self.enrol(token, PeerIdentity::random(role), now, DAY).map(|_| token.id)
    }
}

fn book() -> (Folder, TokenBook) {
    let folder = Folder::new();
    let book = TokenBook::open(&folder.0.join("tokens")).unwrap();
    (folder, book)
}

#[test]
fn a_token_comes_back_from_its_text_in_either_case() {
    let (_folder, book) = book();
    let token = book.create(terms(None), FINGERPRINT, NOW).unwrap();
    let text = token.to_text();
    assert!(text.starts_with("bireme-") && text.len() < 160, "{text}");
    assert!(text[7..].bytes().all(|letter| letter.is_ascii_alphanumeric()));
    assert_eq!(Token::parse(&text).unwrap(), token);
    assert_eq!(Token::parse(&format!("  bireme-{}\n", text[7..].to_uppercase())).unwrap(), token);
    assert_eq!(token.id.to_string().parse::<TokenId>().unwrap(), token.id);
}

#[test]
fn a_mistyped_token_is_told_from_a_wrong_one() {
    let (_folder, book) = book();
    let text = book.create(terms(None), FINGERPRINT, NOW).unwrap().to_text();
    for at in 0..text.len() {
        let other = if &text[at..=at] == "b" { "c" } else { "b" };
        let typed = format!("{}{other}{}", &text[..at], &text[at + 1..]);
        assert!(matches!(Token::parse(&typed), Err(TokenError::Malformed)), "{typed}");
        assert!(matches!(Token::parse(&text[..at]), Err(TokenError::Malformed)));
    }
    assert!(matches!(Token::parse(&format!("{text}a")), Err(TokenError::Malformed)));
    assert!(matches!(Token::parse(&"bireme-a".repeat(10_000)), Err(TokenError::Malformed)));
}

#[test]
fn a_token_is_taken_as_often_as_it_may_be() {
    let (_folder, book) = book();
    let once = book.create(terms(Some(1)), FINGERPRINT, NOW).unwrap();
    let often = book.create(terms(None), FINGERPRINT, NOW).unwrap();
    assert_eq!(book.spend(&once, Role::Node, NOW).unwrap(), once.id);
    assert!(matches!(book.spend(&once, Role::Node, NOW), Err(TokenError::Spent { .. })));
    for _ in 0..3 {
        book.spend(&often, Role::Node, NOW).unwrap();
    }
    let used: Vec<u32> = book.list().unwrap().iter().map(|entry| entry.used).collect();
    assert_eq!(used, [1, 3]);
}

#[test]
fn every_reason_has_its_name() {
    let (_folder, book) = book();
    let token = book.create(terms(Some(9)), FINGERPRINT, NOW).unwrap();
    let end = NOW + DAY.as_secs();
    assert!(matches!(book.spend(&token, Role::Node, end), Err(TokenError::Expired { .. })));
    assert!(matches!(book.spend(&token, Role::Client, NOW), Err(TokenError::WrongPurpose { .. })));
    let forged = Token { secret: [0; SECRET_BYTES], ..token.clone() };
    // Also when it has expired: who has no secret learns nothing else.
    assert!(matches!(book.spend(&forged, Role::Client, end), Err(TokenError::WrongSecret { .. })));
    let unknown = Token { id: TokenId(1), ..token.clone() };
    assert!(matches!(book.spend(&unknown, Role::Node, NOW), Err(TokenError::Unknown { .. })));
    book.revoke(token.id).unwrap();
    assert!(matches!(book.spend(&token, Role::Node, NOW), Err(TokenError::Revoked { .. })));
    assert!(matches!(book.revoke(TokenId(1)), Err(TokenError::Unknown { .. })));
    assert!(matches!("nonsense".parse::<TokenId>(), Err(TokenError::BadId { .. })));
    // None of these used it up.
    assert_eq!(book.list().unwrap()[0].used, 0);
    assert_eq!(book.list().unwrap()[0].state(NOW), TokenState::Revoked);
}

#[test]
fn the_text_cannot_change_what_the_book_says() {
    let (_folder, book) = book();
    let token = book.create(terms(None), FINGERPRINT, NOW).unwrap();
    let longer = Token { expires: u64::MAX, role: Role::Client, ..token };
    let end = NOW + DAY.as_secs();
    assert!(matches!(book.spend(&longer, Role::Client, NOW), Err(TokenError::WrongPurpose { .. })));
    assert!(matches!(book.spend(&longer, Role::Node, end), Err(TokenError::Expired { .. })));
}

#[test]
fn two_books_of_one_file_see_each_other() {
    let (folder, book) = book();
    let other = TokenBook::open(&folder.0.join("tokens")).unwrap();
    let token = book.create(terms(None), FINGERPRINT, NOW).unwrap();
    other.spend(&token, Role::Node, NOW).unwrap();
    other.revoke(token.id).unwrap();
    assert!(matches!(book.spend(&token, Role::Node, NOW), Err(TokenError::Revoked { .. })));
}

#[test]
fn of_many_who_show_a_token_for_one_use_one_is_let_in() {
    let (folder, book) = book();
    let token = book.create(terms(Some(1)), FINGERPRINT, NOW).unwrap();
    let path = folder.0.join("tokens");
    let taken = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| TokenBook::open(&path).unwrap().spend(&token, Role::Node, NOW).is_ok()))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(|taken| *taken).count()
    });
    assert_eq!(taken, 1);
}

#[test]
fn the_book_has_no_secret_in_it_and_is_for_its_user_alone() {
    let (folder, book) = book();
    let token = book.create(terms(None), FINGERPRINT, NOW).unwrap();
    let path = folder.0.join("tokens");
    let bytes = fs::read(&path).unwrap();
    assert!(!bytes.windows(8).any(|window| window == &token.secret[..8]));
    for file in [path, folder.0.join("tokens.lock")] {
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600, "{file:?}");
    }
    let printed = format!("{token:?} {book:?} {:?}", book.list().unwrap());
    assert!(printed.contains(&token.id.to_string()) && !printed.contains(&token.to_text()));
}

#[test]
fn a_book_that_is_none_is_refused() {
    let (folder, _) = book();
    let path = folder.0.join("tokens");
    crate::secret::replace(&path, b"bireme tokens 3\nnews").unwrap();
    assert!(matches!(TokenBook::open(&path), Err(TokenError::Book(SecretError::Malformed { .. }))));
}

#[test]
fn a_full_book_forgets_what_is_useless_and_nothing_else() {
    let (_folder, book) = book();
    let useless = book.create(terms(Some(0)), FINGERPRINT, NOW).unwrap();
    let first = book.create(terms(None), FINGERPRINT, NOW).unwrap();
    let mut full = book.read_now().unwrap();
    full.tokens.resize(TOKENS_MAX, full.tokens[1].clone());
    book.write(&full).unwrap();
    book.create(terms(None), FINGERPRINT, NOW).unwrap();
    assert!(matches!(book.spend(&useless, Role::Node, NOW), Err(TokenError::Unknown { .. })));
    assert!(matches!(book.create(terms(None), FINGERPRINT, NOW), Err(TokenError::Full)));
    book.spend(&first, Role::Node, NOW).unwrap();
}

#[test]
fn a_certificate_never_outlives_the_terms_of_its_token_however_often_it_is_renewed() {
    let (_folder, book) = book();
    let (hour, month) = (Duration::from_secs(3600), 30 * DAY);
    let stays =
        [(Stay::WithToken, Some(NOW + 3600)), (Stay::For(2 * DAY), Some(NOW + 2 * 86_400)), (Stay::Unbounded, None)];
    for (stay, until) in stays {
        let terms = TokenTerms { role: Role::Client, life: hour, uses: Some(1), stay };
        let (token, member) = (book.create(terms, FINGERPRINT, NOW).unwrap(), PeerIdentity::random(Role::Client));
        let expires = book.enrol(&token, member, NOW, month).unwrap();
        assert_eq!(expires, until.unwrap_or(NOW + month.as_secs()), "{stay:?}");
        let renewed = book.renew(member, NOW + 1800, month).unwrap();
        assert_eq!(renewed, until.unwrap_or(NOW + 1800 + month.as_secs()), "{stay:?}");
        let Some(until) = until else { continue };
        assert!(matches!(book.renew(member, until, month), Err(TokenError::StayOver)), "{stay:?}");
        let contents = book.read_now().unwrap();
        assert!(contents.standing(member.uid, until - 1).is_ok());
        assert!(matches!(contents.standing(member.uid, until), Err(TokenError::StayOver)));
    }
}

#[test]
fn who_is_expelled_or_whose_token_is_revoked_has_no_standing_and_no_renewal() {
    let (_folder, book) = book();
    let token = book.create(terms(None), FINGERPRINT, NOW).unwrap();
    let [first, second, stranger] = [(); 3].map(|()| PeerIdentity::random(Role::Node));
    for member in [first, second] {
        book.enrol(&token, member, NOW, DAY).unwrap();
    }
    let standing = |member: PeerIdentity, now| book.read_now().unwrap().standing(member.uid, now);
    assert!(matches!(book.renew(stranger, NOW, DAY), Err(TokenError::NoMember)));
    assert!(standing(stranger, NOW).is_ok(), "its certificate is of the authority");
    book.expel(first.uid).unwrap();
    book.expel(stranger.uid).unwrap();
    for expelled in [first, stranger] {
        assert!(matches!(standing(expelled, NOW), Err(TokenError::Expelled)));
        assert!(matches!(book.renew(expelled, NOW, DAY), Err(TokenError::Expelled)));
    }
    assert!(standing(second, NOW).is_ok());
    let late = NOW + DAY.as_secs();
    assert!(matches!(standing(second, late), Err(TokenError::CertificateExpired)), "it was not renewed");
    book.revoke(token.id).unwrap();
    assert!(matches!(standing(second, NOW), Err(TokenError::MemberRevoked { .. })));
    assert!(matches!(book.renew(second, NOW, DAY), Err(TokenError::MemberRevoked { .. })));
}
