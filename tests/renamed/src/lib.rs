//! A program that has the crate under another name: every attribute works when it is told.
#![cfg(test)]
#![allow(clippy::unwrap_used, missing_docs)]

use galley::{Array, ObjectRefStream};

/// The crate by a path of this program.
mod boats {
    pub use galley as oars;
}

#[galley::remote(crate = "galley")]
fn square(x: i64) -> Result<i64, String> {
    if x < 0 { Err("negative".to_owned()) } else { Ok(x * x) }
}

#[galley::remote(crate = "crate::boats::oars", stream(max_buffered_items = 2))]
fn count(n: u64) -> impl Iterator<Item = u64> {
    0..n
}

#[galley::op(crate = "galley")]
fn larger(into: &mut [f64], from: &[f64]) {
    into.iter_mut().zip(from).for_each(|(into, from)| *into = into.max(*from));
}

struct Counter(i64);

#[galley::actor(crate = "galley", handle = Count)]
impl Counter {
    #[galley::constructor]
    pub fn starting_at(start: i64) -> Self {
        Counter(start)
    }

    pub fn add(&mut self, n: i64) -> i64 {
        self.0 += n;
        self.0
    }

    #[galley::stream]
    pub fn down(&self) -> impl Iterator<Item = i64> {
        (0..self.0).rev()
    }
}

#[test]
fn every_attribute_works_under_another_name_of_the_crate() {
    let _context = galley::init_with(galley::Config::default().cpus(2.0)).unwrap();
    let squares: Vec<_> = (0..3).map(|x| square::options().name("of a side").remote(x)).collect();
    assert_eq!(galley::get_all(&squares).unwrap(), [0, 1, 4]);
    assert!(square::remote(-1).get().unwrap_err().to_string().contains("negative"));
    let counter: Count = Counter::remote(1);
    assert_eq!(counter.add(&squares[2]).get().unwrap(), 5);
    let items = |stream: ObjectRefStream<i64>| stream.map(|item| item.get().unwrap()).collect::<Vec<_>>();
    assert_eq!(items(counter.down()), [4, 3, 2, 1, 0]);
    assert_eq!(count::remote(3).map(|item| item.get().unwrap()).sum::<u64>(), 3);
    let arrays = [vec![1.0, 5.0], vec![2.0, 4.0]].map(|numbers| galley::put(Array::from(numbers)).unwrap());
    let larger = galley::reduce(&arrays, larger::OP).start().get().unwrap();
    assert_eq!(larger.as_slice::<f64>().unwrap(), [2.0, 5.0]);
}
