#![deny(unused_must_use)]

#[bireme::remote]
fn row(strokes: u64) -> u64 {
    strokes
}

fn main() {
    row::remote(3);
}
