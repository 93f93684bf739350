//! A token as text: `bireme-` and base 32 in small letters, with a checksum against typing errors.

use super::{SECRET_BYTES, Token, TokenError, TokenId};
use crate::tls::{Fingerprint, Role};

const PREFIX: &str = "bireme-";
/// The form below. Another one gets another number.
const FORM: u8 = 1;
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// Form, role, id, expiry, fingerprint, secret, crc.
const TOKEN_BYTES: usize = 1 + 1 + 8 + 8 + 32 + SECRET_BYTES + 4;

pub(super) fn encode(token: &Token) -> String {
    let mut bytes = Vec::with_capacity(TOKEN_BYTES);
    let role = match token.role {
        Role::Node => 0,
        Role::Client => 1,
    };
    bytes.extend_from_slice(&[FORM, role]);
    bytes.extend_from_slice(&token.id.0.to_le_bytes());
    bytes.extend_from_slice(&token.expires.to_le_bytes());
    bytes.extend_from_slice(&token.fingerprint.0);
    bytes.extend_from_slice(&token.secret);
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    format!("{PREFIX}{}", to_letters(&bytes))
}

pub(super) fn decode(text: &str) -> Result<Token, TokenError> {
    let letters = text.trim().strip_prefix(PREFIX).ok_or(TokenError::Malformed)?;
    let bytes = from_letters(letters).ok_or(TokenError::Malformed)?;
    let (content, crc) = bytes.split_last_chunk::<4>().ok_or(TokenError::Malformed)?;
    if bytes.len() != TOKEN_BYTES || crc32fast::hash(content) != u32::from_le_bytes(*crc) {
        return Err(TokenError::Malformed);
    }
    let mut rest = content;
    let [form, role] = take(&mut rest)?;
    if form != FORM {
        return Err(TokenError::Malformed);
    }
    let role = match role {
        0 => Role::Node,
        1 => Role::Client,
        _ => return Err(TokenError::Malformed),
    };
    Ok(Token {
        role,
        id: TokenId(u64::from_le_bytes(take(&mut rest)?)),
        expires: u64::from_le_bytes(take(&mut rest)?),
        fingerprint: Fingerprint(take(&mut rest)?),
        secret: take(&mut rest)?,
    })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], TokenError> {
    let (first, others) = rest.split_first_chunk::<N>().ok_or(TokenError::Malformed)?;
    *rest = others;
    Ok(*first)
}

fn to_letters(bytes: &[u8]) -> String {
    let mut text = String::new();
    let (mut bits, mut count) = (0u32, 0);
    for byte in bytes {
        bits = bits << 8 | u32::from(*byte);
        count += 8;
        while count >= 5 {
            count -= 5;
            text.push(char::from(LETTERS[(bits >> count) as usize & 31]));
        }
    }
    if count > 0 {
        text.push(char::from(LETTERS[(bits << (5 - count)) as usize & 31]));
    }
    text
}

fn from_letters(text: &str) -> Option<Vec<u8>> {
    // Longer than any token: not worth reading.
    if text.len() > 2 * TOKEN_BYTES {
        return None;
    }
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for letter in text.bytes() {
        let value = LETTERS.iter().position(|known| *known == letter.to_ascii_lowercase())?;
        bits = bits << 5 | value as u32;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    // What is over is filled with zeros, and is less than a letter.
    (count < 5 && bits & ((1 << count) - 1) == 0).then_some(bytes)
}
