//! Map and reduce over text.
// expect: the 3000, oar 2000, galley 1000

use std::collections::BTreeMap;

#[bireme::remote]
fn count(text: String, times: usize) -> BTreeMap<String, usize> {
    let mut words = BTreeMap::new();
    for word in text.split_whitespace() {
        *words.entry(word.to_owned()).or_default() += times;
    }
    words
}

#[bireme::remote]
fn merge(mut left: BTreeMap<String, usize>, right: BTreeMap<String, usize>) -> BTreeMap<String, usize> {
    for (word, times) in right {
        *left.entry(word).or_default() += times;
    }
    left
}

fn main() -> bireme::Result<()> {
    let _context = bireme_programs::start()?;
    let text = "the oar of the galley and the oar";
    let mut counts: Vec<_> = (0..20).map(|_| count::remote(text, 50_usize)).collect();
    while counts.len() > 1 {
        let right = counts.split_off(counts.len().div_ceil(2));
        let merged = counts.iter().zip(&right).map(|(left, right)| merge::remote(left, right));
        counts = merged.chain(counts.get(right.len()..).unwrap_or_default().iter().cloned()).collect();
    }
    let words = counts[0].get()?;
    println!("the {}, oar {}, galley {}", words["the"], words["oar"], words["galley"]);
    Ok(())
}
