//! Numbers from a seed, and mutations of bytes by them.

/// SplitMix64: the same numbers everywhere from one seed.
pub struct Draw(pub u64);

impl Draw {
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than the bound; zero when that is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.number() % bound }
    }

    /// Changes bytes in one to four places; `other` is what pieces are taken from.
    pub fn mutate(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() as u64) as usize;
            match self.below(7) {
                0 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                1 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][self.below(5) as usize],
                2 => bytes.truncate(at),
                3 => bytes.insert(at, self.number() as u8),
                4 if !bytes.is_empty() => {
                    bytes.remove(at);
                }
                // A length that lies.
                5 if bytes.len() >= at + 4 => {
                    let lie = [u32::MAX, 0, 0x8000_0000, self.number() as u32][self.below(4) as usize];
                    bytes[at..at + 4].copy_from_slice(&lie.to_le_bytes());
                }
                _ => {
                    let from = self.below(other.len() as u64) as usize;
                    bytes.truncate(at);
                    bytes.extend_from_slice(&other[from.min(other.len())..]);
                }
            }
        }
    }
}
