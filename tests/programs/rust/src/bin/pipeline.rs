//! Streams from task to task, held back when their reader is slow.
// expect: 50 chunks, 1225000 in all

use bireme::ObjectRefStream;

#[bireme::remote(stream(max_buffered_items = 4))]
fn chunks(count: u64) -> impl Iterator<Item = Vec<u64>> {
    (0..count).map(|number| vec![number; 1000])
}

#[bireme::remote]
fn total(chunks: ObjectRefStream<Vec<u64>>) -> bireme::Result<(u64, u64)> {
    let mut totals = (0, 0);
    for chunk in chunks {
        totals.0 += 1;
        totals.1 += chunk.get()?.iter().sum::<u64>();
    }
    Ok(totals)
}

fn main() -> bireme::Result<()> {
    let _context = bireme_programs::start()?;
    let (count, sum) = total::remote(chunks::remote(50_u64)).get()?;
    println!("{count} chunks, {sum} in all");
    Ok(())
}
