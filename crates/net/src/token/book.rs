//! The tokens that a cluster has given out, in one file that several processes change.
//!
//! A node checks and spends tokens while a command line makes and revokes others. Every operation locks a file beside
//! the book, reads the book anew, and replaces it as a whole: nothing is cached, so nothing can be stale. Enrolments
//! are rare, and the book is small.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

use super::members::{Contents, MemberEntry, Stay};
use super::{MEMBERS_MAX, TOKENS_MAX, Token, TokenError, TokenId};
use crate::secret::{self, SecretError};
use crate::tls::{Fingerprint, PeerIdentity, Role};

/// How long an operation waits for another process before it says so.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(2);
/// How often it looks meanwhile.
const BUSY_LOOK: Duration = Duration::from_millis(5);
/// The first bytes of a book, with the version of what follows.
const MAGIC: &[u8] = b"bireme tokens 3\n";

/// What a token is to be good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenTerms {
    /// What its holder may become.
    pub role: Role,
    /// For how long.
    pub life: Duration,
    /// How often; `None` is as often as one likes.
    pub uses: Option<u32>,
    /// How long those may stay who come in with it.
    pub stay: Stay,
}

/// Whether a token can still be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenState {
    /// It can.
    Good,
    /// Its time is over.
    Expired,
    /// It was taken back.
    Revoked,
    /// It was used as often as it may be.
    Spent,
    /// The authority that it names was replaced.
    Outdated,
}

/// What the book has of a token: everything but its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenEntry {
    /// Its name.
    pub id: TokenId,
    /// What its holder may become.
    pub role: Role,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// Until when it is good.
    pub expires: u64,
    /// How often it may be used; `None` is without bound.
    pub uses_max: Option<u32>,
    /// How often it was.
    pub used: u32,
    /// Whether it was taken back.
    pub revoked: bool,
    /// How long those may stay who come in with it.
    pub stay: Stay,
    /// The epoch of the cluster's keys in which it was made.
    pub(super) epoch: u64,
    /// The authority that it names is gone.
    pub(super) outdated: bool,
    hash: [u8; 32],
}

impl TokenEntry {
    /// Whether it can still be used.
    pub fn state(&self, now: u64) -> TokenState {
        if self.revoked {
            TokenState::Revoked
        } else if self.outdated {
            TokenState::Outdated
        } else if now >= self.expires {
            TokenState::Expired
        } else if self.uses_max.is_some_and(|uses_max| self.used >= uses_max) {
            TokenState::Spent
        } else {
            TokenState::Good
        }
    }
}

/// The tokens of a cluster.
#[derive(Debug, Clone)]
pub struct TokenBook {
    pub(super) path: PathBuf,
}

impl TokenBook {
    /// The book at a path, in a folder that only its user can look into. A book that is not there has no tokens.
    pub fn open(path: &Path) -> Result<Self, TokenError> {
        if let Some(folder) = path.parent() {
            secret::ensure_folder(folder)?;
        }
        let book = Self { path: path.to_owned() };
        book.read()?;
        Ok(book)
    }

    /// Makes a token. This is the only time that its secret is there to be seen.
    pub fn create(&self, terms: TokenTerms, fingerprint: Fingerprint, now: u64) -> Result<Token, TokenError> {
        let _lock = self.lock()?;
        let mut contents = self.read()?;
        if contents.tokens.len() >= TOKENS_MAX {
            // One whose members are still here says until when they may stay.
            let in_use =
                |id: TokenId| contents.members.iter().any(|member| member.token == Some(id) && member.certified > now);
            let useless = |entry: &TokenEntry| entry.state(now) != TokenState::Good && !in_use(entry.id);
            let useless = contents.tokens.iter().position(useless).ok_or(TokenError::Full)?;
            contents.tokens.remove(useless);
        }
        let token = Token {
            id: TokenId(u64::from_le_bytes(secret::random())),
            role: terms.role,
            expires: now.saturating_add(terms.life.as_secs()),
            fingerprint,
            secret: secret::random(),
        };
        contents.tokens.push(TokenEntry {
            id: token.id,
            role: token.role,
            created: now,
            expires: token.expires,
            uses_max: terms.uses,
            used: 0,
            revoked: false,
            stay: terms.stay,
            epoch: contents.rotation.epoch(),
            outdated: false,
            hash: token.hash(),
        });
        self.write(&contents)?;
        Ok(token)
    }

    /// All of them, oldest first.
    pub fn list(&self) -> Result<Vec<TokenEntry>, TokenError> {
        Ok(self.read()?.tokens)
    }

