//! A sort of numbers in blocks, which are objects in shared memory.
// expect: 400000 numbers in order

use bireme::Bytes;

fn numbers(seed: u64) -> Vec<u64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..50_000).map(step).collect()
}

#[bireme::remote]
fn sorted(seed: u64) -> Vec<u64> {
    let mut block = numbers(seed);
    block.sort_unstable();
    block
}

#[bireme::remote]
fn merge(left: Vec<u64>, right: Vec<u64>) -> Vec<u64> {
    let mut merged = [left, right].concat();
    merged.sort_unstable();
    merged
}

#[bireme::remote]
fn length(bytes: Bytes) -> usize {
    bytes.len()
}

fn main() -> bireme::Result<()> {
    let _context = bireme_programs::start()?;
    let mut blocks: Vec<_> = (0..8_u64).map(sorted::remote).collect();
    while blocks.len() > 1 {
        blocks = blocks.chunks(2).map(|pair| merge::remote(&pair[0], &pair[1])).collect();
    }
    let result = blocks[0].get()?;
    let mut expected: Vec<u64> = (0..8).flat_map(numbers).collect();
    expected.sort_unstable();
    assert_eq!(result, expected);
    assert_eq!(length::remote(Bytes::from(vec![0; 1_000_000])).get()?, 1_000_000);
    println!("{} numbers in order", result.len());
    Ok(())
}
