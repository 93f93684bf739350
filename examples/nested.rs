//! Tasks that submit tasks: merge sort, each half in a task of its own.

use bireme::ObjectRef;

const SMALL: usize = 250;

#[bireme::remote]
fn sort(mut numbers: Vec<u32>) -> bireme::Result<Vec<u32>> {
    if numbers.len() <= SMALL {
        numbers.sort_unstable();
        return Ok(numbers);
    }
    let right = numbers.split_off(numbers.len() / 2);
    // Blocked in `get`, this task gives its CPU to its children.
    merge::remote(sort::remote(numbers), sort::remote(right)).get()
}

#[bireme::remote]
fn merge(left: Vec<u32>, right: Vec<u32>) -> Vec<u32> {
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        merged.extend(if a <= b { left.next() } else { right.next() });
    }
    merged.extend(left.chain(right));
    merged
}

/// References inside a value travel as references: nobody waits for them on the way.
#[bireme::remote]
fn lengths(sorted: Vec<ObjectRef<Vec<u32>>>) -> bireme::Result<Vec<usize>> {
    Ok(bireme::get_all(&sorted)?.iter().map(Vec::len).collect())
}

fn main() -> bireme::Result<()> {
    let _context = bireme::init()?;
    let numbers: Vec<u32> = (0..2_000_u32).map(|n| n.wrapping_mul(2_654_435_761) % 10_007).collect();
    let mut expected = numbers.clone();
    expected.sort_unstable();
    let sorted = sort::remote(numbers);
    assert_eq!(sorted.get()?, expected);
    assert_eq!(lengths::remote(vec![sorted.clone(), sorted]).get()?, [2_000, 2_000]);
    println!("2000 numbers sorted by tasks that submit tasks");
    Ok(())
}