    /// Takes a token back, and with it all that was given for it: its holders have no standing any more.
    pub fn revoke(&self, id: TokenId) -> Result<(), TokenError> {
        let _lock = self.lock()?;
        let mut contents = self.read()?;
        let entry = contents.tokens.iter_mut().find(|entry| entry.id == id).ok_or(TokenError::Unknown { id })?;
        entry.revoked = true;
        self.write(&contents)
    }

    /// Ends the standing of whoever has certificates with this number, for good.
    pub fn expel(&self, uid: u128) -> Result<(), TokenError> {
        let _lock = self.lock()?;
        let mut contents = self.read()?;
        match contents.members.iter_mut().find(|member| member.uid == uid) {
            Some(member) => member.expelled = true,
            // Until when its certificate is good is not known here, so it is never forgotten.
            None => {
                contents.members.push(MemberEntry {
                    uid,
                    token: None,
                    until: None,
                    certified: u64::MAX,
                    epoch: 0,
                    outdated: false,
                    expelled: true,
                });
            }
        }
        self.write(&contents)
    }

    /// All that the book has now, to look at several members at once.
    pub fn read_now(&self) -> Result<Contents, TokenError> {
        self.read()
    }

    /// Lets a member have another certificate, and says when that expires.
    pub fn renew(&self, identity: PeerIdentity, now: u64, life: Duration) -> Result<u64, TokenError> {
        let _lock = self.lock()?;
        let mut contents = self.read()?;
        let epoch = contents.rotation.epoch();
        let expires = contents.member(identity.uid, now)?.certify(epoch, now, life);
        self.write(&contents)?;
        Ok(expires)
    }

    /// Takes one use of a token for a newcomer, or says by name why not; says when the newcomer's certificate expires.
    ///
    /// The secret comes first: who does not have it learns nothing of the rest.
    pub fn enrol(&self, token: &Token, identity: PeerIdentity, now: u64, life: Duration) -> Result<u64, TokenError> {
        let (id, role) = (token.id, identity.role);
        let _lock = self.lock()?;
        let mut contents = self.read()?;
        let entry = contents.tokens.iter_mut().find(|entry| entry.id == id).ok_or(TokenError::Unknown { id })?;
        if !bool::from(entry.hash.ct_eq(&token.hash())) {
            return Err(TokenError::WrongSecret { id });
        }
        match entry.state(now) {
            TokenState::Revoked => return Err(TokenError::Revoked { id }),
            TokenState::Expired => return Err(TokenError::Expired { id }),
            TokenState::Spent => return Err(TokenError::Spent { id }),
            TokenState::Outdated => return Err(TokenError::Outdated { id }),
            TokenState::Good => {}
        }
        if entry.role != role {
            return Err(TokenError::WrongPurpose { id, found: entry.role, wanted: role });
        }
        entry.used = entry.used.saturating_add(1);
        let until = entry.stay.until(entry.expires, now);
        contents.forget_expired(MEMBERS_MAX, now)?;
        let epoch = contents.rotation.epoch();
        let token = Some(id);
        let mut member =
            MemberEntry { uid: identity.uid, token, until, certified: 0, epoch, outdated: false, expelled: false };
        let expires = member.certify(epoch, now, life);
        contents.members.push(member);
        // On the disk before anybody gets something for it: a crash never gives a use back.
        self.write(&contents)?;
        Ok(expires)
    }

    pub(super) fn read(&self) -> Result<Contents, TokenError> {
        let bytes = match secret::read(&self.path) {
            Err(error) if error.is_missing() => return Ok(Contents::default()),
            other => other?,
        };
        let contents = bytes.strip_prefix(MAGIC).and_then(|bytes| postcard::from_bytes(bytes).ok());
        let problem = "is no token book of this version";
        Ok(contents.ok_or_else(|| SecretError::Malformed { path: self.path.clone(), problem })?)
    }

    pub(super) fn write(&self, contents: &Contents) -> Result<(), TokenError> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(postcard::to_allocvec(contents).expect("plain numbers can always be written to memory"));
        Ok(secret::replace(&self.path, &bytes)?)
    }

    /// Until it is dropped, no other process or thread changes the book. It goes with its process.
    pub(super) fn lock(&self) -> Result<File, TokenError> {
        let path = self.path.with_extension("lock");
        let file = secret::lock_file(&path)?;
        let since = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if since.elapsed() < BUSY_WAIT_MAX => thread::sleep(BUSY_LOOK),
                Err(TryLockError::WouldBlock) => return Err(TokenError::Busy),
                Err(TryLockError::Error(source)) => return Err(SecretError::System { path, source })?,
            }
        }
    }
}
